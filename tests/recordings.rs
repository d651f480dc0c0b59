//! Runs every verb that reads recordings over the corpus in `tests/recordings`, and compares with golden files.
//!
//! Needs neither root nor BPF. `PYOBS_UPDATE_GOLDEN=1` has the golden files rewritten.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "recordings/corpus.rs"]
mod corpus;
#[path = "recordings/digest.rs"]
mod digest;
#[path = "recordings/golden.rs"]
mod golden;
#[path = "recordings/protobuf.rs"]
mod protobuf;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "terminal/pty.rs"]
mod pty;
#[path = "recordings/replay.rs"]
mod replay;
#[path = "recordings/summary.rs"]
mod summary;
#[path = "recordings/verbs.rs"]
mod verbs;

use std::process::ExitCode;

use pyobs_tests::{Case, case};

fn main() -> ExitCode {
    let mut cases = corpus::cases();
    cases.extend(summary::cases());
    for file in corpus::FILES {
        let of = |what: &str, body: fn(&corpus::File)| case(format!("{}/{what}", file.name), move || body(&file));
        cases.push(of("report_in_words", verbs::report_in_words));
        cases.push(of("report_as_json", verbs::report_as_json));
        cases.push(of("exports", verbs::exports));
        cases.push(of("replay", replay::screens));
    }
    cases.push(case("diff/in_words", verbs::diff_in_words));
    cases.push(case("diff/as_json", verbs::diff_as_json));
    cases.push(case("diff/as_svg", verbs::diff_as_svg));
    pyobs_tests::run(cases.into_iter().map(Case::beside).collect())
}
