//! Threads that take part in transfers: the kernel side's counts, and how busy they are.

use std::collections::HashMap;
use std::time::Instant;

use aya::maps::{HashMap as KernelMap, MapData};
use pyobs_abi::ucx::{Thread, activity};
use pyobs_model::{Event, Nanos, ProcessRef, Tid, TransferThread};

const THREADS_MAX: usize = 4096;

/// A thread's state at the last report.
struct Known {
    since: Instant,
    awake_at_first: Nanos,
    reported: Option<TransferThread>,
}

/// By the kernel's tgid and pid.
#[derive(Default)]
pub(super) struct Threads(HashMap<u64, Known>);

impl Threads {
    /// Emits the threads of the processes that `process` knows, with the time for which their calls of
    /// progress were counted.
    pub(super) fn report(
        &mut self,
        at: Nanos,
        counts: &KernelMap<MapData, u64, Thread>,
        process: impl Fn(u32) -> Option<(ProcessRef, Option<Nanos>)>,
        events: &mut Vec<Event>,
    ) {
        for (both, thread) in counts.iter().flatten() {
            let (pid, tid) = ((both >> 32) as u32, both as u32);
            let Some((process, probed)) = process(pid) else { continue };
            if self.0.len() >= THREADS_MAX && !self.0.contains_key(&both) {
                continue;
            }
            let awake = awake_time(pid, tid);
            let awake_at_first = awake.unwrap_or_default();
            let known =
                self.0.entry(both).or_insert_with(|| Known { since: Instant::now(), awake_at_first, reported: None });
            // A thread that has ended keeps its last reported values.
            let (observed, awake) = match (awake, known.reported) {
                (Some(awake), _) => {
                    let observed = u64::try_from(known.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    (Nanos(observed), awake.saturating_sub(known.awake_at_first))
                }
                (None, Some(before)) => (before.observed, before.awake),
                (None, None) => (Nanos(0), Nanos(0)),
            };
            // While a window is open, the last reported values hold.
            let before = known.reported.map_or((0, Nanos(0)), |before| (before.progress, before.probed));
            let (progress, probed) = probed.map_or(before, |probed| (thread.counts[activity::PROGRESS], probed));
            let now = TransferThread {
                at,
                process,
                tid: Tid(tid),
                registered: thread.counts[activity::REGISTER],
                submitted: thread.counts[activity::SUBMIT],
                dispatched: thread.counts[activity::DISPATCH],
                completed: thread.counts[activity::COMPLETE],
                notified: thread.counts[activity::NOTIFY],
                woken: thread.counts[activity::WAKE],
                progress,
                probed,
                observed,
                awake,
            };
            if known.reported.is_none_or(|before| TransferThread { at, ..before } != now) {
                events.push(Event::TransferThread(now));
                known.reported = Some(now);
            }
        }
    }

    pub(super) fn forget(&mut self, pid: u32, counts: &mut KernelMap<MapData, u64, Thread>) {
        let of_it = self.0.extract_if(|both, _| (both >> 32) as u32 == pid);
        for (both, _) in of_it {
            // The map may already have evicted it.
            let _ = counts.remove(&both);
        }
    }
}

/// How long a thread was running or ready to run: the first two numbers of its schedstat
/// (<https://github.com/torvalds/linux/blob/v6.1/Documentation/scheduler/sched-stats.rst>).
fn awake_time(pid: u32, tid: u32) -> Option<Nanos> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map_while(|number| number.parse::<u64>().ok());
    Some(Nanos(numbers.next()?.saturating_add(numbers.next()?)))
}
