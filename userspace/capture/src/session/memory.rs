//! The families that are about memory, in a session.

use pyobs_model::Nanos;

use super::{Asked, Options, Session, StartError, Targets, budget};
use crate::budget::{Cost, Family};
use crate::families::arena::library::Libraries;
use crate::families::arena::{Arenas, Ids};
use crate::families::nrt::Nrt;
use crate::families::shm::{self, Shm};
use crate::kernel::object::Object;
use crate::kernel::sideband::Sideband;
use crate::record::{Life, Record};

/// Starts to look at system calls if a family needs it, and has them tell of executable mappings. Returns what does so
/// where they do not.
pub(super) fn look_at_calls(
    asked: &mut Asked,
    object: &mut Object,
    cpus: &[u32],
) -> Result<Option<Sideband>, StartError> {
    let is_needed = asked.has("shm") || asked.has("arena");
    if is_needed && asked.keep(&["arena", "shm"], object.attach_system_calls(&asked.options.probes)).is_some() {
        object.tell_mappings(asked.options.targets == Targets::All)?;
        return Ok(None);
    }
    Ok(Some(Sideband::open(cpus)?))
}

impl Session {
    pub(super) fn follow_memory(&mut self, asked: &mut Asked) {
        if asked.has("arena") {
            let ids = Ids::default();
            let libraries = self.start_libraries(&asked.options, ids.clone());
            if let Some(libraries) = asked.keep(&["arena"], libraries) {
                self.libraries = libraries;
                self.arenas = Some(Arenas::new(self.start, ids));
            }
        }
        if asked.has("shm") {
            let maps = self.object.attach_segments(asked.options.iterators);
            if let Some(maps) = asked.keep(&["shm"], maps) {
                self.follow_segments(asked.options.targets == Targets::All, maps);
            }
        }
    }

    /// These take probes, too.
    fn start_libraries(&mut self, options: &Options, ids: Ids) -> Result<Option<Libraries>, StartError> {
        if options.libraries.is_empty() {
            return Ok(None);
        }
        let (programs, sites) = self.object.take_libraries()?;
        let (libraries, notes) =
            Libraries::new(&options.libraries, programs, sites, (self.start, ids)).map_err(StartError::Uprobes)?;
        self.notes.extend(notes);
        Ok(Some(libraries))
    }

    /// What each family has cost, and the traps' part of it.
    pub(super) fn account_memory(&self) -> [Option<(Cost, Nanos)>; 2] {
        let cost = |family, time, traps| (budget::of(family, time, traps), traps);
        let nrt = self.nrt.as_ref().map(|nrt| cost(Family::MemInfos, self.object.nrt_run_time(), nrt.trap_cost()));
        let libraries = self.libraries.as_ref();
        let libraries = libraries.map(|it| cost(Family::Libraries, self.object.libraries_run_time(), it.trap_cost()));
        [nrt, libraries]
    }

    /// MemInfos take probes, which take rights as long as new processes may come.
    pub(super) fn follow_nrt(&mut self, asked: &mut Asked) {
        if asked.has("nrt") {
            let nrt = self.start_nrt();
            self.nrt = asked.keep(&["nrt"], nrt);
        }
    }

    fn start_nrt(&mut self) -> Result<Nrt, StartError> {
        Nrt::new(self.object.load_nrt()?, self.start).map_err(StartError::Uprobes)
    }

    /// A record without a stack.
    pub(super) fn memory_changed(&mut self, record: &Record) {
        match record {
            Record::Shm(record) => {
                if let Some(shm) = &mut self.shm {
                    shm.record(record, &mut self.scratch);
                }
            }
            Record::ArenaFreed(freed) => {
                if let Some(arenas) = &mut self.arenas {
                    arenas.freed(freed, &mut self.scratch);
                }
            }
            Record::ArenaHit(hit) => {
                if let (Some(libraries), Some((watched, _))) = (&mut self.libraries, self.processes.get(hit.header.pid))
                {
                    libraries.hit(hit, watched.id, &mut self.scratch);
                }
            }
            Record::NrtDeath(death) => {
                if let Some(nrt) = &mut self.nrt {
                    nrt.died(death, &mut self.scratch);
                }
            }
            _ => {}
        }
    }

    /// What becomes of the memory of a process that forks, becomes another program or ends.
    pub(super) fn memory_lives_on(&mut self, life: &Life) {
        if let (Some(nrt), Life::Exec(header) | Life::Exit(header)) = (&mut self.nrt, life) {
            nrt.ended(header.pid);
        }
        if let (Some(libraries), Life::Exec(header) | Life::Exit(header)) = (&mut self.libraries, life) {
            libraries.ended(header.pid, &mut self.scratch);
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

    fn follow_segments(&mut self, of_everybody: bool, maps: shm::Maps) {
        self.meta.segment_repair = if self.object.has_iterators() { "iterators" } else { "proc" }.to_owned();
        let mut shm = Shm::new(self.start, maps);
        let running = self.processes.running().map(|running| running.pid);
        shm.scan(self.now(), of_everybody, running, &mut self.scratch);
        self.shm = Some(shm);
    }

    pub(super) fn tell_memory(&mut self, at_the_end: bool) {
        let now = self.now();
        if let Some(arenas) = &mut self.arenas {
            arenas.tick(now, self.processes.running(), &mut self.scratch);
            if at_the_end {
                arenas.finish(now, &mut self.scratch);
            }
        }
        if self.maps_seen != self.processes.maps_read() {
            self.maps_seen = self.processes.maps_read();
            if let Some(nrt) = &mut self.nrt {
                self.notes.extend(nrt.follow(self.processes.mappings()));
            }
            if let Some(libraries) = &mut self.libraries {
                self.notes.extend(libraries.follow(self.processes.mappings()));
            }
        }
        if let Some(nrt) = &mut self.nrt {
            nrt.tick(now, at_the_end, &mut self.scratch);
        }
        if let Some(libraries) = &mut self.libraries {
            libraries.tick(now, &mut self.scratch);
        }
        if let Some(shm) = &mut self.shm {
            if shm.is_reconciliation_due() {
                let had_iterators = self.object.has_iterators();
                shm.reconcile(now, || self.object.iterate_segments(), &mut self.scratch);
                if had_iterators && !self.object.has_iterators() {
                    self.notes.push(
                        "the kernel's iterators have failed: what processes have of segments is read from /proc from now on".to_owned(),
                    );
                }
            }
            shm.tick(now, self.processes.running().map(|running| running.pid), &mut self.scratch);
            let running = self.processes.running().map(|running| (running.pid, running.id));
            shm.look_at_memory(now, running, at_the_end, &mut self.scratch);
        }
    }
}
