//! Frames of generators and coroutines. A coroutine that awaits another calls it, so the frames of an asyncio task follow
//! each other, and the outermost of them is that of the task's coroutine.
//!
//! The functions that record them are not inlined: their spills would grow the stack frame of every step, and the kernel
//! limits a chain of calls to 512 bytes.

use pyobs_abi::{process::OWNED_BY_GENERATOR, stack::GENERATORS};

use crate::common::walk::{Walk, state};

impl Walk {
    /// Keeps the present frame, which is about to be taken, if it is the outermost generator's of its run so far.
    #[inline(always)]
    pub fn see_generator(&mut self) {
        let mut generator = self.field(self.layout.frame_generator);
        if self.layout.lasti_unit == 0 {
            generator = if generator & 0xff == OWNED_BY_GENERATOR { self.frame } else { 0 };
        }
        if generator == 0 {
            self.in_run = 0;
        } else {
            keep_generator(self.number, generator);
        }
    }

    /// Forgets the frames that were taken back.
    #[inline(always)]
    pub fn take_back_generators(&mut self) {
        forget_generators(self.number);
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn keep_generator(number: u32, generator: u64) -> u64 {
    let Some(walk) = state(number) else { return 0 };
    if walk.in_run == 0 {
        walk.in_run = 1;
        walk.runs += 1;
    }
    let place = (walk.runs as usize - 1).min(GENERATORS - 1) & (GENERATORS - 1);
    walk.sample.generators[place] = generator;
    walk.sample.generator_frames[place] = walk.sample.frames as u16;
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn forget_generators(number: u32) -> u64 {
    let Some(walk) = state(number) else { return 0 };
    walk.in_run = 0;
    for place in 0..GENERATORS {
        if u32::from(walk.sample.generator_frames[place]) >= walk.sample.frames {
            walk.sample.generators[place] = 0;
        }
    }
    0
}
