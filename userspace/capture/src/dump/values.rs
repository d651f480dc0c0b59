//! The contents of a frame's value stack at its current instruction.

use super::frames::{At, TAG_BITS};
use super::objects::Objects;
use crate::cpython::operands;

/// The most values read per frame.
const VALUES_MAX: u32 = 256;

/// Returns the values bottom first, or nothing if the stack depth is unknown.
pub fn values(objects: &Objects<'_>, at: &At) -> Vec<u64> {
    read(objects, at).unwrap_or_default()
}

fn read(objects: &Objects<'_>, at: &At) -> Option<Vec<u64>> {
    objects.has_time().then_some(())?;
    let (layout, version) = (&objects.python.layout, objects.python.number);
    let end = layout.stack.end.and_then(|end| objects.word(at.address.wrapping_add(end.into())));
    let (first, height) = if let Some(end) = end.filter(|end| *end != 0) {
        let first = at.address.wrapping_add(operands::lowest(objects.memory, layout, at.frame.address)?.start.into());
        (first, u32::try_from(end.checked_sub(first)? / 8).ok()?)
    } else {
        let offset = u32::try_from(at.frame.offset()?).ok()?;
        let (value, height) = operands::stack(objects.memory, version, layout, at.frame.address, offset)?;
        let base = match value.pointer {
            Some(pointer) => objects.word(at.address.wrapping_add(pointer.into()))?,
            None => at.address,
        };
        (base.wrapping_add(value.start.into()), height)
    };
    let read = |number: u32| objects.word(first.wrapping_add(8 * u64::from(number)));
    Some((0..height.min(VALUES_MAX)).map_while(read).map(|value| value & !TAG_BITS).collect())
}
