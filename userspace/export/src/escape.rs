//! Makes text from watched processes safe to show. Formats with a syntax of their own escape it further, by their libraries.

use std::borrow::Cow;
use std::fmt::Write;

/// The longest name in pictures, stacks and tables, in characters. Longer names are truncated.
pub const MAX_NAME: usize = 512;

/// Whether a character could move the cursor, end a line or change the direction of text, or is forbidden in XML.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

/// One line for a terminal, a picture or a table. Unsafe characters become `�`, and text longer than `max` characters is
/// truncated.
pub fn line(text: &str, max: usize) -> Cow<'_, str> {
    // Counting characters is only needed if there are more bytes than `max`.
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

/// Like [`line()`], but truncates the beginning: for paths.
pub fn tail(text: &str, max: usize) -> Cow<'_, str> {
    let surplus = text.chars().count().saturating_sub(max);
    if surplus == 0 {
        return line(text, max);
    }
    let from = text.char_indices().nth(surplus + 1).map_or(text.len(), |(at, _)| at);
    Cow::Owned(format!("…{}", line(&text[from..], max)))
}

/// One element of a folded stack: [`line()`] without `;`, which separates elements, and never empty.
pub fn element(text: &str) -> Cow<'_, str> {
    let safe = line(text.trim(), MAX_NAME);
    if safe.is_empty() {
        return Cow::Borrowed("?");
    }
    if safe.contains(';') { Cow::Owned(safe.replace(';', ":")) } else { safe }
}

/// Equivalent JSON text that is safe in a terminal. Unsafe characters occur only in its strings, where `\u` can replace them.
pub fn json(text: &str) -> Cow<'_, str> {
    // Line ends occur only between values.
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
    fn characters_that_move_the_cursor_or_reorder_text_are_replaced() {
        assert_eq!(line("a\u{1b}[31m\n\u{9b}2J\u{202e}x\u{7f}\0", 99), "a�[31m��2J�x��");
    }

    #[test]
    fn long_text_is_truncated_between_characters() {
        assert_eq!(line("ééééé", 5), "ééééé");
        assert_eq!(line("éééééé", 5), "éééé…");
        assert_eq!(tail("ééééé", 5), "ééééé");
        assert_eq!(tail("abcdefgh", 5), "…efgh");
        assert_eq!(line(&"x".repeat(100_000), MAX_NAME).chars().count(), MAX_NAME);
    }

    #[test]
    fn an_element_has_no_separator_and_is_never_empty() {
        assert_eq!(element(" a;b\n"), "a:b");
        assert_eq!(element(" \t"), "?");
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
