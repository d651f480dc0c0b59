//! Loading of the object's programs, and the verifier's verdicts.

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
        let known = self.known.iter().find(|known| known.spec.name == name);
        let (kind, number) = known.map_or((Kind::Plain, None), |known| (known.spec.kind, known.number));
        let program = self.ebpf.program_mut(name).ok_or(ObjectError::Missing(name))?;
        let number = match kind {
            Kind::Plain => 0,
            Kind::Typed(of) | Kind::Iterator(of) => number.ok_or(ObjectError::NoType(of))?,
        };
        load(program, kind, number).map_err(|error| ObjectError::Program(Refusal::new(name, &error)))
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
