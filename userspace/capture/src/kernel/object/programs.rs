//! Every BPF program of the object: which families need it, and how the kernel takes it.

use aya::programs::{Program, ProgramError};

use super::refusal::Refusal;
use super::{Object, ObjectError, SAMPLER, SAMPLER_REDUNDANCY, accesses, calls, transfers, waits};
use crate::kernel::btf::Btf;
use crate::kernel::{iterators, sparse};

/// What a program attaches to decides how it is loaded.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    /// At a tracepoint whose arguments have types; this is the tracepoint's own type in the kernel's BTF.
    Typed(&'static str),
    /// An iterator over objects of this kind.
    Iterator(&'static str),
}

#[derive(Clone, Copy)]
struct Spec {
    name: &'static str,
    families: &'static [&'static str],
    kind: Kind,
    /// Its families do without it, with less or in another way.
    optional: bool,
}

const EVERY: &[&str] = pyobs_model::families::NAMES;
const WAITS: &[&str] = &["offcpu", "gil"];
const CALLS: &[&str] = &["arena", "shm"];

const fn needed(name: &'static str, families: &'static [&'static str]) -> Spec {
    Spec { name, families, kind: Kind::Plain, optional: false }
}

const fn optional(name: &'static str, families: &'static [&'static str]) -> Spec {
    Spec { name, families, kind: Kind::Plain, optional: true }
}

const fn of_kind(spec: Spec, kind: Kind) -> Spec {
    Spec { kind, ..spec }
}

/// In the order of the families.
const PROGRAMS: [Spec; 34] = [
    needed("process_fork", EVERY),
    needed("process_exec", EVERY),
    needed("process_exit", EVERY),
    needed(SAMPLER, &["cpu"]),
    of_kind(needed(waits::WAKING, WAITS), Kind::Typed(waits::TYPES[0])),
    of_kind(needed(waits::SWITCH, WAITS), Kind::Typed(waits::TYPES[1])),
    needed("eval_call_enter", &["eval"]),
    needed("eval_call_exit", &["eval"]),
    needed(calls::SINGLE[0], CALLS),
    needed(calls::SINGLE[1], CALLS),
    of_kind(optional(calls::ALL[0], CALLS), Kind::Typed(calls::TYPES[0])),
    of_kind(optional(calls::ALL[1], CALLS), Kind::Typed(calls::TYPES[1])),
    optional("arena_library_enter", &["arena"]),
    optional("arena_library_hit", &["arena"]),
    needed("shm_evict", &["shm"]),
    needed("shm_exit", &["shm"]),
    needed("shm_exec", &["shm"]),
    needed("shm_fork", &["shm"]),
    of_kind(optional("shm_iterate_mappings", &["shm"]), Kind::Iterator("task_vma")),
    of_kind(optional("shm_iterate_descriptors", &["shm"]), Kind::Iterator("task_file")),
    needed("nrt_birth", &["nrt"]),
    needed("nrt_death", &["nrt"]),
    needed(transfers::PROGRAMS[0], &["ucx"]),
    needed(transfers::PROGRAMS[1], &["ucx"]),
    needed(transfers::PROGRAMS[2], &["ucx"]),
    needed(transfers::PROGRAMS[3], &["ucx"]),
    needed(transfers::PROGRAMS[4], &["ucx"]),
    needed(transfers::PROGRAMS[5], &["ucx"]),
    needed(transfers::PROGRAMS[6], &["ucx"]),
    needed(transfers::PROGRAMS[7], &["ucx"]),
    needed(transfers::PROGRAMS[8], &["ucx"]),
    needed(SAMPLER_REDUNDANCY, &["redundancy"]),
    needed(accesses::TRAP, &["redundancy"]),
    optional(accesses::ACCESS, &["redundancy"]),
];

/// What the verifier made of a program.
#[derive(Debug)]
pub struct Verified {
    pub name: &'static str,
    pub families: &'static [&'static str],
    pub optional: bool,
    /// How many instructions the verifier processed, of at most a million; `None` for a kernel that does not tell (before 5.16).
    pub outcome: Result<Option<u32>, ObjectError>,
}

/// The kernel's numbers of the types that programs attach to.
pub(super) struct Types([Option<u32>; PROGRAMS.len()]);

impl Types {
    pub fn of(btf: &Btf) -> Self {
        Self(PROGRAMS.map(|spec| match spec.kind {
            Kind::Plain => None,
            Kind::Typed(of) => btf.typedef(of),
            Kind::Iterator(over) => iterators::number(btf, over),
        }))
    }
}

impl Object {
    /// Loads every program and collects the verifier's verdicts.
    pub fn verify(&mut self) -> Vec<Verified> {
        let verified = PROGRAMS.map(|Spec { name, families, optional, .. }| {
            let outcome = self.load(name).map(|()| self.instructions(name));
            Verified { name, families, optional, outcome }
        });
        verified.into()
    }

    fn instructions(&self, name: &str) -> Option<u32> {
        self.ebpf.program(name)?.info().ok()?.verified_instruction_count()
    }

    /// Loads a program; one that is loaded stays so.
    pub(super) fn load(&mut self, name: &'static str) -> Result<(), ObjectError> {
        let known = PROGRAMS.iter().zip(self.types.0).find(|(spec, _)| spec.name == name);
        let (kind, number) = known.map_or((Kind::Plain, None), |(spec, number)| (spec.kind, number));
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
