//! The processor's own samples of accesses, with the address of each: Intel's PEBS, AMD's IBS.

use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use perf_event_open::config::{Cpu, Opts, Priv, Proc, SampleFormat, SampleOn, SampleSkid};
use perf_event_open::count::Counter;
use perf_event_open::event::dp::DynamicPmu;
use perf_event_open::event::sw::Software;
use pyobs_model::Sampler;

/// The kernel's folder of event sources.
pub const DEVICES: &str = "/sys/bus/event_source/devices";
/// Intel's units: processors with one kind of core, then those with two.
const INTEL: [&str; 3] = ["cpu", "cpu_core", "cpu_atom"];
/// Samples include the address from this level on (`caps/max_precise`; `x86_pmu_max_precise` in
/// <https://github.com/torvalds/linux/blob/v6.1/arch/x86/events/core.c>).
const PRECISE: u32 = 2;
/// Retired loads and retired stores: event 0xd0 with the masks 0x81 and 0x82 (Intel's
/// `MEM_INST_RETIRED.ALL_LOADS` and `ALL_STORES`, formerly `MEM_UOPS_RETIRED`).
const RETIRED: [u64; 2] = [0x81d0, 0x82d0];
const AMD: &str = "ibs_op";
/// IBS samples by cycles: the next instruction after each period.
const CYCLES: u64 = 0;

/// A hardware unit that samples accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub sampler: Sampler,
    /// The kernel's numbers of the unit and of its events; empty for page faults.
    events: Vec<(u32, u64)>,
}

impl Unit {
    /// This machine's unit, by the kernel's folder of event sources.
    pub fn find(devices: &Path) -> Option<Self> {
        let number =
            |unit: &str, file: &str| fs::read_to_string(devices.join(unit).join(file)).ok()?.trim().parse().ok();
        if let Some(ibs) = number(AMD, "type") {
            return Some(Self { sampler: Sampler::Ibs, events: vec![(ibs, CYCLES)] });
        }
        let precise = |unit: &&str| number(unit, "caps/max_precise").is_some_and(|level| level >= PRECISE);
        let units = INTEL.into_iter().filter(precise).filter_map(|unit| number(unit, "type"));
        let events: Vec<_> = units.flat_map(|unit| RETIRED.map(|event| (unit, event))).collect();
        (!events.is_empty()).then_some(Self { sampler: Sampler::Pebs, events })
    }

    /// Page faults also have an address, and every machine has them. For tests of the later stages.
    pub fn of_faults() -> Self {
        Self { sampler: Sampler::Pebs, events: Vec::new() }
    }

    /// Opens all its events on these CPUs, disabled. With two kinds of cores, each CPU supports only its own
    /// kind's events.
    fn open(&self, cpus: &[u32], rate_hz: u32) -> io::Result<Vec<Counter>> {
        if self.events.is_empty() {
            return cpus
                .iter()
                .map(|cpu| Counter::new(Software::PageFault, (Proc::ALL, Cpu(*cpu)), self.options(rate_hz)))
                .collect();
        }
        // Loads and stores together have this rate.
        let rate_hz = (rate_hz / if self.events.len() > 1 { 2 } else { 1 }).max(1);
        let (mut counters, mut refused) = (Vec::new(), None);
        for (kind, config) in &self.events {
            for cpu in cpus {
                let event = DynamicPmu { ty: *kind, config: *config, config1: 0, config2: 0, config3: 0 };
                match Counter::new(event, (Proc::ALL, Cpu(*cpu)), self.options(rate_hz)) {
                    Ok(counter) => counters.push(counter),
                    Err(error) => refused = Some(error),
                }
            }
        }
        match refused {
            Some(error) if counters.is_empty() => Err(error),
            _ => Ok(counters),
        }
    }

    /// Sampling by rate instead of by period makes each sample arrive when it is taken, not later in a batch
    /// (`PERF_X86_EVENT_LARGE_PEBS` in
    /// <https://github.com/torvalds/linux/blob/v6.1/arch/x86/events/intel/core.c>). IBS also samples the
    /// kernel, and refuses to exclude it.
    fn options(&self, rate_hz: u32) -> Opts {
        let is_ibs = self.sampler == Sampler::Ibs;
        Opts {
            exclude: Priv { kernel: !is_ibs, hv: !is_ibs, ..Priv::default() },
            sample_on: SampleOn::Freq(rate_hz.into()),
            sample_skid: if is_ibs || self.events.is_empty() { SampleSkid::Arbitrary } else { SampleSkid::ReqZero },
            sample_format: SampleFormat { data_addr: true, ..SampleFormat::default() },
            ..Opts::default()
        }
    }

    /// Whether the kernel lets us use it.
    pub fn try_on(&self, cpu: u32) -> io::Result<()> {
        self.open(&[cpu], 1).map(drop)
    }
}

/// Runs a BPF program on samples of accesses on every CPU, until it is dropped.
pub struct Addresses {
    _counters: Vec<Counter>,
}

impl Addresses {
    pub fn start(unit: &Unit, program: BorrowedFd<'_>, cpus: &[u32], rate_hz: u32) -> io::Result<Self> {
        let program = File::from(program.try_clone_to_owned()?);
        let counters = unit.open(cpus, rate_hz)?;
        for counter in &counters {
            counter.attach_bpf(&program)?;
            counter.enable()?;
        }
        Ok(Self { _counters: counters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a machine whose kernel folder has these files.
    fn found(files: &[(&str, &str)]) -> Option<Unit> {
        let folder = std::env::temp_dir().join(format!("pyobs-units-{}-{}", std::process::id(), files.len()));
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let unit = Unit::find(&folder);
        let _ = fs::remove_dir_all(&folder);
        unit
    }

    #[test]
    fn units_are_known_by_what_the_kernel_says_of_them() {
        let one = found(&[("cpu/type", "4\n"), ("cpu/caps/max_precise", "3\n")]).unwrap();
        assert_eq!((one.sampler, one.events), (Sampler::Pebs, vec![(4, 0x81d0), (4, 0x82d0)]));
        let (core, atom) = (("cpu_core/type", "4"), ("cpu_atom/type", "10"));
        let (precise, too) = (("cpu_core/caps/max_precise", "3"), ("cpu_atom/caps/max_precise", "2"));
        assert_eq!(found(&[core, atom, precise, too]).unwrap().events.len(), 4);
        let amd = found(&[("cpu/type", "4"), ("cpu/caps/max_precise", "0"), ("ibs_op/type", "9\n")]).unwrap();
        assert_eq!((amd.sampler, amd.events), (Sampler::Ibs, vec![(9, 0)]));
        assert_eq!(
            found(&[
                ("cpu/type", "4"),
                ("cpu/caps/max_precise", "0"),
                ("software/type", "1"),
                ("msr/type", "6"),
                ("uprobe/type", "7")
            ]),
            None
        );
    }
}
