//! Runs a capture session in this process on a workload, and checks each sample with the oracle.

use std::time::{Duration, Instant};

use pyobs_abi::stack::native;
use pyobs_capture::session::{Copied, Options, Session, Walk};
use pyobs_model::Family;

use crate::oracle;
use crate::space::Space;
use crate::verdict::Verdict;
use crate::witness::Witness;

/// framehop unwinds one in this many samples.
const WITNESS_EVERY: u64 = 8;
/// How long the unwind tables of a process may take, and how long to wait for samples.
const PATIENCE: Duration = Duration::from_secs(60);
/// All tables are ready once none was missing for this long.
const SETTLED: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The run lasts until it has this many samples, and at least this many seconds.
    pub samples: u64,
    pub seconds: u64,
    pub rate_hz: u32,
    /// How many pages of each stack are copied.
    pub pages: u32,
    /// Whether samples count from the first on, rather than only once all tables are ready.
    pub from_the_start: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self { samples: 1500, seconds: 1, rate_hz: 1000, pages: 8, from_the_start: false }
    }
}

/// Watches a process. `each` also gets every sample.
#[track_caller]
pub fn watch(pid: u32, plan: Plan, mut each: impl FnMut(&Copied)) -> Verdict {
    let walk = Walk::Copied { pages: plan.pages };
    let options = Options { walk, ..pyobs_tests::options(pid, &[Family::Cpu], plan.rate_hz) };
    let mut session = Session::start(&options).unwrap_or_else(|error| panic!("{error}"));
    let mut space = Space::of(pid);
    let mut witness = Witness::of(&mut space);
    let mut verdict = Verdict::default();
    let mut warm = plan.from_the_start;
    let mut lacked = Instant::now();
    let (mut since, least) = (Instant::now(), Duration::from_secs(plan.seconds));
    while session.targets_alive() && (since.elapsed() < least || verdict.samples < plan.samples) {
        assert!(since.elapsed() < least + PATIENCE, "no tables, or too few samples: {}", verdict.summary());
        session.poll(Duration::from_millis(10), &mut Vec::new()).unwrap();
        let samples = session.copies();
        if !warm {
            // Samples taken before the tables were ready do not count.
            if samples.iter().any(|copied| copied.sample.native == native::NO_TABLE) {
                lacked = Instant::now();
            }
            warm = lacked.elapsed() >= SETTLED;
            if warm {
                since = Instant::now();
            }
            continue;
        }
        space.refresh();
        if space.has_changed() {
            witness = Witness::of(&mut space);
        }
        for copied in samples {
            each(&copied);
            let unwound = oracle::unwind(&mut space, &copied);
            let is_plain = unwound.as_ref().is_some_and(|unwound| unwound.is_plain && unwound.end == oracle::End::Root);
            let witnessed =
                if is_plain && verdict.samples % WITNESS_EVERY == 0 { witness.unwind(&copied) } else { None };
            verdict.take(&copied, unwound.as_ref(), witnessed.as_deref(), &mut space);
        }
    }
    session.finish(&mut Vec::new());
    verdict
}
