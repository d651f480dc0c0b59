//! A step from a native frame to its caller.
//!
//! It reads the stack of another program, which can change it at any time. So an address found there is only used as
//! the source of the next read, and each step must lead further up the stack.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use pyobs_abi::{
    stack::{COUNT_UNKNOWN, NATIVE_MAX, loop_word, native, native_word},
    unwind::{self, Rule, SIGNAL_BP, SIGNAL_IP, SIGNAL_REGISTERS, SIGNAL_SP, TRAMPOLINE_FRAME, cfa, rbp, state},
};

use super::{
    memory::{PAGE, user},
    tables::{self, FILES, Place},
    walk::{STACK_WORDS, Walk},
};

/// Returns the rule for a return address in a trampoline of `python -X perf`.
#[inline(always)]
fn trampoline(ip: u64) -> Option<Rule> {
    unwind::trampoline(user(ip.wrapping_sub(4))?)
}

impl Walk {
    /// Takes the present frame and goes to its caller. `Err` is how the native walk ends.
    #[inline(always)]
    pub fn native_step(&mut self) -> Result<(), u32> {
        if self.sample.native_frames >= NATIVE_MAX as u32 {
            return Err(native::TRUNCATED);
        }
        // A return address can be the first byte of the next function, if the call was the last instruction.
        let pc = if self.leaf { self.ip } else { self.ip.wrapping_sub(1) };
        self.push_native(native_word(pc));
        let Some(place) = Place::new(self.mapping_set, pc, self.sample.header.time) else {
            return Err(native::NO_MAPPING);
        };
        let rule = match tables::remembered(self.number, place) {
            Some(rule) => rule,
            None => {
                let rule = self.look_up(pc)?;
                tables::remember(self.number, place, rule);
                rule
            }
        };
        if rule.cfa() == cfa::SIGNAL {
            return self.signal_frame();
        }
        let frame_end = match rule.cfa() {
            cfa::RSP => self.sp.wrapping_add(rule.cfa_offset()),
            cfa::RBP => self.bp.wrapping_add(rule.cfa_offset()),
            cfa::PLT => {
                let pushed = if self.ip & 15 >= rule.cfa_offset() >> 3 { 8 } else { 0 };
                self.sp.wrapping_add(8 + pushed)
            }
            cfa::DEREF_RBP => match user(self.bp.wrapping_add(rule.cfa_offset_signed() as u64)) {
                Some(address) => address,
                None => return Err(native::UNREADABLE),
            },
            cfa::DEREF_RSP => match user::<u64>(self.sp.wrapping_add((rule.cfa_offset_signed() >> 4) as u64 & !7)) {
                Some(address) => address.wrapping_add(rule.cfa_offset() & 0x78),
                None => return Err(native::UNREADABLE),
            },
            cfa::TRAMPOLINE => {
                self.sample.native_frames = self.sample.native_frames.wrapping_sub(1);
                return self.trampoline(rule);
            }
            cfa::END => return Err(native::COMPLETE),
            cfa::UNSUPPORTED => return Err(native::UNSUPPORTED),
            _ => return Err(native::NO_RULE),
        };
        let sp = self.sp;
        if frame_end <= sp {
            return Err(native::INVALID);
        }
        if !self.restore(rule, frame_end) {
            return Err(native::UNREADABLE);
        }
        self.note_loop(pc, sp, frame_end);
        self.sp = frame_end;
        self.leaf = false;
        if self.ip == 0 {
            return Err(native::COMPLETE);
        }
        Ok(())
    }

    /// Restores the caller's instruction and frame pointer. They are neighbours in most frames, so that one read has
    /// both.
    #[inline(always)]
    fn restore(&mut self, rule: Rule, frame_end: u64) -> bool {
        if rule.rbp() == rbp::AT_CFA && rule.rbp_offset() == 16 {
            // Before either is assigned, because a failure must leave both as they are.
            let Some(bp) = self.stack_word(frame_end.wrapping_sub(16)) else { return false };
            let Some(ip) = self.stack_word(frame_end.wrapping_sub(8)) else { return false };
            (self.bp, self.ip) = (bp, ip);
            return true;
        }
        if rule.rbp() == rbp::AT_CFA || rule.rbp() == rbp::AT_RBP {
            let slot = if rule.rbp() == rbp::AT_CFA {
                frame_end.wrapping_sub(rule.rbp_offset())
            } else {
                self.bp.wrapping_add(rule.rbp_offset_signed() as u64)
            };
            let Some(bp) = self.stack_word(slot) else { return false };
            self.bp = bp;
        }
        let Some(ip) = self.stack_word(frame_end.wrapping_sub(8)) else { return false };
        self.ip = ip;
        true
    }

    /// Steps over a trampoline, which its Python frame stands for.
    #[inline(always)]
    fn trampoline(&mut self, rule: Rule) -> Result<(), u32> {
        let frame_end = self.sp.wrapping_add(TRAMPOLINE_FRAME);
        if !self.restore(rule, frame_end) {
            return Err(native::UNREADABLE);
        }
        self.sp = frame_end;
        self.leaf = false;
        Ok(())
    }

    /// Returns a word of the C stack. A read of user memory costs about 100 ns whatever its size, so it fetches what
    /// lies above as well, up to the end of the page, which is mapped for certain.
    #[inline(always)]
    fn stack_word(&mut self, address: u64) -> Option<u64> {
        if address < self.stack_start
            || address.wrapping_add(8) > self.stack_end
            || (address ^ self.stack_start) & 7 != 0
        {
            let room = PAGE - (address & (PAGE - 1));
            if room < 8 {
                return user(address);
            }
            let length = black_box(room.min((STACK_WORDS * 8) as u64) as u32) & !7;
            if length > (STACK_WORDS * 8) as u32 {
                return None;
            }
            self.stack_end = 0;
            // SAFETY: the array holds `length` bytes; the helper checks the source.
            if unsafe { bpf_probe_read_user(self.stack.as_mut_ptr().cast(), length, address as *const c_void) } != 0 {
                return None;
            }
            self.stack_start = address;
            self.stack_end = address.wrapping_add(length.into());
        }
        let index = (address.wrapping_sub(self.stack_start) >> 3) as usize;
        Some(self.stack[index & (STACK_WORDS - 1)])
    }

    /// The interrupted frame is at an instruction of its own, not behind a call.
    #[inline(always)]
    fn signal_frame(&mut self) -> Result<(), u32> {
        let Some(registers) = user::<[u64; 7]>(self.sp.wrapping_add(SIGNAL_REGISTERS)) else {
            return Err(native::UNREADABLE);
        };
        self.bp = registers[SIGNAL_BP];
        // A handler can have a stack of its own, so this one need not lie above it.
        self.sp = registers[SIGNAL_SP];
        self.ip = registers[SIGNAL_IP];
        self.leaf = true;
        Ok(())
    }

    /// Marks a C frame of the interpreter's loop, and remembers where it is.
    #[inline(always)]
    fn note_loop(&mut self, pc: u64, start: u64, end: u64) {
        let [first, second] = self.loops;
        if !((pc >= first[0] && pc < first[1]) || (pc >= second[0] && pc < second[1])) {
            return;
        }
        let word = self.sample.native_frames - 1;
        self.set_native(word, loop_word(pc, COUNT_UNKNOWN));
        self.note_run(word, start, end);
    }

    /// Returns the rule for `pc` from the table of the file that is mapped there, or how the walk ends.
    #[inline(always)]
    fn look_up(&mut self, pc: u64) -> Result<Rule, u32> {
        let mapping = tables::mapping(self.mappings, self.mapping_count, pc).ok_or(native::NO_MAPPING)?;
        let file = FILES.get_ptr_mut(mapping.file).ok_or(native::NO_MAPPING)?;
        // SAFETY: the pointer is to an element of the array. User space may write it at the same time. A torn value is
        // a place outside of the file's rows, and a wrong rule only ends the walk or leads it astray.
        let file = unsafe {
            (*file).used = self.sample.header.time;
            &*file
        };
        match file.state {
            state::TABLE => Ok(tables::rule(file, pc.wrapping_sub(mapping.base).wrapping_sub(file.origin))),
            state::FRAME_POINTERS => Ok(trampoline(self.ip).unwrap_or(Rule::new(cfa::RBP, 2, rbp::AT_CFA, 2))),
            _ => Err(native::NO_TABLE),
        }
    }
}
