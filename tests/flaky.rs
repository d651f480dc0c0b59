//! What the run before said of itself: cases that failed and passed when they were tried again. `cargo xtask test` runs this
//! last.

use std::fs;
use std::process::ExitCode;

use pyobs_tests::{case, flaky, run};

fn main() -> ExitCode {
    let file = || flaky::file().expect("named, or the case would be skipped");
    let noted = move || flaky::noted().unwrap_or_else(|error| panic!("{}: {error}", file().display()));
    let needed = || flaky::file().map(drop).ok_or_else(|| "`cargo xtask test` runs it, after all others".to_owned());
    run(vec![
        case("few_cases_of_this_run_were_tried_again", move || {
            let noted = noted();
            if !noted.is_empty() {
                println!("\nflaky: failed, and passed when they were tried again\n  {}\n", noted.join("\n  "));
            }
            assert!(noted.len() <= flaky::MOST, "{} are more than {}", noted.len(), flaky::MOST);
        })
        .needs(needed()),
        case("no_case_was_tried_again_twice_in_ten_runs", move || {
            let file = file().with_extension("history");
            let history = fs::read_to_string(&file).unwrap_or_default();
            let (history, often) = flaky::remember(&history, &noted());
            fs::write(&file, history).expect("the history can be written");
            assert!(often.is_empty(), "{often:#?}, by {}", file.display());
        })
        .needs(needed()),
    ])
}
