//! Copies each code object to user space the first time a stack contains it. The top level of a module runs once and is
//! freed, so reading it later from the process would be too late.

use core::{ffi::c_void, hint::black_box, mem::offset_of};

use aya_ebpf::{helpers::generated::bpf_probe_read_user, macros::map, maps::PerCpuArray};
use pyobs_abi::{
    code::{CodeCopy, FILE_AT, FILE_MAX, NAME_AT, NAME_MAX, OBJECT_AT, OBJECT_MAX, TABLE_AT, TABLE_MAX},
    record,
};

use super::{
    memory::user,
    ring::{self, Route},
    walk::{SLOTS, Walk, state},
};

/// Scratch space: one per CPU and walking context.
#[map]
static COPIES: PerCpuArray<CodeCopy> = PerCpuArray::with_max_entries(SLOTS, 0);

/// Copies the code object at `code` and sends it, on behalf of walk `number`. Returns 0 if user space must read it from
/// the process instead.
///
/// A global function, so that the verifier checks it once rather than in every program that walks.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn copy_code(number: u32, code: u64, check: u32) -> u64 {
    let Some(walk) = state(number) else { return 0 };
    let Some(copy) = COPIES.get_ptr_mut(walk.slot) else { return 0 };
    // SAFETY: the pointer is into this CPU's value, which only the walk in this slot uses.
    let copy = unsafe { &mut *copy };
    copy.header = walk.sample.header;
    copy.header.kind = record::CODE_COPY;
    (copy.address, copy.check) = (code, check);
    u64::from(fill(copy, walk, code).is_some())
}

#[inline(always)]
fn fill(copy: &mut CodeCopy, walk: &Walk, code: u64) -> Option<()> {
    let layout = &walk.layout;
    copy.object_size = layout.code_size;
    read::<OBJECT_AT, OBJECT_MAX>(copy, code, layout.code_size.into())?;
    let (name, file) = (word(copy, layout.code_name), word(copy, layout.code_file));
    let table = word(copy, layout.code_table);
    copy.name_size = text::<NAME_AT, NAME_MAX>(copy, walk, name)?;
    copy.file_size = text::<FILE_AT, FILE_MAX>(copy, walk, file)?;
    let length: u64 = user(table.wrapping_add(layout.bytes_length.into()))?;
    let size = length.wrapping_add(layout.bytes_data.into());
    copy.table_size = read::<TABLE_AT, TABLE_MAX>(copy, table, size)?;
    send(copy);
    Some(())
}

/// Copies a `str`, header included, and returns the number of bytes copied. User space decodes the character width, so
/// this copies four bytes per character if they fit and are mapped, and one byte per character otherwise.
#[inline(always)]
fn text<const AT: usize, const MAX: usize>(copy: &mut CodeCopy, walk: &Walk, address: u64) -> Option<u32> {
    let length: u64 = user(address.wrapping_add(walk.layout.text_length.into()))?;
    let head = u64::from(walk.layout.text_head);
    let least = length.wrapping_add(head);
    if length > MAX as u64 || least > MAX as u64 {
        return None;
    }
    let most = (4 * length + head).min(MAX as u64);
    read::<AT, MAX>(copy, address, most).or_else(|| read::<AT, MAX>(copy, address, least))
}

/// Copies `size` bytes from the process into the slot at `AT`, which holds up to `MAX` bytes. Returns `size`.
#[inline(always)]
fn read<const AT: usize, const MAX: usize>(copy: &mut CodeCopy, address: u64, size: u64) -> Option<u32> {
    // The verifier must see the bound in the register that the helper gets.
    let size = black_box(size);
    if size == 0 || size > MAX as u64 {
        return None;
    }
    let into = copy.bytes.as_mut_ptr().wrapping_add(AT);
    // SAFETY: there is room for MAX bytes at AT; the helper checks the source.
    let failed = unsafe { bpf_probe_read_user(into.cast(), size as u32, address as *const c_void) } != 0;
    (!failed).then_some(size as u32)
}

/// The word at `offset` of the copied object.
#[inline(always)]
fn word(copy: &CodeCopy, offset: u32) -> u64 {
    const WORDS: usize = OBJECT_MAX / 8;
    let index = (offset as usize >> 3) & (WORDS - 1);
    let words: *const u64 = copy.bytes.as_ptr().cast();
    // SAFETY: the mask keeps the index inside the object's slot. `bytes` starts at a multiple of 8, so the word is
    // aligned.
    unsafe { *words.wrapping_add(OBJECT_AT / 8 + index) }
}

#[inline(always)]
fn send(copy: &CodeCopy) {
    const BEFORE: usize = offset_of!(CodeCopy, bytes) + TABLE_AT;
    let size = BEFORE + (copy.table_size as usize).min(TABLE_MAX);
    // SAFETY: `size` is at most the size of `CodeCopy`, and `copy` is a whole one.
    let bytes: &[u8] = unsafe { core::slice::from_raw_parts((&raw const *copy).cast(), size) };
    ring::send(bytes, Route::lazy());
}
