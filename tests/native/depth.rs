//! Tests deep stacks.

use pyobs_abi::stack::{NATIVE_MAX, native};
use pyobs_tests::{Case, case, needs};

use crate::agrees;
use crate::programs::start;
use crate::verdict::Least;
use crate::watch::{Plan, watch};

const DEPTHS: [u32; 4] = [1, 50, 200, 1000];
/// Up to 3.10 each Python frame has C frames of its own.
const VERSIONS: [&str; 3] = ["3.8", "3.11", "3.13"];
/// As many pages as a stack of [`NATIVE_MAX`] frames may need.
const PLAN: Plan = Plan { samples: 200, seconds: 1, rate_hz: 200, pages: 512, from_the_start: false };
const LEAST: Least = Least { complete: 0.98, compared: 0.8 };

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for version in VERSIONS {
        for depth in DEPTHS {
            let body = move || python_frames(version, depth);
            cases.push(case(format!("depth/{version}::{depth}_frames"), body).needs(needs::python(version)));
        }
    }
    let body = || through_c("3.12", 200);
    cases.push(case("depth/3.12::200_levels_through_c", body).needs(needs::python("3.12")));
    for (version, work, slow) in [("3.8", "depth:2000", Ok(())), ("3.11", "through_c:1400", needs::all())] {
        let body = move || beyond(version, work);
        let name = format!("depth/{version}::{work}_is_truncated_at_the_root");
        cases.push(case(name, body).needs(needs::python(version)).needs(slow));
    }
    cases
}

fn python_frames(version: &str, depth: u32) {
    let workload = start(&needs::python(version).unwrap(), &format!("depth:{depth}"));
    let verdict = agrees(&format!("{depth} frames on {version}"), &workload, PLAN, &LEAST);
    let with_each = version == "3.8";
    assert!(!with_each || verdict.deepest >= depth as usize, "{} native frames", verdict.deepest);
}

fn through_c(version: &str, levels: u32) {
    let workload = start(&needs::python(version).unwrap(), &format!("through_c:{levels}"));
    let verdict = agrees(&format!("{levels} levels through C on {version}"), &workload, PLAN, &LEAST);
    assert!(verdict.deepest >= 3 * levels as usize, "{} native frames", verdict.deepest);
}

/// The frames from the leaf on are kept as far as there is room, and must match the oracle's.
fn beyond(version: &str, work: &str) {
    let workload = start(&needs::python(version).unwrap(), work);
    let mut short = 0;
    let verdict = watch(workload.pid(), PLAN, |copied| {
        short += u32::from(copied.sample.native != native::TRUNCATED || copied.native.len() != NATIVE_MAX);
    });
    eprintln!("{work} on {version}: {}", verdict.summary());
    verdict.holds(&Least { complete: 0.0, compared: 0.0 });
    assert_eq!(short, 0, "samples that are not truncated after {NATIVE_MAX} frames: {}", verdict.summary());
}
