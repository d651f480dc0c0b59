//! Wraps sections into ELF files.

use object::elf;

/// Where the code of an image begins in memory.
pub const CODE: u64 = 0x1000;
const CODE_SIZE: u64 = 0x10_0000;
const HEADER: usize = 64;
const SEGMENT: usize = 56;

/// An x86-64 library with code at [`CODE`] and these sections, mapped at their file offsets.
pub fn image(sections: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut content, mut names) = (Vec::new(), vec![0]);
    let mut headers = vec![[0_u64; 5]];
    let at = |content: &Vec<u8>| (HEADER + SEGMENT + content.len()) as u64;
    for (name, bytes) in sections {
        let kind = if *name == ".symtab" { elf::SHT_SYMTAB } else { elf::SHT_PROGBITS };
        headers.push([names.len() as u64, kind.0.into(), at(&content), at(&content), bytes.len() as u64]);
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        content.extend_from_slice(bytes);
    }
    headers.push([0, elf::SHT_STRTAB.0.into(), at(&content), at(&content), names.len() as u64]);
    content.extend_from_slice(&names);
    content.resize(content.len().next_multiple_of(8), 0);
    let table = at(&content);
    let mut image = Vec::new();
    image.extend_from_slice(&elf::ELFMAG);
    // 64 bits, little-endian, version 1.
    image.extend_from_slice(&[2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let half = |value: u16, image: &mut Vec<u8>| image.extend_from_slice(&value.to_le_bytes());
    half(elf::ET_DYN.0, &mut image);
    half(elf::EM_X86_64.0, &mut image);
    image.extend_from_slice(&1_u32.to_le_bytes());
    for value in [CODE, HEADER as u64, table] {
        image.extend_from_slice(&value.to_le_bytes());
    }
    image.extend_from_slice(&0_u32.to_le_bytes());
    for value in [HEADER, SEGMENT, 1, 64, headers.len(), headers.len() - 1] {
        half(value as u16, &mut image);
    }
    image.extend_from_slice(&elf::PT_LOAD.0.to_le_bytes());
    image.extend_from_slice(&(elf::PF_R.0 | elf::PF_X.0).to_le_bytes());
    for value in [0, 0, 0, CODE + CODE_SIZE, CODE + CODE_SIZE, 4096] {
        image.extend_from_slice(&u64::to_le_bytes(value));
    }
    image.extend_from_slice(&content);
    let last = (headers.len() - 1) as u64;
    for [name, kind, address, offset, size] in headers {
        image.extend_from_slice(&(name as u32).to_le_bytes());
        image.extend_from_slice(&(kind as u32).to_le_bytes());
        // Symbols use the section names' string table.
        let (names, entry) = if kind == u64::from(elf::SHT_SYMTAB.0) { (last, 24) } else { (0, 0) };
        for value in [0, address, offset, size, names, 1, entry] {
            image.extend_from_slice(&u64::to_le_bytes(value));
        }
    }
    image
}
