//! Tests the family `ucx` against programs that report what they sent and received.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

#[path = "ucx/dask.rs"]
mod dask;
#[path = "ucx/driver.rs"]
mod driver;
#[path = "ucx/findings.rs"]
mod findings;
#[path = "ucx/lines.rs"]
mod lines;
#[path = "ucx/midway.rs"]
mod midway;
#[path = "ucx/modes.rs"]
mod modes;
#[path = "ucx/parts.rs"]
mod parts;
#[path = "ucx/perftest.rs"]
mod perftest;
#[path = "ucx/rates.rs"]
mod rates;
#[path = "ucx/regions.rs"]
mod regions;
#[path = "ucx/slow.rs"]
mod slow;
#[path = "ucx/strange.rs"]
mod strange;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use pyobs_tests::{Case, Ended, Record, Recording, Workload, case, command, json, needs, workload};
use serde_json::Value;

use self::driver::Driver;

const ITERATIONS: u64 = 40;

/// Other versions of UCXX than the tests' own, and the variable that names an interpreter with each.
const VERSIONS: [(&str, &str); 2] = [("0.46", "PYOBS_UCXX_0_46"), ("0.48", "PYOBS_UCXX_0_48")];

fn main() -> ExitCode {
    let of = |name: String, body: Box<dyn Fn() + Send>| case(name, body).needs(needs::root()).needs(interpreter());
    let mut cases: Vec<Case> = Vec::new();
    for driver in Driver::all() {
        let is_quick = driver.is_quick();
        let case = of(driver.name(), Box::new(move || driver.counted(&interpreter().unwrap())));
        cases.push(if is_quick { case } else { case.needs(needs::all()) });
        for (version, variable) in VERSIONS.into_iter().filter(|_| driver.is_of_each_version()) {
            let name = format!("{}_by_ucxx_{}", driver.name(), version.replace('.', "_"));
            let body = move || driver.counted(&other(version, variable).unwrap());
            cases.push(of(name, Box::new(body)).needs(needs::all()).needs(other(version, variable)));
        }
    }
    for api in ["tag", "stream", "am", "multi"] {
        // UCXX delays submission only with a progress thread.
        for (progress, delayed) in [
            ("thread", true),
            ("thread", false),
            ("thread-polling", true),
            ("thread-polling", false),
            ("blocking", false),
        ] {
            let word = if delayed { "_delayed" } else { "" };
            let name = format!("{api}_by_the_synchronous_interface_{}{word}", progress.replace('-', "_"));
            let case = of(name, Box::new(move || synchronous(api, progress, delayed)));
            cases.push(case.needs(needs::all()));
        }
    }
    let wheel = || {
        closures(&libucp(&interpreter().unwrap()));
    };
    cases.push(of("closures_of_ctypes_end_when_their_requests_are_freed".to_owned(), Box::new(wheel)));
    let packaged = || stripped(&packaged().unwrap());
    let name = "closures_of_ctypes_with_the_distribution_s_libucp".to_owned();
    cases.push(of(name, Box::new(packaged)).needs(self::packaged()));
    cases.push(of("ucxx_and_another_user_of_one_libucp".to_owned(), Box::new(beside)).needs(needs::all()));
    cases.push(of("rendezvous_is_reported_if_ucx_is_set_to_it".to_owned(), Box::new(protocols)));
    cases.push(of("an_interpreter_that_waits_for_the_notifier_is_diagnosed".to_owned(), Box::new(shutdown)));
    cases.push(case("the_family_is_off_unless_asked_for", off_by_default).needs(needs::root()));
    cases.extend(strange::cases());
    cases.extend(slow::cases());
    cases.extend(midway::cases());
    cases.extend(modes::cases());
    cases.extend(parts::cases());
    cases.extend(rates::cases());
    cases.extend(perftest::cases());
    cases.extend(regions::cases());
    cases.extend(findings::cases());
    cases.extend(dask::cases());
    pyobs_tests::run(cases)
}

/// The interpreter is looked for only once, because importing UCXX takes seconds.
fn interpreter() -> Result<PathBuf, String> {
    static FOUND: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| needs::executable_with("ucxx", "PYOBS_UCXX"));
    FOUND.clone()
}

fn other(version: &str, variable: &str) -> Result<PathBuf, String> {
    let named = env::var_os(variable).map(PathBuf::from);
    named.ok_or_else(|| {
        format!("there is no UCXX {version} here; `cargo xtask test --all` makes an environment with it")
    })
}

/// The libucp in an interpreter's package libucx.
fn libucp(interpreter: &Path) -> PathBuf {
    let print = "import libucx, os; print(os.path.dirname(libucx.__file__))";
    let output = command(interpreter).args(["-c", print]).output().unwrap();
    Path::new(String::from_utf8(output.stdout).unwrap().trim()).join("lib/libucp.so.0")
}

/// The distribution's own libucp, which is stripped; a variable may name another.
fn packaged() -> Result<PathBuf, String> {
    let named = env::var_os("PYOBS_LIBUCP").map(PathBuf::from);
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let here = named.into_iter().chain(folders.map(|folder| Path::new(folder).join("libucp.so.0")));
    here.into_iter().find(|file| file.exists()).ok_or_else(|| {
        "there is no libucp.so.0 of the distribution here; its package is libucx0, or PYOBS_LIBUCP may name one"
            .to_owned()
    })
}

fn script(interpreter: &Path, name: &str) -> Command {
    let mut python = command(interpreter);
    python.args(["-B", "-u"]).arg(workload(name));
    // Without it, the libraries warn about variables that they do not know.
    python.env("UCX_WARN_UNUSED_ENV_VARS", "n");
    python
}

fn record(probes: &str) -> Record {
    Record::new().argument("--probe").argument(probes)
}

/// Starts recording a program that is ready, lets it go on a second later, and waits for its end.
fn in_the_middle(program: Command) -> (Recording, Ended) {
    let mut running = Workload::start(program);
    running.wait_for("ready");
    let recording = record("ucx").pid(running.pid()).start();
    thread::sleep(Duration::from_secs(1));
    running.signal(libc::SIGUSR1);
    (recording.wait(), running.wait())
}

/// Checks that each side sends and receives as often as requested. The driver itself fails if the bytes are wrong.
fn synchronous(api: &str, progress: &str, delayed: bool) {
    const SIZE: u64 = 65536;
    let mut python = script(&interpreter().unwrap(), "ucxx_sync_driver.py");
    python.args(["--api", api, "--size", &SIZE.to_string(), "--iters", &ITERATIONS.to_string(), "--hold", "0.5"]);
    python.args(["--progress", progress, "--delayed", if delayed { "1" } else { "0" }]);
    let recording = record("ucx").command(python).run();
    assert!(recording.stdout.contains("us_per_rt"), "{}{}", recording.stdout, recording.stderr);
    let counts = json::list(&recording.report, "/transfer_counts");
    for operation in [format!("{api}_send"), format!("{api}_recv")] {
        let own = counts.iter().filter(|count| count["operation"] == operation && count["library"] == "ucxx");
        let own: Vec<_> = own.map(|count| ["/count", "/failed"].map(|key| json::count(count, key))).collect();
        assert_eq!(own, [[ITERATIONS, 0]; 2], "{operation}: {counts:#?}");
    }
    let transfers = json::list(&recording.report, "/transfers");
    let wholes: Vec<&Value> = transfers.iter().filter(|it| it["parent"].is_null() && is_of(it, api)).collect();
    assert_eq!(wholes.len() as u64, 4 * ITERATIONS);
    driver::both_sides(&driver::by_process(&recording, api), api == "tag");
    lines::of_synchronous(transfers, api);
    for whole in wholes {
        let parts = transfers.iter().filter(|it| it["parent"] == whole["id"]);
        assert!(parts.clone().chain([whole]).all(|it| it["completed_s"].is_number()), "{whole:#}");
        // Four buffers, and the message that announces them.
        let (buffers, count) = if api == "multi" { (4, 5) } else { (1, 0) };
        assert_eq!((json::count(whole, "/bytes"), parts.count()), (buffers * SIZE, count), "{whole:#}");
    }
}

fn is_of(transfer: &Value, api: &str) -> bool {
    transfer["library"] == "ucxx" && json::text(transfer, "/operation").starts_with(api)
}

/// The number that the ctypes driver prints after a word.
fn printed(recording: &Recording, name: &str) -> u64 {
    let mut words = recording.stdout.split_whitespace().skip_while(|word| *word != name);
    words.nth(1).unwrap_or_else(|| panic!("{}{}", recording.stdout, recording.stderr)).parse().unwrap()
}

/// The driver ends within milliseconds of loading the library, possibly before the probes are attached, so this loads
/// it earlier.
const LOADS_FIRST: &str = "
import ctypes, runpy, sys, time
library, *sys.argv = sys.argv[1:]
ctypes.CDLL(library)
time.sleep(1)
runpy.run_path(sys.argv[0], run_name='__main__')
";

fn with_ctypes(library: &Path, threshold: Option<&str>, rounds: u64) -> Recording {
    let driver = workload("ctypes_ucp.py");
    let mut python = command(interpreter().unwrap());
    python.args(["-B", "-u", "-c", LOADS_FIRST]).arg(library).arg(driver);
    python.args(["--size", "200000", "--iters", &rounds.to_string(), "--lib"]).arg(library);
    python.env("UCX_WARN_UNUSED_ENV_VARS", "n");
    python.envs(threshold.map(|threshold| ("UCX_RNDV_THRESH", threshold)));
    // Its own libraries lie beside it.
    python.env("LD_LIBRARY_PATH", library.parent().unwrap());
    record("ucx").command(python).run()
}

/// The callbacks are libffi closures, whose memory has no file. The driver counts how many transfers completed at once.
fn closures(library: &Path) -> Recording {
    const ROUNDS: u64 = 300;
    let recording = with_ctypes(library, None, ROUNDS);
    let transfers = json::list(&recording.report, "/transfers");
    assert_eq!(
        transfers.len() as u64,
        printed(&recording, "immediate") + printed(&recording, "pending"),
        "{}",
        recording.stdout
    );
    let at_once = transfers.iter().filter(|transfer| transfer["immediate"] == true).count() as u64;
    assert_eq!(at_once, printed(&recording, "immediate"));
    // The library has written the status before it frees the request.
    let is_over = |it: &Value| it["completed_s"].is_number() && it["status"] == 0 && it["library"] == "ucx";
    assert!(transfers.iter().all(is_over), "{transfers:#?}");
    let counts = json::list(&recording.report, "/transfer_counts");
    assert_eq!(counts.iter().map(|count| json::count(count, "/bytes")).sum::<u64>(), 2 * ROUNDS * 200_000);
    recording
}

/// The same with a stripped library: without a symbol table, no protocol may be guessed.
fn stripped(library: &Path) {
    let recording = closures(library);
    let transfers = json::list(&recording.report, "/transfers");
    assert!(transfers.iter().all(|it| it["protocol"] != "rendezvous"), "{transfers:#?}");
}

/// UCXX reports the ends of its own calls, and the library those of the other program. Both counts must be exact, while
/// both run and after one has ended.
fn beside() {
    const ROUNDS: u64 = 2000;
    let interpreter = interpreter().unwrap();
    // UCXX's loader opens it by this name, which is another file in the wheel.
    let library = libucp(&interpreter).with_file_name("libucp.so");
    let [asyncio, ctypes] = ["ucxx_async_driver.py", "ctypes_ucp.py"].map(workload);
    let mut shell = command("sh");
    shell.arg("-c").arg(
        "$0 -B -u $1 --mode thread --delayed 1 --future 1 --iters 200 --gap 0.02 --hold 0.5 & sleep 2
         $0 -B -u -c \"$4\" $3 $2 --size 64 --iters $5 --lib $3; wait",
    );
    shell.arg(&interpreter).arg(asyncio).arg(ctypes).arg(&library).arg(LOADS_FIRST).arg(ROUNDS.to_string());
    shell.env("LD_LIBRARY_PATH", library.parent().unwrap()).env("UCX_WARN_UNUSED_ENV_VARS", "n");
    let recording = record("ucx").command(shell).run();
    assert_eq!(printed(&recording, "iters"), ROUNDS);
    let counts = json::list(&recording.report, "/transfer_counts");
    let of = |library: &str, key: &str| {
        let own =
            counts.iter().filter(|it| it["library"] == library && json::text(it, "/operation").starts_with("tag"));
        own.map(|it| json::count(it, key)).sum::<u64>()
    };
    assert_eq!((of("ucx", "/count"), of("ucx", "/immediate")), (2 * ROUNDS, printed(&recording, "immediate")));
    // The count covers both sides.
    assert_eq!(of("ucxx", "/count"), 4 * 200);
}

/// A variable sets the size from which UCX announces a message before it sends it.
fn protocols() {
    const ROUNDS: u64 = 20;
    let library = libucp(&interpreter().unwrap());
    let of = |threshold| {
        let recording = with_ctypes(&library, Some(threshold), ROUNDS);
        let transfers = json::list(&recording.report, "/transfers");
        assert_eq!(transfers.len() as u64, 2 * ROUNDS);
        let protocols = transfers.iter().map(|transfer| (transfer["immediate"] == true, transfer["protocol"].clone()));
        protocols.collect::<Vec<_>>()
    };
    assert!(of("1000").iter().all(|(_, protocol)| protocol == "rendezvous"));
    let eager = of("inf");
    assert!(eager.iter().all(|(at_once, protocol)| if *at_once { protocol == "eager" } else { protocol.is_null() }));
}

/// Nothing stops UCXX's notifier, a thread that the interpreter waits for, and nothing sends the requested message.
const FORGETS: &str = "
import asyncio, os, threading
os.environ.update(UCX_TLS='tcp,self,sm', UCX_NET_DEVICES='lo', UCX_LOG_LEVEL='error', UCXPY_PROGRESS_MODE='thread',
                  UCXPY_ENABLE_DELAYED_SUBMISSION='1', UCXPY_ENABLE_PYTHON_FUTURE='1')
import numpy
import ucxx._cuda_context
ucxx._cuda_context.ensure_cuda_context = lambda device_id=0: None
import ucxx

end = threading.Timer(20, os._exit, [0])
end.daemon = True
end.start()

async def main():
    is_left = asyncio.Event()
    async def handler(endpoint):
        await endpoint.send(numpy.ones(1000, 'u1'))
        receives = asyncio.ensure_future(endpoint.recv(numpy.empty(777, 'u1')))
        # Until it is asked for, and has had the time to be handed on.
        await asyncio.sleep(0.2)
        is_left.set()
        await receives
    listener = ucxx.create_listener(handler, port=0)
    endpoint = await ucxx.create_endpoint('127.0.0.1', listener.port)
    await endpoint.recv(numpy.empty(1000, 'u1'))
    await is_left.wait()
    print('leaves', flush=True)
    raise SystemExit(1)

asyncio.run(main())
";

fn shutdown() {
    let mut python = command(interpreter().unwrap());
    python.args(["-B", "-u", "-c", FORGETS]);
    let recording = record("offcpu,ucx").seconds(14.0).command(python).run();
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
