//! Check words of code objects: a hash that tells a code object from another that took its place at the same address.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::{helpers::generated::bpf_probe_read_user, macros::map, maps::Array};
use pyobs_abi::process::{CHECK_MAX, CHECK_WORDS, Check, Layout, NONE, Tail};

use super::{
    maps::AT_A_PAGE,
    memory::user,
    walk::{SLOTS, Walk, state},
};

/// Times here are in units of 2^20 ns.
const TIME_SHIFT: u64 = 20;
/// Up to this age, a remembered check word is used without reading the code object again. Samples are further apart at
/// the default rate. At 1 kHz, every fifth sample reads the object.
const AGE_MAX: u32 = 5;
/// The same if the code object still has its version. Versions are unique only within an interpreter: once one has
/// ended, a code object of another with the same version can take the place of one of its own.
const SAME_VERSION_AGE_MAX: u32 = 256;
/// A word that changed within this time is always read again: a program that makes, runs and drops code over and over
/// often reuses an address.
const SETTLED: u32 = 1000;
/// Check words that a CPU remembers. Two code objects with the same place in the cache replace each other.
const ENTRIES: usize = 1024;

/// In place of a check word: the memory holds an object of another type.
pub const NO_CODE: u64 = 0;
/// The memory cannot be read.
pub const UNREADABLE: u64 = 1 << 32;
/// Above the check word: this CPU has seen the code object before.
pub const SEEN: u64 = 1 << 33;

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    code: u64,
    /// When the word was read, and since when it has been the same.
    read: u32,
    since: u32,
    pid: u32,
    /// 0 if it is not a code object.
    check: u32,
    /// 0 if it has none.
    version: u32,
    padding: u32,
}

const PART_WORDS: usize = CHECK_MAX / 8;
/// Scratch space for parts of code objects and texts.
pub type Part = [u64; PART_WORDS];

#[repr(C)]
struct Checks {
    entries: [Entry; ENTRIES],
    part: Part,
}

/// One for each walk. Not a per-CPU array, whose values may not be this large. User space sets the size.
#[map]
static CHECKS: Array<Checks> = Array::with_max_entries(SLOTS, AT_A_PAGE);

/// Returns the check word of the code object at `code` and whether it is [`SEEN`], or [`NO_CODE`], or [`UNREADABLE`],
/// for this walk.
///
/// A global function, so that the verifier checks it once rather than for every frame of a step.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn check_code(number: u32, code: u64) -> u64 {
    let Some(walk) = state(number) else { return UNREADABLE };
    let Some(checks) = CHECKS.get_ptr_mut(number) else { return UNREADABLE };
    // SAFETY: the pointer is into the walk's own element.
    let checks = unsafe { &mut *checks };
    checks.check(walk, code)
}

impl Checks {
    #[inline(always)]
    fn check(&mut self, walk: &Walk, code: u64) -> u64 {
        let (pid, now) = (walk.sample.header.pid, (walk.sample.header.time >> TIME_SHIFT) as u32);
        let index = ((code >> 4) ^ (code >> 14)) as usize & (ENTRIES - 1);
        let entry = self.entries[index];
        let is_known = entry.code == code && entry.pid == pid;
        let layout = &walk.layout;
        if is_known && entry.check != 0 && entry.read.wrapping_sub(entry.since) >= SETTLED {
            let age = now.wrapping_sub(entry.read);
            if age < AGE_MAX || (age < SAME_VERSION_AGE_MAX && has_version(layout, code, entry.version)) {
                return u64::from(entry.check) | SEEN;
            }
        }
        let is_read = read_object(&mut self.part, layout, code);
        let type_ = word(&self.part, layout.check_type);
        let check = if walk.code_type != 0 && (!is_read || type_ != walk.code_type) {
            0
        } else if is_read && let Some(check) = fold(&mut self.part, layout) {
            check
        } else {
            return UNREADABLE;
        };
        let is_same = is_known && entry.check == check;
        let since = if is_same { entry.since } else { now };
        let version = version(&self.part, layout);
        self.entries[index] = Entry { code, read: now, since, pid, check, version, padding: 0 };
        if is_same && check != 0 { u64::from(check) | SEEN } else { check.into() }
    }
}

/// Whether the code object at `code` still has this version, which is not 0.
#[inline(always)]
fn has_version(layout: &Layout, code: u64, version: u32) -> bool {
    let offset = layout.check_start.wrapping_add(layout.check_version);
    version != 0 && user::<u32>(code.wrapping_add(offset.into())) == Some(version)
}

/// Returns the version of the code object in `part`, or 0 if it has none.
#[inline(always)]
fn version(part: &Part, layout: &Layout) -> u32 {
    if layout.check_version == NONE {
        return 0;
    }
    (word(part, layout.check_version) >> ((layout.check_version & 4) * 8)) as u32
}

/// Returns the check word of the code object at `code`, or `None` if it cannot be read. Remembers nothing.
#[inline(always)]
pub fn check_anew(part: &mut Part, layout: &Layout, code: u64) -> Option<u32> {
    if !read_object(part, layout, code) {
        return None;
    }
    fold(part, layout)
}

#[inline(always)]
fn read_object(part: &mut Part, layout: &Layout, code: u64) -> bool {
    read(part, layout.check_size.min(CHECK_MAX as u32), code.wrapping_add(layout.check_start.into()))
}

/// Reads `size` bytes into the part, which has room for them.
#[inline(always)]
fn read(part: &mut Part, size: u32, address: u64) -> bool {
    // SAFETY: the part holds CHECK_MAX bytes, and the verifier refuses a size that may be larger; the helper checks the
    // source.
    unsafe { bpf_probe_read_user(part.as_mut_ptr().cast(), size, address as *const c_void) == 0 }
}

#[inline(always)]
fn word(part: &Part, offset: u32) -> u64 {
    // Hidden from the compiler, which would drop the mask as needless; the verifier needs it.
    part[black_box(offset as usize >> 3) & (PART_WORDS - 1)]
}

/// Returns the check word of the object in `part`.
#[inline(always)]
fn fold(part: &mut Part, layout: &Layout) -> Option<u32> {
    let pointer = |offset: u32| word(part, offset.wrapping_sub(layout.check_start));
    let (name, file) = (pointer(layout.code_name), pointer(layout.code_file));
    let mut check = Check::default();
    let mut offset = layout.check_first;
    for _ in 0..CHECK_WORDS {
        if offset > layout.check_last {
            break;
        }
        check = check.add(word(part, offset));
        offset = offset.wrapping_add(8);
    }
    if layout.check_text != 0 {
        check = add_text(part, check, layout, name)?;
        check = add_text(part, check, layout, file)?;
    }
    Some(check.fold())
}

/// The size of the length, the hash and the state of a `str`, which follow each other: `PyASCIIObject` in
/// <https://github.com/python/cpython/blob/v3.10.0/Include/cpython/unicodeobject.h>.
const HEAD: u32 = 24;
/// Bits of the state, up to 3.11.
const KIND_SHIFT: u64 = 2;
const ASCII: u64 = 1 << 6;

/// Adds the length and the tail of a `str`.
#[inline(always)]
fn add_text(part: &mut Part, check: Check, layout: &Layout, address: u64) -> Option<Check> {
    /// The largest header from its length on, and a tail.
    const HEAD_AND_TAIL: u32 = 64 + Tail::MAX as u32;
    const _: () = assert!(HEAD_AND_TAIL as usize <= CHECK_MAX && HEAD < HEAD_AND_TAIL);
    let start = address.wrapping_add(layout.text_length.into());
    // A read of user memory costs about 100 ns whatever its size, and most texts follow their header.
    let has_text = read(part, HEAD_AND_TAIL, start);
    if !has_text && !read(part, HEAD, start) {
        return None;
    }
    let (length, state) = (part[0], part[2]);
    let width = match (state >> KIND_SHIFT) & 7 {
        2 => 2,
        4 => 4,
        _ => 1,
    };
    let data = if state & ASCII != 0 { layout.check_text } else { layout.text_head };
    let tail = Tail::of(length, width, data);
    // The verifier must see the bound in the register that the helper gets.
    let size = black_box(tail.size);
    if size > Tail::MAX as u32 {
        return None;
    }
    let behind = (data.wrapping_sub(layout.text_length)) as u64;
    let mut at = behind as u32;
    if !has_text || tail.offset != u64::from(data) || behind + Tail::MAX as u64 > HEAD_AND_TAIL.into() {
        if size != 0 && !read(part, size, address.wrapping_add(tail.offset)) {
            return None;
        }
        at = 0;
    }
    let mut check = check.add(length);
    let mut left = size;
    for _ in 0..Tail::MAX / 8 {
        if left == 0 {
            break;
        }
        let bits = left.min(8) * 8;
        check = check.add(word(part, at) & (u64::MAX >> (64 - bits)));
        at = at.wrapping_add(8);
        left -= left.min(8);
    }
    Some(check)
}
