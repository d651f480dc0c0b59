//! Tests `RUST_LOG` with a dashboard: logs may go to a file, never to the screen.

use std::fs;
use std::process::Command;

use pyobs_tests::{Case, Folder, case, needs};

use crate::pty::Terminal;
use crate::python;
use crate::screens::quit;

const SIZE: (u16, u16) = (80, 24);

pub fn cases() -> Vec<Case> {
    let cases = vec![case("logs/of_top_go_to_a_file_and_not_to_the_screen", || {
        let folder = Folder::new();
        let log = folder.join("log");
        for redirected in [false, true] {
            let mut shell = Command::new("sh");
            let top = if redirected { "exec \"$0\" top 2> \"$1\"" } else { "exec \"$0\" top" };
            shell.args(["-c", top]).arg(pyobs_tests::pyobs()).arg(&log);
            shell.env("TERM", "xterm-256color").env("RUST_LOG", "debug");
            let terminal = Terminal::with(SIZE, shell);
            terminal.wait_for("0 Overview");
            assert!(!String::from_utf8_lossy(&terminal.raw()).contains("DEBUG"), "{}", terminal.text());
            quit(terminal);
            let logged = fs::read_to_string(&log).unwrap_or_default();
            assert_eq!(logged.contains("DEBUG aya"), redirected, "{logged}");
        }
    })];
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}
