//! Hardware breakpoints, tried on a word that is never written.

use std::io;
use std::os::fd::OwnedFd;

use pyobs_model::Family;

use super::{Area, Check, sys};

const FAMILIES: &[Family] = &[Family::Redundancy];
/// No processor has more; the loop ends at the first refusal.
const MOST: usize = 16;

#[repr(align(8))]
struct Word(u64);

static WORD: Word = Word(0);

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("breakpoints", checks);
    let first = open();
    let usable = first.is_ok();
    let todo = "run it on a machine, or in a virtual machine, whose debug registers the kernel may use";
    let mut slots: Vec<OwnedFd> = first.as_ref().ok().and_then(|slot| slot.try_clone().ok()).into_iter().collect();
    if usable {
        slots.extend((1..MOST).map_while(|_| open().ok()));
    }
    let count = slots.len();
    drop(slots);
    area.tried("write breakpoints", FAMILIES, first, &format!("{count} are free on a thread"), todo);

    let attached = open().and_then(|event| {
        let program = sys::load_program(sys::PROG_PERF_EVENT, None)?;
        sys::attach_to_event(&event, &program)
    });
    area.tried("program on a breakpoint", FAMILIES, attached, "a program was attached to one", todo);
}

/// A breakpoint on writes to eight bytes, by this thread.
fn open() -> io::Result<OwnedFd> {
    const WRITES: u32 = 2;
    const LENGTH: u64 = 8;
    let mut attributes = sys::event(sys::EVENT_BREAKPOINT, 0);
    attributes.bp_type = WRITES;
    attributes.__bindgen_anon_3.bp_addr = (&raw const WORD.0).addr() as u64;
    attributes.__bindgen_anon_4.bp_len = LENGTH;
    attributes.__bindgen_anon_1.sample_period = 1;
    sys::open_event(&attributes, 0, -1)
}
