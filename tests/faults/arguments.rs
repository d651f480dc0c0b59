//! Tests wrong arguments: they end with exit code 2, and one sentence names what is wrong.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use pyobs_tests::{Case, case};

use crate::verb::{pyobs, run};

/// A command line without the program, and what the sentence must name.
const WRONG: &[(&[&str], &str)] = &[
    (&[], "record"),
    (&["recrod"], "recrod"),
    (&["--pid", "1"], "--pid"),
    (&["record", "--rat", "99"], "--rat"),
    (&["record", "--rate", "0"], "0"),
    (&["record", "--rate", "-5"], "-5"),
    (&["record", "--rate", "abc"], "abc"),
    (&["record", "--rate", "1e9"], "1e9"),
    (&["record", "--rate", "20001"], "20001"),
    (&["record", "--rate", "99999999999999999999"], "99999999999999999999"),
    (&["record", "--rate", ""], "--rate"),
    (&["record", "--rate"], "--rate"),
    (&["record", "--rate", "9", "--rate", "9"], "--rate"),
    (&["record", "--duration", "-1"], "-1"),
    (&["record", "--duration", "0"], "--duration"),
    (&["record", "--duration", "nan"], "nan"),
    (&["record", "--duration", "inf"], "inf"),
    (&["record", "--duration", "1e30"], "1e30"),
    (&["record", "--duration", "soon"], "soon"),
    (&["record", "--budget", "0"], "--budget"),
    (&["record", "--budget", "-1"], "-1"),
    (&["record", "--budget", "nan"], "nan"),
    (&["record", "--budget", "1%"], "1%"),
    (&["record", "--probe", "nonsense"], "nonsense"),
    (&["record", "--probe", "+nope"], "nope"),
    (&["record", "--probe", "-cpu,-offcpu,-gil,-arena,-heap,-shm,-tasks"], "--probe"),
    (&["record", "--probe", "cpu,+cpu"], "--probe"),
    (&["record", "--probe", ""], "--probe"),
    (&["record", "--pid", "-1"], "-1"),
    (&["record", "--pid", "0"], "0"),
    (&["record", "--pid", "self"], "self"),
    (&["record", "--pid", "4194304"], "4194304"),
    (&["record", "--pid", "99999999999999999999"], "99999999999999999999"),
    (&["record", "--pid", "1.5"], "1.5"),
    (&["record", "--pid", "1", "--", "true"], "--pid"),
    (&["record", "stray"], "stray"),
    (&["top", "--rate", "0"], "0"),
    (&["top", "--pid", "x"], "x"),
    (&["top", "--probe", "-cpu,-offcpu,-gil,-arena,-heap,-shm,-tasks"], "--probe"),
    (&["top", "--duration", "1"], "--duration"),
    (&["top", "stray"], "stray"),
    (&["report"], "FILE"),
    (&["report", "a", "b"], "b"),
    (&["report", "a", "--limit", "-1"], "-1"),
    (&["report", "a", "--limit", "many"], "many"),
    (&["replay"], "FILE"),
    (&["replay", "a", "--json"], "--json"),
    (&["export"], "FILE"),
    (&["export", "a"], "--format"),
    (&["export", "a", "--format", "xyz"], "xyz"),
    (&["export", "a", "--format", "json", "--weight", "gold"], "gold"),
    (&["export", "a", "--format", "json", "--from", "5", "--to", "2"], "--from 5"),
    (&["export", "a", "--format", "json", "--from", "-1"], "-1"),
    (&["export", "a", "--format", "json", "--to", "nan"], "nan"),
    (&["export", "a", "--format", "json", "--pid", "0"], "0"),
    (&["export", "a", "--format", "json", "--tid", "x"], "x"),
    (&["diff", "a"], "AFTER"),
    (&["diff", "a", "b", "--json", "--format", "svg"], "--json"),
    (&["diff", "a", "b", "--format", "folded"], "folded"),
    (&["doctor", "stray"], "stray"),
    (&["completions", "cobol"], "cobol"),
];

pub fn cases() -> Vec<Case> {
    vec![
        case("arguments/wrong_arguments_are_named_and_end_with_2", || {
            for (arguments, named) in WRONG {
                let outcome = run(pyobs(*arguments));
                let sentence = outcome.fails_with(2);
                assert!(sentence.contains(named), "the sentence for {arguments:?} must name {named}: {sentence}");
                assert!(outcome.stdout.is_empty(), "{outcome:?}");
            }
        }),
        case("arguments/wrong_arguments_cannot_drive_the_terminal", || {
            let hostile = "\u{1b}]0;pwned\u{7}\u{1b}[2J\n\u{9b}31m";
            for arguments in [
                vec![hostile],
                vec!["record", "--rate", hostile],
                vec!["record", "--pid", hostile],
                vec!["record", "--probe", hostile],
                vec!["record", hostile],
                vec!["export", "a", "--format", hostile],
                vec!["export", "a", "--format", "json", "--weight", hostile],
            ] {
                run(pyobs(arguments)).fails_with(2);
            }
            for file in [vec!["report", hostile], vec!["export", "--format", "svg", hostile]] {
                run(pyobs(file)).fails_with(1);
            }
        }),
        case("arguments/arguments_that_are_not_text_are_refused", || {
            let broken = || OsString::from_vec(b"\xff\xfe9".to_vec());
            for option in ["--rate", "--duration", "--pid", "--probe", "--budget"] {
                let line: [OsString; 3] = ["record".into(), option.into(), broken()];
                run(pyobs(line)).fails_with(2);
            }
            // A file name may contain any bytes.
            run(pyobs([OsString::from("report"), broken()])).fails_with(1);
        }),
        case("arguments/huge_arguments_give_one_short_sentence", || {
            let long = "x".repeat(100_000);
            run(pyobs(["record", "--rate", &long])).fails_with(2);
            run(pyobs(["record", "--probe", &long])).fails_with(2);
            run(pyobs([&long])).fails_with(2);
            run(pyobs(["report", &long])).fails_with(1);
        }),
        case("arguments/replay_and_top_say_that_they_need_a_terminal", || {
            for arguments in [vec!["replay", "no-such-file"], vec!["top"]] {
                let outcome = run(pyobs(arguments));
                assert!(outcome.fails_with(2).contains("terminal"), "{outcome:?}");
            }
        }),
    ]
}
