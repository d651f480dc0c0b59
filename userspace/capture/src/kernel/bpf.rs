//! bpf(2) commands that aya does not offer.

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const BPF_MAP_CREATE: c_long = 0;
const BPF_MAP_UPDATE_ELEM: c_long = 2;
const BPF_LINK_CREATE: c_long = 28;

/// A command's part of `union bpf_attr`
/// (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/bpf.h>), with the kernel's layout.
///
/// # Safety
/// `repr(C)`, no padding, and every address in it is valid for as long as the value lives.
pub unsafe trait Attributes {}

#[repr(C)]
pub struct MapCreate {
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub entries: u32,
    pub flags: u32,
}

#[repr(C)]
struct MapUpdate<'a> {
    map: u32,
    padding: u32,
    key: &'a u32,
    value: &'a u32,
    flags: u64,
}

#[repr(C)]
pub struct LinkCreate {
    pub program: u32,
    pub target: u32,
    pub attach: u32,
    pub flags: u32,
    /// For programs on probes; 0 for others.
    pub cookie: u64,
}

// SAFETY: five words and no address.
unsafe impl Attributes for MapCreate {}
// SAFETY: words, which fill the space before 8-byte fields, and two addresses of what is borrowed.
unsafe impl Attributes for MapUpdate<'_> {}
// SAFETY: four words, a double one, and no address.
unsafe impl Attributes for LinkCreate {}

/// Runs a command that writes nothing back.
pub fn call<A: Attributes>(command: c_long, attributes: &A) -> io::Result<c_long> {
    // SAFETY: by the trait's contract the kernel reads `size_of::<A>()` initialised bytes here and valid addresses in them.
    let got = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<A>()) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got) }
}

/// Like [`call`], for a command that returns a descriptor.
pub fn open<A: Attributes>(command: c_long, attributes: &A) -> io::Result<OwnedFd> {
    call(command, attributes).and_then(owned)
}

pub fn create_map(attributes: &MapCreate) -> io::Result<OwnedFd> {
    open(BPF_MAP_CREATE, attributes)
}

/// Updates a map whose keys and values have four bytes.
pub fn update_map(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    let update = MapUpdate { map: number(map), padding: 0, key: &key, value: &value, flags: 0 };
    call(BPF_MAP_UPDATE_ELEM, &update).map(drop)
}

pub fn create_link(attributes: &LinkCreate) -> io::Result<OwnedFd> {
    open(BPF_LINK_CREATE, attributes)
}

pub fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// The descriptor returned by a system call.
pub fn owned(result: c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(result) {
        // SAFETY: the kernel has just given us this descriptor, so nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
