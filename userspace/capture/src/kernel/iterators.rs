//! BPF iterators: programs that the kernel runs for each mapping, or each descriptor, of every process when a file is read.

use std::fs::File;
use std::io::{self, Read};

use aya::programs::{Iter, ProgramError};
use aya_obj::btf::{BtfType, Func, FuncLinkage, Int, IntEncoding};

use super::btf::Btf;

/// Bytes that one run may write: some 900,000 mappings.
const OUTPUT_MAX: u64 = 64 << 20;

/// Where the kernel has an iterator's function among its types; `None` where it has no such iterator.
pub fn number(btf: &Btf, kind: &str) -> Option<u32> {
    btf.function(&function(kind))
}

fn function(kind: &str) -> String {
    format!("bpf_iter_{kind}")
}

/// aya finds the function's number by its name in types that it parses out of all of the kernel's BTF, for tens of megabytes. It
/// is known already: here are as many types without a meaning, and then the function.
pub fn load(program: &mut Iter, kind: &str, number: u32) -> Result<(), ProgramError> {
    let mut types = aya::Btf::new();
    let nothing = types.add_string("");
    for _ in 1..number {
        types.add_type(BtfType::Int(Int::new(nothing, 4, IntEncoding::None, 0)));
    }
    let name = types.add_string(&function(kind));
    types.add_type(BtfType::Func(Func::new(name, 0, FuncLinkage::Static)));
    program.load(kind, &types)
}

/// Runs it, and returns all that it writes.
pub fn run(program: &mut Iter) -> io::Result<Vec<u8>> {
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let link = program.attach().map_err(|error| other(&error))?;
    let link = program.take_link(link).map_err(|error| other(&error))?;
    let file: File = link.into_file().map_err(|error| other(&error))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
