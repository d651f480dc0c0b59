//! The family `shm`: memory that processes share.

use crate::record::Header;
use crate::shared;

/// The most bytes of a name or a path that are kept, a closing NUL included.
pub const NAME_MAX: usize = 256;

/// The key of `SHM_SEGMENTS`: an inode. Its number is used again; the value has the generation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inode {
    pub ino: u64,
    /// The kernel's `dev_t`: 12 bits major, 20 minor.
    pub dev: u32,
    pub padding: u32,
}

shared!(Inode, 16);

/// In place of the device of a segment that was made, in `SHM_BIRTH`: the other word is where it is mapped.
pub const MAPPED_AT: u32 = u32::MAX;

/// The value of `SHM_SEGMENTS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub generation: u32,
    /// 1 for a segment that user space found: its generation is not known.
    pub found: u32,
}

shared!(Known, 8);

/// The value of `SHM_HOLDERS`, keyed by tgid: all mappings of segments lie between these; `end` is 0 for none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hull {
    pub start: u64,
    pub end: u64,
}

shared!(Hull, 16);

/// What every record of a segment says of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub inode: Inode,
    pub size: u64,
    pub generation: u32,
    pub links: u32,
}

shared!(Facts, 32);

/// `SHM_SEGMENT`: one is seen for the first time, by the header's thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub header: Header,
    pub facts: Facts,
    /// Of the file system (include/uapi/linux/magic.h).
    pub magic: u32,
    /// Of [`flags`].
    pub flags: u32,
    /// Its last component, ended by a NUL.
    pub name: [u8; NAME_MAX],
}

shared!(Segment, 336);

pub mod flags {
    /// The header's thread made it, and a `SHM_BIRTH` follows.
    pub const CREATED: u32 = 1;
    /// It was opened under a path in the folder of shared memory.
    pub const IN_FOLDER: u32 = 1 << 1;
}

/// `SHM_CHANGE`: something that the header's thread does to a segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub header: Header,
    pub facts: Facts,
    /// One of [`what`].
    pub what: u32,
    pub fd: u32,
    /// 1 for a descriptor that an exec closes.
    pub close_on_exec: u32,
    pub padding: u32,
    /// A range of addresses, or of descriptors.
    pub start: u64,
    pub end: u64,
    /// Where a mapping went; for a new one the offset in the segment.
    pub to_start: u64,
    pub to_end: u64,
}

shared!(Change, 120);

/// What a [`Change`] is about. The facts are set where a descriptor or a new mapping is.
pub mod what {
    /// `fd` is a new descriptor of the segment: by open, memfd_create, dup or fcntl.
    pub const OPENED: u32 = 1;
    /// `fd` is going to be closed.
    pub const CLOSED: u32 = 2;
    /// Descriptors from `start` to `end`, both included, were closed.
    pub const CLOSED_RANGE: u32 = 3;
    /// An exec now closes `fd`, or no longer does.
    pub const MARKED: u32 = 4;
    pub const RESIZED: u32 = 5;
    /// The segment is mapped from `start` to `end`.
    pub const MAPPED: u32 = 6;
    /// What lies between them is going to be unmapped.
    pub const UNMAPPED: u32 = 7;
    pub const MOVED: u32 = 8;
    /// `fd` is being sent to another process.
    pub const SENT: u32 = 9;
    /// `fd` has come from another process.
    pub const RECEIVED: u32 = 10;
    /// `fd` was taken out of another process, by the pidfd in `start`.
    pub const TAKEN: u32 = 11;
    /// The segment's memory has been given back.
    pub const RELEASED: u32 = 12;
    /// Memory without a name is mapped shared from `start` to `end`, and the kernel could not look at the file behind it.
    pub const MADE: u32 = 13;
}

/// What the iterators write of each mapping and descriptor that they come to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub facts: Facts,
    /// Of the process.
    pub pid: u32,
    /// Of [`row`].
    pub flags: u32,
    /// Of a mapping.
    pub start: u64,
    pub end: u64,
    /// In the segment.
    pub offset: u64,
    pub fd: u32,
    pub padding: u32,
}

shared!(Row, 72);

pub mod row {
    /// A descriptor, else a mapping.
    pub const DESCRIPTOR: u32 = 1;
    pub const CLOSE_ON_EXEC: u32 = 1 << 1;
    /// It is of no known segment, and a watched process has it.
    pub const UNKNOWN: u32 = 1 << 2;
}

/// `SHM_UNLINK`: a name was removed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlink {
    pub header: Header,
    /// As it was given, ended by a NUL.
    pub path: [u8; NAME_MAX],
}

shared!(Unlink, 296);
