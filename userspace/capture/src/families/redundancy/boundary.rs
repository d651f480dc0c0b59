//! Repeated calls of packages by the program's own code, whatever the package does in them: the program's frame waits, with the
//! arguments on its value stack, while the time may be spent anywhere below.
//!
//! The kernel side reads the arguments with the sample, at the instructions that user space names. What it cannot compare, such as
//! a dictionary, is read from here a little later. By then the callee may have dropped it, or the program changed it: the call
//! counts as one with other arguments, or is not compared.

use std::sync::Arc;

use pyobs_abi::redundancy::{ClassKey, OPERANDS, Operand, Registers, SpotKey, Waiting, class, period};
use pyobs_model::{CalledBy, Compared};

use super::calls::{Calls, Observed, Sampled, Wanted, class_of, hash, items, varying};
use super::frames::At;
use super::place::Place;
use super::values::Values;
use crate::cpython::offsets::Position;
use crate::memory::Memory;

/// Library functions that concatenate a few values into a new one.
const JOINS: [&str; 1] = ["concat"];
/// Longer lists are not measured.
const JOINED_MAX: usize = 7;
/// The low bits of a reference on the value stack are not part of the address (3.14+,
/// <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_stackref.h>).
const TAG_BITS: u64 = 7;
/// Results of an instruction that are looked at, and how many of them come first.
const RESULTS: u32 = 250;
const RESULTS_FIRST: u32 = 30;

impl Calls {
    /// Examines the library call that the innermost frame of the program waits for. If its arguments equal those of the last such
    /// call, asks for the result, unless enough results were seen.
    pub fn waiting(&mut self, place: &mut Place, sample: &Registers, frames: &[At], random: u64) -> Sampled {
        let mut sampled = Sampled::default();
        // It stops early where something is unknown; what it found until then counts.
        let _ = self.examine(place, sample, frames, random, &mut sampled);
        sampled
    }

    fn examine(
        &mut self,
        place: &mut Place,
        sample: &Registers,
        frames: &[At],
        random: u64,
        sampled: &mut Sampled,
    ) -> Option<()> {
        let own = frames.iter().position(At::is_own)?;
        let (at, callee) = (&frames[own], &frames[own.checked_sub(1)?].function.name);
        let (key, instruction) = (at.key, at.instruction?);
        if !self.spots.contains_key(&key) {
            self.learn(place, key);
        }
        if !self.spots.get(&key)?.waits {
            self.watch_waiting(key);
            return None;
        }
        let Waiting { frame, caller, operands_at: address, operands } = sample.waiting;
        let located = self.spots.get(&key)?.operands.as_ref().filter(|_| frame == at.frame)?;
        let (called, count) = (located.called?, located.count as usize);
        let (given, now) = (operands.get(..count)?, period(sample.header.time));
        let (callee, called_by) = (Arc::clone(callee), CalledBy::Program);
        if JOINS.contains(&&*callee) {
            let slots = (address..).step_by(8).zip(given).skip(called as usize);
            let is_there = |place: &Place| instruction_of(place, frame) == Some(instruction);
            if let Some(compared) = joined(place, slots, is_there, now) {
                sampled.calls.push(Observed { callee: Arc::clone(&callee), called_by, compared });
            }
        }
        let prints = self.prints_of(place, key.pid, given, now)?;
        let before = self.last.of(now).arguments(key, caller, prints)?;
        let varying = varying(&before, &prints, called);
        let wants_result = match self.spots.get(&key)?.results {
            0..RESULTS_FIRST => true,
            RESULTS_FIRST..RESULTS => random >> 8 & 1 == 0,
            _ => false,
        };
        let given = hash(&prints);
        let wanted =
            Wanted { key, address, instruction, caller, path: caller, callee: Arc::clone(&callee), called_by, given };
        sampled.calls.push(Observed { callee, called_by, compared: Compared::Arguments { varying } });
        sampled.wanted = (varying == 0 && wants_result && address.is_multiple_of(8)).then_some(wanted);
        Some(())
    }

    /// Has the kernel side send the operands of an instruction while it waits for what it called.
    fn watch_waiting(&mut self, key: SpotKey) {
        let Some(known) = self.spots.get_mut(&key) else { return };
        if known.operands.as_ref().is_none_or(|operands| operands.called.is_none()) {
            return;
        }
        if let Ok(mut spot) = self.maps.spots.get(&key, 0) {
            spot.waits = 1;
            known.waits = self.maps.spots.insert(key, spot, 0).is_ok();
        }
    }

    /// `None` if an operand cannot be compared, or the kernel side did not know its type yet: its hash would be another one.
    pub(super) fn prints_of(
        &mut self,
        place: &mut Place,
        pid: u32,
        given: &[Operand],
        period: u64,
    ) -> Option<[u64; OPERANDS]> {
        let key = |operand: &Operand| ClassKey { pid, padding: 0, address: operand.class };
        let classes: Vec<Option<u64>> = given.iter().map(|operand| self.classes.get(&key(operand)).copied()).collect();
        self.classify(place, pid, given);
        let mut prints = [0; OPERANDS];
        let mut values = Values::new(place, period);
        for ((print, operand), class) in prints.iter_mut().zip(given).zip(classes) {
            *print = match class {
                // Of containers, the kernel side compares fewer.
                Some(class) if matches!(class & 0xff, class::UNKNOWN | class::LIST | class::ITEMS) => {
                    values.print(operand.object)?
                }
                Some(_) if operand.print != 0 => operand.print,
                // The kernel side hashes arrays, but failed to read this one. A hash from here would differ from its hashes.
                Some(class::ARRAY) => return None,
                Some(_) => values.print(operand.object)?,
                None if operand.object == 0 && operand.print != 0 => operand.print,
                None => return None,
            };
        }
        Some(prints)
    }
}

/// Measures the values that a call concatenates: the items of its first list or tuple. `slots` are the addresses of its arguments
/// on the value stack. The call may return during the reads, and its arguments be freed. So the frame must be at the call, and the
/// argument in its slot, both before and after. A later iteration of a loop cannot be told from this one.
fn joined<'a>(
    place: &mut Place,
    mut slots: impl Iterator<Item = (u64, &'a Operand)>,
    is_there: impl Fn(&Place) -> bool,
    period: u64,
) -> Option<Compared> {
    let (slot, list, class) = slots.find_map(|(slot, operand)| {
        let name = place.type_name(operand.class).filter(|name| matches!(&**name, "list" | "tuple"))?;
        Some((slot, operand.object, class_of(&name, place.interpreter())))
    })?;
    let is_there = |place: &Place| {
        let found = place.memory().read_u64(slot).ok();
        found.is_some_and(|word| word & !TAG_BITS == list) && is_there(place)
    };
    let items = items(place, list, class);
    if !is_there(place) || !(2..=JOINED_MAX).contains(&items.len()) {
        return None;
    }
    let mut values = Values::new(place, period);
    // A freed value can look empty.
    let mut size = |item: &Operand| values.bytes(item.object, item.class).filter(|bytes| *bytes > 0);
    let sizes = items.iter().map(&mut size).collect::<Option<Vec<u64>>>()?;
    let largest = sizes.iter().copied().max()?;
    let all = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(*size));
    is_there(place).then_some(Compared::Copied { copied: largest, added: all - largest })
}

/// The instruction that a frame is at, in the format of the kernel side's `cpython::instruction_of`.
fn instruction_of(place: &Place, frame: u64) -> Option<u64> {
    let (layout, memory) = (&place.interpreter().layout.frame, place.memory());
    let at = frame.checked_add(layout.instruction.into())?;
    match layout.position {
        Position::PreviousPointer | Position::CurrentPointer => memory.read_u64(at).ok(),
        Position::ByteIndex | Position::UnitIndex => {
            let code = memory.read_u64(frame.checked_add(layout.code.into())?).ok()?;
            Some(code.wrapping_add(memory.read_u32(at).ok()?.into()))
        }
    }
}
