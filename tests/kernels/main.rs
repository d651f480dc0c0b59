//! Judges what `cargo xtask kernels` found out about each kernel: a case for each kernel and family. `cargo xtask test`
//! has run the guests before the suite, and sets the folder of their results.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

mod checks;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use pyobs_tests::{Case, case, json, needs};
use serde::Deserialize;
use serde_json::Value;

use checks::AFTERWARDS;

const RESULTS: &str = "PYOBS_KERNELS";

#[derive(Deserialize)]
struct List {
    kernel: Vec<Kernel>,
}

#[derive(Clone, Deserialize)]
struct Kernel {
    versions: Vec<String>,
    #[serde(default)]
    quick: bool,
    #[serde(default = "yes")]
    supported: bool,
}

fn yes() -> bool {
    true
}

fn main() -> ExitCode {
    let list: List = toml::from_str(include_str!("kernels.toml")).unwrap();
    pyobs_tests::run(list.kernel.iter().flat_map(cases).collect())
}

fn cases(kernel: &Kernel) -> Vec<Case> {
    let name = &kernel.versions[0];
    let quick = if kernel.quick { Ok(()) } else { needs::all() };
    let outcome = if quick.is_ok() { outcome(name) } else { Err("its kernel was not booted".to_owned()) };
    let one = |family: &'static str| {
        let is_refused = !kernel.supported && !AFTERWARDS.contains(&family);
        let found = outcome.clone();
        let body = move || judge(&found.clone().unwrap(), family, is_refused);
        // A guest that did not run is one reason, so only one is given.
        let need = quick.clone().and_then(|()| outcome.clone().map(drop));
        case(format!("kernels/{name}/{family}"), body).needs(need).beside()
    };
    checks::ALL.map(one).into()
}

/// The results of a kernel, or the reason why it was not booted.
fn outcome(name: &str) -> Result<Value, String> {
    let folder = env::var_os(RESULTS).map(PathBuf::from);
    let folder = folder.ok_or_else(|| "no kernel was booted; `cargo xtask test kernels` boots them".to_owned())?;
    let path = folder.join(format!("{name}.json"));
    let text = fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let outcome = json::parse(&text);
    match outcome["skipped"].as_str() {
        Some(why) => Err(why.to_owned()),
        None => Ok(outcome),
    }
}

fn judge(outcome: &Value, family: &str, is_refused: bool) {
    assert!(outcome["broken"].is_null(), "{}", outcome["broken"]);
    let own: Vec<&Value> = json::list(outcome, "/checks").iter().filter(|check| check["family"] == family).collect();
    assert!(!own.is_empty(), "the guest has no checks of this family");
    if is_refused {
        let [check] = own[..] else { panic!("this kernel is too old but was not refused: {own:#?}") };
        assert_eq!(check["status"], "refused", "{check:#}");
        let sentence = json::text(check, "/detail");
        assert!(sentence.len() > 20 && !sentence.contains('\n'), "the reason is not a sentence: {sentence:?}");
        return;
    }
    let wrong: Vec<&&Value> = own.iter().filter(|check| check["status"] != "works").collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
