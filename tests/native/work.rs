//! Tests typical work of Python programs, on several interpreters.

use pyobs_tests::{Case, Python, case, needs};

use crate::agrees;
use crate::programs::{start, start_in_venv, with_numpy};
use crate::verdict::{Least, Part};
use crate::watch::Plan;

/// The versions that run the basic work by default. With `--all`, every version does.
const VERSIONS: [&str; 3] = ["3.8", "3.12", "3.13"];
const BASIC: [&str; 5] = ["recursion", "sorted", "mixed", "generators", "signals"];
/// Work that runs on one version by default, and on every version with `--all`.
const MORE: [&str; 10] =
    ["json", "re", "sqlite3", "zlib", "hashes", "qsort", "callbacks", "coroutines", "threads", "born_in_c"];
const NEWEST: &str = "3.13";

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for version in VERSIONS {
        cases.extend(BASIC.iter().map(|work| on(version, work)));
    }
    cases.extend(MORE.iter().map(|work| on("3.12", work)));
    let rest = Python::all().iter().filter(|python| python.root.is_none());
    for python in rest {
        for work in BASIC.iter().chain(&MORE) {
            let here = python.clone();
            let name = format!("matrix/{}::{work}", python.name());
            cases.push(case(name, move || on_python(&here, work)).needs(needs::all()));
        }
        let here = python.clone();
        let numpy = case(format!("matrix/{}::numpy", python.name()), move || {
            numpy_on(&here, "numpy", &Least::default());
        });
        cases.push(numpy.needs(needs::all()).needs(needs::numpy(python)));
        cases.push(long_run(python));
    }
    cases.push(in_numpy("work/numpy_realigns_its_stack", "numpy", Least::default()));
    // OpenBLAS's assembly has no call frame information at all; the frames that are found must still agree.
    cases.push(in_numpy("work/numpy_in_openblas", "blas", Least { complete: 0.4, compared: 0.4 }));
    cases.extend(VERSIONS.map(in_the_kernel));
    cases.push(tls());
    cases
}

fn on(version: &'static str, work: &'static str) -> Case {
    let body = move || on_python(&needs::python(version).unwrap(), work);
    case(format!("work/{version}::{work}"), body).needs(needs::python(version))
}

fn on_python(python: &Python, work: &str) {
    let workload = start(python, work);
    agrees(&format!("{work} on {}", python.version), &workload, Plan::default(), &Least::default());
}

fn in_numpy(name: &str, work: &'static str, least: Least) -> Case {
    let body = move || numpy_on(&with_numpy().unwrap(), work, &least);
    case(name, body).needs(with_numpy())
}

fn numpy_on(python: &Python, work: &str, least: &Least) {
    let workload = start_in_venv(python, work);
    let plan = Plan { rate_hz: 2000, samples: 4000, pages: 16, ..Plan::default() };
    agrees(&format!("{work} on {}", python.version), &workload, plan, least);
}

/// In the kernel, the user registers are the ones that it saved on entry.
fn in_the_kernel(version: &'static str) -> Case {
    let body = move || {
        let workload = start(&needs::python(version).unwrap(), "kernel");
        let verdict = agrees(&format!("kernel on {version}"), &workload, Plan::default(), &Least::default());
        for (what, part) in [("system calls", verdict.in_calls), ("exceptions", verdict.in_exceptions)] {
            let Part { samples, compared, agreed } = part;
            assert!(samples * 5 >= verdict.samples, "{samples} of {} samples are in {what}", verdict.samples);
            assert!(compared as f64 >= samples as f64 * Least::default().compared, "in {what}: {part:?}");
            assert!(agreed as f64 >= compared as f64 * 0.999, "in {what}: {part:?}");
        }
    };
    let quick = if version == NEWEST { Ok(()) } else { needs::all() };
    case(format!("work/{version}::mostly_in_the_kernel"), body).needs(needs::python(version)).needs(quick)
}

/// The call frame information of libcrypto's assembly is incomplete; the frames that are found must still agree.
fn tls() -> Case {
    let body = || {
        let workload = start(&needs::python(NEWEST).unwrap(), "tls");
        let least = Least { complete: 0.95, compared: 0.9 };
        agrees("tls", &workload, Plan::default(), &least);
    };
    case("work/tls_between_two_ends_in_memory", body).needs(needs::python(NEWEST))
}

fn long_run(python: &Python) -> Case {
    let name = format!("matrix/{}::a_minute_of_four_threads_at_three_kilohertz", python.name());
    let python = python.clone();
    let body = move || {
        let workload = start(&python, "threads");
        let plan = Plan { rate_hz: 3000, seconds: 60, ..Plan::default() };
        agrees(&format!("a minute of threads on {}", python.version), &workload, plan, &Least::default());
    };
    case(name, body).needs(needs::all())
}
