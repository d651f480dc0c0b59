//! Builds ELF files byte by byte.

pub const CODE: u64 = 0x1000;
const EH_FRAME_HDR: u64 = 0x2000;
const EH_FRAME: u64 = 0x2020;
const HEADERS: u64 = 0x2800;
const SIZE: u64 = 0x3000;

/// A section of call frame information: `.eh_frame` with its address, or `.debug_frame`.
pub struct Frames {
    pub bytes: Vec<u8>,
    address: Option<u64>,
}

impl Frames {
    pub fn eh_frame() -> Self {
        Self { bytes: Vec::new(), address: Some(EH_FRAME) }
    }

    pub fn debug_frame() -> Self {
        Self { bytes: Vec::new(), address: None }
    }

    /// Appends an entry with an id and contents, padded with `DW_CFA_nop`. Returns its offset.
    fn entry(&mut self, id: u32, contents: &[u8]) -> u32 {
        let start = self.bytes.len();
        let length = (4 + contents.len()).next_multiple_of(4);
        self.bytes.extend((length as u32).to_le_bytes());
        self.bytes.extend(id.to_le_bytes());
        self.bytes.extend(contents);
        self.bytes.resize(start + 4 + length, 0);
        start as u32
    }

    pub fn cie(&mut self, augmentation: &str, instructions: &[u8]) -> u32 {
        let mut contents = vec![1];
        contents.extend(augmentation.as_bytes());
        // Factors of code (1) and data (-8), the register of the return address.
        contents.extend([0, 1, 0x78, 16]);
        if self.address.is_some() {
            // Pointer encoding: four bytes, signed, pc-relative.
            contents.extend([1, 0x1b]);
        }
        contents.extend(instructions);
        self.entry(if self.address.is_some() { 0 } else { u32::MAX }, &contents)
    }

    pub fn fde(&mut self, cie: u32, start: u64, length: u32, instructions: &[u8]) {
        let at = self.bytes.len() as u64;
        let mut contents = Vec::new();
        if let Some(address) = self.address {
            contents.extend((start.wrapping_sub(address + at + 8) as u32).to_le_bytes());
            contents.extend(length.to_le_bytes());
            contents.push(0);
        } else {
            contents.extend(start.to_le_bytes());
            contents.extend(u64::from(length).to_le_bytes());
        }
        contents.extend(instructions);
        self.entry(if self.address.is_some() { at as u32 + 4 - cie } else { cie }, &contents);
    }
}

/// An ELF file whose offsets equal its addresses: code from [`CODE`] up to the page of data.
#[derive(Default)]
pub struct Image {
    /// Name, address, contents, flags.
    pub sections: Vec<(&'static str, u64, Vec<u8>, u64)>,
    pub without_sections: bool,
}

impl Image {
    pub fn section(mut self, name: &'static str, address: u64, bytes: Vec<u8>, flags: u64) -> Self {
        self.sections.push((name, address, bytes, flags));
        self
    }

    pub fn with(self, frames: Frames) -> Self {
        match frames.address {
            Some(address) => self.section(".eh_frame", address, frames.bytes, 2),
            None => self.section(".debug_frame", 0x2400, frames.bytes, 0),
        }
    }

    pub fn bytes(self) -> Vec<u8> {
        let mut image = vec![0; SIZE as usize];
        let mut put = |at: u64, bytes: &[u8]| image[at as usize..][..bytes.len()].copy_from_slice(bytes);
        let shorts = |numbers: &[u16]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        let longs = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        let kinds = |kind: u32, flags: u32| u64::from(kind) | (u64::from(flags) << 32);

        put(0, b"\x7fELF\x02\x01\x01");
        put(16, &shorts(&[3, 62, 1]));
        let count = if self.without_sections { 0 } else { self.sections.len() as u16 + 2 };
        put(24, &longs(&[0, 64, if self.without_sections { 0 } else { HEADERS }]));
        put(52, &shorts(&[64, 56, 3, 64, count, count.saturating_sub(1)]));
        // Type and flags, offset, address (twice), sizes in the file and in memory, alignment.
        let code = [kinds(1, 5), CODE, CODE, CODE, EH_FRAME_HDR - CODE, EH_FRAME_HDR - CODE, 0x1000];
        let data = [kinds(1, 4), EH_FRAME_HDR, EH_FRAME_HDR, EH_FRAME_HDR, 0x800, 0x800, 0x1000];
        let header = [kinds(0x6474_e550, 4), EH_FRAME_HDR, EH_FRAME_HDR, EH_FRAME_HDR, 8, 8, 4];
        put(64, &longs(&[code, data, header].concat()));
        // Version, encodings (pc-relative pointer; no count, no table), the pointer.
        put(EH_FRAME_HDR, &[1, 0x1b, 0xff, 0xff]);
        put(EH_FRAME_HDR + 4, &((EH_FRAME - EH_FRAME_HDR - 4) as u32).to_le_bytes());

        let mut names = vec![0];
        let mut headers = vec![[0; 8]];
        for (name, address, bytes, flags) in &self.sections {
            let own = kinds(names.len() as u32, 1);
            headers.push([own, *flags, *address, *address, bytes.len() as u64, 0, 1, 0]);
            names.extend(name.as_bytes());
            names.push(0);
            put(*address, bytes);
        }
        let names_at = HEADERS + 64 * u64::from(count);
        headers.push([kinds(0, 3), 0, 0, names_at, names.len() as u64, 0, 1, 0]);
        if !self.without_sections {
            put(HEADERS, &longs(&headers.concat()));
            put(names_at, &names);
        }
        image
    }
}
