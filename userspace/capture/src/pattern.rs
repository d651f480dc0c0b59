//! Matches names with wildcards.

/// Whether `text` matches `pattern`, in which `*` stands for any characters.
pub fn is_like(text: &str, pattern: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.len() >= last.len() && text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (text, pattern, expected) in [
            ("abc", "*", true),
            ("", "*", true),
            ("abc", "a*c", true),
            ("abc", "a*b", false),
            ("aba", "a*ba", true),
            ("a", "a*a", false),
            ("f.<locals>.g", "f.*.g", true),
            ("abcabc", "*abc", true),
            ("abcabd", "*abc", false),
            ("a.b.c", "*.*.c", true),
        ] {
            assert_eq!(is_like(text, pattern), expected, "{text} {pattern}");
        }
    }
}
