//! Tests the screen of transfers on a recording of UCXX's asyncio driver, which knows what it sent.

use pyobs_tests::{Case, Record, Recording, case, command, needs, workload};

use crate::pty::Terminal;
use crate::screens::quit;

/// Round trips between the driver's two processes. Each is a send and a receive by both.
const TRIPS: usize = 40;
const WIDE: (u16, u16) = (200, 60);
const TITLES: &str = "ASKED AT";

pub fn cases() -> Vec<Case> {
    let case = case("transfers/shows_what_the_driver_sent_and_by_which_threads", shown);
    let ucxx = needs::executable_with("ucxx", "PYOBS_UCXX");
    vec![case.needs(needs::root()).needs(ucxx)]
}

fn record() -> Recording {
    let mut python = command(needs::executable_with("ucxx", "PYOBS_UCXX").unwrap());
    python.args(["-B", "-u"]).arg(workload("ucxx_async_driver.py")).args([
        "--mode",
        "thread",
        "--delayed",
        "1",
        "--future",
        "1",
    ]);
    python.args(["--size", "4096", "--iters", &TRIPS.to_string(), "--hold", "0.5", "--idle", "2"]);
    python.env("UCX_WARN_UNUSED_ENV_VARS", "n");
    Record::new().rate(199).argument("--probe").argument("+ucx").command(python).run()
}

/// The cells of the rows below a heading with this title, up to an empty row.
fn rows(text: &str, title: &str) -> Vec<Vec<String>> {
    let below = text.lines().skip_while(|line| !line.contains(title)).skip(1);
    let rows = below.take_while(|line| !line.trim().is_empty());
    rows.map(|row| row.split_whitespace().map(str::to_owned).collect()).collect()
}

fn shown() {
    let recording = record();
    assert!(recording.stdout.contains("us_per_rt"), "{}{}", recording.stdout, recording.stderr);
    let mut terminal = Terminal::open(WIDE, ["replay".as_ref(), recording.file.as_os_str()]);
    terminal.press("7");
    // This text is at the bottom of the screen.
    terminal.wait_for("m threads");
    stages(&terminal.text());
    table(&terminal.text());
    terminal.press("/tag_send\r");
    terminal.wait_until("sends and nothing else", |screen| {
        let text = screen.contents();
        text.contains(" tag_send ") && !text.contains(" tag_recv ")
    });
    terminal.press("\r");
    terminal.wait_for("ASKED FOR IN");
    detail(&terminal.text());
    terminal.press("\x1b");
    terminal.wait_for(TITLES);
    terminal.wait_until_gone("ASKED FOR IN");
    terminal.press("\x1b");
    terminal.wait_until_gone("/tag_send");
    terminal.press("m");
    terminal.wait_for("PYTHON %");
    terminal.wait_until_gone("tag_");
    workers(&terminal.text());
    terminal.press("m");
    terminal.wait_for(TITLES);
    quit(terminal);
}

/// Checks the times of the stages. Besides the driver's messages there are four with which UCXX introduces the two
/// processes to each other.
fn stages(screen: &str) {
    let all = (4 * TRIPS + 4).to_string();
    let rows = rows(screen, "STAGE ");
    for (row, stage) in rows.iter().zip(["queued", "pending", "completed", "notified"]) {
        let [name, count, percentiles @ ..] = row.as_slice() else { panic!("{screen}") };
        assert_eq!((name.as_str(), count.as_str()), (stage, all.as_str()), "{screen}");
        let times: Vec<f64> = seconds(percentiles).take(4).collect();
        assert!(times.len() == 4 && times.is_sorted() && times[0] > 0.0, "{times:?} {screen}");
    }
    let queue = rows.iter().find(|row| row.first().is_some_and(|name| name == "queue"));
    // Each of the two processes requests one transfer at a time.
    let words = queue.map(|row| row.join(" ")).unwrap_or_default();
    let most = ["1", "2"].map(|most| format!("queue 0 now, {most} at the most"));
    assert!(most.iter().any(|most| words.starts_with(most)), "{screen}");
}

/// Values from pairs of cells, a number and its unit.
fn seconds(cells: &[String]) -> impl Iterator<Item = f64> + '_ {
    cells.chunks(2).map_while(|pair| {
        let [number, unit] = pair else { return None };
        let unit = match unit.as_str() {
            "ns" => 1e-9,
            "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            _ => return None,
        };
        Some(number.parse::<f64>().ok()? * unit)
    })
}

/// Tasks of the event loop make the requests, so the driver's own line is the one that runs the loop.
fn table(screen: &str) {
    let source = std::fs::read_to_string(workload("ucxx_async_driver.py")).unwrap();
    let runs = source.lines().position(|line| line == "asyncio.run(main())").unwrap() + 1;
    let rows = rows(screen, TITLES);
    let own = rows.iter().filter(|row| row.iter().any(|cell| cell.starts_with("tag_")));
    let own: Vec<String> = own.map(|row| row.join(" ")).collect();
    assert!(own.len() > 10, "{screen}");
    for row in own {
        assert!(row.contains(" 4.0 KiB ") && row.contains(" ok "), "{row}");
        assert!(row.ends_with(&format!("/ucxx_async_driver.py:{runs}")), "{row}");
    }
}

fn detail(screen: &str) {
    let line = |name: &str| {
        let own = screen.lines().find(|line| line.trim_start().starts_with(name));
        own.unwrap_or_else(|| panic!("{name} is not on the screen:\n{screen}"))
    };
    for (name, words) in [
        ("transfer", "ucxx tag_send"),
        ("size", "4.0 KiB"),
        ("status", "success"),
        ("registered", "by thread"),
        ("submitted", "by thread"),
        ("completed", "by thread"),
        ("woken", "by thread"),
        ("queued", "█"),
        ("pending", "█"),
    ] {
        assert!(line(name).contains(words), "{name} has no {words}:\n{screen}");
    }
    let moments = ["registered", "submitted", "completed", "notified", "woken"].map(|name| {
        let after = line(name).split(" at ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        after.parse::<f64>().unwrap_or_else(|_| panic!("{name} has no time:\n{screen}"))
    });
    assert!(moments.is_sorted(), "{moments:?}");
}

/// Each of the two processes has a thread of each role.
fn workers(screen: &str) {
    let rows = rows(screen, "PYTHON %");
    for role in ["progress", "notifier", "event_loop"] {
        let own: Vec<_> = rows.iter().filter(|row| row.get(1).is_some_and(|cell| cell == role)).collect();
        assert_eq!(own.len(), 2, "{role}:\n{screen}");
        assert!(own.iter().all(|row| row[2] == "thread"), "{screen}");
        assert!(own.iter().all(|row| row[3].trim_end_matches('%').parse::<f64>().is_ok()), "{screen}");
    }
}
