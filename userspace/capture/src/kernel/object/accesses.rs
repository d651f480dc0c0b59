//! The programs of the family `redundancy`.

use std::fs::File;
use std::os::fd::AsFd;

use aya::programs::PerfEvent;

use super::{Object, ObjectError, SAMPLER_REDUNDANCY, descriptor, online_cpus, program, refused, take};
use crate::families::redundancy;
use crate::kernel::addresses::{Addresses, Unit};

/// What a watchpoint runs.
pub(super) const TRAP: &str = "redundancy_trap";
/// What a sample of the processor's runs, of an access.
pub(super) const ACCESS: &str = "redundancy_access";
/// Those that run for samples, beside the sampler.
pub(super) const PROGRAMS: [&str; 2] = [TRAP, ACCESS];

impl Object {
    /// Loads the sampler and the program for watchpoints, and takes the maps; to be called once.
    pub fn take_redundancy(&mut self) -> Result<redundancy::Parts, ObjectError> {
        self.load(TRAP)?;
        let program: &mut PerfEvent = program(&mut self.ebpf, TRAP)?;
        let program = File::from(descriptor(program.fd(), TRAP)?);
        let trap_cost = redundancy::measure_breakpoint(&program).map_err(ObjectError::Breakpoint)?;
        self.load_sampler(SAMPLER_REDUNDANCY)?;
        Ok(redundancy::Parts {
            program,
            trap_cost,
            ring: take(&mut self.ebpf, "REDUNDANCY_RING")?,
            watches: take(&mut self.ebpf, "REDUNDANCY_WATCHES")?,
            calls: redundancy::CallMaps {
                spots: take(&mut self.ebpf, "REDUNDANCY_SPOTS")?,
                classes: take(&mut self.ebpf, "REDUNDANCY_CLASSES")?,
            },
        })
    }

    /// Has the processor sample accesses on every CPU.
    pub fn attach_addresses(&mut self, unit: &Unit, rate_hz: u32) -> Result<(), ObjectError> {
        self.load(ACCESS)?;
        let program: &mut PerfEvent = program(&mut self.ebpf, ACCESS)?;
        let fd = program.fd().map_err(refused(ACCESS))?;
        let cpus = online_cpus()?;
        let addresses = Addresses::start(unit, fd.as_fd(), &cpus, rate_hz).map_err(ObjectError::Ticks)?;
        self.addresses = Some(addresses);
        Ok(())
    }
}
