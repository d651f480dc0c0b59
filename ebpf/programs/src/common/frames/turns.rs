//! The turns of an event loop: when the one began in which a stack was taken.
//!
//! Not inlined, as in [`generators`](super::generators).

use pyobs_abi::process::NONE;

use crate::common::{
    frames::TAG_BITS,
    maps::process,
    memory::user,
    walk::{Walk, state},
};

impl Walk {
    /// Keeps the time if the present frame, which runs this code, is that of an event loop.
    #[inline(always)]
    pub fn see_turn(&mut self, code: u64) {
        if code == self.turn_code {
            keep_turn(self.number);
        }
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn keep_turn(number: u32) -> u64 {
    let Some(walk) = state(number) else { return 0 };
    let Some(process) = process(walk.sample.header.pid) else { return 0 };
    let turn = &process.turn;
    let mut base = walk.frame;
    if turn.values != NONE {
        base = user(base.wrapping_add(turn.values.into())).unwrap_or(0);
    }
    let local = base.wrapping_add(i64::from(turn.local) as u64);
    let time = user::<u64>(local).unwrap_or(0) & !TAG_BITS;
    if time != 0 {
        walk.sample.turn = user(time.wrapping_add(turn.value.into())).unwrap_or(0);
    }
    0
}
