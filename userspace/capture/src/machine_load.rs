//! The CPU time that all programs of the machine use, watched or not.

use std::fs;

use pyobs_model::{Event, Nanos};

/// Interval between two reads.
const EVERY: Nanos = Nanos(1_000_000_000);
/// The fields of the first line of /proc/stat that are time in use: user, nice, system, irq and softirq. Time that a
/// hypervisor took is not.
const USED: [usize; 5] = [0, 1, 2, 5, 6];

/// Reports the time in use since the first report.
#[derive(Debug, Default)]
pub struct MachineLoad {
    first: Option<Nanos>,
    due: Nanos,
}

impl MachineLoad {
    /// Emits the time so far, if it is time or the end.
    pub fn poll(&mut self, now: Nanos, at_the_end: bool, events: &mut Vec<Event>) {
        if now < self.due && !at_the_end {
            return;
        }
        self.due = now.saturating_add(EVERY);
        let Some(used) = fs::read_to_string("/proc/stat").ok().and_then(|stat| used(&stat)) else { return };
        let first = *self.first.get_or_insert(used);
        events.push(Event::Machine { at: now, used: used.saturating_sub(first) });
    }
}

fn used(stat: &str) -> Option<Nanos> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let ticks: u64 = USED.iter().map(|field| fields.get(*field).copied().unwrap_or(0)).sum();
    let second = rustix::param::clock_ticks_per_second().max(1);
    Some(Nanos(ticks.saturating_mul(1_000_000_000 / second)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_and_stolen_time_is_not_used() {
        let ticks =
            |text: &str| used(text).map(|used| used.0 * rustix::param::clock_ticks_per_second() / 1_000_000_000);
        assert_eq!(ticks("cpu  1 20 300 9 9 4000 50000 9 1 1\ncpu0 1 1\n"), Some(54_321));
        assert_eq!(ticks("cpu 7\n"), Some(7));
        assert_eq!(ticks("intr 7\n"), None);
        assert!(used(&fs::read_to_string("/proc/stat").unwrap()).unwrap() > Nanos(0));
    }
}
