//! Extension modules that families put probes on, and what these probes cost.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use pyobs_model::Nanos;

use crate::elf::Elf;
use crate::files;
use crate::kernel::probed_files::{Probe, ProbedFile};
use crate::kernel::uprobes::{Scope, TrapCosts, Uprobes, close_later};
use crate::prefetch::read_loaded;
use crate::process_maps::Mapping;

/// A file mapped by a process.
pub struct Extension {
    file: ProbedFile,
    bytes: Vec<u8>,
}

impl Extension {
    pub fn open(pid: u32, mapping: &Mapping) -> Result<Self, String> {
        const NO_FILE: &str = "it is no file";
        let id = mapping.file.ok_or(NO_FILE)?;
        let (file, size) = files::open(pid, mapping).map_err(|error| error.to_string())?.ok_or(NO_FILE)?;
        let file = ProbedFile::new(file, id);
        let copy = file.file().try_clone().map_err(|error| error.to_string())?;
        let bytes = files::read_from(mapping, move || read_loaded(&copy, size));
        let bytes = bytes.map_err(|error| error.to_string())?.ok_or("it cannot be read")?;
        Ok(Self { file, bytes })
    }

    pub fn elf(&self) -> Result<Elf<'_>, String> {
        Elf::parse(&self.bytes).map_err(|error| error.to_string())
    }

    pub fn into_file(self) -> ProbedFile {
        self.file
    }

    /// Runs a program whenever any process reaches an address of the file.
    pub fn attach(
        &self,
        uprobes: Uprobes,
        program: &OwnedFd,
        elf: &Elf<'_>,
        address: u64,
        cookie: u64,
    ) -> Result<Probe, String> {
        let offset = address.wrapping_sub(elf.code_delta().ok_or("it has no code")?);
        self.attach_at(uprobes, program, offset, cookie)
    }

    /// Like [`Extension::attach`], at an offset in the file.
    pub fn attach_at(&self, uprobes: Uprobes, program: &OwnedFd, offset: u64, cookie: u64) -> Result<Probe, String> {
        attach_to(&self.file, uprobes, program, offset, cookie)
    }
}

/// Like [`Extension::attach_at`], for a file of which nothing else is needed.
pub fn attach_to(
    file: &ProbedFile,
    uprobes: Uprobes,
    program: &OwnedFd,
    offset: u64,
    cookie: u64,
) -> Result<Probe, String> {
    let attached = uprobes.attach(program.as_fd(), file, offset, Scope::Everybody, cookie);
    attached.map_err(|error| error.to_string())
}

/// Files with probes per family; further files get none.
const FILES_MAX: usize = 64;

/// The probes of a family. Another thread closes them, because closing each takes the kernel milliseconds.
#[derive(Default)]
pub struct Probes {
    files: usize,
    all: Vec<Probe>,
    is_closed: bool,
}

impl Probes {
    pub fn has_room(&self) -> bool {
        self.files < FILES_MAX
    }

    pub fn add(&mut self, of_a_file: Vec<Probe>) {
        self.files += 1;
        self.all.extend(of_a_file);
    }

    /// Adds a probe to a file that already counts.
    pub fn add_one(&mut self, probe: Probe) {
        self.all.push(probe);
    }

    /// The probes of one file are gone.
    pub fn forget_one(&mut self) {
        self.files = self.files.saturating_sub(1);
    }

    /// Detaches all probes for good.
    pub fn close(&mut self) {
        self.is_closed = true;
        close_later(std::mem::take(&mut self.all));
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        close_later(std::mem::take(&mut self.all));
    }
}

/// Larger than any function worth a probe; bytes beyond it are not decoded.
const SIZE_MAX: u64 = 64 << 10;

pub fn returns(elf: &Elf<'_>, start: u64, size: u64) -> Vec<u64> {
    ends(elf, start, size, |instruction| instruction.flow_control() == FlowControl::Return)
}

/// The addresses of a function's tail calls: jumps to other functions, which then return in its place. Jumps
/// to the function's own cold part, which the compiler places elsewhere, are not tail calls.
pub fn tail_calls(elf: &Elf<'_>, start: u64, size: u64) -> Vec<u64> {
    let own = start..start.saturating_add(size);
    let cold: Vec<Range<u64>> = elf
        .symbols()
        .filter(|(name, _)| name.ends_with(b".cold"))
        .map(|(_, symbol)| symbol.address..symbol.address.saturating_add(symbol.size))
        .collect();
    ends(elf, start, size, |instruction| match instruction.flow_control() {
        FlowControl::UnconditionalBranch => {
            let target = instruction.near_branch_target();
            !own.contains(&target) && !cold.iter().any(|cold| cold.contains(&target))
        }
        // A jump through the GOT is a tail call; a switch statement jumps through a register.
        FlowControl::IndirectBranch => instruction.is_ip_rel_memory_operand(),
        _ => false,
    })
}

fn ends(elf: &Elf<'_>, start: u64, size: u64, is_end: impl Fn(&Instruction) -> bool) -> Vec<u64> {
    let Some(code) = elf.bytes(start, size.min(SIZE_MAX)).filter(|_| elf.is_code(start)) else { return Vec::new() };
    let instructions = Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter();
    instructions.filter(is_end).map(|instruction| instruction.ip()).collect()
}

/// Whether the kernel emulates the code's first instruction instead of single-stepping a copy of it. It does
/// so for pushes of registers and for nops
/// (<https://github.com/torvalds/linux/blob/v6.1/arch/x86/kernel/uprobes.c>).
pub fn is_emulated(code: &[u8]) -> bool {
    let first = Decoder::new(64, code, DecoderOptions::NONE).decode();
    match first.mnemonic() {
        Mnemonic::Push => first.op0_kind() == OpKind::Register && first.op0_register().is_gpr64(),
        Mnemonic::Nop => true,
        _ => false,
    }
}

/// Estimates what hits cost besides the run time of their programs.
pub struct Meter {
    costs: TrapCosts,
    hits: Hits,
}

/// Number of hits, by the kind of the probed instruction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hits {
    /// Emulated by the kernel, without a single step.
    pub cheap: u64,
    pub stepped: u64,
}

impl Hits {
    fn cost(self, costs: TrapCosts) -> u64 {
        let of = |hits: u64, each: u32| hits.saturating_mul(each.into());
        of(self.cheap, costs.cheap).saturating_add(of(self.stepped, costs.stepped))
    }
}

impl Meter {
    pub fn new(uprobes: Uprobes) -> io::Result<Self> {
        Ok(Self { costs: uprobes.trap_costs()?, hits: Hits::default() })
    }

    pub fn hit(&mut self) {
        self.hits.stepped += 1;
    }

    /// Sets the total number of hits so far.
    pub fn count(&mut self, hits: Hits) {
        self.hits = hits;
    }

    pub fn trap_cost(&self) -> Nanos {
        Nanos(self.hits.cost(self.costs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_carries_out_itself_is_pushed_or_nothing() {
        // push r15; push rbp; nop; nop dword [rax+rax]
        for code in [&[0x41, 0x57][..], &[0x55], &[0x90], &[0x0f, 0x1f, 0x44, 0, 0]] {
            assert!(is_emulated(code), "{code:x?}");
        }
        // sub rsp, 24; ret; push 1; mov r15, rcx; nothing
        for code in [&[0x48, 0x83, 0xec, 0x18][..], &[0xc3], &[0x6a, 1], &[0x49, 0x89, 0xcf], &[]] {
            assert!(!is_emulated(code), "{code:x?}");
        }
    }

    #[test]
    fn hits_cost_what_their_instructions_do() {
        let costs = TrapCosts { cheap: 700, stepped: 10_000 };
        assert_eq!(Hits { cheap: 1000, stepped: 2 }.cost(costs), 720_000);
        assert_eq!(Hits::default().cost(costs), 0);
    }
}
