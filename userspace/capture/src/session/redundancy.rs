//! The family `redundancy` in a session.

use std::path::Path;

use pyobs_model::Sampler;

use super::{Addresses, Asked, Options, Session, StartError};
use crate::families::redundancy::{self, Redundancy};
use crate::kernel::addresses::{DEVICES, Unit};
use crate::record::Life;

impl Session {
    pub(super) fn follow_redundancy(&mut self, asked: &mut Asked) {
        if asked.has("redundancy") {
            let redundancy = self.start_redundancy(&asked.options);
            self.redundancy = asked.keep(&["redundancy"], redundancy);
        }
    }

    fn start_redundancy(&mut self, options: &Options) -> Result<Redundancy, StartError> {
        let parts = self.object.take_redundancy()?;
        let hides_samples = !options.probes.contains(&"cpu");
        let sampler = self.sample_accesses(options);
        self.object.look_at_one_in(options.rate_hz / redundancy::LOOKS_PER_SECOND);
        Redundancy::start(parts, self.start, hides_samples, sampler, options.rate_hz).map_err(StartError::Helper)
    }

    /// Has the processor sample accesses, where it can; else addresses are decoded from samples of the clock.
    fn sample_accesses(&mut self, options: &Options) -> Sampler {
        let unit = match options.addresses {
            Addresses::Best => Unit::find(Path::new(DEVICES)),
            Addresses::Faults => Some(Unit::of_faults()),
        };
        let Some(unit) = unit else { return Sampler::Decoded };
        match self.object.attach_addresses(&unit, options.rate_hz) {
            Ok(()) => unit.sampler,
            Err(error) => {
                self.notes.push(format!("the processor's own samples of accesses are not to be had: {error}"));
                Sampler::Decoded
            }
        }
    }

    pub(super) fn tell_redundancy(&mut self, at_the_end: bool) {
        let now = self.now();
        if let Some(redundancy) = &mut self.redundancy {
            redundancy.tick(now, self.keep_every, self.processes.running(), at_the_end, &mut self.scratch);
        }
    }

    pub(super) fn redundancy_lives_on(&mut self, life: &Life) {
        if let (Some(redundancy), Life::Exec(header) | Life::Exit(header)) = (&mut self.redundancy, life) {
            redundancy.ended(header.pid);
        }
    }
}
