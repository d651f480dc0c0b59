//! Frames of generators and coroutines. A coroutine that awaits another calls it, so the frames of an asyncio task follow
//! each other, and the outermost of them is that of the task's coroutine.

use pyobs_abi::{process::OWNED_BY_GENERATOR, stack::GENERATORS};

use crate::common::walk::Walk;

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
            return;
        }
        if self.in_run == 0 {
            self.in_run = 1;
            self.runs += 1;
        }
        let place = (self.runs as usize - 1).min(GENERATORS - 1) & (GENERATORS - 1);
        self.sample.generators[place] = generator;
        self.sample.generator_frames[place] = self.sample.frames as u16;
    }

    /// Forgets the frames that were taken back.
    #[inline(always)]
    pub fn take_back_generators(&mut self) {
        self.in_run = 0;
        for place in 0..GENERATORS {
            if u32::from(self.sample.generator_frames[place]) >= self.sample.frames {
                self.sample.generators[place] = 0;
            }
        }
    }
}
