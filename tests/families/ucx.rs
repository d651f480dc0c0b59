//! The family `ucx` against programs that say what they sent and received.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::LazyLock;

use pyobs_tests::{Case, Record, Recording, case, command, json, needs};
use serde_json::Value;

const ITERATIONS: u64 = 40;
const SIZES: [u64; 2] = [4096, 1 << 20];
/// Of the driver's transfers of several buffers.
const FRAMES: u64 = 4;

fn main() -> ExitCode {
    let of = |name: String, body: Box<dyn Fn() + Send>| {
        case(name, body).needs(needs::root()).needs(interpreter()).needs(needs::shared())
    };
    let mut cases: Vec<Case> = Vec::new();
    for driver in Driver::all() {
        let is_quick = driver.is_quick();
        let case = of(driver.name(), Box::new(move || driver.counted()));
        cases.push(if is_quick { case } else { case.needs(needs::all()) });
    }
    cases.push(of("closures_of_ctypes_end_when_their_requests_are_given_back".to_owned(), Box::new(closures)));
    cases.push(of("an_interpreter_that_waits_for_the_notifier_is_diagnosed".to_owned(), Box::new(shutdown)));
    cases.push(case("the_family_is_off_unless_asked_for", off_by_default).needs(needs::root()));
    pyobs_tests::run(cases)
}

/// To import it takes seconds.
fn interpreter() -> Result<PathBuf, String> {
    static FOUND: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| needs::executable_with("ucxx", "PYOBS_UCXX"));
    FOUND.clone()
}

fn script(name: &str) -> Command {
    let mut python = command(interpreter().unwrap());
    python.args(["-B", "-u"]).arg(needs::shared().unwrap().join("workloads/ucx").join(name));
    // The libraries tell of variables that they do not know.
    python.env("UCX_WARN_UNUSED_ENV_VARS", "n");
    python
}

fn record(probes: &str) -> Record {
    Record::new().argument("--probe").argument(probes)
}

/// A way to run the driver with UCXX's API for asyncio: two processes that send each message there and back.
#[derive(Clone, Copy)]
struct Driver {
    mode: &'static str,
    delayed: bool,
    future: bool,
    api: &'static str,
    size: u64,
}

impl Driver {
    /// UCXX takes delayed submission and futures only with a thread that makes progress.
    fn all() -> Vec<Self> {
        let mut drivers = Vec::new();
        for (mode, switches) in [
            ("thread", &[(true, true), (true, false), (false, true), (false, false)][..]),
            ("thread-polling", &[(true, true), (false, false)]),
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

    fn is_quick(&self) -> bool {
        let Self { mode, delayed, future, api, size } = *self;
        matches!(
            (mode, delayed, future, api, size),
            ("thread", true, true, "tag" | "multi", 4096) | ("thread", true, true, "am", 1_048_576)
        )
    }

    fn name(&self) -> String {
        let Self { mode, delayed, future, api, size } = *self;
        let with = |word, is: bool| if is { word } else { "" };
        format!(
            "{api}_of_{size}_bytes_by_{}{}{}",
            mode.replace('-', "_"),
            with("_delayed", delayed),
            with("_with_futures", future)
        )
    }

    fn counted(&self) {
        let mut python = script("ucxx_async_driver.py");
        python.args(["--mode", self.mode, "--api", self.api, "--frames", &FRAMES.to_string()]);
        python.args(["--delayed", if self.delayed { "1" } else { "0" }]);
        python.args(["--future", if self.future { "1" } else { "0" }]);
        python.args(["--size", &self.size.to_string(), "--iters", &ITERATIONS.to_string(), "--hold", "0.5"]);
        let recording = record("ucx").command(python).run();
        let line = recording.stdout.lines().find(|line| line.starts_with('{'));
        let told = json::parse(line.unwrap_or_else(|| panic!("{}{}", recording.stdout, recording.stderr)));
        assert_eq!(json::count(&told, "/round_trips"), ITERATIONS);
        let processes = by_process(&recording, self);
        assert_eq!(processes.len(), 2, "{:?}", processes.keys());
        assert!(processes.contains_key(&json::count(&told, "/pid")), "{told}");
        for sides in processes.values() {
            self.check(sides);
        }
        if self.api == "tag" {
            self.both_sides(&processes);
            asked(&processes);
        }
        if self.mode.starts_with("thread") && self.delayed && self.future {
            roles(&recording.report);
        }
        assert!(!recording.report["loss"].as_object().unwrap().contains_key("transfer_table_full"));
    }

    /// What one process has done.
    fn check(&self, sides: &Sides<'_>) {
        let own = |side: &[&Value]| u64::try_from(side.len()).unwrap();
        assert_eq!((own(&sides.sends), own(&sides.receives)), (ITERATIONS, ITERATIONS));
        let whole = if self.api == "multi" { self.size * (1..=FRAMES).sum::<u64>() } else { self.size };
        for transfer in sides.sends.iter().chain(&sides.receives) {
            assert_eq!(transfer["library"], "ucxx", "{transfer:#}");
            assert_eq!(json::count(transfer, "/bytes"), whole, "{transfer:#}");
            let times: Vec<f64> = ["registered_s", "submitted_s", "completed_s", "notified_s", "woken_s"]
                .iter()
                .filter_map(|key| transfer[*key].as_f64())
                .collect();
            assert!(times.is_sorted(), "{transfer:#}");
            let is_message = transfer["operation"] == "am_recv";
            if !is_message && self.api != "multi" {
                assert_eq!(transfer["delayed"], self.delayed, "{transfer:#}");
            }
        }
        // The first of UCXX's messages that are fetched end before their callback has a probe.
        let has_status = |it: &&&Value| it["operation"] != "am_recv" || !it["status"].is_null();
        let all = sides.sends.iter().chain(&sides.receives).filter(has_status);
        let statuses: Vec<&Value> = all.map(|it| &it["status"]).collect();
        // UCS_ERR_CONNECTION_RESET: the other side may close before the last of them is there, which the driver says.
        let failed: Vec<&&Value> = statuses.iter().filter(|status| ***status != 0).collect();
        assert!(failed.is_empty() || (failed.len() == 1 && **failed[0] == -25), "{failed:?}");
        let ended = |key: &str| {
            let all = sides.sends.iter().chain(&sides.receives);
            u64::try_from(all.filter(|transfer| transfer[key].is_number()).count()).unwrap()
        };
        assert_eq!(ended("completed_s"), 2 * ITERATIONS);
        if self.future && self.api == "tag" {
            assert_eq!(ended("woken_s"), 2 * ITERATIONS);
        } else if !self.future {
            assert_eq!(ended("woken_s"), 0);
        }
        if self.api == "multi" {
            for whole in sides.sends.iter().chain(&sides.receives) {
                let parts = sides.parts.get(json::text(whole, "/id")).map_or(&[][..], Vec::as_slice);
                // One more announces them.
                assert_eq!(own(parts), FRAMES + 1, "{whole:#}");
            }
        }
    }

    /// What one sent, the other received: as many, in the same order of sizes, under tags that both know.
    fn both_sides(&self, processes: &BTreeMap<u64, Sides<'_>>) {
        let tags = |side: &[&Value]| side.iter().map(|it| json::text(it, "/tag").to_owned()).collect::<BTreeSet<_>>();
        let [one, other] = [processes.values().next().unwrap(), processes.values().nth(1).unwrap()];
        assert_eq!(tags(&one.sends), tags(&other.receives));
        assert_eq!(tags(&other.sends), tags(&one.receives));
    }
}

/// The transfers of a process that the driver asked for.
#[derive(Default)]
struct Sides<'report> {
    sends: Vec<&'report Value>,
    receives: Vec<&'report Value>,
    /// By the transfer that they are parts of.
    parts: BTreeMap<&'report str, Vec<&'report Value>>,
}

fn by_process<'report>(recording: &'report Recording, driver: &Driver) -> BTreeMap<u64, Sides<'report>> {
    let mut processes: BTreeMap<u64, Sides<'report>> = BTreeMap::new();
    for transfer in json::list(&recording.report, "/transfers") {
        let sides = processes.entry(json::count(transfer, "/pid")).or_default();
        let operation = json::text(transfer, "/operation");
        if let Some(parent) = transfer["parent"].as_str() {
            sides.parts.entry(parent).or_default().push(transfer);
        } else if operation == format!("{}_send", driver.api) {
            sides.sends.push(transfer);
        } else if operation == format!("{}_recv", driver.api) {
            sides.receives.push(transfer);
        }
    }
    processes
}

/// The driver's own functions lead to each transfer.
fn asked(processes: &BTreeMap<u64, Sides<'_>>) {
    for transfer in processes.values().flat_map(|sides| sides.sends.iter().chain(&sides.receives)) {
        let frames = json::list(transfer, "/stack");
        let is_driver = |frame: &Value| frame["function"].as_str().is_some_and(|name| name.starts_with("xfer"));
        // What gather() runs is a task of its own, which begins in UCXX.
        let is_task = |frame: &Value| frame["function"] == "Endpoint.send" || frame["function"] == "Endpoint.recv";
        assert!(frames.iter().any(|frame| is_driver(frame) || is_task(frame)), "{transfer:#}");
    }
}

/// In each of the two processes a thread of its own for each.
fn roles(report: &Value) {
    let workers = json::list(report, "/workers");
    for role in ["progress", "notifier", "event_loop"] {
        let of_it = workers.iter().filter(|worker| worker["role"] == role);
        let pids: BTreeSet<u64> = of_it.map(|worker| json::count(worker, "/pid")).collect();
        assert_eq!(pids.len(), 2, "{role}: {workers:#?}");
    }
    let tids: BTreeSet<u64> = workers.iter().map(|worker| json::count(worker, "/tid")).collect();
    assert_eq!(tids.len(), workers.len(), "{workers:#?}");
}

/// Callbacks are closures of libffi here, whose memory has no file. The driver counts what was over at once.
fn closures() {
    const ROUNDS: u64 = 300;
    let library = "import libucx, ctypes, os; print(os.path.dirname(libucx.__file__))";
    let folder = command(interpreter().unwrap()).args(["-c", library]).output().unwrap();
    let folder = String::from_utf8(folder.stdout).unwrap();
    let mut python = script("ctypes_ucp.py");
    python.args(["--size", "200000", "--iters", &ROUNDS.to_string()]);
    python.args(["--lib", &format!("{}/lib/libucp.so.0", folder.trim())]);
    let recording = record("ucx").command(python).run();
    let words: Vec<&str> = recording.stdout.split_whitespace().collect();
    let told = |name: &str| -> u64 {
        let at = words.iter().position(|word| *word == name).unwrap_or_else(|| panic!("{}", recording.stdout));
        words[at + 1].parse().unwrap()
    };
    let transfers = json::list(&recording.report, "/transfers");
    assert_eq!(transfers.len() as u64, told("immediate") + told("pending"), "{}", recording.stdout);
    let at_once = transfers.iter().filter(|transfer| transfer["immediate"] == true).count() as u64;
    assert_eq!(at_once, told("immediate"));
    assert!(transfers.iter().all(|transfer| transfer["completed_s"].is_number() && transfer["library"] == "ucx"));
    let counts = json::list(&recording.report, "/transfer_counts");
    assert_eq!(counts.iter().map(|count| json::count(count, "/bytes")).sum::<u64>(), 2 * ROUNDS * 200_000);
}

/// Nobody stops UCXX's notifier, which is a thread that the interpreter waits for; and nobody sends what is asked for.
const FORGETS: &str = "
import asyncio, os, threading
os.environ.update(UCX_TLS='tcp,self,sm', UCX_NET_DEVICES='lo', UCX_LOG_LEVEL='error', UCXPY_PROGRESS_MODE='thread',
                  UCXPY_ENABLE_DELAYED_SUBMISSION='1', UCXPY_ENABLE_PYTHON_FUTURE='1')
import numpy
import ucxx._cuda_context
ucxx._cuda_context.ensure_cuda_context = lambda device_id=0: None
import ucxx

end = threading.Timer(15, os._exit, [0])
end.daemon = True
end.start()

async def main():
    async def handler(endpoint):
        await endpoint.send(numpy.ones(1000, 'u1'))
        await endpoint.recv(numpy.empty(777, 'u1'))
    listener = ucxx.create_listener(handler, port=0)
    endpoint = await ucxx.create_endpoint('127.0.0.1', listener.port)
    await endpoint.recv(numpy.empty(1000, 'u1'))
    print('leaves', flush=True)
    raise SystemExit(1)

asyncio.run(main())
";

fn shutdown() {
    let mut python = command(interpreter().unwrap());
    python.args(["-B", "-u", "-c", FORGETS]);
    let recording = record("offcpu,ucx").seconds(10.0).command(python).run();
    assert!(recording.stdout.contains("leaves"), "{}{}", recording.stdout, recording.stderr);
    let transfers = json::list(&recording.report, "/transfers");
    let open: Vec<u64> =
        transfers.iter().filter(|it| it["completed_s"].is_null()).map(|it| json::count(it, "/bytes")).collect();
    assert_eq!(open, [777], "{transfers:#?}");
    let findings = json::list(&recording.report, "/findings");
    let found: Vec<&Value> = findings.iter().filter(|finding| finding["id"] == "ucx/unfinished").collect();
    let [finding] = found[..] else { panic!("{findings:#?}") };
    assert!(json::text(finding, "/summary").contains("threading._shutdown"), "{finding:#}");
    assert_eq!(json::count(finding, "/evidence/unfinished"), 1);
}

fn off_by_default() {
    let mut nothing = command("true");
    nothing.env("LANG", "C");
    let recording = Record::new().command(nothing).run();
    assert!(recording.report["transfers"].is_null());
    assert!(recording.report["workers"].is_null());
    assert!(recording.report["arenas"].is_array());
}
