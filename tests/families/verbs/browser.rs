//! Tests exported files in a browser, with a mouse (workloads/browser.py).

use pyobs_tests::{Folder, Workload, command, json, needs, workload};
use serde_json::Value;

use super::exports::{BURNED, inclusive};
use super::{recording, run};

/// A page, a condition that holds once it is ready, the element to press, the text to type then, and an expression that
/// should change.
#[derive(Default)]
struct Press<'a> {
    page: &'a str,
    ready: &'a str,
    press: &'a str,
    text: &'a str,
    changes: &'a str,
}

/// The expression's value before and after the press. Also takes a screenshot.
fn press(folder: &Folder, Press { page, ready, press, text, changes }: Press<'_>) -> [String; 2] {
    let (home, picture) = (folder.join("home"), folder.join("picture.png"));
    let mut browser = command(needs::python("3.12").unwrap().executable.clone());
    browser.arg(workload("browser.py")).arg(needs::program("chromium").unwrap()).arg(home);
    browser.arg(page).arg(&picture).args([ready, press, changes, text]);
    let ended = Workload::start(browser).wait();
    assert!(ended.status.success(), "{ended:?}");
    let printed = json::parse(&ended.stdout);
    assert!(json::count(&printed, "/bytes") > 10_000, "{} is not a picture of a page", picture.display());
    if page.starts_with("file:") {
        let mut requested = json::list(&printed, "/requested").iter().filter_map(Value::as_str);
        let own = |address: &str| ["file:", "data:", "blob:"].iter().any(|own| address.starts_with(own));
        assert!(requested.all(own), "{printed:#}");
    }
    ["/before", "/after"].map(|key| json::text(&printed, key).to_owned())
}

fn exported(folder: &Folder, format: &str) -> String {
    let file = folder.join(format!("out.{format}")).display().to_string();
    let written = run(&["export", recording().file.to_str().unwrap(), "--format", format, "-o", &file]);
    assert!(written.status.success(), "{written:?}");
    file
}

/// The page's table of frames.
const FRAMES: &str = "[...document.querySelectorAll('table')].find(it => it.tHead.textContent.includes('own samples'))";

/// Pressing the heading "total samples" sorts the frames by that column. At first they are sorted by their own samples.
pub fn html() {
    let folder = Folder::new();
    let page = format!("file://{}", exported(&folder, "html"));
    let changes = format!("[...{FRAMES}.tBodies[0].rows].map(row => row.cells[3].textContent).join('\\n')");
    let head = format!("{FRAMES}.tHead.rows[0].cells[3]");
    let ready = "document.querySelector('.filter') !== null";
    let [before, after] =
        press(&folder, Press { page: &page, ready, press: &head, changes: &changes, ..Press::default() })
            .map(|text| text.lines().map(|count| count.replace(',', "").parse::<u64>().unwrap()).collect::<Vec<_>>());
    let mut sorted = before.clone();
    sorted.sort_unstable_by(|one, two| two.cmp(one));
    assert!(before.len() > 2 && before != sorted, "{before:?}");
    assert_eq!(after, sorted);
}

/// Text typed into the field above a table hides the rows that do not contain it, ignoring case.
pub fn filter() {
    let folder = Folder::new();
    let page = format!("file://{}", exported(&folder, "html"));
    let in_sight = "row => row.getClientRects().length > 0";
    let changes = format!("[...{FRAMES}.tBodies[0].rows].filter({in_sight}).map(row => row.innerText).join('\\n')");
    let field = format!("{FRAMES}.parentElement.querySelector('.filter')");
    let (ready, text) = ("document.querySelector('.filter') !== null", BURNED[0].to_uppercase());
    let of = Press { page: &page, ready, press: &field, text: &text, changes: &changes };
    let [before, after] = press(&folder, of).map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    let wanted: Vec<String> = before.iter().filter(|row| row.contains(BURNED[0])).cloned().collect();
    assert!(!wanted.is_empty() && wanted.len() < before.len(), "{before:#?}");
    assert_eq!(after, wanted);
}

/// Pressing a frame makes it as wide as the picture.
pub fn svg() {
    let folder = Folder::new();
    let page = format!("file://{}", exported(&folder, "svg"));
    let frame = format!(
        "[...document.querySelectorAll('#frames g')].find(it => it.querySelector('title').textContent.startsWith('{} ('))",
        BURNED[0]
    );
    let changes = format!("{frame}.querySelector('rect').getAttribute('width')");
    let ready = "document.querySelector('#frames') !== null";
    let [before, after] =
        press(&folder, Press { page: &page, ready, press: &frame, changes: &changes, ..Press::default() });
    let width = |text: &str| text.trim_end_matches('%').parse::<f64>().unwrap();
    assert!(width(&after) > 99.0 && width(&before) < 99.0, "{before} {after}");
}

/// Text typed into the prompt of "Search" marks the frames that contain it, and shows their share.
pub fn search() {
    let folder = Folder::new();
    searches(&folder, "svg", "document");
    // The flame graph inside the page.
    searches(&folder, "html", "document.querySelector('iframe')?.contentDocument");
}

/// Searches a flame graph inside a document of an exported file.
fn searches(folder: &Folder, format: &str, graph: &str) {
    let page = format!("file://{}", exported(folder, format));
    // The titles of the frames with the search colour, which no frame had before, and the text that reports the share.
    let changes = format!(
        "[...{graph}.querySelectorAll('#frames g')]
         .filter(it => it.querySelector('rect').getAttribute('fill') == {graph}.defaultView.searchcolor)
         .map(it => it.querySelector('title').textContent)
         .concat({graph}.querySelector('#matched').textContent.trim()).join('\\n')"
    );
    let (ready, button) = (
        format!("{graph}?.readyState === 'complete' && {graph}.querySelector('#frames') !== null"),
        format!("{graph}.querySelector('#search')"),
    );
    let of = Press { page: &page, ready: &ready, press: &button, text: BURNED[0], changes: &changes };
    let [before, after] = press(folder, of);
    assert_eq!(before, "");
    let (marked, matched) = after.rsplit_once('\n').unwrap();
    assert!(matched.starts_with("Matched: "), "{after}");
    let samples = |frame: &str| {
        assert!(frame.starts_with(&format!("{} (", BURNED[0])), "{after}");
        let (_, count) = frame.rsplit_once(" (").unwrap();
        count.split_once(" samples, ").unwrap().0.replace(',', "").parse::<u64>().unwrap()
    };
    assert_eq!(marked.lines().map(samples).sum::<u64>(), inclusive(BURNED[0]).0, "{after}");
}

/// speedscope itself imports the export and shows the functions with the times of their samples.
pub fn speedscope() {
    let folder = Folder::new();
    let file = exported(&folder, "speedscope");
    let script = folder.join("profile.js");
    let mut encoder = command(needs::python("3.12").unwrap().executable.clone());
    let encode = "import base64, sys; data = base64.b64encode(open(sys.argv[1], 'rb').read()).decode(); \
                  open(sys.argv[2], 'w').write('speedscope.loadFileFromBase64(\"profile\", \"%s\")' % data)";
    encoder.args(["-c", encode, &file]).arg(&script);
    assert!(Workload::start(encoder).wait().status.success());
    let reader = needs::speedscope().unwrap();
    let page = format!("file://{}#localProfilePath={}", reader.display(), script.display());
    let tab = "[...document.querySelectorAll('div')].find(it => it.childElementCount == 1 && it.textContent.endsWith('Sandwich'))";
    let ready = "document.title.startsWith('CPU time on ')";
    // The rows are drawn some time after their heading.
    let rows = "document.body.innerText.split('Symbol Name')[1]?.trim() ?? ''";
    let [_, after] = press(&folder, Press { page: &page, ready, press: tab, changes: rows, ..Press::default() });
    // All threads of the program spend most of their time in `spin`; speedscope draws only the rows in view.
    assert!(after.lines().any(|line| line.trim() == "spin"), "{after}");
}

/// Perfetto's page opens the export, its engine reports no error, and its counts match those by Perfetto's descriptors.
pub fn perfetto() {
    let folder = Folder::new();
    std::os::unix::fs::symlink(needs::perfetto_page().unwrap(), folder.join("ui")).unwrap();
    exported(&folder, "perfetto");
    let mut server = command(needs::python("3.12").unwrap().executable.clone());
    server.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]).arg(&*folder);
    let mut server = Workload::start(server);
    // Serving HTTP on 127.0.0.1 port 43211 (http://127.0.0.1:43211/) ...
    let line = server.line();
    let address = line.split(['(', ')']).nth(1).unwrap().to_owned();
    let page = format!("{address}ui/#!/?url={address}out.perfetto");
    // The engine answers asynchronously.
    let query = "select (select count(*) from stats where severity in ('error', 'data_loss') and value > 0) as refused, \
                 (select group_concat(distinct name) from process where name like 'python%') as processes, \
                 (select group_concat(distinct name) from thread) as threads, \
                 (select count(*) from slice where category = 'wait') as waits, \
                 (select sum(dur) from slice where category = 'wait') as length, \
                 (select count(*) from counter join process_counter_track track on track.id = track_id) as counts, \
                 (select count(*) from perf_sample where callsite_id is not null) as samples, \
                 (select count(distinct callsite.id) from stack_profile_callsite callsite \
                  join stack_profile_frame frame on frame.id = frame_id where frame.name like 'spin (%') as spins";
    let columns = "['refused', 'processes', 'threads', 'waits', 'length', 'counts', 'samples', 'spins']";
    let sql = "document.querySelector('a[href=\"#!/query\"]')";
    let ready = format!(
        "{sql} !== null && window.app?.trace?.engine && (window.answer ??= (app.trace.engine.query(\"{query}\").then(
            (result) => {{ const row = result.iter({{}}); window.answer = {columns}.map((of) => row.get(of)).join(';'); }},
            (error) => {{ window.answer = String(error); }}), '')) !== ''"
    );
    let changes = "window.answer + ';' + location.hash";
    let [_, after] = press(&folder, Press { page: &page, ready: &ready, press: sql, changes, ..Press::default() });
    let [refused, processes, threads, waits, length, counts, samples, spins, _] =
        after.split(';').collect::<Vec<_>>()[..]
    else {
        panic!("{after}")
    };
    assert_eq!(refused, "0", "{after}");
    assert_eq!(processes, "python3.12 threads.py");
    assert!(threads.split(',').any(|thread| thread == "first-thread"), "{threads}");
    let trace = recording().perfetto();
    let known = json::list(&trace, "/slices").iter().filter(|slice| slice["category"] == "wait");
    let lengths: Vec<u64> = known.map(|wait| json::count(wait, "/to_ns") - json::count(wait, "/from_ns")).collect();
    assert_eq!(waits, lengths.len().to_string());
    assert_eq!(length, lengths.iter().sum::<u64>().to_string());
    let counters = trace["counters"].as_object().unwrap().values();
    assert_eq!(counts, counters.map(|values| values.as_array().unwrap().len()).sum::<usize>().to_string());
    assert_eq!(samples, json::list(&trace, "/samples").len().to_string());
    assert_ne!(spins, "0", "{after}");
}
