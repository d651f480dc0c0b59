//! The ELF image behind a mapping.

use std::fs::File;
use std::io;

use super::images::Image;
use super::table::image::Source;
use super::table::{self, Table, TableError};
use crate::files;
use crate::memory::{Memory, ProcessMemory};
use crate::process_maps::Mapping;

/// Upper limit for the vDSO, which has a few pages.
const VDSO_MAX: u64 = 64 << 10;

pub enum Contents {
    /// A file and its size in bytes.
    File(File, u64),
    /// Copied from memory.
    Memory(Vec<u8>),
}

impl Contents {
    /// Opens the file that is mapped, or copies the vDSO. What is no ELF image, such as the code of a JIT compiler, is empty.
    pub fn of(pid: u32, mapping: &Mapping) -> io::Result<Self> {
        match Image::of(mapping) {
            Image::Anonymous => Ok(Self::Memory(Vec::new())),
            Image::Vdso => {
                let mut image = vec![0; mapping.end.saturating_sub(mapping.start).min(VDSO_MAX) as usize];
                ProcessMemory::new(pid).read(mapping.start, &mut image)?;
                Ok(Self::Memory(image))
            }
            Image::File(_) => {
                let opened = files::open(pid, mapping)?;
                Ok(opened.map_or(Self::Memory(Vec::new()), |(file, size)| Self::File(file, size)))
            }
        }
    }

    pub fn source(&self) -> Source<'_> {
        match self {
            Self::File(file, size) => Source::File(file, *size),
            Self::Memory(image) => Source::Memory(image),
        }
    }

    pub fn table(&self) -> Result<Table, TableError> {
        match self {
            Self::File(file, size) => table::read(file, *size),
            Self::Memory(image) => table::of_memory(image),
        }
    }
}
