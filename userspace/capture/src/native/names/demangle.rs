//! Names as the source has them, of those that compilers of C++ and Rust write.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, SectionHeader64, Sym64};
use rustix::fs::MemfdFlags;

/// The longest name that blazesym may be asked to make. A name of 200 bytes can stand for one of gigabytes.
const MADE_MAX: usize = 1 << 18;
/// Where the one symbol of the file is, that blazesym is asked for.
const ADDRESS: u64 = 1;

pub fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// The name in the source. `None` for what no such compiler wrote, or what may become too long.
pub fn demangle(name: &str) -> Option<String> {
    if !is_mangled(name) || longest(name) > MADE_MAX {
        return None;
    }
    // blazesym gives names out only with the symbols of a file.
    let file = File::from(rustix::fs::memfd_create("pyobs-name", MemfdFlags::CLOEXEC).ok()?);
    (&file).write_all(&file_of(name)).ok()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let symbolizer = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
    let mut source = Elf::new(path);
    source.debug_syms = false;
    let symbols = symbolizer.symbolize(&Source::Elf(source), Input::VirtOffset(&[ADDRESS])).ok()?;
    let made = symbols.first()?.as_sym()?.name.as_ref();
    (made != name).then(|| made.to_owned())
}

/// How long a name can become: each reference to what came before can double it.
fn longest(name: &str) -> usize {
    if name.starts_with("_R") {
        // Its demangler has a limit itself.
        return name.len();
    }
    let mut references = 0;
    let mut left = name.as_bytes();
    while let Some(at) = left.iter().position(|byte| matches!(byte, b'S' | b'T')) {
        left = &left[at + 1..];
        let end = left.iter().position(|byte| !byte.is_ascii_digit() && !byte.is_ascii_uppercase());
        references += u32::from(end.is_some_and(|end| left[end] == b'_'));
    }
    name.len().checked_shl(references).filter(|_| references < 20).unwrap_or(usize::MAX)
}

/// An ELF file with one symbol.
fn file_of(name: &str) -> Vec<u8> {
    let names = format!("\0.symtab\0.strtab\0{name}\0");
    let word = |number: usize| (number as u64).to_le_bytes();
    let half = |number: usize| (number as u32).to_le_bytes();
    let sections = size_of::<FileHeader64<LE>>();
    let symbols = sections + 3 * size_of::<SectionHeader64<LE>>();
    let text = symbols + 2 * size_of::<Sym64<LE>>();
    let mut bytes = vec![0; text];
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    put(16, &[3, 0, 62, 0, 1]);
    put(40, &word(sections));
    put(52, &[64, 0, 0, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
    for (index, (name, kind, at, size)) in
        [(1, elf::SHT_SYMTAB.0, symbols, text - symbols), (9, elf::SHT_STRTAB.0, text, names.len())].iter().enumerate()
    {
        let header = sections + (index + 1) * size_of::<SectionHeader64<LE>>();
        put(header, &half(*name));
        put(header + 4, &kind.to_le_bytes());
        put(header + 24, &word(*at));
        put(header + 32, &word(*size));
    }
    let symbol = symbols + size_of::<Sym64<LE>>();
    put(symbol, &half(17));
    put(symbol + 4, &[elf::STT_FUNC.0, 0, 1, 0]);
    put(symbol + 8, &ADDRESS.to_le_bytes());
    put(symbol + 16, &word(1));
    bytes.extend_from_slice(names.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_compilers_become_those_of_the_source() {
        let names = [
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_ZN5alpha4TreepLERKS0_", "alpha::Tree::operator+="),
            ("_ZN5alpha4TreeD4Ev", "alpha::Tree::~Tree"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ];
        for (name, source) in names {
            let made = demangle(name).unwrap();
            assert!(made.starts_with(source), "{made}");
        }
        for name in ["main", "_ZN", "_Z", "_R", "_Restore", "", "_ZN99999999999999999999E", "_Z1fIJT_T_EEvT_"] {
            assert_eq!(demangle(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_that_doubles_itself_again_and_again_is_bounded() {
        // P<A, A>, P<the first, the first>, P<the second, the second>, and so on.
        let mut name = String::from("_Z1f1PI1AS0_E");
        for index in 1..33 {
            let digit = char::from_digit(index, 36).unwrap().to_ascii_uppercase();
            name.push_str(&format!("S_IS{digit}_S{digit}_E"));
        }
        assert!(demangle(&name).is_none_or(|long| long.len() <= MADE_MAX));
    }
}
