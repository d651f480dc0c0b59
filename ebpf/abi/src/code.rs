//! A copy of a code object's names and line table, sent the first time a stack contains it.
//!
//! The top level of a module is freed as soon as it has run. By the time user space reads the process's memory, another
//! code object may be at the same address.

use crate::record::Header;
use crate::shared;

/// Slots in [`CodeCopy::bytes`] for the code object, its name, its file name and its line table, each with its object
/// header. A code object with a part that does not fit is not copied; user space reads it from the process.
pub const OBJECT_AT: usize = 0;
pub const OBJECT_MAX: usize = 256;
pub const NAME_AT: usize = OBJECT_AT + OBJECT_MAX;
pub const NAME_MAX: usize = 256;
pub const FILE_AT: usize = NAME_AT + NAME_MAX;
pub const FILE_MAX: usize = 512;
pub const TABLE_AT: usize = FILE_AT + FILE_MAX;
pub const TABLE_MAX: usize = 4096;
pub const BYTES_MAX: usize = TABLE_AT + TABLE_MAX;

/// `CODE_COPY`: precedes the first stack that contains the code object. The record ends after the line table, so it is
/// usually shorter than this type.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeCopy {
    pub header: Header,
    pub address: u64,
    /// The check word.
    pub check: u32,
    pub object_size: u32,
    pub name_size: u32,
    pub file_size: u32,
    pub table_size: u32,
    pub padding: u32,
    pub bytes: [u8; BYTES_MAX],
}

shared!(CodeCopy, 72 + BYTES_MAX);
