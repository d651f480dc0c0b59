//! What to do about a call: a table by finding, package and function, which users can extend.

use std::sync::{LazyLock, OnceLock};

use serde::Deserialize;

/// Longer texts are refused.
const TEXT_MAX: usize = 400;

static SHIPPED: LazyLock<Vec<Advice>> = LazyLock::new(|| parse(include_str!("advice.toml")).unwrap_or_default());
static ADDED: OnceLock<Vec<Advice>> = OnceLock::new();

/// The findings that name what is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum About {
    Chatty,
    Recomputed,
    Copied,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advice {
    finding: About,
    package: Option<String>,
    /// The last part of its name.
    function: Option<String>,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    advice: Vec<Advice>,
}

/// Parses a table (the format of `advice.toml`). The error is a sentence about the text.
pub fn parse(text: &str) -> Result<Vec<Advice>, String> {
    let table = toml::from_str::<Table>(text).map_err(|error| error.message().to_owned())?;
    let is_unfit = |advice: &&Advice| advice.text.len() > TEXT_MAX || advice.text.chars().any(char::is_control);
    if table.advice.iter().any(|advice| is_unfit(&advice)) {
        return Err(format!("a text is longer than {TEXT_MAX} bytes, or has control characters"));
    }
    Ok(table.advice)
}

/// Adds a user's table, which is asked first. Call it once, before anything is found.
pub fn add(advice: Vec<Advice>) {
    // A second call is left out.
    let _ = ADDED.set(advice);
}

/// The advice about a function of a package. The package may be unknown.
pub(super) fn about(finding: About, package: Option<&str>, function: &str) -> &'static str {
    let name = function.rsplit('.').next().unwrap_or(function);
    let fits = |of: &&Advice| {
        of.finding == finding
            && of.package.as_deref().is_none_or(|of| Some(of) == package)
            && of.function.as_deref().is_none_or(|of| of == name)
    };
    let added = ADDED.get().map_or(&[][..], Vec::as_slice);
    added.iter().chain(&*SHIPPED).find(fits).map_or("", |advice| advice.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_that_of_the_function_or_of_its_package() {
        let of = |package, name| about(About::Chatty, Some(package), name);
        assert!(of("pandas", "DataFrame.iterrows").contains("itertuples"));
        assert!(of("pandas", "_LocationIndexer.__getitem__").contains(".at"));
        assert!(of("scipy", "IndexMixin.__getitem__").contains("COO"));
        assert!(of("numpy", "vectorize.__call__").contains("np.where"));
        assert_eq!(of("xarray", "DataArray.item"), "Call it once for a whole array or column.");
        assert!(about(About::Recomputed, None, "inv").contains("solve(M, b)"));
        assert!(about(About::Copied, None, "+=").contains("StringIO"));
    }

    #[test]
    fn every_kind_of_finding_has_advice_for_any_function() {
        for finding in [About::Chatty, About::Recomputed, About::Copied] {
            assert_ne!(about(finding, None, "any"), "", "{finding:?}");
        }
    }

    #[test]
    fn tables_that_are_not_understood_are_refused() {
        let text = |text: &str| format!("[[advice]]\nfinding = \"chatty\"\ntext = {text:?}\n");
        assert!(parse(&text("Use it once.")).is_ok());
        assert!(parse(&text(&"x".repeat(TEXT_MAX + 1))).is_err());
        assert!(parse(&text("\u{1b}[2J")).is_err());
        assert!(parse("[[advice]]\nfinding = \"dispatch\"\ntext = \"\"\n").is_err());
        assert!(parse("[[advise]]").is_err());
    }
}
