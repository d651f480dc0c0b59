//! Reads the call frame information of a file with code straight from its sections, and evaluates each function's rows
//! anew, without any code of pyobs.

use std::collections::HashMap;
use std::rc::Rc;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, Encoding, EndianSlice, FrameDescriptionEntry, LittleEndian,
    RegisterRule, UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};

pub type Bytes = EndianSlice<'static, LittleEndian>;

/// The rules of an address range: how to find the callers of its frames.
pub struct Rules {
    pub cfa: CfaRule<usize>,
    pub registers: HashMap<u16, RegisterRule<usize>>,
    /// Whether the caller was interrupted rather than made a call.
    pub signal: bool,
    pub encoding: Encoding,
    pub section: Bytes,
}

struct Function {
    start: u64,
    end: u64,
    entry: Entry,
}

#[derive(Clone)]
enum Entry {
    EhFrame(FrameDescriptionEntry<Bytes>),
    DebugFrame(FrameDescriptionEntry<Bytes>),
}

struct Segment {
    address: u64,
    offset: u64,
    size: u64,
}

pub struct Image {
    pub bytes: &'static [u8],
    segments: Vec<Segment>,
    eh_frame: Option<(EhFrame<Bytes>, Bytes)>,
    debug_frame: Option<(DebugFrame<Bytes>, Bytes)>,
    bases: BaseAddresses,
    /// By start. Of those with the same start, the one of `.eh_frame` comes last.
    functions: Vec<Function>,
    known: HashMap<u64, Option<Rc<Rules>>>,
    context: UnwindContext<usize>,
}

impl Image {
    /// The bytes live as long as the test program. Returns `None` if they are not an ELF file.
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let bytes: &'static [u8] = bytes.leak();
        let file = object::File::parse(bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            (segment.flags(), Segment { address: segment.address(), offset, size })
        });
        let is_code =
            |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & object::elf::PF_X.0 != 0);
        let segments = segments.filter(|(flags, _)| is_code(*flags)).map(|(_, segment)| segment).collect();
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            let data = section.data().ok().filter(|data| !data.is_empty())?;
            Some((section.address(), EndianSlice::new(data, LittleEndian)))
        };
        let mut bases = BaseAddresses::default();
        let eh_frame = section(".eh_frame").map(|(address, data)| {
            bases = std::mem::take(&mut bases).set_eh_frame(address);
            let mut frames = EhFrame::from(data);
            frames.set_address_size(8);
            (frames, data)
        });
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let debug_frame = section(".debug_frame").map(|(_, data)| {
            let mut frames = DebugFrame::from(data);
            frames.set_address_size(8);
            (frames, data)
        });
        let mut functions = Vec::new();
        if let Some((frames, _)) = &debug_frame {
            entries(frames, &bases, Entry::DebugFrame, &mut functions);
        }
        if let Some((frames, _)) = &eh_frame {
            entries(frames, &bases, Entry::EhFrame, &mut functions);
        }
        functions.sort_by_key(|function| function.start);
        let (known, context) = (HashMap::new(), UnwindContext::new());
        Some(Self { bytes, segments, eh_frame, debug_frame, bases, functions, known, context })
    }

    /// Whether the file has call frame information at all.
    pub fn has_frames(&self) -> bool {
        !self.functions.is_empty()
    }

    /// The link-time address of a byte of the file.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let mut segments = self.segments.iter();
        let segment =
            segments.find(|segment| offset.checked_sub(segment.offset).is_some_and(|at| at < segment.size))?;
        Some(offset - segment.offset + segment.address)
    }

    /// The rules at a link-time address.
    pub fn rules(&mut self, address: u64) -> Option<Rc<Rules>> {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let rules = self.evaluate(address).map(Rc::new);
        self.known.insert(address, rules.clone());
        rules
    }

    fn evaluate(&mut self, address: u64) -> Option<Rules> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions[..after].iter().rev().take(8).find(|function| address < function.end)?;
        match &function.entry {
            Entry::EhFrame(entry) => {
                let (section, bytes) = self.eh_frame.as_ref()?;
                rules(section, *bytes, &self.bases, &mut self.context, entry, address)
            }
            Entry::DebugFrame(entry) => {
                let (section, bytes) = self.debug_frame.as_ref()?;
                rules(section, *bytes, &self.bases, &mut self.context, entry, address)
            }
        }
    }
}

fn entries<S: UnwindSection<Bytes>>(
    section: &S,
    bases: &BaseAddresses,
    kind: fn(FrameDescriptionEntry<Bytes>) -> Entry,
    functions: &mut Vec<Function>,
) {
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(S::cie_from_offset) else {
            continue;
        };
        functions.push(Function { start: entry.initial_address(), end: entry.end_address(), entry: kind(entry) });
    }
}

fn rules<S: UnwindSection<Bytes>>(
    section: &S,
    bytes: Bytes,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize>,
    entry: &FrameDescriptionEntry<Bytes>,
    address: u64,
) -> Option<Rules> {
    let row = entry.unwind_info_for_address(section, bases, context, address).ok()?;
    Some(Rules {
        cfa: row.cfa().clone(),
        registers: row.registers().map(|(register, rule)| (register.0, rule.clone())).collect(),
        signal: entry.is_signal_trampoline(),
        encoding: entry.cie().encoding(),
        section: bytes,
    })
}
