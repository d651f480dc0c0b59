//! Tests the screens and their keys, and the hot function on them, at three sizes.

use pyobs_tests::{Case, Folder, Workload, case, needs, workload};

use crate::kept::top_in;
use crate::pty::{SIZES, Terminal};
use crate::python;

/// Each screen's key, the title of its tab, and a text that only this screen has.
const SCREENS: [(&str, &str, &str); 6] = [
    ("0", "0 Overview", "MACHINE"),
    ("1", "1 Processes", "COMMAND"),
    ("2", "2 Frames", "TOTAL %"),
    ("3", "3 Flame", "hot_function"),
    ("4", "4 Waits", "GIL HELD %"),
    ("5", "5 Health", "PYTHON STACKS"),
];

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("screens/follow_the_window_to_any_size", || {
            let (_spin, mut terminal) = watch_spin((80, 24));
            terminal.press("2");
            terminal.wait_for("hot_function");
            for size in [(140, 40), (60, 15), (200, 60), (30, 6), (80, 24), (400, 100), (60, 15)] {
                terminal.resize(size);
                // The tab must be on each; the function only if there is room for its row.
                terminal.wait_for("2 Frames");
                if size.1 > 10 {
                    terminal.wait_for("hot_function");
                }
            }
            for size in [(29, 5), (10, 2), (1, 1)] {
                terminal.resize(size);
                std::thread::sleep(std::time::Duration::from_millis(300));
                assert!(terminal.is_alive(), "a terminal of {size:?} ended pyobs: {}", terminal.text());
            }
            terminal.resize((80, 24));
            terminal.wait_for("hot_function");
            quit(terminal);
        }),
        case("screens/survive_any_input", || {
            // Some of the keys write files.
            let folder = Folder::new();
            let (_spin, mut terminal) = top_in(&folder, None, None);
            let mut numbers = crate::spoilt::Numbers::new();
            for _ in 0..200 {
                let keys: Vec<u8> =
                    (0..20).map(|_| numbers.below(256) as u8).filter(|key| !b"q\x03".contains(key)).collect();
                terminal.press(keys);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            assert!(terminal.is_alive(), "{}", String::from_utf8_lossy(&terminal.raw()));
            // Leaves whatever mode the keys have entered.
            terminal.press("\x1b");
            std::thread::sleep(std::time::Duration::from_millis(200));
            terminal.press("\x1b");
            std::thread::sleep(std::time::Duration::from_millis(200));
            terminal.press("5");
            terminal.wait_for("5 Health");
            quit(terminal);
        }),
        case("screens/need_no_colours_and_no_known_terminal", || {
            for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", ""), ("TERM", "no-such-terminal")] {
                let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
                spin.wait_for("ready");
                let mut top = std::process::Command::new(pyobs_tests::pyobs());
                top.args(["top", "--pid", &spin.pid().to_string()]).env("TERM", "xterm").env(name, value);
                let mut terminal = Terminal::with((80, 24), top);
                terminal.press("2");
                terminal.wait_for("hot_function");
                quit(terminal);
            }
        }),
        case("screens/say_when_the_watched_process_has_ended", || {
            let (spin, mut terminal) = watch_spin((80, 24));
            terminal.press("1");
            spin.kill();
            terminal.wait_for("ended");
            quit(terminal);
        }),
        case("screens/show_all_processes_without_a_pid", || {
            let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
            spin.wait_for("ready");
            let mut terminal = Terminal::open((140, 40), ["top"]);
            terminal.press("1");
            terminal.wait_for("fault_spin.py");
            terminal.wait_for(&spin.pid().to_string());
            quit(terminal);
        }),
    ];
    for size in SIZES {
        let (columns, rows) = size;
        cases.push(case(format!("screens/of_{columns}x{rows}_show_the_hot_function"), move || show_hot_function(size)));
        cases.push(case(format!("screens/of_{columns}x{rows}_obey_their_keys"), move || obey_keys(size)));
    }
    cases.into_iter().map(|case| case.needs(needs::root()).needs(python())).collect()
}

/// The dashboard of a program that is busy in `hot_function`.
#[track_caller]
pub fn watch_spin(size: (u16, u16)) -> (Workload, Terminal) {
    let mut spin = Workload::start(python().unwrap().script(workload("fault_spin.py")));
    spin.wait_for("ready");
    let terminal = Terminal::open(size, ["top", "--pid", &spin.pid().to_string()]);
    terminal.wait_for("0 Overview");
    (spin, terminal)
}

/// Presses `q`, and checks that the terminal is restored.
#[track_caller]
pub fn quit(mut terminal: Terminal) {
    terminal.press("q");
    let status = terminal.wait();
    assert_eq!(status.code(), Some(0), "{}", terminal.text());
    terminal.is_restored();
}

#[track_caller]
fn show_hot_function(size: (u16, u16)) {
    let (spin, mut terminal) = watch_spin(size);
    terminal.press("1");
    terminal.wait_for(&spin.pid().to_string());
    terminal.wait_for("LIVE");
    for (key, tab, only_there) in SCREENS {
        terminal.press(key);
        terminal.wait_for(tab);
        terminal.wait_for(only_there);
    }
    terminal.press("2");
    terminal.wait_until("hot_function in the first row", |screen| {
        let text = screen.contents();
        text.lines().skip_while(|line| !line.contains("TOTAL %")).nth(1).is_some_and(|row| row.contains("hot_function"))
    });
    terminal.press("\r");
    terminal.wait_for("CALLED BY");
    quit(terminal);
}

#[track_caller]
fn obey_keys(size: (u16, u16)) {
    let (_spin, mut terminal) = watch_spin(size);
    terminal.press("2");
    terminal.wait_for("hot_function");

    terminal.press("?");
    terminal.wait_for(" Keys ");
    terminal.press("q");
    terminal.wait_until_gone(" Keys ");
    assert!(terminal.is_alive(), "q in the help ended pyobs");

    terminal.press("/no_such_name");
    terminal.wait_for("Nothing matches");
    terminal.press("\x1b");
    terminal.wait_for("hot_function");
    terminal.press("/hot_");
    terminal.press("\r");
    terminal.wait_for("/hot_");
    terminal.wait_for("hot_function");
    terminal.press("\x1b");
    terminal.wait_until_gone("/hot_");

    terminal.press(" ");
    terminal.wait_for("PAUSED");
    terminal.press(" ");
    terminal.wait_for("LIVE");
    terminal.wait_until_gone("PAUSED");

    terminal.press("\t");
    terminal.wait_for("3 Flame");
    terminal.press("\x1b[Z");
    terminal.wait_for("2 Frames");
    terminal.press("\x03");
    assert_eq!(terminal.wait().code(), Some(0));
    terminal.is_restored();
}
