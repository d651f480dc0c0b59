//! What an address in a watched process belongs to: code, data, objects.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyobs_abi::redundancy::Registers;
use pyobs_abi::stack::{COUNT_UNKNOWN, loop_count, native_address};
use pyobs_model::{Touched, package};

use super::calls::Interpreter;
use super::types::TypeInfo;
use crate::cache::Cache;
use crate::families::arena::pools::{HEADER, Header, Shape};
use crate::kernel::cost::thread_time;
use crate::memory::{Memory, ProcessMemory};
use crate::pipeline::processes::token_bucket::TokenBuckets;
use crate::process_maps::lines;

/// Minimum time between two reads of a process's map.
const READ_AGAIN: Duration = Duration::from_millis(200);
/// Type names cached per process; the least recently used are evicted.
const TYPES_MAX: usize = 4096;
const NAME_MAX: usize = 96;
/// State of a process not seen for this long is dropped.
const IDLE: Duration = Duration::from_secs(30);
pub const ARRAY: &str = "numpy.ndarray";
/// Words of the innermost Python frame searched for arrays.
const FRAME_WORDS: usize = 64;
const DIMENSIONS_MAX: usize = 32;
/// Range of plausible object addresses: above the first page, below the kernel's half.
const LOWEST: u64 = 4096;
const HIGHEST: u64 = 1 << 56;
/// Size of an object's header: its reference count and its type.
const OBJECT: u64 = 16;

#[derive(Clone, Debug)]
struct Region {
    start: u64,
    end: u64,
    writable: bool,
    /// Other processes may have it mapped too.
    shared: bool,
    /// `None` for anonymous memory.
    path: Option<Arc<str>>,
}

/// The owner of a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Interpreter,
    /// libc and its companions, which work on behalf of their callers.
    Runtime,
    Extension,
    Other,
}

/// Whether the thread is in the interpreter's loop, not in code that it called.
pub fn is_in_loop(sample: &Registers) -> bool {
    sample.natives > 0 && loop_count(sample.native[0]).is_some()
}

/// The native frames, leaf first.
fn natives(sample: &Registers) -> &[u64] {
    &sample.native[..(sample.natives as usize).min(sample.native.len())]
}

pub struct Place {
    memory: ProcessMemory,
    pid: u32,
    shape: Shape,
    interpreter: Interpreter,
    regions: Vec<Region>,
    read: Option<Instant>,
    /// Limits how often large maps are read.
    map_reads: TokenBuckets,
    used: Instant,
    types: Cache<u64, Option<Arc<str>>>,
    /// What types say about their instances.
    pub infos: Cache<u64, TypeInfo>,
}

impl Place {
    pub fn new(pid: u32, interpreter: Interpreter) -> Self {
        Self {
            memory: ProcessMemory::new(pid),
            pid,
            shape: Shape::of(interpreter.version),
            interpreter,
            regions: Vec::new(),
            read: None,
            map_reads: TokenBuckets::default(),
            used: Instant::now(),
            types: Cache::new(TYPES_MAX),
            infos: Cache::new(TYPES_MAX),
        }
    }

    pub fn interpreter(&self) -> &Interpreter {
        &self.interpreter
    }

    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    pub fn is_idle(&self) -> bool {
        self.used.elapsed() > IDLE
    }

    fn region(&mut self, address: u64) -> Option<Region> {
        self.used = Instant::now();
        if let Some(region) = self.find(address) {
            return Some(region.clone());
        }
        let now = Instant::now();
        if self.read.is_none_or(|at| at.elapsed() > READ_AGAIN) && self.map_reads.next(self.pid, now) <= now {
            self.read_map();
        }
        self.find(address).cloned()
    }

    fn find(&self, address: u64) -> Option<&Region> {
        let after = self.regions.partition_point(|region| region.start <= address);
        self.regions[..after].last().filter(|region| address < region.end)
    }

    fn read_map(&mut self) {
        self.read = Some(Instant::now());
        let (before, mut regions) = (thread_time(), Vec::new());
        let read = lines::each(self.pid, |line| {
            let path = match line.path {
                "[vdso]" | "[vsyscall]" | "[vvar]" => Some(Arc::from("[vdso]")),
                path => (!path.is_empty() && !path.starts_with('[')).then(|| Arc::from(path)),
            };
            let (writable, shared) = (line.is_writable(), line.is_shared());
            regions.push(Region { start: line.start, end: line.end, writable, shared, path });
            ControlFlow::Continue(())
        });
        if let Ok(extent) = read {
            self.regions = regions;
            let took = thread_time().saturating_sub(before);
            self.map_reads.spend(self.pid, extent.lines, took, Instant::now());
        }
    }

    /// Whether the thread is in an extension module, or in a library called by one.
    pub fn is_below_extension(&mut self, sample: &Registers) -> bool {
        let words = natives(sample);
        let Some(eval) = words.iter().position(|word| loop_count(*word).is_some()) else { return false };
        let interpreter = self.region(native_address(words[eval])).and_then(|region| region.path);
        for word in &words[..eval] {
            match self.owner(native_address(*word), interpreter.as_deref()) {
                Owner::Extension => return true,
                Owner::Runtime => {}
                Owner::Interpreter | Owner::Other => return false,
            }
        }
        false
    }

    /// Returns the indexes of the Python frames whose caller is native code of a library that applies functions element
    /// by element. The innermost frame has index 0.
    pub fn applied(&mut self, sample: &Registers) -> Vec<usize> {
        let (mut applied, mut frames) = (Vec::new(), 0);
        for word in natives(sample) {
            if let Some(count) = loop_count(*word) {
                frames += match count {
                    // Until 3.10, the interpreter's loop calls itself for each Python function.
                    _ if self.interpreter.version.minor < 11 => 1,
                    COUNT_UNKNOWN => break,
                    count => count as usize,
                };
            } else if frames > 0 && applied.last() != Some(&(frames - 1)) && self.applies(native_address(*word)) {
                applied.push(frames - 1);
            }
        }
        applied
    }

    fn applies(&mut self, address: u64) -> bool {
        let path = self.region(address).and_then(|region| region.path);
        path.and_then(|path| package::of_file(&path)).is_some_and(|package| package::applies_functions(&package))
    }

    /// Whether the sample is in the C library or another runtime library of the interpreter.
    pub fn is_in_runtime(&mut self, sample: &Registers) -> bool {
        matches!(self.owner(sample.ip, None), Owner::Runtime)
    }

    fn owner(&mut self, address: u64, interpreter: Option<&str>) -> Owner {
        let Some(path) = self.region(address).and_then(|region| region.path) else { return Owner::Other };
        if interpreter == Some(&*path) {
            return Owner::Interpreter;
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        const RUNTIME: [&str; 8] =
            ["libc.so", "libc-", "libm.so", "libm-", "libpthread", "libstdc++", "libgcc_s", "ld-"];
        if path.starts_with('[') || name.starts_with("ld-linux") {
            Owner::Other
        } else if RUNTIME.iter().any(|prefix| name.starts_with(prefix)) {
            Owner::Runtime
        } else {
            Owner::Extension
        }
    }

    /// Whether an address is worth a watchpoint: not the thread's stack or thread-local data.
    pub fn is_shared_data(&mut self, address: u64, sample: &Registers) -> bool {
        let Some(region) = self.region(address) else { return false };
        let sp = sample.general[4];
        let own = sample.thread_pointer.wrapping_sub(4096)..sample.thread_pointer.wrapping_add(4096);
        let is_stack = (region.start..region.end).contains(&sp);
        !is_stack && !own.contains(&address)
    }

    /// Whether other processes may read what this one stores there.
    pub fn is_shared_mapping(&mut self, address: u64) -> bool {
        self.region(address).is_some_and(|region| region.shared)
    }

    /// What an address contains; `None` for an object's header, because its reference count changes all the
    /// time.
    pub fn classify(&mut self, address: u64, sample: &Registers) -> Option<Touched> {
        let Some(region) = self.region(address) else { return Some(Touched::Unknown) };
        if region.shared {
            // A shared mapping contains data, whichever file it maps.
            return Some(self.array(address, sample).unwrap_or(Touched::Unknown));
        }
        if region.path.is_some() {
            return Some(Touched::Static);
        }
        if let Some(piece) = self.piece(address) {
            return self.object(piece, address);
        }
        if let Some(touched) = self.array(address, sample) {
            return Some(touched);
        }
        // The kernel maps the part of a module's data beyond the file's end (.bss) as memory without a name,
        // right after it.
        if let Some(before) = self.find(region.start.wrapping_sub(1))
            && before.path.as_deref().is_some_and(|path| path.starts_with('/'))
            && before.writable
        {
            return Some(Touched::Static);
        }
        Some(Touched::Unknown)
    }

    /// The block at this address in one of CPython's arenas.
    fn piece(&self, address: u64) -> Option<u64> {
        let pool = address & !(self.shape.pool - 1);
        let mut bytes = [0; HEADER];
        self.memory.read(pool, &mut bytes).ok()?;
        let header = Header::parse(&bytes, pool, &self.shape)?;
        let at = address.checked_sub(pool + HEADER as u64)?;
        Some(pool + HEADER as u64 + at / header.piece * header.piece)
    }

    fn object(&mut self, piece: u64, address: u64) -> Option<Touched> {
        // The object may follow a garbage collector header (16 bytes), and before that its weak references
        // and attributes (16 more).
        for offset in [0, 16, 32] {
            let Ok(kind) = self.memory.read_u64(piece + offset + 8) else { break };
            if let Some(name) = self.type_name(kind) {
                return (address >= piece + offset + OBJECT).then_some(Touched::Metadata(Some(name)));
            }
        }
        Some(Touched::Metadata(None))
    }

    /// The name of the type at an address, if there is one. A type's own type is a type, and so on, up to one
    /// that is its own type.
    pub fn type_name(&mut self, kind: u64) -> Option<Arc<str>> {
        if !(LOWEST..HIGHEST).contains(&kind) || !kind.is_multiple_of(8) {
            return None;
        }
        if let Some(known) = self.types.get(&kind) {
            return known.clone();
        }
        let name = self.read_type_name(kind);
        self.types.insert(kind, name.clone());
        name
    }

    /// `tp_name` follows the header of a variable-sized object
    /// (<https://github.com/python/cpython/blob/v3.13.0/Include/cpython/object.h>).
    fn read_type_name(&self, kind: u64) -> Option<Arc<str>> {
        const TP_NAME: u64 = 24;
        let meta = self.memory.read_u64(kind + 8).ok()?;
        let meta_meta = self.memory.read_u64(meta.checked_add(8)?).ok()?;
        if meta_meta != meta && self.memory.read_u64(meta_meta.checked_add(8)?).ok()? != meta_meta {
            return None;
        }
        self.name_at(self.memory.read_u64(kind + TP_NAME).ok()?)
    }

    /// Reads a C string that contains only characters possible in Python names.
    pub fn name_at(&self, at: u64) -> Option<Arc<str>> {
        let mut bytes = [0; NAME_MAX];
        // The name may end just before an unmapped page.
        let page = 4096 - (at & 4095) as usize;
        let length = if self.memory.read(at, &mut bytes).is_ok() {
            NAME_MAX
        } else {
            self.memory.read(at, &mut bytes[..page.min(NAME_MAX)]).ok()?;
            page.min(NAME_MAX)
        };
        let text = &bytes[..length];
        let text = &text[..text.iter().position(|byte| *byte == 0)?];
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        let fits = text.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_');
        (fits && text.iter().all(is_name)).then(|| Arc::from(String::from_utf8_lossy(text)))
    }

    /// The array whose data or dimensions contain this address, among those the thread's registers and frame
    /// refer to.
    fn array(&mut self, address: u64, sample: &Registers) -> Option<Touched> {
        let mut frame = [0; FRAME_WORDS * 8];
        let in_frame = self.memory.read(sample.frame, &mut frame).is_ok();
        let of_frame = frame.chunks_exact(8).filter_map(|bytes| bytes.try_into().map(u64::from_ne_bytes).ok());
        let words = (sample.words as usize).min(sample.stack.len());
        let mut candidates: Vec<u64> = sample.general.iter().chain(&sample.stack[..words]).copied().collect();
        if in_frame {
            candidates.extend(of_frame);
        }
        candidates.retain(|word| (LOWEST..HIGHEST).contains(word) && word.is_multiple_of(8));
        candidates.sort_unstable();
        candidates.dedup();
        candidates.into_iter().find_map(|candidate| self.array_at(candidate, address))
    }

    fn array_at(&mut self, object: u64, address: u64) -> Option<Touched> {
        if !self.find(object).is_some_and(|region| region.writable) {
            return None;
        }
        let array = Array::read(self, object)?;
        // Strides follow dimensions, in memory outside CPython's arenas.
        if address.wrapping_sub(array.dimensions) < 16 * array.shape.len() as u64 {
            return Some(Touched::Metadata(Some(Arc::from(ARRAY))));
        }
        array.has(address).then(|| Touched::Array(array.name(self)))
    }

    /// The type of an array's elements, and its shape.
    pub fn array_name(&mut self, object: u64) -> Option<Arc<str>> {
        Some(Array::read(self, object)?.name(self))
    }
}

/// A NumPy array.
struct Array {
    data: u64,
    /// Address of the shape.
    dimensions: u64,
    shape: Vec<i64>,
    steps: Vec<i64>,
    description: u64,
}

impl Array {
    /// `PyArrayObject_fields`: data, nd, dimensions, strides, base, descr (numpy/ndarraytypes.h).
    fn read(place: &mut Place, object: u64) -> Option<Self> {
        let mut bytes = [0; 64];
        place.memory.read(object, &mut bytes).ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        if place.type_name(word(8)).as_deref() != Some(ARRAY) {
            return None;
        }
        let (data, nd, dimensions, strides, description) =
            (word(16), word(24) as u32 as usize, word(32), word(40), word(56));
        if nd > DIMENSIONS_MAX {
            return None;
        }
        let (mut shape, mut steps) = (vec![0; nd * 8], vec![0; nd * 8]);
        place.memory.read(dimensions, &mut shape).ok()?;
        place.memory.read(strides, &mut steps).ok()?;
        let numbers = |bytes: &[u8]| -> Vec<i64> {
            bytes.chunks_exact(8).filter_map(|bytes| bytes.try_into().map(i64::from_ne_bytes).ok()).collect()
        };
        Some(Self { data, dimensions, shape: numbers(&shape), steps: numbers(&steps), description })
    }

    fn has(&self, address: u64) -> bool {
        self.extent().is_some_and(|extent| address.checked_sub(self.data).is_some_and(|at| at < extent))
    }

    /// Bytes from the first element to the end of the last one, by the strides.
    fn extent(&self) -> Option<u64> {
        let mut extent: i64 = self.steps.iter().filter(|step| **step > 0).min().copied().unwrap_or(16).max(8);
        for (dimension, step) in self.shape.iter().zip(&self.steps) {
            extent = extent.checked_add(dimension.checked_sub(1)?.checked_mul((*step).max(0))?)?;
        }
        extent.try_into().ok()
    }

    fn name(&self, place: &mut Place) -> Arc<str> {
        // The element type is the first field of the descriptor.
        let kind = place.memory.read_u64(self.description.wrapping_add(OBJECT)).ok();
        let kind = kind.and_then(|kind| place.type_name(kind));
        let element = kind.as_deref().map_or("?", |name| name.rsplit('.').next().unwrap_or(name));
        let shape: Vec<String> = self.shape.iter().map(i64::to_string).collect();
        // An array without dimensions has a single element.
        if shape.is_empty() { Arc::from(element) } else { Arc::from(format!("{element} {}", shape.join("x"))) }
    }
}
