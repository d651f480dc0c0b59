//! How an interpreter reaches thread-specific data.

/// Where the process stores the pthread key, a 32-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TssKey {
    /// An int that is nonzero once the key is created; without it (3.6), the key is -1 until then.
    pub initialized: Option<u64>,
    pub key: u64,
}

/// How to reach a thread-local from the thread pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsAccess {
    /// At this offset (local-exec: programs).
    Offset(i64),
    /// At the offset that the process stores in the eight bytes at this address (initial-exec).
    GotSlot(u64),
    /// At `offset` in the thread's block of a module, whose id the process stores in the eight bytes at
    /// `module_id_slot` (general- and local-dynamic: every shared libpython seen).
    Dynamic { module_id_slot: u64, offset: u64 },
    /// At the offset given by the process's TLS descriptor at this address. If the second of its two words,
    /// taken as a signed number, is small, it is the offset; else it points to a module id and an offset as
    /// in [`TlsAccess::Dynamic`].
    Descriptor { slot: u64 },
}
