//! Walks the native stack of a thread that sleeps, from outside. The kernel side takes the same steps
//! (`ebpf/programs/src/common/native.rs`).

use std::path::PathBuf;
use std::time::Instant;

use foldhash::HashMap;
use pyobs_abi::stack::{COUNT_UNKNOWN, NATIVE_MAX, loop_word, native, native_word};
use pyobs_abi::unwind::{self, Rule, SIGNAL_BP, SIGNAL_IP, SIGNAL_REGISTERS, SIGNAL_SP, TRAMPOLINE_FRAME, cfa, rbp};

use super::contents::Contents;
use super::images::Image;
use super::lookup::Rules;
use super::names::{Name, Names, Source};
use crate::files::{self, FileId};
use crate::machine::living_thread;
use crate::memory::Memory;
use crate::process_maps::{Mapping, Mappings};

/// For code without call frame information: frames are chained by rbp.
const FRAME_POINTERS: Rule = Rule::new(cfa::RBP, 2, rbp::AT_CFA, 2);

/// The registers that unwinding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
}

/// A stack, innermost frame first, as the kernel side sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// See [`native_word`]. The counts of the interpreter's loop are not known.
    pub words: Vec<u64>,
    /// By frame of the interpreter's loop: the index of its word, and its address range.
    pub loops: Vec<(usize, u64, u64)>,
    /// One of [`native`].
    pub outcome: u32,
}

/// The files that stacks lead through.
#[derive(Default)]
pub struct Files {
    rules: HashMap<Image, Option<Rules>>,
    /// Open files, or `None` for those that cannot be opened.
    sources: HashMap<FileId, Option<Source>>,
    names: Names,
}

impl Files {
    /// Returns the functions at an address, the outermost first: several if calls are inlined.
    pub fn names(&mut self, pid: u32, mapping: &Mapping, address: u64) -> Vec<Name> {
        let found = match Image::of(mapping) {
            Image::Anonymous => self.names.look_up_jit(pid, &[address]),
            Image::Vdso => Vec::new(),
            Image::File(id) => {
                let source = self.sources.entry(id).or_insert_with(|| {
                    Some(Source {
                        id,
                        file: files::open(pid, mapping).ok()??.0.into(),
                        path: mapping.path().to_owned(),
                        root: PathBuf::from(format!("/proc/{}/root", living_thread(pid))),
                    })
                });
                let Some(source) = source else { return Vec::new() };
                self.names.look_up_offsets(source, &[address - mapping.start + mapping.offset])
            }
        };
        found.into_iter().next().unwrap_or_default()
    }

    fn rules(&mut self, pid: u32, mapping: &Mapping) -> Option<&mut Rules> {
        let image = Image::of(mapping);
        let read = || (image != Image::Anonymous).then(|| Contents::of(pid, mapping).ok().map(Rules::of)).flatten();
        let rules = self.rules.entry(image).or_insert_with(read);
        rules.as_mut()
    }

    /// Walks a stack of a process. `loops` are the ranges of the interpreter's loop.
    pub fn walk(
        &mut self,
        pid: u32,
        mappings: &Mappings,
        memory: &impl Memory,
        loops: &[[u64; 2]],
        start: Registers,
        until: Instant,
    ) -> Stack {
        let mut stack = Stack::default();
        let (mut at, mut is_leaf) = (start, true);
        stack.outcome = loop {
            if stack.words.len() >= NATIVE_MAX || Instant::now() > until {
                break native::TRUNCATED;
            }
            // A return address can be the first byte of the next function, if the call was the last instruction.
            let pc = if is_leaf { at.ip } else { at.ip.wrapping_sub(1) };
            stack.words.push(native_word(pc));
            let Some(mapping) = mappings.find(pc) else { break native::NO_MAPPING };
            let offset = pc - mapping.start + mapping.offset;
            let rule = match self.rules(pid, mapping).map(|rules| rules.rule(offset)) {
                Some(Some(rule)) => rule,
                // Of a file that cannot be read, nothing is known; memory without a file is code of a JIT compiler.
                None if mapping.file.is_some() => break native::NO_TABLE,
                None | Some(None) => trampoline(memory, at.ip).unwrap_or(FRAME_POINTERS),
            };
            let before = at;
            match step(memory, rule, &mut at) {
                Ok(leaf) => is_leaf = leaf,
                Err(outcome) => break outcome,
            }
            if rule.cfa() == cfa::TRAMPOLINE {
                // Its Python frame stands for it.
                stack.words.pop();
            } else if loops.iter().any(|range| (range[0]..range[1]).contains(&pc))
                && let Some(word) = stack.words.last_mut()
            {
                *word = loop_word(pc, COUNT_UNKNOWN);
                stack.loops.push((stack.words.len() - 1, before.sp, at.sp));
            }
            if at.ip == 0 {
                break native::COMPLETE;
            }
        };
        stack
    }
}

/// Goes to the caller. Returns whether it is at an instruction of its own, because a signal interrupted it, or how the
/// walk ends.
fn step(memory: &impl Memory, rule: Rule, at: &mut Registers) -> Result<bool, u32> {
    let word = |address: u64| memory.read_u64(address).map_err(|_| native::UNREADABLE);
    let end = match rule.cfa() {
        cfa::RSP => at.sp.wrapping_add(rule.cfa_offset()),
        cfa::RBP => at.bp.wrapping_add(rule.cfa_offset()),
        cfa::PLT => at.sp.wrapping_add(if at.ip & 15 >= rule.cfa_offset() >> 3 { 16 } else { 8 }),
        cfa::DEREF_RBP => word(at.bp.wrapping_add_signed(rule.cfa_offset_signed()))?,
        cfa::DEREF_RSP => {
            let slot = (rule.cfa_offset_signed() >> 4) & !7;
            word(at.sp.wrapping_add_signed(slot))?.wrapping_add(rule.cfa_offset() & 0x78)
        }
        cfa::TRAMPOLINE => at.sp.wrapping_add(TRAMPOLINE_FRAME),
        cfa::SIGNAL => {
            let of = |number| word(at.sp.wrapping_add(SIGNAL_REGISTERS + 8 * number as u64));
            *at = Registers { bp: of(SIGNAL_BP)?, ip: of(SIGNAL_IP)?, sp: of(SIGNAL_SP)? };
            return Ok(true);
        }
        cfa::END => return Err(native::COMPLETE),
        cfa::UNSUPPORTED => return Err(native::UNSUPPORTED),
        _ => return Err(native::NO_RULE),
    };
    if end <= at.sp {
        return Err(native::INVALID);
    }
    let bp = match rule.rbp() {
        rbp::AT_CFA => word(end.wrapping_sub(rule.rbp_offset()))?,
        rbp::AT_RBP => word(at.bp.wrapping_add_signed(rule.rbp_offset_signed()))?,
        _ => at.bp,
    };
    *at = Registers { ip: word(end.wrapping_sub(8))?, sp: end, bp };
    Ok(false)
}

/// The rule for a return address in a trampoline of `python -X perf`.
fn trampoline(memory: &impl Memory, ip: u64) -> Option<Rule> {
    let mut code = [0; 12];
    memory.read(ip.wrapping_sub(4), &mut code).ok()?;
    let (words, _) = code.as_chunks();
    unwind::trampoline([0, 1, 2].map(|number| u32::from_le_bytes(words[number])))
}
