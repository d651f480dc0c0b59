//! Executable mappings: which process has new code, and from which file. User space needs them to find interpreters
//! and to name functions.
//!
//! Perf's side-band records report the same, but the kernel builds one for each mmap and munmap on the machine before
//! it checks who wants it. So they stay off if programs at system calls run anyway. An exec maps its program and loader
//! without a system call, so [`report_exec`] reports the program; the loader's own calls report the rest.

use pyobs_abi::{
    control::{REPORT_MAPPINGS, mappings_of},
    process::Mapped,
    record::{self, Loss},
};

use crate::common::{
    files::{File, Mapping, Table},
    maps::{control, watched},
    ring::{self, Route},
    system_call::Call,
};

/// A flag of mmap(2).
const MAP_ANONYMOUS: u64 = 0x20;

/// mmap(2) has mapped executable memory.
#[inline(never)]
pub fn report_mmap(call: &Call) {
    let whom = control(REPORT_MAPPINGS);
    if whom == mappings_of::NONE {
        return;
    }
    let is_anonymous = call.fourth() & MAP_ANONYMOUS != 0;
    let open = || Table::current().file(call.fifth() as u32);
    report(whom, if is_anonymous { NOTHING } else { open().map_or(UNKNOWN, |file| file.0) });
}

/// mprotect(2) has made memory executable.
#[inline(never)]
pub fn report_mprotect(address: u64) {
    let whom = control(REPORT_MAPPINGS);
    if whom == mappings_of::NONE {
        return;
    }
    let behind = Mapping::find(address).map(|vma| File::of_mapping(vma).map_or(NOTHING, |file| file.0));
    report(whom, behind.unwrap_or(UNKNOWN));
}

/// A process that is not watched has executed the program of a `struct linux_binprm *`.
#[inline(always)]
pub fn report_exec(bprm: u64) {
    let whom = control(REPORT_MAPPINGS);
    if whom == mappings_of::ALL {
        report(whom, File::of_program(bprm).map_or(UNKNOWN, |file| file.0));
    }
}

/// What is mapped: the address of a `struct file`, or one of these. Not an enum, because the verifier refuses to pass
/// an argument that is not initialised, as it is in a variant without a file.
const UNKNOWN: u64 = 0;
const NOTHING: u64 = 1;

/// Wakes user space, because code that runs before it looks has no names. Not inlined, to keep the caller's frame
/// small.
#[inline(never)]
fn report(whom: u64, behind: u64) {
    // In a process that is not watched, only an interpreter would be of interest, and that is a file.
    let may_concern = whom == mappings_of::ALL && behind != NOTHING;
    if !may_concern && watched().is_none() {
        return;
    }
    let key = if behind > NOTHING { File(behind).inode().and_then(|inode| inode.key()) } else { None };
    let is_known = u32::from(behind == NOTHING || key.is_some());
    let (ino, dev) = key.map_or((0, 0), |key| (key.ino, key.dev));
    let record = Mapped { header: ring::header(record::EXEC_MAPPED), ino, dev, is_known };
    ring::send(&record, Route { full: Loss::Mapping, ..Route::urgent() });
}
