//! The executable mappings of a process, which the test itself reads from `/proc/PID/maps`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use crate::image::Image;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    /// A path, or a name of the kernel's such as `[vdso]`. Empty for memory without a file.
    pub name: String,
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        fields.next().filter(|permissions| permissions.contains('x'))?;
        let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(fields.next()?)?);
        let name = fields.nth(2).unwrap_or_default().to_owned();
        Some(Self { start, end, offset, name })
    }

    pub fn short_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }
}

/// What lies at an address.
pub enum Place {
    /// An image, and the link-time address in it.
    Code(Rc<RefCell<Image>>, u64),
    /// Code without call frame information, which only frame pointers can unwind.
    FramePointers,
    Nothing,
}

pub struct Space {
    pid: u32,
    mappings: Vec<Mapping>,
    /// Mappings that no longer exist.
    before: Vec<Mapping>,
    images: HashMap<String, Option<Rc<RefCell<Image>>>>,
    changed: bool,
}

impl Space {
    pub fn of(pid: u32) -> Self {
        let mut space = Self { pid, mappings: Vec::new(), before: Vec::new(), images: HashMap::new(), changed: false };
        space.refresh();
        space
    }

    /// Reads the map again.
    pub fn refresh(&mut self) {
        let Ok(maps) = fs::read_to_string(format!("/proc/{}/maps", self.pid)) else { return };
        let mappings: Vec<Mapping> = maps.lines().filter_map(Mapping::parse).collect();
        // A process that is about to end has no mappings.
        if mappings == self.mappings || mappings.is_empty() {
            return;
        }
        let gone = self.mappings.drain(..).filter(|mapping| !mappings.contains(mapping));
        self.before.extend(gone);
        self.mappings = mappings;
        self.changed = true;
    }

    /// Whether the mappings have changed since the last call.
    pub fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let has = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        self.mappings.iter().find(has).or_else(|| self.before.iter().rev().find(has))
    }

    pub fn place(&mut self, address: u64) -> Place {
        let Some(mapping) = self.find(address).cloned() else { return Place::Nothing };
        let Some(image) = self.image(&mapping) else { return Place::FramePointers };
        let offset = address - mapping.start + mapping.offset;
        let known = image.borrow();
        let address = known.address(offset).filter(|_| known.has_frames());
        drop(known);
        address.map_or(Place::FramePointers, |address| Place::Code(image, address))
    }

    pub fn image(&mut self, mapping: &Mapping) -> Option<Rc<RefCell<Image>>> {
        if let Some(image) = self.images.get(&mapping.name) {
            return image.clone();
        }
        let bytes = self.read(mapping);
        let image = bytes.and_then(Image::new).map(|image| Rc::new(RefCell::new(image)));
        self.images.insert(mapping.name.clone(), image.clone());
        image
    }

    fn read(&self, mapping: &Mapping) -> Option<Vec<u8>> {
        if mapping.name == "[vdso]" {
            let mut bytes = vec![0; usize::try_from(mapping.end - mapping.start).ok()?];
            let memory = File::open(format!("/proc/{}/mem", self.pid)).ok()?;
            memory.read_exact_at(&mut bytes, mapping.start).ok()?;
            return Some(bytes);
        }
        if mapping.name.starts_with('/') { fs::read(&mapping.name).ok() } else { None }
    }

    /// Whether a `syscall` instruction ends at an address.
    pub fn ends_system_call(&mut self, address: u64) -> bool {
        let Some(mapping) = self.find(address - 1).cloned() else { return false };
        let Some(image) = self.image(&mapping) else { return false };
        let end = (address - mapping.start + mapping.offset) as usize;
        let bytes = image.borrow().bytes;
        end.checked_sub(2).and_then(|start| bytes.get(start..end)) == Some(&[0x0f, 0x05])
    }

    /// A text for messages.
    pub fn show(&self, address: u64) -> String {
        match self.find(address) {
            Some(mapping) => format!("{}+{:#x}", mapping.short_name(), address - mapping.start + mapping.offset),
            None => format!("{address:#x}"),
        }
    }
}
