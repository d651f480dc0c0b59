//! Loading of the object's programs, and the verifier's verdicts.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

use aya::programs::{Program, ProgramError};
use pyobs_model::Family;

use super::refusal::Refusal;
use super::{Object, ObjectError};
use crate::kernel::btf::Btf;
use crate::kernel::program::{Kind, ProgramSpec};
use crate::kernel::{iterators, sparse};

/// The verifier's verdict on a program.
#[derive(Debug)]
pub struct Verified {
    pub name: &'static str,
    pub families: &'static [Family],
    pub optional: bool,
    /// Number of instructions processed, of at most a million; `None` on kernels that do not report it
    /// (before 5.16).
    pub outcome: Result<Option<u32>, ObjectError>,
}

/// Bounds the programs that are verified at once.
const AT_ONCE: usize = 4;

/// A program, and the BTF number of the type that it attaches to, if any.
pub(super) struct Known {
    spec: ProgramSpec,
    number: Option<u32>,
}

impl Known {
    pub fn new(spec: ProgramSpec, btf: &Btf) -> Self {
        let number = match spec.kind {
            Kind::Plain => None,
            Kind::Typed(of) => btf.typedef(of),
            Kind::Iterator(over) => iterators::number(btf, over),
        };
        Self { spec, number }
    }

    fn load(&self, program: &mut Program) -> Result<(), ObjectError> {
        let number = match self.spec.kind {
            Kind::Plain => 0,
            Kind::Typed(of) | Kind::Iterator(of) => self.number.ok_or(ObjectError::NoType(of))?,
        };
        let refused = |error| ObjectError::Program(Refusal::new(self.spec.name, &error));
        load(program, self.spec.kind, number).map_err(refused)
    }
}

impl Object {
    /// Loads every program and collects the verifier's verdicts.
    pub fn verify(&mut self) -> Vec<Verified> {
        let specs: Vec<ProgramSpec> = self.known.iter().map(|known| known.spec).collect();
        let verified = specs.into_iter().map(|ProgramSpec { name, families, optional, .. }| {
            let outcome = self.load(name).map(|()| self.instructions(name));
            Verified { name, families, optional, outcome }
        });
        verified.collect()
    }

    fn instructions(&self, name: &str) -> Option<u32> {
        self.ebpf.program(name)?.info().ok()?.verified_instruction_count()
    }

    /// Loads a program, unless it is loaded already.
    pub fn load(&mut self, name: &'static str) -> Result<(), ObjectError> {
        let plain = Known { spec: ProgramSpec::new(name, &[]), number: None };
        let known = self.known.iter().find(|known| known.spec.name == name).unwrap_or(&plain);
        known.load(self.ebpf.program_mut(name).ok_or(ObjectError::Missing(name))?)
    }

    /// Loads the programs that the wanted families cannot do without, several at once, because verifying them
    /// one after the other delays the start. A refused program is left to [`Object::load`], which reports the reason.
    pub fn load_together(&mut self, wanted: impl Fn(Family) -> bool) {
        let is_needed = |spec: &ProgramSpec| !spec.optional && spec.families.iter().copied().any(&wanted);
        let known = &self.known;
        let find = |name| known.iter().find(|known| known.spec.name == name && is_needed(&known.spec));
        let programs = self.ebpf.programs_mut().filter_map(|(name, program)| Some((find(name)?, program)));
        let programs: Vec<(&Known, &mut Program)> = programs.collect();
        let (count, queue) = (programs.len(), Mutex::new(programs.into_iter()));
        let load = || {
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((known, program)) = next() {
                let _ = known.load(program);
            }
        };
        let at_once = thread::available_parallelism().map_or(1, NonZero::get).min(AT_ONCE).min(count);
        thread::scope(|scope| {
            for _ in 1..at_once {
                // Without the thread, the others load its share.
                let _ = thread::Builder::new().name("load".into()).spawn_scoped(scope, load);
            }
            load();
        });
    }
}

fn load(program: &mut Program, kind: Kind, number: u32) -> Result<(), ProgramError> {
    if program.fd().is_ok() {
        return Ok(());
    }
    match (program, kind) {
        (Program::BtfTracePoint(program), Kind::Typed(of)) => {
            program.load(of.trim_start_matches("btf_trace_"), &sparse::typedef(of, number)?)
        }
        (Program::Iter(program), Kind::Iterator(over)) => iterators::load(program, over, number),
        (Program::PerfEvent(program), _) => program.load(),
        (Program::UProbe(program), _) => program.load(),
        (Program::TracePoint(program), _) => program.load(),
        (Program::RawTracePoint(program), _) => program.load(),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}
