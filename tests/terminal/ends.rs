//! Tests the ways other than `q` to end a dashboard: the terminal must be restored, and nothing may stay attached.

use pyobs_tests::{Case, case, needs};

use crate::bpf::{self, Objects};
use crate::pty::Terminal;
use crate::python;
use crate::screens::watch_spin;

pub fn cases() -> Vec<Case> {
    let cases = vec![
        case("ends/a_terminal_that_goes_away_ends_top", || {
            let before = Objects::all();
            let (_spin, mut terminal) = watch_spin((80, 24));
            let its = Objects::of(terminal.pid());
            terminal.hang_up();
            let status = terminal.wait();
            assert!(status.code().is_some(), "{status:?}");
            bpf::assert_nothing_is_left(&before, &its);
        }),
        case("ends/a_terminal_that_goes_away_without_a_signal_ends_top", || {
            // The signal is ignored under `nohup`, or if the shell traps it.
            let before = Objects::all();
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "trap '' HUP; exec \"$0\" top"]).arg(pyobs_tests::pyobs()).env("TERM", "xterm");
            let mut terminal = Terminal::with((80, 24), shell);
            terminal.wait_for("0 Overview");
            let its = Objects::of(terminal.pid());
            terminal.hang_up();
            let status = terminal.wait();
            assert!(status.code().is_some(), "{status:?}");
            bpf::assert_nothing_is_left(&before, &its);
        }),
        case("ends/signals_restore_the_terminal", || {
            for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
                let before = Objects::all();
                let (_spin, mut terminal) = watch_spin((80, 24));
                let its = Objects::of(terminal.pid());
                terminal.signal(signal);
                let status = terminal.wait();
                assert_eq!(status.code(), Some(0), "signal {signal}: {}", terminal.text());
                terminal.is_restored();
                bpf::assert_nothing_is_left(&before, &its);
            }
        }),
        case("ends/kill_9_leaves_nothing_attached", || {
            let before = Objects::all();
            let (_spin, mut terminal) = watch_spin((80, 24));
            let its = Objects::of(terminal.pid());
            terminal.signal(libc::SIGKILL);
            terminal.wait();
            bpf::assert_nothing_is_left(&before, &its);
        }),
        case("ends/wrong_targets_leave_the_terminal_alone", || {
            for (arguments, code) in [(["top", "--pid", "4194303"], 1), (["top", "--pid", "x"], 2)] {
                let mut terminal = Terminal::open((80, 24), arguments);
                assert_eq!(terminal.wait().code(), Some(code), "{}", terminal.text());
                is_one_sentence(&terminal);
                terminal.is_restored();
            }
        }),
    ];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

/// Asserts that only one sentence was written, and no alternate screen was entered.
#[track_caller]
pub fn is_one_sentence(terminal: &Terminal) {
    let raw = String::from_utf8(terminal.raw()).unwrap();
    let sentence = raw.strip_prefix("pyobs: ").and_then(|rest| rest.strip_suffix("\r\n"));
    let sentence = sentence.unwrap_or_else(|| panic!("not a sentence: {raw:?}"));
    assert!(!sentence.chars().any(char::is_control), "{raw:?}");
    assert!(!sentence.contains("panicked") && !sentence.contains("a bug in pyobs"), "{raw:?}");
}
