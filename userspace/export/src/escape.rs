//! Text of watched processes on its way out.

use std::borrow::Cow;
use std::fmt::Write;

/// Longer names are cut in pictures, stacks and tables.
pub const MAX_NAME: usize = 512;

/// Whether a character could move a cursor, end a line, turn the direction of writing, or is forbidden in XML.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

/// One line for a terminal, a picture or a table: what is unsafe becomes `�`, and what is longer than `max`
/// characters is cut.
pub fn line(text: &str, max: usize) -> Cow<'_, str> {
    // A character has at most 4 bytes, so a short text needs no count.
    let long = text.len() > max && text.chars().nth(max).is_some();
    if !long && !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let keep = if long { max.saturating_sub(1) } else { max };
    let mut safe: String = text.chars().take(keep).map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect();
    if long {
        safe.push('…');
    }
    Cow::Owned(safe)
}

/// As [`line()`], but what is cut is the beginning: for paths.
pub fn tail(text: &str, max: usize) -> Cow<'_, str> {
    let surplus = text.chars().count().saturating_sub(max);
    if surplus == 0 {
        return line(text, max);
    }
    let from = text.char_indices().nth(surplus + 1).map_or(text.len(), |(at, _)| at);
    Cow::Owned(format!("…{}", line(&text[from..], max)))
}

/// One element of a folded stack: [`line()`] without the separator of elements, and never empty.
pub fn element(text: &str) -> Cow<'_, str> {
    let safe = line(text.trim(), MAX_NAME);
    if safe.is_empty() {
        return Cow::Borrowed("?");
    }
    if safe.contains(';') { Cow::Owned(safe.replace(';', ":")) } else { safe }
}

/// [`line()`] as text or a quoted attribute of HTML or XML.
pub fn html(text: &str, max: usize) -> String {
    let mut safe = String::with_capacity(text.len().min(max) + 16);
    for c in line(text, max).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// JSON text that means the same and can be shown in a terminal: such characters occur in its strings only.
pub fn json(text: &str) -> Cow<'_, str> {
    // The line ends between values stay.
    let is_unsafe = |c: char| c != '\n' && is_unsafe(c);
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_text_stays_as_it_is() {
        for text in ["", "Node.insert", "größe_変更", "<listcomp>", "a;b"] {
            assert_eq!(line(text, MAX_NAME), text);
        }
    }

    #[test]
    fn what_moves_a_cursor_or_turns_text_is_replaced() {
        assert_eq!(line("a\u{1b}[31m\n\u{9b}2J\u{202e}x\u{7f}\0", 99), "a�[31m��2J�x��");
    }

    #[test]
    fn long_text_is_cut_at_characters() {
        assert_eq!(line("ééééé", 5), "ééééé");
        assert_eq!(line("éééééé", 5), "éééé…");
        assert_eq!(tail("ééééé", 5), "ééééé");
        assert_eq!(tail("abcdefgh", 5), "…efgh");
        assert_eq!(line(&"x".repeat(100_000), MAX_NAME).chars().count(), MAX_NAME);
    }

    #[test]
    fn an_element_has_no_separator_and_something_in_it() {
        assert_eq!(element(" a;b\n"), "a:b");
        assert_eq!(element(" \t"), "?");
    }

    #[test]
    fn html_has_no_markup() {
        assert_eq!(
            html("<b a='1' b=\"2\">&amp;\u{1b}\n", 99),
            "&lt;b a=&#39;1&#39; b=&quot;2&quot;&gt;&amp;amp;\u{fffd}\u{fffd}"
        );
        assert_eq!(html(&"<".repeat(9), 3), "&lt;&lt;…");
    }

    #[test]
    fn json_means_the_same_after_escaping() {
        let value = serde_json::json!({"a\u{9b}": "\u{1b}\u{202e}\u{e0041}é\n"});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let safe = json(&text);
        assert!(!safe.chars().any(|c| c != '\n' && is_unsafe(c)), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
