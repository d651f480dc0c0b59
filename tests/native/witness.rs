//! A second reference: framehop, used for stacks with plain frames only. (It errs after realigned and signal frames;
//! see [`crate::oracle::Unwound::is_plain`].)

use std::ops::Range;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder};
use object::{Object, ObjectSection};
use pyobs_capture::session::Copied;

use crate::oracle::Memory;
use crate::space::Space;

pub struct Witness {
    unwinder: UnwinderX86_64<&'static [u8], MayAllocateDuringUnwind>,
    cache: CacheX86_64<MayAllocateDuringUnwind>,
}

impl Witness {
    pub fn of(space: &mut Space) -> Self {
        let mut unwinder = UnwinderX86_64::new();
        for mapping in space.mappings().to_vec() {
            let Some(image) = space.image(&mapping) else { continue };
            let image = image.borrow();
            let Some(address) = image.address(mapping.offset) else { continue };
            let Ok(file) = object::File::parse(image.bytes) else { continue };
            let range = |name: &str| -> Option<Range<u64>> {
                let section = file.section_by_name(name)?;
                Some(section.address()..section.address() + section.size())
            };
            let data = |name: &str| file.section_by_name(name)?.data().ok();
            let sections = ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: range(".text"),
                text: data(".text"),
                got_svma: range(".got"),
                eh_frame_svma: range(".eh_frame"),
                eh_frame: data(".eh_frame"),
                eh_frame_hdr_svma: range(".eh_frame_hdr"),
                eh_frame_hdr: data(".eh_frame_hdr"),
                ..ExplicitModuleSectionInfo::default()
            };
            let base = mapping.start.wrapping_sub(address);
            unwinder.add_module(Module::new(mapping.name.clone(), mapping.start..mapping.end, base, sections));
        }
        Self { unwinder, cache: CacheX86_64::new() }
    }

    /// Unwinds as the oracle does; `None` if framehop gives up.
    pub fn unwind(&mut self, copied: &Copied) -> Option<Vec<u64>> {
        let start = copied.registers?;
        let memory = Memory(&copied.pages);
        let mut read = |address: u64| memory.word(address).ok_or(());
        let registers = UnwindRegsX86_64::new(start.ip, start.sp, start.bp);
        let ip = start.ip - u64::from(start.after);
        let mut frames = self.unwinder.iter_frames(ip, registers, &mut self.cache, &mut read);
        let mut pcs = Vec::new();
        while let Some(frame) = frames.next().ok()? {
            pcs.push(frame.address_for_lookup());
        }
        Some(pcs)
    }
}
