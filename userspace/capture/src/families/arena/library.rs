//! Arenas of libraries with a description: where probes are attached, and what their hits mean.

pub mod description;
mod expression;
mod lifecycle;
pub mod programs;

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::OwnedFd;

use aya::maps::{Array, MapData};
use pyobs_abi::arena::library::{Hit, RESULT, SITES_MAX, Site, flags};
use pyobs_model::{Event, Nanos, ProcessRef};

pub use self::description::Named;
use self::description::{At, Description, Probe, Role};
use self::lifecycle::{Lifecycles, Where};
use super::{Ids, Wanted};
use crate::elf::{Elf, Symbol};
use crate::families::extension::{Extension, Meter, Probes, returns, tail_calls};
use crate::files::FileId;
use crate::kernel::probed_files::Probe as AttachedProbe;
use crate::kernel::uprobes::Uprobes;
use crate::pattern::is_like;
use crate::process_maps::Mapping;

/// Probes per file; further sites are left out.
const PROBES_MAX: usize = 256;

pub struct Programs {
    pub enter: OwnedFd,
    pub hit: OwnedFd,
}

pub struct Libraries {
    programs: Programs,
    uprobes: Uprobes,
    meter: Meter,
    descriptions: Vec<Description>,
    /// Indexed by a site's number: its description and its role.
    sites: Vec<(usize, Role)>,
    probes: Probes,
    seen: HashSet<(usize, FileId)>,
    start: Nanos,
    latest: Nanos,
    lifecycle: Lifecycles,
}

impl Libraries {
    /// Sets the time on the kernel's clock at which the recording begins.
    pub fn starts_at(&mut self, start: Nanos) {
        self.start = start;
        self.latest = Nanos(0);
    }

    /// Also returns what cannot be followed, in words.
    pub fn new(
        named: &[Named],
        programs: Programs,
        mut sites: Array<MapData, Site>,
        (start, ids): (Nanos, Ids),
    ) -> io::Result<(Self, Vec<String>)> {
        let uprobes = Uprobes::of_this_kernel()?;
        let mut own = Self {
            programs,
            meter: Meter::new(uprobes)?,
            uprobes,
            descriptions: Vec::new(),
            sites: Vec::new(),
            probes: Probes::default(),
            seen: HashSet::new(),
            start,
            latest: Nanos(0),
            lifecycle: Lifecycles::new(ids),
        };
        let mut notes = Vec::new();
        for named in named {
            match named.load() {
                Ok(description) => notes.extend(own.add(description, &mut sites)),
                Err(why) => notes.push(why),
            }
        }
        Ok((own, notes))
    }

    fn add(&mut self, description: Description, sites: &mut Array<MapData, Site>) -> Option<String> {
        let number = self.descriptions.len();
        if self.descriptions.iter().any(|other| other.name == description.name) {
            return Some(format!("{}: there is another library {} already", description.file, description.name));
        }
        if self.sites.len() + description.probes.len() > SITES_MAX as usize {
            return Some(format!("{}: more than {SITES_MAX} probes were described", description.file));
        }
        for probe in &description.probes {
            if let Err(error) = sites.set(self.sites.len() as u32, probe.site, 0) {
                return Some(format!("{}: its sites cannot be set: {error}", description.file));
            }
            self.sites.push((number, probe.role));
        }
        self.descriptions.push(description);
        None
    }

    /// Attaches probes to the libraries that processes have mapped. Returns failures in words.
    pub fn follow<'a>(&mut self, mappings: impl Iterator<Item = (u32, &'a Mapping)>) -> Vec<String> {
        let mut notes = Vec::new();
        if self.probes.is_closed() {
            return notes;
        }
        for (pid, mapping) in mappings {
            let Some(file) = mapping.file else { continue };
            for (number, description) in self.descriptions.iter().enumerate() {
                if !description.probes.iter().any(|probe| is_like(&mapping.name, &probe.module))
                    || !self.probes.has_room()
                    || !self.seen.insert((number, file))
                {
                    continue;
                }
                match self.put(number, description, pid, mapping) {
                    Ok(probes) => self.probes.add(probes),
                    Err(why) => notes.push(why),
                }
            }
        }
        notes
    }

    /// A file was written to, so that its probes are gone. The next process that maps it gets new ones.
    pub fn rewritten(&mut self, file: FileId) {
        let before = self.seen.len();
        self.seen.retain(|(_, seen)| *seen != file);
        for _ in self.seen.len()..before {
            self.probes.forget_one();
        }
    }

    fn put(
        &self,
        number: usize,
        description: &Description,
        pid: u32,
        mapping: &Mapping,
    ) -> Result<Vec<AttachedProbe>, String> {
        let place = |line: usize| format!("{}:{line}", description.file);
        let first = description.probes.first().map_or(1, |probe| probe.line);
        let wrong = |why: String| format!("{}: {} is not followed: {why}", place(first), mapping.name);
        let extension = Extension::open(pid, mapping).map_err(wrong)?;
        let elf = extension.elf().map_err(wrong)?;
        let mut places = Vec::new();
        let sites = self.sites.iter().zip(0_u64..).filter(|((of, _), _)| *of == number).map(|(_, site)| site);
        let probes = description.probes.iter().zip(sites);
        for (probe, site) in probes.filter(|(probe, _)| is_like(&mapping.name, &probe.module)) {
            let found = self.places(&elf, probe, site);
            if found.is_empty() && !probe.optional {
                return Err(format!(
                    "{}: {} is not followed: it has no function {}",
                    place(probe.line),
                    mapping.name,
                    probe.symbol
                ));
            }
            places.extend(found);
        }
        if places.len() > PROBES_MAX {
            return Err(wrong(format!("its functions begin and end at more than {PROBES_MAX} places")));
        }
        let attach = |(program, address, site)| extension.attach(self.uprobes, program, &elf, address, site);
        places.into_iter().map(attach).collect::<Result<_, _>>().map_err(wrong)
    }

    /// Where to attach a probe: programs, addresses in the file, cookies.
    fn places(&self, elf: &Elf<'_>, probe: &Probe, site: u64) -> Vec<(&OwnedFd, u64, u64)> {
        let mut places = Vec::new();
        for symbol in functions(elf, &probe.symbol) {
            match probe.at {
                At::Entry => places.push((&self.programs.hit, symbol.address, site)),
                At::Return => {
                    let mut ends = returns(elf, symbol.address, symbol.size);
                    if !needs_result(&probe.site) {
                        ends.extend(tail_calls(elf, symbol.address, symbol.size));
                    }
                    if !ends.is_empty() && probe.site.flags & flags::ARGUMENTS != 0 {
                        places.push((&self.programs.enter, symbol.address, site));
                    }
                    places.extend(ends.into_iter().map(|end| (&self.programs.hit, end, site)));
                }
            }
        }
        places
    }

    /// Libraries that no process has mapped, in words.
    pub fn unfound(&self) -> Vec<String> {
        let is_unfound = |number: &usize| !self.seen.iter().any(|(seen, _)| seen == number);
        let unfound =
            (0..self.descriptions.len()).filter(is_unfound).filter_map(|number| self.descriptions.get(number));
        let words = unfound.map(|description| {
            let modules: BTreeSet<&str> = description.probes.iter().map(|probe| probe.module.as_str()).collect();
            let modules: Vec<&str> = modules.into_iter().collect();
            format!("arena={}: no process that is watched has mapped a file {}", description.name, modules.join(" or "))
        });
        words.collect()
    }

    pub fn hit(&mut self, hit: &Hit, process: ProcessRef, events: &mut Vec<Event>) {
        self.meter.hit();
        let at = self.at(Nanos(hit.header.time).saturating_sub(self.start));
        let Some((library, role)) = self.sites.get(hit.site as usize).copied() else { return };
        let Some(description) = self.descriptions.get(library) else { return };
        self.lifecycle.hit(role, &Where { hit, at, process, library, kind: &description.name }, events);
    }

    /// Event time of a record. Records of different CPUs can be slightly out of order; event times must not
    /// go back.
    fn at(&mut self, at: Nanos) -> Nanos {
        self.latest = self.latest.max(at);
        self.latest
    }

    /// What the stack that a thread has sent is for.
    pub fn stack(&mut self, tid: u32) -> Option<Wanted> {
        self.lifecycle.stack(tid)
    }

    /// Call regularly: emits changes in the number of objects.
    pub fn tick(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let at = self.at(now);
        self.lifecycle.tick(at, events);
    }

    /// Forgets a process that has ended or runs another program now.
    pub fn ended(&mut self, pid: u32, events: &mut Vec<Event>) {
        self.lifecycle.ended(pid, self.latest, events);
    }

    /// What hits have cost so far besides the run time of their programs.
    pub fn trap_cost(&self) -> Nanos {
        self.meter.trap_cost()
    }

    /// Detaches the probes for good.
    pub fn close(&mut self) {
        self.probes.close();
    }
}

/// Whether a site reads its function's return value, which is unknown at a tail call.
fn needs_result(site: &Site) -> bool {
    site.values.iter().enumerate().any(|(number, value)| site.has >> number & 1 != 0 && value.register == RESULT)
}

/// The functions whose symbols match `pattern`, without the cold parts that compilers split off.
fn functions(elf: &Elf<'_>, pattern: &str) -> Vec<Symbol> {
    let is_wanted =
        |name: &&[u8]| std::str::from_utf8(name).is_ok_and(|name| is_like(name, pattern) && !name.ends_with(".cold"));
    // Stripped files keep their exported symbols.
    let all = elf.symbols().chain(elf.exported_symbols());
    let wanted = all.filter(|(name, symbol)| is_wanted(name) && elf.is_code(symbol.address));
    let mut found: Vec<Symbol> = wanted.map(|(_, symbol)| symbol).collect();
    found.sort_unstable_by_key(|symbol| symbol.address);
    found.dedup_by_key(|symbol| symbol.address);
    found
}
