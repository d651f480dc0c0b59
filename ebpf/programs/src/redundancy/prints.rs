//! Hashes that tell one operand of an instruction from another: of the value of a number, or the shape and some data of
//! an array. User space says which types are which.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::{
    helpers::generated::bpf_probe_read_user,
    macros::map,
    maps::{HashMap, PerCpuArray},
};
use pyobs_abi::{
    hash::mix,
    process::{Layout, NONE},
    redundancy::{CALLERS, Caller, ClassKey, OPERANDS, Operand, Registers, Spot, SpotKey, class, period},
};

use crate::common::{
    cpython::caller,
    frames::{LOWEST_OBJECT, TAG_BITS},
    maps::pid,
    memory::user,
};

/// Instructions whose operands user space has located.
#[map]
static REDUNDANCY_SPOTS: HashMap<SpotKey, Spot> = HashMap::with_max_entries(4096, 0);

/// Types that user space has classified.
#[map]
static REDUNDANCY_CLASSES: HashMap<ClassKey, u64> = HashMap::with_max_entries(4096, 0);

/// Scratch space for a piece of memory. A sample may overwrite it while a trap uses it. The trap's hash is then wrong
/// and equals no other, so the value counts as a different one.
#[map]
static REDUNDANCY_PIECE: PerCpuArray<[u64; PIECE_WORDS]> = PerCpuArray::with_max_entries(1, 0);
const PIECE_WORDS: usize = 8;
const PIECE: u64 = 64;

/// As `Registers::sizes`.
#[map]
static REDUNDANCY_SIZES: PerCpuArray<[u64; 2]> = PerCpuArray::with_max_entries(1, 0);

/// Bounds the pieces of an array's data that are hashed, and its dimensions. An array with more dimensions has no hash.
const PIECES: u64 = 8;
const DIMENSIONS: usize = 4;
/// The size of `PyObject` in builds with a GIL, behind which the fields of a number or an array begin.
const BODY: u64 = 16;
/// The offsets of `PyListObject.ob_item` and `PyASCIIObject.state` in such builds.
const LIST_ITEMS: u64 = 24;
const STATE: u64 = 32;
/// Bounds the items that are hashed, and those of a container that has a hash.
const ITEMS: u64 = 8;
const ITEMS_MAX: u64 = 1 << 31;
/// Bounds the digits (of 30 bits) of a number. A larger number has no hash.
const DIGITS: u64 = 12;
/// A larger size or stride is not that of an array.
const ELEMENTS: u64 = 1 << 40;

/// Returns where the operands of an instruction begin in a frame that is at it, and their number.
#[inline(always)]
fn located(spot: &Spot, frame: u64) -> Option<(u64, u32)> {
    let base = if spot.pointer == NONE { frame } else { user(frame.wrapping_add(spot.pointer.into()))? };
    Some((base.wrapping_add(spot.start.into()), spot.count))
}

/// Fills in `waiting`: the operands of the innermost caller whose operands user space wants ([`Spot::waits`]).
#[inline(always)]
pub fn waiting(record: *mut Registers, layout: &Layout) {
    let mut found = None;
    // SAFETY: the record is the caller's, who has filled in the header and the callers.
    let (pid, time) = unsafe {
        (*record).waiting.frame = 0;
        ((*record).header.pid, (*record).header.time)
    };
    for index in 0..CALLERS {
        // SAFETY: as above, and the index is below the array's length.
        let Caller { frame, code, detail, .. } = unsafe { (*record).callers[index] };
        if frame == 0 {
            break;
        }
        // SAFETY: elements of the map stay valid memory. If user space removes this one now, its value is outdated.
        let spot = unsafe { REDUNDANCY_SPOTS.get(SpotKey { pid, padding: 0, code, detail }) };
        if let Some(spot) = spot
            && spot.waits != 0
        {
            found = located(spot, frame).map(|(start, count)| (frame, start, count));
            break;
        }
    }
    let Some((frame, start, count)) = found else { return };
    // SAFETY: as above.
    unsafe {
        ((*record).waiting.frame, (*record).waiting.caller) = (frame, caller(layout, frame));
        (*record).waiting.operands_at = start;
    }
    for index in 0..OPERANDS {
        let is_there = index < count as usize;
        let operand = if is_there { operand(pid, start + 8 * index as u64, time) } else { Operand::default() };
        // SAFETY: as above.
        unsafe { (*record).waiting.operands[index] = operand };
    }
}

/// Fills in the operands of the instruction that the record's frame is at, if user space knows where they are.
#[inline(always)]
pub fn operands(record: *mut Registers) {
    // SAFETY: the record is the caller's, who has filled in the fields that are read.
    let (key, frame, time) = unsafe {
        let key = SpotKey { pid: (*record).header.pid, padding: 0, code: (*record).code, detail: (*record).detail };
        (key, (*record).frame, (*record).header.time)
    };
    // SAFETY: elements of the map stay valid memory. If user space removes this one now, its value is outdated.
    let spot = unsafe { REDUNDANCY_SPOTS.get(key) };
    let (start, count) =
        spot.and_then(|spot| located(spot, frame)).map_or((None, 0), |(start, count)| (Some(start), count));
    // SAFETY: as above.
    unsafe {
        (*record).operands_at = start.unwrap_or(0);
        (*record).sizes = [0; 2];
    }
    for index in 0..OPERANDS {
        let wanted = start.filter(|_| index < count as usize);
        let operand = wanted.map_or(Operand::default(), |start| operand(key.pid, start + 8 * index as u64, time));
        let is_join = operand.print == 0 && operand.class != 0 && redundancy_join(operand.object, operand.class) != 0;
        // SAFETY: as above.
        unsafe {
            (*record).operands[index] = operand;
            if is_join && let Some(sizes) = REDUNDANCY_SIZES.get(0) {
                (*record).sizes = *sizes;
            }
        }
    }
    // SAFETY: as above.
    unsafe {
        let [left, right] = [(*record).operands[0], (*record).operands[1]];
        if count == 2
            && redundancy_texts(left.object, left.class, right.object, right.class) != 0
            && let Some(sizes) = REDUNDANCY_SIZES.get(0)
        {
            (*record).sizes = *sizes;
        }
    }
}

/// Returns the object that an element of the value stack refers to.
#[inline(always)]
pub fn operand(pid: u32, at: u64, time: u64) -> Operand {
    let Some(object) = user::<u64>(at).map(|word| word & !TAG_BITS) else { return Operand::default() };
    if object < LOWEST_OBJECT {
        return Operand { object: 0, class: 0, print: 1 };
    }
    let Some(address) = user::<u64>(object + 8) else { return Operand { object, class: 0, print: 0 } };
    let print = class_at(pid, address).map_or(0, |class| redundancy_print(object, class, period(time)));
    Operand { object, class: address, print }
}

/// Measures the arrays in a list or tuple. Returns 1 after filling in `REDUNDANCY_SIZES`, and 0 if the object is something
/// else or has other items.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn redundancy_join(object: u64, address: u64) -> u64 {
    let pid = pid();
    let Some(class) = class_at(pid, address) else { return 0 };
    let first = match class & 0xff {
        class::LIST => user(object.wrapping_add(LIST_ITEMS)),
        class::ITEMS if class >> 16 & 0xff == 0 => Some(object.wrapping_add(class >> 8 & 0xff)),
        _ => None,
    };
    let (Some(first), Some(count)) = (first, user::<u64>(object.wrapping_add(BODY))) else { return 0 };
    if !(2..=ITEMS).contains(&count) {
        return 0;
    }
    let (mut largest, mut sum) = (0u64, 0u64);
    for index in 0..ITEMS {
        if index >= count {
            break;
        }
        let Some(item) = user::<u64>(first.wrapping_add(8 * index)) else { return 0 };
        let Some(address) = user::<u64>(item.wrapping_add(8)) else { return 0 };
        if class_at(pid, address) != Some(class::ARRAY) {
            return 0;
        }
        let bytes = redundancy_bytes(item);
        sum = sum.wrapping_add(bytes);
        if bytes > largest {
            largest = bytes;
        }
    }
    let Some(sizes) = REDUNDANCY_SIZES.get_ptr_mut(0) else { return 0 };
    // SAFETY: the pointer is to this CPU's slot.
    unsafe { *sizes = [largest, sum.wrapping_sub(largest)] };
    1
}

/// Writes the sizes of two texts to `REDUNDANCY_SIZES` and returns 1. Returns 0 if one of them is not a text.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn redundancy_texts(left: u64, left_type: u64, right: u64, right_type: u64) -> u64 {
    let (Some(left), Some(right)) = (text_bytes(left, left_type), text_bytes(right, right_type)) else { return 0 };
    let Some(sizes) = REDUNDANCY_SIZES.get_ptr_mut(0) else { return 0 };
    // SAFETY: the pointer is to this CPU's slot.
    unsafe { *sizes = [left, right] };
    1
}

/// Returns the number of bytes that the characters of a `str` or `bytes` occupy. In `PyASCIIObject.state`, the three bits of
/// `kind` hold the size of a character. They start four bits below the `ascii` flag:
/// <https://github.com/python/cpython/blob/v3.14.0/Include/cpython/unicodeobject.h>
#[inline(always)]
fn text_bytes(object: u64, address: u64) -> Option<u64> {
    const TO_KIND: u64 = 4;
    const KIND: u64 = 7;
    let class = class_at(pid(), address).filter(|class| class & 0xff == class::DATA)?;
    let length = user::<u64>(object.wrapping_add(BODY)).filter(|length| *length <= ELEMENTS)?;
    let bit = class >> 16 & 0xff;
    if bit == class::ANY.into() {
        return Some(length);
    }
    let state: u32 = user(object.wrapping_add(STATE))?;
    Some(length * (u64::from(state) >> (bit.wrapping_sub(TO_KIND) & 31) & KIND))
}

/// Returns the size of an array's data, as far as its shape and strides tell it.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn redundancy_bytes(object: u64) -> u64 {
    let Some([_, rank, dimensions, strides]) = user::<[u64; 4]>(object.wrapping_add(BODY)) else { return 0 };
    let rank = rank as u32 as usize;
    let Some(sizes) = user::<[u64; DIMENSIONS]>(dimensions) else { return 0 };
    let Some(steps) = user::<[u64; DIMENSIONS]>(strides) else { return 0 };
    let mut most = 0;
    for index in 0..DIMENSIONS {
        let (size, step) = (sizes[index], steps[index]);
        if index < rank && size <= ELEMENTS && step <= ELEMENTS && size * step > most {
            most = size * step;
        }
    }
    most
}

/// Returns the class of the type at an address, if user space has set one.
#[inline(always)]
fn class_at(pid: u32, address: u64) -> Option<u64> {
    // SAFETY: elements of the map stay valid memory. If user space removes this one now, its value is outdated.
    unsafe { REDUNDANCY_CLASSES.get(ClassKey { pid, padding: 0, address }) }.copied()
}

/// Returns the hash of an object, or 0 if it cannot be read or told apart from others. A function of its own, so that it
/// is verified once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn redundancy_print(object: u64, class: u64, period: u64) -> u64 {
    match class & 0xff {
        class::ARRAY => array(object, period),
        class::LIST => user(object.wrapping_add(LIST_ITEMS)).map_or(0, |first| items(object, first, 0, period)),
        class::ITEMS => items(object, object.wrapping_add(class >> 8 & 0xff), class >> 16 & 0xff, period),
        _ => redundancy_print_simple(object, class, period),
    }
}

/// The same for an object that refers to no others.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn redundancy_print_simple(object: u64, class: u64, period: u64) -> u64 {
    match class & 0xff {
        class::ADDRESS => mix(1, object),
        class::BYTES => piece(mix(2, class), object.wrapping_add(class >> 8 & 0xff), class >> 16 & 0xff),
        class::INT | class::INT_TAGGED => int(object, class),
        class::DATA => data(object, class, period),
        _ => 0,
    }
}

/// Hashes the items of a small container, else some of them, which change with the period.
#[inline(always)]
fn items(object: u64, first: u64, count: u64, period: u64) -> u64 {
    let Some(count) = (if count > 0 { Some(count) } else { user(object.wrapping_add(BODY)) }) else { return 0 };
    if count > ITEMS_MAX {
        return 0;
    }
    let (mut sum, pid) = (mix(7, count), pid());
    for index in 0..ITEMS {
        if index >= count {
            break;
        }
        let at = if count <= ITEMS { index } else { ((mix(period, index) >> 32) * count) >> 32 };
        let Some(item) = user::<u64>(first.wrapping_add(8 * at)) else { return 0 };
        let Some(address) = user::<u64>(item.wrapping_add(8)) else { return 0 };
        let Some(class) = class_at(pid, address) else { return 0 };
        let print = redundancy_print_simple(item, class, period);
        if print == 0 {
            return 0;
        }
        sum = mix(mix(sum, address), print);
    }
    if sum == 0 { 1 } else { sum }
}

/// The layouts are those of `PyBytesObject` and `PyASCIIObject`:
/// <https://github.com/python/cpython/blob/v3.12.0/Include/cpython/unicodeobject.h>
#[inline(always)]
fn data(object: u64, class: u64, period: u64) -> u64 {
    let Some(length) = user::<u64>(object.wrapping_add(BODY)) else { return 0 };
    let bit = class >> 16 & 0xff;
    if length > ELEMENTS {
        return 0;
    }
    if bit != class::ANY.into() {
        let Some(state) = user::<u32>(object.wrapping_add(STATE)) else { return 0 };
        if state >> (bit & 31) & 1 == 0 {
            return 0;
        }
    }
    data_print(mix(6, length), object.wrapping_add(class >> 8 & 0xff), length, period)
}

#[inline(always)]
fn int(object: u64, class: u64) -> u64 {
    let Some(size) = user::<u64>(object.wrapping_add(BODY)) else { return 0 };
    let digits = if class == class::INT_TAGGED { size >> 3 } else { (size as i64).unsigned_abs() };
    if digits > DIGITS {
        return 0;
    }
    piece(mix(3, size), object.wrapping_add(BODY + 8), digits * 4)
}

/// The `PyArrayObject_fields` of NumPy are data, nd, dimensions, strides, base and descr:
/// <https://github.com/numpy/numpy/blob/v1.26.0/numpy/core/include/numpy/ndarraytypes.h>
#[inline(always)]
fn array(object: u64, period: u64) -> u64 {
    let Some(words) = user::<[u64; 6]>(object.wrapping_add(BODY)) else { return 0 };
    let [data, rank, dimensions, strides, _, element] = words;
    let rank = rank as u32 as usize;
    if rank > DIMENSIONS {
        return 0;
    }
    let mut sum = mix(mix(5, rank as u64), element);
    let (mut extent, mut width, mut is_empty) = (0u64, 8u64, false);
    if rank > 0 {
        let Some(sizes) = user::<[u64; DIMENSIONS]>(dimensions) else { return 0 };
        let Some(steps) = user::<[u64; DIMENSIONS]>(strides) else { return 0 };
        for index in 0..DIMENSIONS {
            if index >= rank {
                break;
            }
            let (size, step) = (sizes[index], steps[index]);
            if size > ELEMENTS || step > ELEMENTS {
                return 0; // it runs backwards, or is none
            }
            sum = mix(sum, size);
            is_empty |= size == 0;
            if step > 0 && step < width {
                width = step;
            }
            extent = extent.wrapping_add(size.wrapping_sub(1).wrapping_mul(step));
        }
    }
    if is_empty { sum } else { data_print(sum, data, extent.wrapping_add(width), period) }
}

/// Hashes all of a small array, else pieces that are spread over it.
#[inline(always)]
fn data_print(mut sum: u64, data: u64, length: u64, period: u64) -> u64 {
    for index in 0..PIECES {
        let (at, size) = if length <= PIECES * PIECE {
            let at = index * PIECE;
            if at >= length {
                break;
            }
            (at, if length - at < PIECE { length - at } else { PIECE })
        } else {
            let part = length / PIECES;
            let room = part - PIECE + 1;
            (index * part + mix(period, index) % room, PIECE)
        };
        sum = piece(sum, data.wrapping_add(at), size);
        if sum == 0 {
            break;
        }
    }
    sum
}

/// Adds a piece of memory to a hash. Returns 0 if it cannot be read.
#[inline(always)]
fn piece(mut sum: u64, at: u64, length: u64) -> u64 {
    let length = black_box(length as u32);
    if length > PIECE as u32 {
        return 0;
    }
    let Some(words) = REDUNDANCY_PIECE.get_ptr_mut(0) else { return 0 };
    // SAFETY: the pointer is into this CPU's slot, which holds as many bytes; the helper checks the source.
    unsafe {
        *words = [0; PIECE_WORDS];
        if length > 0 && bpf_probe_read_user(words.cast(), length, at as *const c_void) != 0 {
            return 0;
        }
        for word in &*words {
            sum = mix(sum, *word);
        }
    }
    if sum == 0 { 1 } else { sum }
}
