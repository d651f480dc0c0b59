//! Executable mappings: which process has new code, of which file, for user space to find interpreters and functions.
//!
//! The kernel's own notices of mappings (perf's side-band records) say the same, and cost each mmap and munmap of the
//! machine, for they are made before it is asked who wants them. They are left off where the programs at system calls run
//! anyway. What an exec maps is no call: [`execed`] tells of the program, and its loader's calls tell of the rest.

use pyobs_abi::{
    control::{TELLS_MAPPINGS, tells},
    process::Mapped,
    record::{self, Loss},
};

use crate::common::{
    files::{File, Mapping, Table},
    maps::{control, watched},
    ring,
    system_call::Call,
};

/// Of mmap(2).
const MAP_ANONYMOUS: u64 = 0x20;

/// mmap(2) has mapped something executable.
#[inline(never)]
pub fn mapped(call: &Call) {
    let whom = control(TELLS_MAPPINGS);
    if whom == tells::NONE {
        return;
    }
    let is_anonymous = call.fourth() & MAP_ANONYMOUS != 0;
    let open = || Table::current().file(call.fifth() as u32);
    tell(whom, if is_anonymous { NOTHING } else { open().map_or(UNKNOWN, |file| file.0) });
}

/// mprotect(2) has made what lies at an address executable.
#[inline(never)]
pub fn allowed(address: u64) {
    let whom = control(TELLS_MAPPINGS);
    if whom == tells::NONE {
        return;
    }
    let behind = Mapping::find(address).map(|vma| File::of_mapping(vma).map_or(NOTHING, |file| file.0));
    tell(whom, behind.unwrap_or(UNKNOWN));
}

/// A process that is not watched has become the program of a `struct linux_binprm *`.
#[inline(always)]
pub fn execed(bprm: u64) {
    let whom = control(TELLS_MAPPINGS);
    if whom == tells::EVERYBODY {
        tell(whom, File::of_program(bprm).map_or(UNKNOWN, |file| file.0));
    }
}

/// What is mapped: the address of a `struct file`, or one of these. Not an enum: the verifier refuses a call whose argument is
/// not set, as a variant's without a file is not.
const UNKNOWN: u64 = 0;
const NOTHING: u64 = 1;

/// User space should look at once: what runs meanwhile has no names. Not inlined, to keep the caller's frame small.
#[inline(never)]
fn tell(whom: u64, behind: u64) {
    // In a process that is not watched only an interpreter is of interest.
    let may_concern = whom == tells::EVERYBODY && behind != NOTHING;
    if !may_concern && watched().is_none() {
        return;
    }
    let key = if behind > NOTHING { File(behind).inode().and_then(|inode| inode.key()) } else { None };
    let is_known = u32::from(behind == NOTHING || key.is_some());
    let (ino, dev) = key.map_or((0, 0), |key| (key.ino, key.dev));
    let record = Mapped { header: ring::header(record::EXEC_MAPPED), ino, dev, is_known };
    // SAFETY: plain integers without padding (pyobs-abi asserts it).
    let bytes = unsafe { core::slice::from_raw_parts((&raw const record).cast(), size_of::<Mapped>()) };
    ring::send_now_or_count(bytes, Loss::Mapping);
}
