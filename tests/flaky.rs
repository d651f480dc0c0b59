//! Judges the retries of the run that just ended: too many flaky cases fail it. `cargo xtask test` runs this last.

use std::fs;
use std::process::ExitCode;

use pyobs_tests::{case, flaky, run};

fn main() -> ExitCode {
    let file = || flaky::file().expect("the case is skipped if it is not set");
    let noted = move || flaky::noted().unwrap_or_else(|error| panic!("{}: {error}", file().display()));
    let needed =
        || flaky::file().map(drop).ok_or_else(|| "`cargo xtask test` runs this after all other suites".to_owned());
    run(vec![
        case("few_cases_of_this_run_were_retried", move || {
            let noted = noted();
            if !noted.is_empty() {
                println!("\nflaky: failed, then passed on a retry\n  {}\n", noted.join("\n  "));
            }
            assert!(noted.len() <= flaky::MOST, "{} cases were retried, more than {}", noted.len(), flaky::MOST);
        })
        .needs(needed()),
        case("no_case_was_retried_twice_in_ten_runs", move || {
            let file = file().with_extension("history");
            let history = fs::read_to_string(&file).unwrap_or_default();
            let (history, often) = flaky::remember(&history, &noted());
            fs::write(&file, history).expect("the history can be written");
            assert!(often.is_empty(), "retried more than once: {often:#?}, see {}", file.display());
        })
        .needs(needed()),
    ])
}
