//! Reads the memory of a watched process.
//!
//! `process_vm_readv` copies through the other process's page tables without ptrace attach, signal or stop,
//! so the watched program never waits for us. It requires the same permission as a debugger
//! (`PTRACE_MODE_ATTACH_REALCREDS`: the same user under a lax Yama, else `CAP_SYS_PTRACE`). The price is that
//! the process keeps running: related data is read in one call if possible, and the reader checks afterwards
//! that it is still valid.
//!
//! The data is untrusted. No length in it is believed: the caller provides the buffer, a read fills all of it
//! or fails, and an address that does not fit the process is `EFAULT` like any other unmapped one.
//!
//! A page may never arrive if its owner handles the fault itself, so a helper thread that can be abandoned
//! does the reads.
//!
//! A pid may be reused. Code that keeps a [`ProcessMemory`] also keeps the start time, and drops both when
//! the process ends or execs.

use std::io;

use crate::blocking::{HeldUp, PATIENCE};
use crate::machine::living_thread;

/// One piece of a batch: an address, and the buffer to fill.
pub type Range<'a> = (u64, &'a mut [u8]);

/// The memory of a process, or of a test that simulates one.
pub trait Memory {
    /// Fills all of `into`, or fails and leaves its contents unspecified.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()>;

    /// Fills every range, in this order, or fails. One system call if the implementation supports that.
    fn read_many(&self, ranges: &mut [Range<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|(address, into)| self.read(*address, into))
    }

    fn read_u8(&self, address: u64) -> io::Result<u8> {
        let mut bytes = [0; 1];
        self.read(address, &mut bytes)?;
        Ok(bytes[0])
    }

    fn read_u32(&self, address: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn read_u64(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The memory of a live process, by its pid in our pid namespace.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    pid: libc::pid_t,
}

impl ProcessMemory {
    pub fn new(pid: u32) -> Self {
        // The kernel's pids stop at 2^22, so a number beyond i32 is garbage; -1 yields ESRCH.
        Self { pid: pid.try_into().unwrap_or(-1) }
    }
}

/// Reads that were blocked.
static HELD_UP: HeldUp<libc::pid_t, Vec<(u64, usize)>> = HeldUp::new();

/// The kernel's UIO_MAXIOV: more pieces in one call are EINVAL.
const RANGES_PER_CALL: usize = 1024;

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_many(&mut [(address, into)])
    }

    fn read_many(&self, ranges: &mut [Range<'_>]) -> io::Result<()> {
        let pid = self.pid;
        let wanted: Vec<(u64, usize)> = ranges.iter().map(|(address, into)| (*address, into.len())).collect();
        let asked = wanted.clone();
        let bytes =
            HELD_UP.run((pid, wanted), |one, other| overlap(one, other), PATIENCE, move || fetch(pid, &asked))??;
        let mut rest = bytes.as_slice();
        for (_, into) in ranges {
            let (own, others) = rest.split_at(into.len());
            into.copy_from_slice(own);
            rest = others;
        }
        Ok(())
    }
}

fn overlap(some: &[(u64, usize)], others: &[(u64, usize)]) -> bool {
    let end = |(start, length): (u64, usize)| start.saturating_add(length as u64);
    some.iter().any(|one| others.iter().any(|other| one.0 < end(*other) && other.0 < end(*one)))
}

/// The concatenated bytes of all ranges.
fn fetch(pid: libc::pid_t, ranges: &[(u64, usize)]) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; ranges.iter().map(|(_, length)| length).sum()];
    let mut rest = bytes.as_mut_slice();
    for chunk in ranges.chunks(RANGES_PER_CALL) {
        let remote: Vec<libc::iovec> = chunk.iter().map(|(address, length)| remote(*address, *length)).collect();
        let (own, others) = rest.split_at_mut(chunk.iter().map(|(_, length)| length).sum());
        call(pid, own, &remote)?;
        rest = others;
    }
    Ok(bytes)
}

/// Like [`call_through`], but reads through another thread if the main one has already ended.
fn call(pid: libc::pid_t, local: &mut [u8], remote: &[libc::iovec]) -> io::Result<()> {
    let result = call_through(pid, local, remote);
    match &result {
        Err(error) if is_gone(error) => {
            let other = living_thread(pid.cast_unsigned()).cast_signed();
            if other == pid { result } else { call_through(other, local, remote) }
        }
        _ => result,
    }
}

/// Fills `local`, whose length is that of all ranges in `remote` together.
fn call_through(thread: libc::pid_t, local: &mut [u8], remote: &[libc::iovec]) -> io::Result<()> {
    let into = libc::iovec { iov_base: local.as_mut_ptr().cast(), iov_len: local.len() };
    // SAFETY: the kernel writes only to `local`, which is borrowed mutably during the call; it checks
    // `remote` against the other process's address space, never ours.
    let got = unsafe {
        libc::process_vm_readv(thread, &raw const into, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
    };
    match usize::try_from(got) {
        Ok(got) if got == local.len() => Ok(()),
        // Reading stopped at an unmapped page, and the part before it is useless.
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn remote(address: u64, length: usize) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: length }
}

/// Whether the error means that the process no longer exists.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn own() -> ProcessMemory {
        ProcessMemory::new(std::process::id())
    }

    fn address<T>(of: &T) -> u64 {
        std::ptr::from_ref(of).addr() as u64
    }

    #[test]
    fn reads_words_and_batches() {
        let (first, second) = (0x1122_3344_5566_7788_u64, -7_i32);
        assert_eq!(own().read_u64(address(&first)).unwrap(), first);
        assert_eq!(own().read_u32(address(&second)).unwrap().cast_signed(), second);
        assert_eq!(own().read_u8(address(&first)).unwrap(), 0x88);
        let (mut a, mut b, mut nothing) = ([0; 8], [0; 4], []);
        own().read_many(&mut [(address(&second), &mut b), (0, &mut nothing), (address(&first), &mut a)]).unwrap();
        assert_eq!((u64::from_ne_bytes(a), i32::from_ne_bytes(b)), (first, second));
        own().read_many(&mut []).unwrap();
    }

    #[test]
    fn more_ranges_than_one_call_takes() {
        let source: Vec<u32> = (0..3000).collect();
        let mut targets = vec![[0u8; 4]; source.len()];
        let mut ranges: Vec<Range<'_>> =
            source.iter().map(address).zip(targets.iter_mut().map(<[u8; 4]>::as_mut_slice)).collect();
        own().read_many(&mut ranges).unwrap();
        assert!(targets.iter().zip(&source).all(|(got, expected)| u32::from_ne_bytes(*got) == *expected));
    }

    #[test]
    fn a_read_that_ends_in_nothing_is_an_error() {
        let page = rustix::param::page_size();
        // SAFETY: a fresh anonymous mapping of two pages, the second of which is unmapped again; nothing else
        // refers to it.
        let start = unsafe {
            let start = rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                2 * page,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::PRIVATE,
            )
            .unwrap();
            rustix::mm::munmap(start.byte_add(page), page).unwrap();
            start.addr() as u64
        };
        let end = start + page as u64;
        own().read(end - 8, &mut [0; 8]).unwrap();
        let efault = Some(libc::EFAULT);
        assert_eq!(own().read(end - 8, &mut [0; 9]).unwrap_err().raw_os_error(), efault);
        let (mut good, mut bad) = ([0; 8], [0; 8]);
        let batch = &mut [(start, good.as_mut_slice()), (end, bad.as_mut_slice())];
        assert_eq!(own().read_many(batch).unwrap_err().raw_os_error(), efault);
        for address in [0, 8, u64::MAX, u64::MAX - 3, 1 << 63, 0xffff_8000_0000_0000] {
            assert_eq!(own().read(address, &mut [0; 16]).unwrap_err().raw_os_error(), efault, "{address:#x}");
        }
    }

    #[test]
    fn a_process_that_is_gone_says_so() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let memory = ProcessMemory::new(child.id());
        child.kill().unwrap();
        // It is first a zombie, with a pid but without memory, and then has no pid either.
        while memory.read_u8(0).is_err_and(|error| !is_gone(&error)) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_gone(&memory.read_u64(0x1000).unwrap_err()));
        assert!(is_gone(&ProcessMemory::new(u32::MAX).read_u64(0x1000).unwrap_err()));
    }
}
