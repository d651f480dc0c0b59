//! `--probe LIST`: which families are on.

use pyobs_model::families;

/// Every family of the contract, in its order; this version may have fewer.
const CONTRACT: &[&str] = &["cpu", "offcpu", "gil", "eval", "arena", "shm", "nrt", "ucx", "redundancy"];
/// Too dear to be on unless asked for.
const ONLY_WHEN_ASKED: &[&str] = &["eval", "redundancy"];

/// Families that the model, recordings and reports know, but that nothing captures yet.
const NOT_CAPTURED: &[&str] = &["eval"];

/// The families that this version captures.
fn captured() -> impl Iterator<Item = &'static str> {
    families::NAMES.iter().copied().filter(|name| !NOT_CAPTURED.contains(name))
}

fn listed() -> String {
    captured().collect::<Vec<_>>().join(" ")
}

/// Families that are on, in the order of the registry, and never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probes(pub(crate) Vec<&'static str>);

impl Default for Probes {
    fn default() -> Self {
        Self(captured().filter(|name| !ONLY_WHEN_ASKED.contains(name)).collect())
    }
}

enum Sign {
    Plus,
    Minus,
    None,
}

/// `cpu,gil` is exactly these; `+x` and `-x` change the default.
pub(crate) fn parse(list: &str) -> Result<Probes, String> {
    let words: Vec<(Sign, &'static str)> = list.split(',').map(parse_word).collect::<Result<_, _>>()?;
    let signed = words.iter().filter(|(sign, _)| !matches!(sign, Sign::None)).count();
    if signed != 0 && signed != words.len() {
        return Err("either every family has a sign, or none has".to_owned());
    }
    let mut on = if signed == 0 { Vec::new() } else { Probes::default().0 };
    for (sign, name) in words {
        match sign {
            Sign::Minus => on.retain(|other| *other != name),
            Sign::Plus | Sign::None => on.push(name),
        }
    }
    let probes: Vec<_> = captured().filter(|name| on.contains(name)).collect();
    if probes.is_empty() {
        return Err("this leaves no family on".to_owned());
    }
    Ok(Probes(probes))
}

fn parse_word(word: &str) -> Result<(Sign, &'static str), String> {
    let word = word.trim();
    let (sign, name) = match word.split_at_checked(1) {
        Some(("+", name)) => (Sign::Plus, name),
        Some(("-", name)) => (Sign::Minus, name),
        _ => (Sign::None, word),
    };
    match captured().find(|known| *known == name) {
        Some(known) => Ok((sign, known)),
        None if CONTRACT.contains(&name) => Err(missing(&format!("family `{name}`"))),
        None => Err(format!("there is no family `{name}`; there are: {}", listed())),
    }
}

/// What is promised and not yet there.
pub(crate) fn missing(what: &str) -> String {
    format!("pyobs {} does not have the {what} yet; it has: {}", env!("CARGO_PKG_VERSION"), listed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_of_this_version_is_in_the_contract() {
        assert!(families::NAMES.iter().all(|name| CONTRACT.contains(name)));
    }

    #[test]
    fn a_bare_list_is_exact() {
        assert_eq!(parse("cpu").unwrap(), Probes(vec!["cpu"]));
        assert_eq!(parse("cpu,cpu").unwrap(), Probes(vec!["cpu"]));
        assert_eq!(parse(" cpu ").unwrap(), Probes(vec!["cpu"]));
        assert_eq!(parse("eval,gil,cpu").unwrap(), Probes(vec!["cpu", "gil", "eval"]));
    }

    #[test]
    fn signs_change_the_default() {
        assert_eq!(parse("+cpu").unwrap(), Probes::default());
        assert_eq!(parse("-cpu,+cpu").unwrap(), Probes::default());
        assert_eq!(parse("-offcpu,+eval").unwrap(), Probes(vec!["cpu", "gil", "eval"]));
        assert!(parse("-cpu,-offcpu,-gil").unwrap_err().contains("no family on"));
        assert!(parse("cpu,+cpu").unwrap_err().contains("sign"));
    }

    #[test]
    fn a_family_to_come_is_told_from_nonsense() {
        assert!(parse("+redundancy").unwrap_err().contains("does not have the family `redundancy` yet"));
        assert!(parse("-shm").unwrap_err().contains("does not have"));
        for nonsense in ["cup", "", ",", "cpu,", "+", "-", "ü", "--pid"] {
            assert!(parse(nonsense).unwrap_err().contains("there is no family"), "{nonsense}");
        }
    }

    #[test]
    fn dear_families_are_never_on_by_default() {
        assert!(ONLY_WHEN_ASKED.iter().all(|name| !Probes::default().0.contains(name)));
    }
}
