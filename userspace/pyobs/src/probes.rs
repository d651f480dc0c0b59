//! `--probe LIST`: which families are on.

use pyobs_capture::family::FamilySpec;
use pyobs_capture::registry;
use pyobs_capture::session::{Chosen, Named};
use pyobs_model::Family;
use pyobs_model::family::Unknown;

/// The families that take a value: functions for one, libraries for the other.
const CHOOSES: Family = Family::Eval;
const NAMES_LIBRARIES: Family = Family::Arena;

/// The families that are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probes {
    /// In the order of the registry, never empty.
    pub(crate) families: Vec<Family>,
    /// The families that the user named.
    pub(crate) asked: Vec<Family>,
    /// For the family `eval`: the functions whose calls are counted. If empty, the most called ones.
    pub(crate) functions: Vec<Chosen>,
    /// For the family `arena`: the libraries whose arenas are followed as well.
    pub(crate) libraries: Vec<Named>,
}

impl Default for Probes {
    fn default() -> Self {
        let families = registry::SPECS.iter().filter(|spec| spec.is_on_by_default).map(|spec| spec.family);
        Self { families: families.collect(), asked: Vec::new(), functions: Vec::new(), libraries: Vec::new() }
    }
}

/// The help text of `--probe`.
pub(crate) fn help() -> String {
    let names = |is_on: bool| {
        let specs = registry::SPECS.iter().filter(|spec| spec.is_on_by_default == is_on);
        specs.map(|FamilySpec { family, shows, .. }| format!("{family} ({shows})")).collect::<Vec<_>>().join(", ")
    };
    format!(
        "Switch families of probes: `cpu,gil` is exactly these, `+redundancy` adds to the default, `-shm` removes from it\n\n\
         On by default: {}. Off by default: {}. `arena` also follows the arenas of libraries that you name, such as \
         `+arena=quelling_blade,numpy,./own.toml`. `+eval` counts the most called functions, in short windows that stay inside \
         the budget; `eval=MODULE:QUALNAME,...` counts and times all calls of these, such as \
         `+eval=json.decoder:JSONDecoder.decode,__main__:*`, whatever that costs unless --budget is typed too. `pyobs doctor` \
         says what each family needs.",
        names(true),
        names(false),
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
    None,
}

/// Parses the list. `cpu,gil` is exactly these; `+x` and `-x` change the default, and in such a list `x=...` adds to
/// it. What follows `eval=` up to the next family's name are functions; what follows `arena=` are libraries.
pub(crate) fn parse(list: &str) -> Result<Probes, String> {
    let mut words: Vec<(Sign, Family)> = Vec::new();
    // Indices of the words with a value.
    let mut valued: Vec<usize> = Vec::new();
    let mut functions = Vec::new();
    let mut libraries: Vec<Named> = Vec::new();
    let mut named = false;
    for word in list.split(',').map(str::trim) {
        match word.split_once('=') {
            Some((name, function)) => {
                let (sign, family) = parse_family(name)?;
                named = family == NAMES_LIBRARIES && sign != Sign::Minus;
                valued.push(words.len());
                if named {
                    words.push((sign, family));
                    libraries.push(Named::parse(function)?);
                    continue;
                }
                if family != CHOOSES || sign == Sign::Minus {
                    return Err(format!("`{name}` takes no functions; `{CHOOSES}={function}` counts calls of them"));
                }
                words.push((sign, family));
                functions.push(Chosen::parse(function)?);
            }
            None if word.contains(':') => {
                if functions.is_empty() {
                    return Err(format!("functions follow `{CHOOSES}=`, as in {CHOOSES}={word}"));
                }
                functions.push(Chosen::parse(word)?);
            }
            None if named && is_no_family(word) => libraries.push(Named::parse(word)?),
            None => {
                named = false;
                words.push(parse_family(word)?);
            }
        }
    }
    let is_change = words.iter().any(|(sign, _)| *sign != Sign::None);
    for (number, (sign, _)) in words.iter_mut().enumerate() {
        if is_change && *sign == Sign::None && valued.contains(&number) {
            *sign = Sign::Plus;
        }
    }
    if is_change && words.iter().any(|(sign, _)| *sign == Sign::None) {
        return Err("either every family has a sign, or none has".to_owned());
    }
    let asked = words.iter().filter(|(sign, _)| *sign != Sign::Minus).map(|(_, name)| *name).collect();
    let mut on = if is_change { Probes::default().families } else { Vec::new() };
    for (sign, name) in words {
        match sign {
            Sign::Minus => on.retain(|other| *other != name),
            Sign::Plus | Sign::None => on.push(name),
        }
    }
    let families: Vec<_> = Family::ALL.into_iter().filter(|family| on.contains(family)).collect();
    if families.is_empty() {
        return Err("this leaves no family on".to_owned());
    }
    if !families.contains(&CHOOSES) {
        functions.clear();
    }
    if !families.contains(&NAMES_LIBRARIES) {
        libraries.clear();
    }
    Ok(Probes { families, asked, functions, libraries })
}

fn is_no_family(word: &str) -> bool {
    !word.starts_with(['+', '-']) && word.parse::<Family>().is_err()
}

fn parse_family(word: &str) -> Result<(Sign, Family), String> {
    let (sign, name) = match word.split_at_checked(1) {
        Some(("+", name)) => (Sign::Plus, name),
        Some(("-", name)) => (Sign::Minus, name),
        _ => (Sign::None, word),
    };
    match name.parse() {
        Ok(known) => Ok((sign, known)),
        Err(Unknown) => {
            Err(format!("unknown family \"{name}\"; expected one of: {}", Family::ALL.map(Family::name).join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families(list: &str) -> Vec<Family> {
        parse(list).unwrap().families
    }

    #[test]
    fn eval_takes_functions() {
        let functions = |list: &str| parse(list).unwrap().functions.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(functions("eval=json.decoder:JSONDecoder.decode"), ["json.decoder:JSONDecoder.decode"]);
        assert_eq!(functions("cpu,eval=a:f, b:g.<locals>.<lambda>,gil"), ["a:f", "b:g.<locals>.<lambda>"]);
        assert_eq!(parse("cpu,eval=a:f,gil").unwrap().families, [Family::Cpu, Family::Gil, Family::Eval]);
        assert_eq!(functions("+eval=a:f"), ["a:f"]);
        assert!(parse("+eval=a:f").unwrap().families.contains(&Family::Eval));
        assert_eq!(functions("eval"), [""; 0]);
        assert!(parse("a:f").unwrap_err().contains("eval=a:f"));
        assert!(parse("eval=f").unwrap_err().contains("MODULE:QUALNAME"));
        assert!(parse("eval=").unwrap_err().contains("MODULE:QUALNAME"));
        assert!(parse("cpu=a:f").unwrap_err().contains("takes no functions"));
        assert!(parse("-eval=a:f").unwrap_err().contains("takes no functions"));
    }

    #[test]
    fn arena_takes_libraries() {
        let libraries = |list: &str| parse(list).unwrap().libraries.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(libraries("+arena=quelling_blade"), ["quelling_blade"]);
        assert!(parse("+arena=numpy").unwrap().families.contains(&Family::Cpu));
        assert_eq!(libraries("cpu,arena=numpy, ./own.toml,pyarrow,gil"), ["numpy", "./own.toml", "pyarrow"]);
        assert_eq!(parse("arena=numpy,cpu").unwrap().families, [Family::Cpu, Family::Arena]);
        assert_eq!(libraries("arena"), [""; 0]);
        assert_eq!(libraries("+arena=numpy,-arena"), [""; 0]);
        assert!(parse("arena=qelling").unwrap_err().contains("no library `qelling`"));
        assert!(parse("arena=").unwrap_err().contains("no library"));
        assert!(parse("numpy").unwrap_err().contains("unknown family \"numpy\""));
        assert!(parse("-arena=numpy").unwrap_err().contains("takes no"));
    }

    #[test]
    fn a_bare_list_is_exact() {
        assert_eq!(families("cpu"), [Family::Cpu]);
        assert_eq!(families("cpu,cpu"), [Family::Cpu]);
        assert_eq!(families(" cpu "), [Family::Cpu]);
        assert_eq!(families("eval,gil,cpu"), [Family::Cpu, Family::Gil, Family::Eval]);
    }

    #[test]
    fn signs_change_the_default() {
        assert_eq!(families("+cpu"), Probes::default().families);
        assert_eq!(families("-cpu,+cpu"), Probes::default().families);
        assert_eq!(
            families("-offcpu,+eval"),
            [Family::Cpu, Family::Gil, Family::Eval, Family::Arena, Family::Heap, Family::Shm, Family::Tasks]
        );
        assert!(parse("-cpu,-offcpu,-gil,-arena,-heap,-shm,-tasks").unwrap_err().contains("no family on"));
        assert!(parse("cpu,+cpu").unwrap_err().contains("sign"));
        assert_eq!(families("+redundancy,eval=json:*"), families("+redundancy,+eval=json:*"));
        assert_eq!(
            families("eval=json:*,a:f,arena=numpy,-gil"),
            [Family::Cpu, Family::OffCpu, Family::Eval, Family::Arena, Family::Heap, Family::Shm, Family::Tasks]
        );
    }

    #[test]
    fn families_that_were_named_are_known() {
        assert_eq!(parse("cpu,gil").unwrap().asked, [Family::Cpu, Family::Gil]);
        assert_eq!(parse("+ucx,-offcpu").unwrap().asked, [Family::Ucx]);
        assert!(Probes::default().asked.is_empty());
    }

    #[test]
    fn unknown_families_are_refused() {
        for nonsense in ["cup", "", ",", "cpu,", "+", "-", "ü", "--pid"] {
            assert!(parse(nonsense).unwrap_err().contains("unknown family"), "{nonsense}");
        }
    }

    #[test]
    fn expensive_families_are_off_by_default() {
        let dear = [Family::Eval, Family::Nrt, Family::Ucx, Family::Redundancy];
        assert!(dear.iter().all(|family| !Probes::default().families.contains(family)));
    }
}
