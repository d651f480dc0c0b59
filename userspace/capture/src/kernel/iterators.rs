//! BPF iterators: programs that the kernel runs for each mapping or descriptor of every process when a file
//! is read.

use std::fs::File;
use std::io::{self, Read};

use aya::programs::{Iter, ProgramError};

use super::btf::Btf;
use super::sparse;

/// Bytes read from one run, about 900,000 mappings; a run that writes more is truncated.
const OUTPUT_MAX: u64 = 64 << 20;

/// The BTF number of an iterator's function; `None` if the kernel lacks this iterator.
pub fn number(btf: &Btf, kind: &str) -> Option<u32> {
    btf.function(&function(kind))
}

fn function(kind: &str) -> String {
    format!("bpf_iter_{kind}")
}

pub fn load(program: &mut Iter, kind: &str, number: u32) -> Result<(), ProgramError> {
    program.load(kind, &sparse::function(&function(kind), number)?)
}

/// Runs the iterator and returns all that it writes.
pub fn run(program: &mut Iter) -> io::Result<Vec<u8>> {
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let link = program.attach().map_err(|error| other(&error))?;
    let link = program.take_link(link).map_err(|error| other(&error))?;
    let file: File = link.into_file().map_err(|error| other(&error))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
