//! Tests `RUST_LOG`, which enables the logs of pyobs, aya and the BPF programs on stderr.

use pyobs_tests::{Case, Folder, case, command, needs, refusing, rule};

use crate::verb::{Outcome, pyobs, run};

const TASK_PT_REGS: u32 = 175;
/// The start of the verifier's verdict on an unknown helper.
const VERDICT: &str = "invalid func";

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("logs/bpf_programs_log_what_they_see", messages),
        case("logs/the_verifiers_log_is_complete", || {
            let rules = rule("helper", TASK_PT_REGS, libc::EINVAL);
            let refused = record(Some("debug"), Some(&rules));
            assert_eq!(refused.code(), Some(3), "{refused:#?}");
            let mut log = refused.stderr.lines().skip_while(|line| !line.contains("refusal: the kernel refuses"));
            assert!(log.next().is_some_and(|line| line.starts_with("DEBUG ")), "{refused:#?}");
            let mut log = log.take_while(|line| line.starts_with("    "));
            assert!(log.any(|line| line.contains(VERDICT)), "{refused:#?}");

            let silent = record(None, Some(&rules));
            assert!(silent.fails_with(3).contains("refuses the BPF program"), "{silent:#?}");
        })
        .needs(needs::program("cc")),
    ];
    cases
        .into_iter()
        .map(|case| case.needs(needs::root()))
        .chain([case("logs/a_wrong_filter_is_named", wrong)])
        .collect()
}

/// Records a shell that prints its pid and executes another program.
fn record(filter: Option<&str>, rules: Option<&str>) -> Outcome {
    let folder = Folder::new();
    let mut record = pyobs(["record", "-o"]);
    record.arg(folder.join("a.pyobs")).args(["--", "sh", "-c", "echo $$; exec sleep 0.1"]).env_remove("RUST_LOG");
    record.envs(filter.map(|filter| ("RUST_LOG", filter)));
    run(match rules {
        Some(rules) => refusing(rules, &record),
        None => record,
    })
}

fn messages() {
    let messages = |outcome: &Outcome| -> Vec<String> {
        assert_eq!(outcome.code(), Some(0), "{outcome:#?}");
        outcome.stderr.lines().filter_map(|line| line.strip_prefix("DEBUG bpf: ")).map(str::to_owned).collect()
    };
    for filter in ["debug", "bpf", "error,bpf=debug"] {
        let outcome = record(Some(filter), None);
        let (logged, pid) = (messages(&outcome), outcome.text().trim().to_owned());
        for event in ["executed a program", "exited"] {
            assert!(logged.contains(&format!("process {pid} {event}")), "{filter}, process {pid}: {logged:#?}");
        }
        let of_others = outcome.stderr.lines().any(|line| line.starts_with("DEBUG aya"));
        assert_eq!(of_others, filter == "debug", "{filter}: {outcome:#?}");
    }
    for filter in [Some("info"), Some("debug,bpf=off"), Some("")] {
        let outcome = record(filter, None);
        assert_eq!(messages(&outcome), [""; 0], "{filter:?}");
    }
    record(None, None).succeeds();
}

fn wrong() {
    let mut man = command(pyobs_tests::pyobs());
    man.arg("man").env("RUST_LOG", "a=b=\u{1b}[2J");
    let outcome = run(man);
    let stderr = &outcome.succeeds().stderr;
    assert!(stderr.contains("RUST_LOG") && stderr.lines().count() == 1, "{outcome:#?}");
}
