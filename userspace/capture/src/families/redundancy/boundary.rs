//! Repeated calls of packages by the program's own code, whatever the package does in them: the program's frame waits, with the
//! arguments on its value stack, while the time may be spent anywhere below.
//!
//! The kernel side reads the arguments with the sample, at the instructions that user space names. What it cannot compare, such as
//! a dictionary, is read from here a little later. By then the callee may have dropped it, or the program changed it: the call
//! counts as one with other arguments, or is not compared.

use std::sync::Arc;

use pyobs_abi::redundancy::{ClassKey, OPERANDS, Operand, Registers, SpotKey, Waiting, class, period};
use pyobs_model::{CalledBy, Compared};

use super::calls::{Calls, Observed, Wanted, hash, varying};
use super::frames::At;
use super::place::Place;
use super::values::Values;

/// Results of an instruction that are looked at, and how many of them come first.
const RESULTS: u32 = 250;
const RESULTS_FIRST: u32 = 30;

impl Calls {
    /// Compares the arguments of the call of a package that the innermost frame of the program waits for. If they are those of the
    /// last such call, says where the result goes, unless enough is known.
    pub fn waiting(
        &mut self,
        place: &mut Place,
        sample: &Registers,
        frames: &[At],
        random: u64,
    ) -> Option<(Observed, Option<Wanted>)> {
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
        let prints = self.prints_of(place, key.pid, operands.get(..count)?, period(sample.header.time))?;
        let before = self.last.of(period(sample.header.time)).arguments(key, caller, prints)?;
        let varying = varying(&before, &prints, called);
        let wants_result = match self.spots.get(&key)?.results {
            0..RESULTS_FIRST => true,
            RESULTS_FIRST..RESULTS => random >> 8 & 1 == 0,
            _ => false,
        };
        let (callee, called_by) = (Arc::clone(callee), CalledBy::Program);
        let given = hash(&prints);
        let wanted =
            Wanted { key, address, instruction, caller, path: caller, callee: Arc::clone(&callee), called_by, given };
        let observed = Observed { callee, called_by, compared: Compared::Arguments { varying } };
        Some((observed, (varying == 0 && wants_result && address.is_multiple_of(8)).then_some(wanted)))
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
