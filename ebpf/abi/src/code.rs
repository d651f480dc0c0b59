//! The text of a code object, copied when a stack has it for the first time.
//!
//! The top level of a module runs once and is freed at once: by the time that user space reads the process's memory, other
//! code may have taken its place.

use crate::record::Header;
use crate::shared;

/// Places in [`CodeCopy::bytes`]: the code object itself, its name, its file name and its line table, each with the head of its
/// object. Larger ones are not copied; user space reads them from the process.
pub const OBJECT_AT: usize = 0;
pub const OBJECT_MAX: usize = 256;
pub const NAME_AT: usize = OBJECT_AT + OBJECT_MAX;
pub const NAME_MAX: usize = 256;
pub const FILE_AT: usize = NAME_AT + NAME_MAX;
pub const FILE_MAX: usize = 512;
pub const TABLE_AT: usize = FILE_AT + FILE_MAX;
pub const TABLE_MAX: usize = 4096;
pub const BYTES_MAX: usize = TABLE_AT + TABLE_MAX;

/// `CODE_COPY`: sent before the first stack with this code object. In the ring it ends with the line table's last byte.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeCopy {
    pub header: Header,
    pub address: u64,
    /// The hash that the name's string object keeps of its text.
    pub hash: u64,
    /// The check word.
    pub check: u32,
    pub object_size: u32,
    pub name_size: u32,
    pub file_size: u32,
    pub table_size: u32,
    pub padding: u32,
    pub bytes: [u8; BYTES_MAX],
}

shared!(CodeCopy, 80 + BYTES_MAX);
