//! Transfers by UCXX's interface for asyncio, in every mode that it can be set to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pyobs_tests::{Folder, Recording, json};
use serde_json::Value;

use super::{ITERATIONS, lines, record, script};

const SIZES: [u64; 2] = [4096, 1 << 20];
/// The number of buffers in each of the driver's transfers of several.
const FRAMES: u64 = 4;

/// Versions before 0.50 lack a module in which the driver replaces a function. This one stands in for it.
const BEFORE: &str = "
import importlib.machinery, sys
class Context:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == 'ucxx._cuda_context':
            return importlib.machinery.ModuleSpec(name, Context)
    create_module = staticmethod(lambda spec: None)
    @staticmethod
    def exec_module(module):
        module.ensure_cuda_context = lambda device_id=0: None
sys.meta_path.append(Context)
";

/// A way to run the driver: two processes that send each message there and back.
#[derive(Clone, Copy)]
pub(super) struct Driver {
    mode: &'static str,
    delayed: bool,
    future: bool,
    api: &'static str,
    size: u64,
}

impl Driver {
    /// UCXX supports delayed submission and futures only with a progress thread.
    pub(super) fn all() -> Vec<Self> {
        let mut drivers = Vec::new();
        for (mode, switches) in [
            ("thread", &[(true, true), (true, false), (false, true), (false, false)][..]),
            ("thread-polling", &[(true, true), (true, false), (false, true), (false, false)]),
            ("polling", &[(false, false)]),
            ("blocking", &[(false, false)]),
        ] {
            for (delayed, future) in switches.iter().copied() {
                for api in ["tag", "am", "multi"] {
                    drivers.extend(SIZES.map(|size| Self { mode, delayed, future, api, size }));
                }
            }
        }
        drivers
    }

    pub(super) fn is_quick(&self) -> bool {
        let Self { mode, delayed, future, api, size } = *self;
        matches!(
            (mode, delayed, future, api, size),
            ("thread", true, true, "tag" | "multi", 4096) | ("thread", true, true, "am", 1_048_576)
        )
    }

    pub(super) fn name(&self) -> String {
        let Self { mode, delayed, future, api, size } = *self;
        let with = |word, is: bool| if is { word } else { "" };
        format!(
            "{api}_of_{size}_bytes_by_{}{}{}",
            mode.replace('-', "_"),
            with("_delayed", delayed),
            with("_with_futures", future)
        )
    }

    /// Whether each version of UCXX runs it.
    pub(super) fn is_of_each_version(&self) -> bool {
        self.mode == "thread" && self.delayed && self.future && self.size == SIZES[0]
    }

    pub(super) fn counted(&self, interpreter: &Path) {
        let mut python = script(interpreter, "ucxx_async_driver.py");
        python.args(["--mode", self.mode, "--api", self.api, "--frames", &FRAMES.to_string()]);
        python.args(["--delayed", if self.delayed { "1" } else { "0" }]);
        python.args(["--future", if self.future { "1" } else { "0" }]);
        python.args(["--size", &self.size.to_string(), "--iters", &ITERATIONS.to_string(), "--hold", "0.5"]);
        let folder = Folder::new();
        std::fs::write(folder.join("sitecustomize.py"), BEFORE).unwrap();
        python.env("PYTHONPATH", folder.join(""));
        let recording = record("ucx").command(python).run();
        let line = recording.stdout.lines().find(|line| line.starts_with('{'));
        let printed = json::parse(line.unwrap_or_else(|| panic!("{}{}", recording.stdout, recording.stderr)));
        assert_eq!(json::count(&printed, "/round_trips"), ITERATIONS);
        let processes = by_process(&recording, self.api);
        assert_eq!(processes.len(), 2, "{:?}", processes.keys());
        assert!(processes.contains_key(&json::count(&printed, "/pid")), "{printed}");
        for sides in processes.values() {
            self.check(sides);
        }
        both_sides(&processes, self.api == "tag");
        stages(&recording.report);
        call_stacks(&processes, json::count(&printed, "/pid"));
        if self.api == "tag" {
            timeline(&recording);
        }
        if self.mode.starts_with("thread") {
            let all = &["progress", "notifier", "event_loop"][..];
            roles(&recording.report, if self.future { all } else { &all[..1] });
        }
        if self.delayed && self.future {
            mode(&recording.report, self.mode);
            threads(&recording.report);
        }
        let lost = recording.report["loss"].as_object().unwrap();
        assert!(
            ["transfer_table_full", "transfer_half_seen"].iter().all(|reason| !lost.contains_key(*reason)),
            "{lost:?}"
        );
    }

    /// Checks the transfers of one process.
    fn check(&self, sides: &Sides<'_>) {
        let count = |side: &[&Value]| u64::try_from(side.len()).unwrap();
        assert_eq!((count(&sides.sends), count(&sides.receives)), (ITERATIONS, ITERATIONS));
        let bytes = if self.api == "multi" { self.size * (1..=FRAMES).sum::<u64>() } else { self.size };
        for transfer in sides.sends.iter().chain(&sides.receives) {
            assert_eq!(transfer["library"], "ucxx", "{transfer:#}");
            assert_eq!(json::count(transfer, "/bytes"), bytes, "{transfer:#}");
            let times: Vec<f64> = ["registered_s", "submitted_s", "completed_s", "notified_s", "woken_s"]
                .iter()
                .filter_map(|key| transfer[*key].as_f64())
                .collect();
            assert!(times.is_sorted(), "{transfer:#}");
            assert!(ends_on_its_thread(transfer), "{transfer:#}");
            let is_message = transfer["operation"] == "am_recv";
            if !is_message && self.api != "multi" {
                assert_eq!(transfer["delayed"], self.delayed, "{transfer:#}");
            }
        }
        let statuses: Vec<&Value> = sides.sends.iter().chain(&sides.receives).map(|it| &it["status"]).collect();
        // UCS_ERR_CONNECTION_RESET: the other side may close before the last of them arrives, as the driver's text says.
        let failed: Vec<&&Value> = statuses.iter().filter(|status| ***status != 0).collect();
        assert!(failed.is_empty() || (failed.len() == 1 && **failed[0] == -25), "{failed:?}");
        let ended = |key: &str| {
            let all = sides.sends.iter().chain(&sides.receives);
            u64::try_from(all.filter(|transfer| transfer[key].is_number()).count()).unwrap()
        };
        assert_eq!(ended("completed_s"), 2 * ITERATIONS);
        // The first of UCXX's fetched messages end before their callback has a probe, so that their futures are not seen.
        let woken = ended("woken_s");
        let least = if self.api == "am" { ITERATIONS + ITERATIONS / 2 } else { 2 * ITERATIONS };
        assert_eq!(ended("notified_s"), woken);
        assert!(if self.future { (least..=2 * ITERATIONS).contains(&woken) } else { woken == 0 }, "{woken}");
        if self.api == "multi" {
            for whole in sides.sends.iter().chain(&sides.receives) {
                let parts = sides.parts.get(json::text(whole, "/id")).map_or(&[][..], Vec::as_slice);
                // One more announces them.
                assert_eq!(count(parts), FRAMES + 1, "{whole:#}");
                assert!(
                    parts.iter().all(|part| part["completed_s"].is_number() && ends_on_its_thread(part)),
                    "{parts:#?}"
                );
            }
        }
    }
}

/// A transfer that ends immediately ends on the thread that submits it.
fn ends_on_its_thread(transfer: &Value) -> bool {
    transfer["immediate"] == false || transfer["complete_tid"] == transfer["submit_tid"]
}

fn in_order<'report>(side: &[&'report Value], key: &str) -> Vec<&'report Value> {
    let mut side = side.to_vec();
    side.sort_by(|one, other| json::number(one, key).total_cmp(&json::number(other, key)));
    side
}

/// Checks that each process received what the other sent, in order: as many bytes under the same tag, and not before they
/// were sent. What is left once the other side has closed is fetched by its handle, without a tag. Each side waits for the
/// other, so this can only be the last.
pub(super) fn both_sides(processes: &BTreeMap<u64, Sides<'_>>, has_tags: bool) {
    assert_eq!(processes.len(), 2, "{:?}", processes.keys());
    let [one, other] = [processes.values().next().unwrap(), processes.values().nth(1).unwrap()];
    for (sends, receives) in [(&one.sends, &other.receives), (&other.sends, &one.receives)] {
        let pairs = in_order(sends, "/submitted_s").into_iter().zip(in_order(receives, "/completed_s"));
        let mut known = 0;
        for (send, receive) in pairs {
            assert_eq!(send["bytes"], receive["bytes"], "{send:#} {receive:#}");
            let is_known = send["tag"].is_string() && receive["tag"].is_string();
            assert!(!is_known || send["tag"] == receive["tag"], "{send:#} {receive:#}");
            known += u64::from(is_known);
            let (sent, arrived) = (json::number(send, "/submitted_s"), json::number(receive, "/completed_s"));
            assert!(sent <= arrived, "{send:#} {receive:#}");
        }
        assert!(if has_tags { known + 2 >= ITERATIONS } else { known == 0 }, "{known}");
    }
}

/// Checks the count and median of each stage against the transfers' own times. A transfer of several buffers waits by its
/// parts, so these count in place of it.
fn stages(report: &Value) {
    let moments = |stage: &str| match stage {
        "queued" => ("registered_s", "submitted_s"),
        "pending" => ("submitted_s", "completed_s"),
        "completed" => ("completed_s", "notified_s"),
        "notified" => ("notified_s", "woken_s"),
        _ => panic!("{stage}"),
    };
    let reported = json::list(report, "/transfer_stages");
    for stage in reported {
        let (from, to) = moments(json::text(stage, "/stage"));
        let is_by_parts = stage["stage"] == "queued" || stage["stage"] == "pending";
        let own = json::list(report, "/transfers").iter().filter(|it| {
            it["pid"] == stage["pid"] && !(is_by_parts && json::text(it, "/operation").starts_with("multi"))
        });
        let mut lengths: Vec<f64> = own.filter_map(|it| Some(it[to].as_f64()? - it[from].as_f64()?)).collect();
        lengths.sort_by(f64::total_cmp);
        assert_eq!(lengths.len() as u64, json::count(stage, "/count"), "{stage:#}");
        let median = lengths[(lengths.len() - 1) / 2].max(0.0);
        assert!((median - json::number(stage, "/p50_s")).abs() < 1e-8, "{median} {stage:#}");
    }
    for name in ["queued", "pending"] {
        assert_eq!(reported.iter().filter(|stage| stage["stage"] == name).count(), 2, "{reported:#?}");
    }
}

/// The transfers that the driver requested in one process.
#[derive(Default)]
pub(super) struct Sides<'report> {
    sends: Vec<&'report Value>,
    receives: Vec<&'report Value>,
    /// The parts of transfers of several buffers, by their transfer's id.
    parts: BTreeMap<&'report str, Vec<&'report Value>>,
}

/// The driver's transfers by `api`, its name for the kind of transfer.
pub(super) fn by_process<'report>(recording: &'report Recording, api: &str) -> BTreeMap<u64, Sides<'report>> {
    let mut processes: BTreeMap<u64, Sides<'report>> = BTreeMap::new();
    for transfer in json::list(&recording.report, "/transfers") {
        let sides = processes.entry(json::count(transfer, "/pid")).or_default();
        let operation = json::text(transfer, "/operation");
        if let Some(parent) = transfer["parent"].as_str() {
            sides.parts.entry(parent).or_default().push(transfer);
        } else if operation == format!("{api}_send") {
            sides.sends.push(transfer);
        } else if operation == format!("{api}_recv") {
            sides.receives.push(transfer);
        }
    }
    processes
}

/// Checks that each stack goes from lines of the driver to a function of UCXX, by its name in C++. A received message has no
/// such stack: UCXX itself requests it when it arrives.
fn call_stacks(processes: &BTreeMap<u64, Sides<'_>>, server: u64) {
    let all = processes.values().flat_map(|sides| sides.sends.iter().chain(&sides.receives));
    for transfer in all.filter(|transfer| transfer["operation"] != "am_recv") {
        lines::of_asynchronous(transfer, server);
        let innermost = json::list(transfer, "/stack").last().map(|frame| json::text(frame, "/function"));
        let expected = match json::text(transfer, "/operation") {
            "multi_send" => "ucxx::RequestTagMulti::send",
            "multi_recv" => "ucxx::RequestTagMulti::recvCallback",
            _ => "ucxx::Worker::registerDelayedSubmission",
        };
        assert_eq!(innermost, Some(expected), "{transfer:#}");
    }
}

fn modes(report: &Value) -> Vec<&str> {
    let workers = json::list(report, "/workers").iter();
    workers.filter(|worker| worker["role"] == "progress").map(|worker| json::text(worker, "/mode")).collect()
}

fn mode(report: &Value, mode: &str) {
    assert!(modes(report).iter().all(|it| *it == mode), "{:?}, expected {mode}", modes(report));
}

/// Checks that each of the two processes has its own thread for each role. Half a second does not always show whether it polls.
fn roles(report: &Value, roles: &[&str]) {
    let workers = json::list(report, "/workers");
    assert!(modes(report).iter().all(|it| it.starts_with("thread")), "{workers:#?}");
    for role in roles {
        let of_it = workers.iter().filter(|worker| worker["role"] == *role);
        let pids: BTreeSet<u64> = of_it.map(|worker| json::count(worker, "/pid")).collect();
        assert_eq!(pids.len(), 2, "{role}: {workers:#?}");
    }
    let tids: BTreeSet<u64> = workers.iter().map(|worker| json::count(worker, "/tid")).collect();
    assert_eq!(tids.len(), workers.len(), "{workers:#?}");
}

/// Checks that each step of a transfer was taken by the thread whose role it is.
fn threads(report: &Value) {
    let workers = json::list(report, "/workers");
    for transfer in json::list(report, "/transfers") {
        for (key, role) in [("submit_tid", "progress"), ("complete_tid", "progress"), ("wake_tid", "event_loop")] {
            let worker = workers.iter().find(|worker| worker["tid"] == transfer[key]);
            let is_right = worker.is_some_and(|worker| worker["role"] == role && worker["pid"] == transfer["pid"]);
            // The first of several buffers is requested at once, by the caller's thread.
            let is_several = key == "submit_tid" && json::text(transfer, "/operation").starts_with("multi");
            assert!(
                transfer[key].is_null() || is_several || is_right,
                "{key} is not the thread of {role}: {transfer:#} {workers:#?}"
            );
        }
        assert!(transfer["submit_tid"].is_number(), "{transfer:#}");
    }
}

/// Checks that the timeline has each transfer once, and arrows that end where its task was woken.
fn timeline(recording: &Recording) {
    let trace = recording.perfetto();
    let slices = json::list(&trace, "/slices");
    let of = |name: &str| slices.iter().filter(|it| it["category"] == "transfer" && it["name"] == name).count();
    // Two processes send and receive.
    let expected = usize::try_from(2 * ITERATIONS).unwrap();
    assert_eq!((of("tag_send"), of("tag_recv")), (expected, expected));
    let transfers = json::list(&recording.report, "/transfers");
    let woken = transfers.iter().filter(|transfer| transfer["woken_s"].is_number()).count();
    let wakes: Vec<&Value> = slices.iter().filter(|it| json::text(it, "/name").starts_with("wake ")).collect();
    assert_eq!(wakes.len(), woken);
    assert!(wakes.iter().all(|wake| json::list(wake, "/ends").len() == 1 && wake["track"][2] == "transfers"));
    // An arrow needs two times to join, and the first transfer may be half seen.
    let begun: BTreeSet<String> = slices
        .iter()
        .flat_map(|slice| json::list(slice, "/arrows"))
        .map(|arrow| format!("{:#x}", arrow.as_u64().unwrap()))
        .collect();
    let moments = |transfer: &Value| {
        let times = ["registered_s", "submitted_s", "completed_s", "woken_s"];
        times.iter().filter(|key| transfer[**key].is_number()).count()
    };
    for transfer in transfers {
        assert_eq!(begun.contains(json::text(transfer, "/id")), moments(transfer) > 1, "{transfer:#}");
    }
}
