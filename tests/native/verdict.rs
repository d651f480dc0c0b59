//! What a run of samples comes to.

use std::collections::BTreeMap;

use pyobs_abi::stack::{flags, native, native_address};
use pyobs_capture::session::Copied;

use crate::oracle::{End, Unwound};
use crate::space::{Mapping, Space};

/// Differences that are kept for the message.
const SHOWN_MAX: usize = 8;

#[derive(Debug, Default)]
pub struct Verdict {
    pub samples: u64,
    /// Those that the kernel side walked to the outermost frame.
    pub whole: u64,
    /// Why the others are not.
    pub cut: BTreeMap<String, u64>,
    /// Frames of those that are whole.
    pub frames: u64,
    pub deepest: usize,
    /// Whole, and the oracle got to the outermost frame too.
    pub compared: u64,
    pub agreed: u64,
    /// One side stopped early, for its reason; what both have is the same.
    pub in_part: BTreeMap<String, u64>,
    /// Samples whose stacks found no room in the ring.
    pub uncopied: u64,
    /// Plain stacks that framehop unwound, and those of them with the same frames.
    pub witnessed: u64,
    pub confirmed: u64,
    /// Of those, what was in the kernel at the time, by what had brought it there.
    pub in_calls: Part,
    pub in_exceptions: Part,
    /// Leaves by the mapping that they are in.
    pub leaves: BTreeMap<String, u64>,
    pub differences: u64,
    pub shown: Vec<String>,
}

/// Some of the samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    pub samples: u64,
    pub compared: u64,
    pub agreed: u64,
}

pub fn outcome(number: u32) -> &'static str {
    match number {
        native::NONE => "not walked",
        native::COMPLETE => "whole",
        native::TRUNCATED => "truncated",
        native::NO_MAPPING => "no mapping",
        native::NO_TABLE => "no table",
        native::NO_RULE => "no rule",
        native::UNSUPPORTED => "unsupported",
        native::UNREADABLE => "unreadable",
        native::INVALID => "invalid",
        _ => "unknown",
    }
}

impl Verdict {
    pub fn take(&mut self, copied: &Copied, unwound: Option<&Unwound>, witnessed: Option<&[u64]>, space: &mut Space) {
        let pcs: Vec<u64> = copied.native.iter().map(|word| native_address(*word)).collect();
        self.samples += 1;
        let is_whole = copied.sample.native == native::COMPLETE;
        if is_whole {
            self.whole += 1;
            self.frames += pcs.len() as u64;
            self.deepest = self.deepest.max(pcs.len());
        } else {
            let place = pcs.last().and_then(|pc| space.find(*pc)).map(Mapping::short_name).unwrap_or("nowhere");
            *self.cut.entry(format!("{} in {place}", outcome(copied.sample.native))).or_default() += 1;
        }
        if let Some(part) = self.part_of(copied) {
            part.samples += 1;
        }
        if let Some(mapping) = pcs.first().and_then(|pc| space.find(*pc)) {
            *self.leaves.entry(mapping.short_name().to_owned()).or_default() += 1;
        }
        if let Some(registers) = copied.registers
            && registers.after
            && !space.ends_system_call(registers.ip)
        {
            let kernel = kernel_names(&copied.kernel);
            self.differ(format!("no system call ends at {}; kernel {kernel}", space.show(registers.ip)));
        }
        let Some(unwound) = unwound else {
            self.uncopied += 1;
            return;
        };
        if let Some(witnessed) = witnessed.filter(|_| is_whole) {
            self.witnessed += 1;
            self.confirmed += u64::from(witnessed == pcs);
        }
        self.compare(copied, &pcs, unwound, space);
    }

    fn compare(&mut self, copied: &Copied, pcs: &[u64], unwound: &Unwound, space: &Space) {
        let is_whole = copied.sample.native == native::COMPLETE;
        let same = pcs.iter().zip(&unwound.pcs).take_while(|(left, right)| left == right).count();
        let agrees = if is_whole && unwound.end == End::Root {
            let agrees = pcs == unwound.pcs;
            self.compared += 1;
            self.agreed += u64::from(agrees);
            if let Some(part) = self.part_of(copied) {
                part.compared += 1;
                part.agreed += u64::from(agrees);
            }
            agrees
        } else {
            let why = format!("{} / oracle {:?}", outcome(copied.sample.native), unwound.end);
            *self.in_part.entry(why).or_default() += 1;
            same == pcs.len().min(unwound.pcs.len()) && !(is_whole && same < pcs.len() && unwound.end == End::Root)
        };
        if !agrees {
            let show = |pcs: &[u64]| {
                let from = same.saturating_sub(2);
                pcs.iter().skip(from).take(5).map(|pc| space.show(*pc)).collect::<Vec<_>>().join(" < ")
            };
            let registers = copied.registers.map(|registers| registers.after);
            self.differ(format!(
                "{same} frames are the same (after a system call: {registers:?}), then\n  kernel side ({}, {}): {}\n  \
                 oracle ({:?}, {}): {}",
                outcome(copied.sample.native),
                pcs.len(),
                show(pcs),
                unwound.end,
                unwound.pcs.len(),
                show(&unwound.pcs),
            ));
        }
    }

    fn part_of(&mut self, copied: &Copied) -> Option<&mut Part> {
        let is_call = copied.registers?.after;
        if copied.sample.flags & flags::KERNEL_MODE == 0 {
            return None;
        }
        Some(if is_call { &mut self.in_calls } else { &mut self.in_exceptions })
    }

    fn differ(&mut self, how: String) {
        self.differences += 1;
        if self.shown.len() < SHOWN_MAX && !self.shown.contains(&how) {
            self.shown.push(how);
        }
    }

    /// A line for the log.
    pub fn summary(&self) -> String {
        let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        format!(
            "{} samples, {:.2} % whole (mean {:.1} frames, deepest {}), agreed {} of {} ({:.3} %), framehop {} of {}; \
             in the kernel by calls {:?}, by exceptions {:?}; cut {:?}; in part {:?}; uncopied {}; differences {}; leaves {:?}",
            self.samples,
            share(self.whole, self.samples),
            self.frames as f64 / self.whole.max(1) as f64,
            self.deepest,
            self.agreed,
            self.compared,
            share(self.agreed, self.compared),
            self.confirmed,
            self.witnessed,
            self.in_calls,
            self.in_exceptions,
            self.cut,
            self.in_part,
            self.uncopied,
            self.differences,
            self.leaves,
        )
    }

    /// What is asked of every workload: nearly all whole, and no difference from the oracle.
    #[track_caller]
    pub fn holds(&self, least: &Least) {
        let (summary, shown) = (self.summary(), self.shown.join("\n"));
        assert!(self.whole as f64 >= self.samples as f64 * least.whole, "too few are whole: {summary}");
        assert!(self.compared as f64 >= self.samples as f64 * least.compared, "too few were compared: {summary}");
        assert!(self.agreed as f64 >= self.compared as f64 * 0.999, "{summary}\n{shown}");
        assert_eq!(self.differences, 0, "{summary}\n{shown}");
        // What framehop is asked of has none of the frames that it is known to err in.
        assert!(self.confirmed as f64 >= self.witnessed as f64 * 0.99, "framehop has other frames: {summary}");
    }
}

/// Shares of the samples.
#[derive(Clone, Copy, Debug)]
pub struct Least {
    pub whole: f64,
    pub compared: f64,
}

impl Default for Least {
    fn default() -> Self {
        Self { whole: 0.98, compared: 0.9 }
    }
}

/// For messages: the kernel functions, leaf first.
fn kernel_names(addresses: &[u64]) -> String {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let symbols = symbols.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        Some((address, fields.nth(1)?))
    });
    let mut symbols: Vec<(u64, &str)> = symbols.collect();
    symbols.sort_unstable();
    let name = |address: &u64| {
        let after = symbols.partition_point(|(start, _)| start <= address);
        symbols[..after].last().map_or("?", |(_, name)| *name)
    };
    addresses.iter().map(name).collect::<Vec<_>>().join(" < ")
}
