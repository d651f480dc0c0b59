//! The pattern that follows `/`: a regular expression, or plain text if it is not a valid one.

use regex::{Regex, RegexBuilder};

use crate::text;

/// The part of a text that is searched. Real names are shorter; the bound is for hostile ones.
const SEARCHED_BYTES: usize = 2048;
const COMPILED_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Filter {
    text: String,
    regex: Regex,
    is_valid: bool,
}

impl Filter {
    /// `None` for an empty text, which matches everything. Capital letters make the pattern case-sensitive.
    pub(crate) fn new(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let compile = |pattern: &str| {
            RegexBuilder::new(pattern)
                .case_insensitive(!text.chars().any(char::is_uppercase))
                .size_limit(COMPILED_BYTES)
                .build()
        };
        let (regex, is_valid) = match compile(text) {
            Ok(regex) => (regex, true),
            Err(_) => (compile(&regex::escape(text)).ok()?, false),
        };
        Some(Self { text: text.to_owned(), regex, is_valid })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the text is a valid regular expression. Otherwise it is matched as plain text.
    pub(crate) fn is_valid(&self) -> bool {
        self.is_valid
    }

    pub(crate) fn matches(&self, searched: &str) -> bool {
        self.regex.is_match(text::head(searched, SEARCHED_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_expression_is_plain_text() {
        let filter = Filter::new("f(").unwrap();
        assert!(!filter.is_valid());
        assert!(filter.matches("call f(x)"));
    }

    #[test]
    fn capital_letters_make_a_pattern_case_sensitive() {
        assert!(Filter::new("node").unwrap().matches("Node.insert"));
        assert!(!Filter::new("Node").unwrap().matches("node"));
    }

    #[test]
    fn an_empty_pattern_is_no_filter() {
        assert!(Filter::new("").is_none());
    }

    #[test]
    fn an_expression_too_large_to_compile_is_plain_text() {
        assert!(!Filter::new(r"(\w{500}){500}").unwrap().is_valid());
    }
}
