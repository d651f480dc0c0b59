//! Collects the results of a run of samples.

use std::collections::BTreeMap;

use pyobs_abi::stack::{flags, native, native_address};
use pyobs_capture::session::Copied;

use crate::oracle::{End, Unwound};
use crate::space::{Mapping, Space};

/// How many differences are kept for the message.
const SHOWN_MAX: usize = 8;

#[derive(Debug, Default)]
pub struct Verdict {
    pub samples: u64,
    /// Samples that the kernel side walked to the outermost frame.
    pub complete: u64,
    /// Why the others are incomplete.
    pub incomplete: BTreeMap<String, u64>,
    /// The frames of the complete samples.
    pub frames: u64,
    pub deepest: usize,
    /// Samples that both sides walked to the outermost frame.
    pub compared: u64,
    pub agreed: u64,
    /// Samples where one side stopped early, by its reason. The frames that both have are the same.
    pub in_part: BTreeMap<String, u64>,
    /// Samples whose stacks did not fit in the ring.
    pub uncopied: u64,
    /// Plain stacks that framehop unwound, and those of them with the same frames.
    pub witnessed: u64,
    pub confirmed: u64,
    /// Samples taken in the kernel, by what had entered it.
    pub in_calls: Part,
    pub in_exceptions: Part,
    /// Leaves by the mapping that they are in.
    pub leaves: BTreeMap<String, u64>,
    pub differences: u64,
    pub shown: Vec<String>,
}

/// Counts for some of the samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    pub samples: u64,
    pub compared: u64,
    pub agreed: u64,
}

pub fn outcome(number: u32) -> &'static str {
    match number {
        native::NONE => "not walked",
        native::COMPLETE => "complete",
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
        let is_complete = copied.sample.native == native::COMPLETE;
        if is_complete {
            self.complete += 1;
            self.frames += pcs.len() as u64;
            self.deepest = self.deepest.max(pcs.len());
        } else {
            let place = pcs.last().and_then(|pc| space.find(*pc)).map(Mapping::short_name).unwrap_or("nowhere");
            *self.incomplete.entry(format!("{} in {place}", outcome(copied.sample.native))).or_default() += 1;
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
        if let Some(witnessed) = witnessed.filter(|_| is_complete) {
            self.witnessed += 1;
            self.confirmed += u64::from(witnessed == pcs);
        }
        self.compare(copied, &pcs, unwound, space);
    }

    fn compare(&mut self, copied: &Copied, pcs: &[u64], unwound: &Unwound, space: &Space) {
        let is_complete = copied.sample.native == native::COMPLETE;
        let same = pcs.iter().zip(&unwound.pcs).take_while(|(left, right)| left == right).count();
        let agrees = if is_complete && unwound.end == End::Root {
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
            same == pcs.len().min(unwound.pcs.len()) && !(is_complete && same < pcs.len() && unwound.end == End::Root)
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

    /// One line for the log.
    pub fn summary(&self) -> String {
        let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        format!(
            "{} samples, {:.2} % complete (mean {:.1} frames, deepest {}), agreed {} of {} ({:.3} %), framehop {} of {}; \
             in the kernel by calls {:?}, by exceptions {:?}; incomplete {:?}; in part {:?}; uncopied {}; differences {}; leaves {:?}",
            self.samples,
            share(self.complete, self.samples),
            self.frames as f64 / self.complete.max(1) as f64,
            self.deepest,
            self.agreed,
            self.compared,
            share(self.agreed, self.compared),
            self.confirmed,
            self.witnessed,
            self.in_calls,
            self.in_exceptions,
            self.incomplete,
            self.in_part,
            self.uncopied,
            self.differences,
            self.leaves,
        )
    }

    /// Asserts what must hold for every workload: nearly all samples are complete, and none differs from the oracle.
    #[track_caller]
    pub fn holds(&self, least: &Least) {
        let (summary, shown) = (self.summary(), self.shown.join("\n"));
        assert!(self.complete as f64 >= self.samples as f64 * least.complete, "too few are complete: {summary}");
        assert!(self.compared as f64 >= self.samples as f64 * least.compared, "too few were compared: {summary}");
        assert!(self.agreed as f64 >= self.compared as f64 * 0.999, "{summary}\n{shown}");
        assert_eq!(self.differences, 0, "{summary}\n{shown}");
        // The stacks that framehop unwinds contain no frames of the kinds that it gets wrong.
        assert!(self.confirmed as f64 >= self.witnessed as f64 * 0.99, "framehop has other frames: {summary}");
    }
}

/// Minimum shares of the samples.
#[derive(Clone, Copy, Debug)]
pub struct Least {
    pub complete: f64,
    pub compared: f64,
}

impl Default for Least {
    fn default() -> Self {
        Self { complete: 0.98, compared: 0.9 }
    }
}

/// The names of kernel functions for messages, leaf first.
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
