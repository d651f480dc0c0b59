//! The families that are about memory, in a session.

use pyobs_model::Nanos;

use super::{Options, Session, StartError, Targets};
use crate::families::arena::Arenas;
use crate::families::nrt::Nrt;
use crate::families::shm::Shm;
use crate::record::Life;

impl Session {
    pub(super) fn follow_memory(&mut self, options: &Options) -> Result<(), StartError> {
        let (arenas, shm) = (options.probes.contains(&"arena"), options.probes.contains(&"shm"));
        if (arenas || shm)
            && let Err(error) = self.object.attach_system_calls()
        {
            // Not every kernel can, and the others can do without.
            self.meta.probes.retain(|probe| probe != "shm" && probe != "arena");
            if self.meta.probes.is_empty() {
                return Err(error.into());
            }
            self.notes.push(format!("shared segments and arenas are not followed: {error}"));
            return Ok(());
        }
        if arenas {
            self.arenas = Some(Arenas::new(self.start));
        }
        self.follow_segments(options)
    }

    /// MemInfos take probes, which take rights as long as new processes may come.
    pub(super) fn follow_nrt(&mut self, options: &Options) -> Result<(), StartError> {
        if options.probes.contains(&"nrt") {
            let budget = options.budget_binds_calls.then_some(options.budget);
            let programs = self.object.load_nrt()?;
            self.nrt = Some(Nrt::new(programs, budget, self.start).map_err(StartError::Uprobes)?);
        }
        Ok(())
    }

    /// What becomes of the memory of a process that forks, becomes another program or ends.
    pub(super) fn memory_lives_on(&mut self, life: &Life) {
        if let (Some(nrt), Life::Exec(header) | Life::Exit(header)) = (&mut self.nrt, life) {
            nrt.ended(header.pid);
        }
        let Some(arenas) = &mut self.arenas else { return };
        match life {
            Life::Fork { parent, child } => {
                let at = Nanos(parent.time).saturating_sub(self.start);
                if let Some((watched, _)) = self.processes.get(*child) {
                    arenas.forked(parent.pid, *child, watched.id, at, &mut self.scratch);
                }
            }
            Life::Exec(header) | Life::Exit(header) => arenas.ended(header.pid, &mut self.scratch),
        }
    }

    fn follow_segments(&mut self, options: &Options) -> Result<(), StartError> {
        if options.probes.contains(&"shm") {
            let maps = match self.object.attach_segments() {
                Ok(maps) => maps,
                // Not every kernel can, and the others can do without.
                Err(error) if self.meta.probes.len() > 1 => {
                    self.meta.probes.retain(|probe| probe != "shm");
                    self.notes.push(format!("shared segments are not followed: {error}"));
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            let mut shm = Shm::new(self.start, maps);
            let running = self.processes.running().map(|running| running.pid);
            shm.scan(self.now(), options.targets == Targets::All, running, &mut self.scratch);
            self.shm = Some(shm);
        }
        Ok(())
    }

    pub(super) fn tell_memory(&mut self, at_the_end: bool) {
        let now = self.now();
        if let Some(arenas) = &mut self.arenas {
            arenas.tick(now, self.processes.running(), &mut self.scratch);
            if at_the_end {
                arenas.finish(now, &mut self.scratch);
            }
        }
        if let Some(nrt) = &mut self.nrt
            && self.maps_seen != self.processes.maps_read()
        {
            self.maps_seen = self.processes.maps_read();
            self.notes.extend(nrt.follow(self.processes.mappings()));
        }
        if let Some(shm) = &mut self.shm {
            shm.tick(now, self.processes.running().map(|running| running.pid), &mut self.scratch);
        }
    }
}
