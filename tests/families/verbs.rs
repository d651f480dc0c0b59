//! Tests the verbs on a real recording: their output must match docs/cli.md and docs/report-json.md.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "verbs/browser.rs"]
mod browser;
#[path = "verbs/exports.rs"]
mod exports;
#[path = "verbs/firefox.rs"]
mod firefox;
#[path = "verbs/shape.rs"]
mod shape;
#[path = "verbs/transfers.rs"]
mod transfers;

use std::process::ExitCode;
use std::sync::OnceLock;

use pyobs_model::Family;
use pyobs_tests::{Case, Ended, Record, Recording, Workload, case, command, json, needs, pyobs, workload};
use serde_json::Value;
use shape::Shape;

fn main() -> ExitCode {
    let simple: [(&str, fn()); 2] =
        [("doctor_prints_json_of_its_shape", doctor), ("doctor_says_the_same_in_words", doctor_in_words)];
    let of_a_recording: [(&str, fn()); 9] = [
        ("report_has_exactly_the_keys_of_the_contract", report),
        ("report_in_words_names_what_it_shows", report_in_words),
        ("a_limit_bounds_the_rows", limit),
        ("folded_matches_its_grammar_and_counts_every_sample", exports::folded),
        ("speedscope_matches_its_schema_and_counts_every_sample", exports::speedscope),
        ("json_is_the_report_of_the_selection", exports::json_of_a_selection),
        ("firefox_matches_its_format_and_counts_every_sample", exports::firefox),
        ("a_recording_does_not_differ_from_itself", exports::diff),
        ("svg_is_xml_and_names_the_functions", exports::svg),
    ];
    let pprof = case("pprof_counts_what_the_folded_stacks_count", exports::pprof).needs(needs::pprof());
    let mut cases: Vec<_> = simple.map(|(name, body)| case(name, body)).into();
    cases.extend(of_a_recording.map(|(name, body)| case(name, body).needs(needs::root()).needs(needs::python("3.12"))));
    let perfetto = case("perfettos_own_descriptors_read_the_timeline", exports::perfetto).needs(needs::perfetto());
    let html = case("the_page_runs_in_a_browser_and_requests_nothing", exports::html).needs(needs::program("chromium"));
    let firefox =
        case("firefoxs_profiler_counts_what_the_folded_stacks_count", firefox::counts).needs(needs::firefox());
    cases.extend([pprof, perfetto, html, firefox].map(|case| case.needs(needs::root()).needs(needs::python("3.12"))));
    let pressed = [
        case("pressing_a_heading_sorts_the_table", browser::html),
        case("the_filter_above_a_table_hides_rows", browser::filter),
        case("a_search_marks_frames_of_the_svg_and_of_the_page", browser::search),
        case("pressing_a_frame_of_the_svg_zooms", browser::svg),
        case("speedscope_itself_shows_the_functions", browser::speedscope).needs(needs::speedscope()),
        case("perfetto_itself_shows_the_timeline", browser::perfetto)
            .needs(needs::perfetto_page())
            .needs(needs::perfetto()),
    ];
    let of_chromium = |case: Case| case.needs(needs::program("chromium"));
    cases.extend(pressed.map(of_chromium).map(|case| case.needs(needs::root()).needs(needs::python("3.12"))));
    let rows = case("rows_of_transfers_and_workers_have_the_keys_of_the_contract", transfers::rows);
    cases.push(rows.needs(needs::root()).needs(transfers::ucxx()));
    pyobs_tests::run(cases)
}

/// The recording of threads.py, made once.
fn recording() -> &'static Recording {
    static RECORDING: OnceLock<Recording> = OnceLock::new();
    RECORDING.get_or_init(|| {
        let mut command = needs::python("3.12").unwrap().script(workload("threads.py"));
        command.arg("0.4");
        Record::new().rate(499).command(command).run()
    })
}

fn run(arguments: &[&str]) -> Ended {
    let mut verb = command(pyobs());
    verb.args(arguments);
    Workload::start(verb).wait()
}

fn doctor() {
    let ended = run(&["doctor", "--json"]);
    assert!([Some(0), Some(3)].contains(&ended.status.code()), "{ended:?}");
    let document = json::parse(&ended.stdout);
    let check = Shape::object([
        ("area", Shape::Text),
        ("name", Shape::Text),
        ("families", Shape::list(Shape::Text)),
        ("status", Shape::OneOf(&["works", "degraded", "missing"])),
        ("why", Shape::Text),
        ("todo", Shape::nullable(Shape::Text)),
    ]);
    let program = Shape::object([
        ("name", Shape::Text),
        ("families", Shape::list(Shape::Text)),
        ("optional", Shape::Flag),
        ("loads", Shape::Flag),
        ("instructions", Shape::nullable(Shape::Count)),
        ("why", Shape::nullable(Shape::Text)),
    ]);
    let shape = [
        ("version", Shape::Count),
        ("host", Shape::Text),
        ("kernel", Shape::Text),
        ("checks", Shape::list(check)),
        ("programs", Shape::list(program)),
    ];
    Shape::object(shape).check(&document);
    let checks = json::list(&document, "/checks");
    for family in Family::ALL.map(Family::name) {
        let concerns = |check: &&Value| json::list(check, "/families").iter().any(|name| name == family);
        assert!(checks.iter().any(|check| concerns(&check)), "no check covers what {family} needs");
    }
    let lacks =
        |check: &Value| check["status"] == "missing" && json::list(check, "/families").iter().any(|name| name == "cpu");
    assert_eq!(ended.status.code() == Some(3), checks.iter().any(lacks), "the exit code does not match; {checks:#?}");
    assert!(checks.iter().all(|check| check["status"] == "works" || check["todo"].is_string()), "{checks:#?}");
}

fn doctor_in_words() {
    let document = json::parse(&run(&["doctor", "--json"]).stdout);
    let words = run(&["doctor"]).stdout;
    for check in json::list(&document, "/checks") {
        assert!(words.contains(json::text(check, "/name")), "{check} is not in {words}");
    }
    assert!(!words.contains('\u{1b}'), "colours without a terminal");
}

fn heap_shape() -> Shape {
    let line = [
        ("kind", Shape::OneOf(&["objects", "block", "other"])),
        ("bytes", Shape::Count),
        ("touched_bytes", Shape::Count),
        ("since_s", Shape::Number),
        ("frame", Shape::nullable(frame_shape())),
        ("stack", Shape::list(frame_shape())),
    ];
    let parts = ["rss", "objects", "blocks", "other", "unknown", "shared", "files"];
    let parts = parts.map(|part| (format!("{part}_bytes").leak() as &str, Shape::Count));
    Shape::object(parts)
        .with("pid", Shape::Count)
        .with("at", Shape::OneOf(&["peak", "end"]))
        .with("peak_s", Shape::nullable(Shape::Number))
        .with("lines", Shape::list(Shape::object(line)))
}

fn frame_shape() -> Shape {
    Shape::object([
        ("kind", Shape::OneOf(&["python", "native", "kernel"])),
        ("function", Shape::Text),
        ("module", Shape::nullable(Shape::Text)),
        ("file", Shape::nullable(Shape::Text)),
        ("line", Shape::nullable(Shape::Count)),
    ])
}

fn gil_shares() -> Shape {
    let thread = [("tid", Shape::Count), ("held_s", Shape::Number), ("wanted_s", Shape::Number)];
    Shape::object([
        ("observed_s", Shape::Number),
        ("held_s", Shape::Number),
        ("wanted_s", Shape::Number),
        ("threads", Shape::list(Shape::object(thread))),
    ])
}

fn memory() -> Shape {
    let sizes = [
        "rss_bytes",
        "anonymous_bytes",
        "files_bytes",
        "shared_bytes",
        "segments_bytes",
        "share_bytes",
        "counted_once_bytes",
    ];
    Shape::object(sizes.map(|size| (size, Shape::Count))).with("looked_s", Shape::Number)
}

fn report() {
    let frame = frame_shape();
    let thread = Shape::object([
        ("tid", Shape::Count),
        ("name", Shape::nullable(Shape::Text)),
        ("role", Shape::nullable(Shape::Text)),
        ("samples", Shape::Count),
        ("cpu_s", Shape::Number),
    ]);
    let process = Shape::object([
        ("pid", Shape::Count),
        ("ppid", Shape::Count),
        ("command", Shape::Text),
        ("python", Shape::nullable(Shape::Text)),
        ("started_s", Shape::nullable(Shape::Number)),
        ("ended_s", Shape::nullable(Shape::Number)),
        ("samples", Shape::Count),
        ("cpu_s", Shape::Number),
        ("threads", Shape::list(thread)),
    ])
    // These keys were added to the contract later.
    .with("gil", Shape::nullable(gil_shares()))
    .with("memory", Shape::nullable(memory()))
    .with("user", Shape::nullable(Shape::Text))
    .with("cgroup", Shape::nullable(Shape::Text))
    .with("container", Shape::nullable(Shape::object([])));
    let about = Shape::object([
        ("started", Shape::Text),
        ("duration_s", Shape::Number),
        ("host", Shape::Text),
        ("kernel", Shape::Text),
        ("pyobs", Shape::Text),
        ("rate_hz", Shape::Count),
        ("probes", Shape::list(Shape::Text)),
    ])
    // These keys were added to the contract later.
    .with("sampler", Shape::OneOf(&["cycles", "cpu-clock"]))
    .with("segment_repair", Shape::OneOf(&["iterators", "proc"]))
    .with("machine_cpus", Shape::nullable(Shape::Number))
    .with("finished", Shape::Flag);
    let cost = [
        ("bpf_s", Shape::Number),
        ("cpu_s", Shape::Number),
        ("rss_bytes", Shape::Count),
        ("shed", Shape::list(Shape::Text)),
        ("startup_s", Shape::Number),
    ];
    let shed = [
        ("from_s", Shape::Number),
        ("to_s", Shape::nullable(Shape::Number)),
        ("family", Shape::Text),
        ("measure", Shape::Text),
    ];
    let stacks =
        [("samples", Shape::Count), ("complete", Shape::Count), ("truncated", Shape::Count), ("failed", Shape::Counts)];
    let stacks = Shape::object(stacks).with("whole", Shape::Count).with("cut", Shape::Counts);
    let row = [
        ("pid", Shape::Count),
        ("frame", frame),
        ("self", Shape::Count),
        ("total", Shape::Count),
        ("self_s", Shape::Number),
        ("total_s", Shape::Number),
        ("self_error_s", Shape::Number),
        ("total_error_s", Shape::Number),
    ];
    let times = || [("count", Shape::Count), ("total_s", Shape::Number), ("max_s", Shape::Number)];
    let stack = || Shape::list(frame_shape());
    let reason = Shape::OneOf(&["lock", "io", "sleep", "gil", "poll", "other"]);
    let waker = [
        ("pid", Shape::Count),
        ("tid", Shape::Count),
        ("name", Shape::Text),
        ("count", Shape::Count),
        ("total_s", Shape::Number),
    ];
    let sleep = [("pid", Shape::Count), ("tid", Shape::Count), ("stack", stack()), ("reason", reason)];
    let sleep = Shape::object(sleep.into_iter().chain(times()).chain([("stacks", Shape::Count)]))
        .with("wakers", Shape::list(Shape::object(waker)));
    let thread = || Shape::object([("tid", Shape::Count), ("stack", stack())]);
    let gil = [("pid", Shape::Count), ("waiter", thread()), ("holder", Shape::nullable(thread()))];
    let gil = Shape::object(gil.into_iter().chain(times()).chain([("stacks", Shape::Count)]))
        .with("count_of", Shape::OneOf(&["waits", "pieces"]));
    let finding = Shape::object([
        ("id", Shape::Text),
        ("severity", Shape::OneOf(&["info", "warning", "serious"])),
        ("summary", Shape::Text),
        ("detail", Shape::Text),
        ("advice", Shape::Text),
        ("pid", Shape::nullable(Shape::Count)),
        ("evidence", Shape::object([])),
    ]);
    let arena = [
        ("id", Shape::Text),
        ("pid", Shape::Count),
        ("kind", Shape::OneOf(&["pymalloc"])),
        ("address", Shape::Text),
        ("bytes", Shape::Count),
        ("slabs", Shape::Count),
        ("slabs_used", Shape::nullable(Shape::Count)),
        ("used_bytes", Shape::nullable(Shape::Count)),
        ("looked_s", Shape::nullable(Shape::Number)),
        ("born_s", Shape::nullable(Shape::Number)),
        ("died_s", Shape::nullable(Shape::Number)),
        ("cause", Shape::nullable(Shape::Text)),
        ("objects_born", Shape::Count),
        ("objects_dead", Shape::Count),
        ("escaped", Shape::Count),
        ("escape_stack", stack()),
        ("stack", stack()),
        (
            "region",
            Shape::nullable(Shape::object([("kind", Shape::OneOf(&["arena", "segment"])), ("id", Shape::Text)])),
        ),
    ];
    let report = &recording().report;
    Shape::object([
        ("version", Shape::Count),
        ("recording", about),
        ("refused", Shape::list(Shape::object([("family", Shape::Text), ("reason", Shape::Text)]))),
        ("loss", Shape::Counts),
        ("summed", Shape::Counts),
        ("left_out", Shape::Counts),
        ("cost", Shape::object(cost)),
        ("shed", Shape::list(Shape::object(shed))),
        ("processes", Shape::list(process)),
        ("frames", Shape::list(Shape::object(row))),
        ("stacks", stacks),
        ("offcpu", Shape::list(sleep)),
        ("gil", Shape::list(gil)),
        ("calls", Shape::nullable(Shape::list(Shape::object([])))),
        ("segments", Shape::nullable(Shape::list(Shape::object([])))),
        ("arenas", Shape::nullable(Shape::list(Shape::object(arena)))),
        ("heap", Shape::list(heap_shape())),
        ("meminfos", Shape::nullable(Shape::object([]))),
        ("transfers", Shape::nullable(Shape::list(Shape::object([])))),
        ("workers", Shape::nullable(Shape::list(Shape::object([])))),
        ("redundancy", Shape::nullable(Shape::object([]))),
        ("findings", Shape::list(finding)),
    ])
    .with("transfer_counts", Shape::nullable(Shape::list(Shape::object([]))))
    .with("transfer_stages", Shape::nullable(Shape::list(Shape::object([]))))
    .with("transfer_queues", Shape::nullable(Shape::list(Shape::object([]))))
    .with("limits", Shape::list(Shape::object([])))
    .with("tasks", Shape::list(Shape::object([])))
    .check(report);
    assert_eq!(report["version"], 1);
    assert_eq!(report["recording"]["rate_hz"], 499);
    assert_eq!(
        report["recording"]["probes"],
        serde_json::json!(["cpu", "offcpu", "gil", "arena", "heap", "shm", "tasks"])
    );
    let seconds: Vec<f64> = json::list(report, "/frames").iter().map(|row| json::number(row, "/self_s")).collect();
    assert!(seconds.is_sorted_by(|one, next| one >= next), "most self first: {seconds:?}");
    let own: Vec<u64> = json::list(report, "/frames").iter().map(|row| json::count(row, "/self")).collect();
    let processes = json::list(report, "/processes").iter().map(|process| json::count(process, "/samples"));
    assert_eq!(own.iter().sum::<u64>(), processes.sum::<u64>(), "every sample has one leaf");
    let stacks = |key: &str| json::count(report, &format!("/stacks/{key}"));
    let failed: u64 = report["stacks"]["failed"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(stacks("complete") + stacks("truncated") + failed, stacks("samples"), "{}", report["stacks"]);
    for process in json::list(report, "/processes") {
        let threads: u64 = json::list(process, "/threads").iter().map(|thread| json::count(thread, "/samples")).sum();
        assert_eq!(threads, json::count(process, "/samples"), "{process:#}");
    }
}

fn report_in_words() {
    let file = recording().file.to_str().unwrap();
    let words = run(&["report", file]);
    assert!(words.status.success(), "{words:?}");
    let process = &recording().report["processes"][0];
    let pid = json::count(process, "/pid").to_string();
    for word in ["spin", "burn.py:14", &pid, json::text(process, "/python")] {
        assert!(words.stdout.contains(word), "{word} is not in {}", words.stdout);
    }
}

fn limit() {
    let file = recording().file.to_str().unwrap();
    let limited = json::parse(&run(&["report", file, "--json", "--limit", "2"]).stdout);
    let all = json::list(&recording().report, "/frames");
    assert_eq!(json::list(&limited, "/frames"), &all[..2]);
}
