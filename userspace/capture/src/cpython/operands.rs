//! Which values on the stack an instruction uses. The height of the stack follows from the earlier
//! instructions, as in the compiler itself (`compute_stack_depth` in
//! <https://github.com/python/cpython/blob/v3.8.0/Python/compile.c>, `mark_stacks` in
//! <https://github.com/python/cpython/blob/v3.10.0/Objects/frameobject.c>).
//!
//! The bytecode comes from a watched process: its size is bounded, and after anything not understood the
//! places are unknown.

use super::effects::{self, Effects, Jump};
use super::offsets::{Layout, Position};
use super::version::Version;
use crate::memory::Memory;

/// Longer bytecode is not analyzed.
const BYTECODE_MAX: usize = 1 << 16;
/// Functions with more variables are not analyzed.
const LOCALS_MAX: u64 = 1 << 12;
/// Offset of the item count in a variable-sized object, after the header.
const COUNT: u64 = 16;
/// Functions with a higher stack are not analyzed.
const DEPTH_MAX: i64 = 1 << 12;
/// The instruction for `container[index] = value`. It has no result. Its operands are the value, the container and the index.
pub const SET_ITEM: &str = "STORE_SUBSCR";
/// Size of a unit of bytecode.
const UNIT: usize = 2;
/// `NB_ADD`, `NB_INPLACE_ADD` and `NB_SUBSCR` in Include/opcode.h: BINARY_OP with these arguments replaces BINARY_ADD and
/// INPLACE_ADD from 3.11 on, and BINARY_SUBSCR from 3.14 on.
const ADD: u32 = 0;
const INPLACE_ADD: u32 = 13;
const SUBSCRIPT: u32 = 26;

/// The values that an instruction takes from the stack. Its result, if it has one, replaces them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operands {
    /// The instruction's name.
    pub instruction: &'static str,
    /// Number of values below the first operand.
    pub below: u32,
    pub count: u32,
    /// For a call, how many operands may be the callable: it is the first of these that is not null.
    pub called: Option<u32>,
}

/// Returns the operands of the instruction at a byte offset if it is a call, an operator or an item assignment. In a frame that
/// waits for a callee, the offset may lie in the instruction's inline caches (3.11 and 3.12).
pub fn at(version: Version, bytecode: &[u8], offset: usize) -> Option<Operands> {
    let effects = effects::of(version)?;
    if bytecode.len() > BYTECODE_MAX || !offset.is_multiple_of(UNIT) {
        return None;
    }
    let unit = instruction_start(version, effects, bytecode, offset / UNIT);
    let depth = depths(version, effects, bytecode).get(unit).copied().flatten()?;
    let (name, _) = effects.get(number_of(bytecode, unit)?)?;
    let argument = argument(version, effects, bytecode, unit);
    let name = match (name, argument) {
        ("BINARY_OP", ADD) => "BINARY_ADD",
        ("BINARY_OP", INPLACE_ADD) => "INPLACE_ADD",
        ("BINARY_OP", SUBSCRIPT) if version.minor >= 14 => "BINARY_SUBSCR",
        _ => name,
    };
    let (count, called) = taken(name, argument)?;
    let names = u32::from(matches!(name, "CALL_KW" | "CALL_FUNCTION_KW"));
    let below = u32::try_from(depth).ok()?.checked_sub(count)?.checked_sub(names)?;
    Some(Operands { instruction: name, below, count, called })
}

/// Operands, and where they are in a frame that is at their instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    pub operands: Operands,
    /// Offset in the frame of a pointer that `start` is relative to; `None` if it is relative to the frame.
    pub pointer: Option<u32>,
    /// Offset of the first operand, in bytes.
    pub start: u32,
    /// Identifies the instruction: its address or, until 3.10, the code object's address combined with the
    /// position as stored in the frame.
    pub instruction: u64,
}

/// The operands of the instruction at a byte offset of a code object's bytecode, in a process.
pub fn locate(memory: &impl Memory, version: Version, layout: &Layout, code: u64, offset: u32) -> Option<Located> {
    let (start, bytecode) = bytecode(memory, layout, code)?;
    let operands = at(version, &bytecode, offset as usize)?;
    let instruction = instruction_at(layout, code, start, offset);
    let Value { pointer, start } = value(memory, layout, code, operands.below)?;
    Some(Located { operands, pointer, start, instruction })
}

/// As in [`Located`], of the instruction at a byte offset of the bytecode that starts at `start`.
fn instruction_at(layout: &Layout, code: u64, start: u64, offset: u32) -> u64 {
    match layout.frame.position {
        Position::ByteIndex => code.wrapping_add(offset.into()),
        Position::UnitIndex => code.wrapping_add(u64::from(offset) / UNIT as u64),
        _ => start.wrapping_add(offset.into()),
    }
}

/// Where a value of the stack is in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// As in [`Located`].
    pub pointer: Option<u32>,
    pub start: u32,
}

/// Where an instruction will put its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultAt {
    pub value: Value,
    /// As in [`Located`], unless the frame waits for what it called.
    pub instruction: u64,
    /// No instruction of the code object runs twice in one call.
    pub is_straight: bool,
}

/// Where the instruction at a byte offset will put its result. The offset may lie in its caches, as for [`at`].
pub fn locate_result(
    memory: &impl Memory,
    version: Version,
    layout: &Layout,
    code: u64,
    offset: u32,
) -> Option<ResultAt> {
    let (start, bytecode) = bytecode(memory, layout, code)?;
    let value = value(memory, layout, code, result_at(version, &bytecode, offset as usize)?)?;
    let instruction = instruction_at(layout, code, start, offset);
    Some(ResultAt { value, instruction, is_straight: is_straight(version, &bytecode) })
}

/// The value of a variable of a frame whose function has no cells.
pub fn variable(memory: &impl Memory, layout: &Layout, code: u64, frame: u64, number: u64) -> Option<u64> {
    let first = match (layout.stack.pointer, layout.stack.locals) {
        (Some(pointer), _) => {
            // The values follow the variables. Their number, `co_nlocals`, follows the number of keyword-only arguments.
            let values = memory.read_u64(frame.checked_add(pointer.into())?).ok()?;
            let count = memory.read_u32(code.checked_add(u64::from(layout.code.kwonlyargcount?) + 4)?).ok()?;
            values.checked_sub(8 * u64::from(count))?
        }
        (None, Some(locals)) => frame.checked_add(locals.into())?,
        (None, None) => return None,
    };
    memory.read_u64(first.checked_add(8 * number)?).ok()
}

/// Where the lowest value of a frame's stack is.
pub fn lowest(memory: &impl Memory, layout: &Layout, code: u64) -> Option<Value> {
    value(memory, layout, code, 0)
}

/// Where the lowest value of a frame's stack is, and how many values there are when the instruction at a byte offset starts. The
/// offset may lie in its caches, as for [`at`].
pub fn stack(memory: &impl Memory, version: Version, layout: &Layout, code: u64, offset: u32) -> Option<(Value, u32)> {
    let (_, bytecode) = bytecode(memory, layout, code)?;
    let effects = effects::of(version)?;
    let unit = instruction_start(version, effects, &bytecode, offset as usize / UNIT);
    let height = depths(version, effects, &bytecode).get(unit).copied().flatten()?;
    Some((value(memory, layout, code, 0)?, u32::try_from(height).ok()?))
}

/// Whether bytecode has no jump back. `false` if not all of it is understood.
fn is_straight(version: Version, bytecode: &[u8]) -> bool {
    let Some(effects) = effects::of(version) else { return false };
    let units = bytecode.len() / UNIT;
    let mut unit = 0;
    while unit < units {
        let Some((_, instruction)) = effects.get(bytecode[unit * UNIT]) else { return false };
        let next = unit + 1 + usize::from(instruction.caches);
        if let Some(jump) = instruction.jump {
            let argument = argument(version, effects, bytecode, unit);
            if target(version, jump, next, argument).is_none_or(|target| target <= unit) {
                return false;
            }
        }
        unit = next;
    }
    true
}

/// The number of values below the result of the instruction at a byte offset.
fn result_at(version: Version, bytecode: &[u8], offset: usize) -> Option<u32> {
    let effects = effects::of(version)?;
    let unit = instruction_start(version, effects, bytecode, offset / UNIT);
    let depth = depths(version, effects, bytecode).get(unit).copied().flatten()?;
    let (name, instruction) = effects.get(number_of(bytecode, unit)?)?;
    let effect = instruction.effect(argument(version, effects, bytecode, unit));
    // A LOAD_ATTR with an effect of 1 loads a method to be called, instead of computing a result.
    let has_one = match name {
        "LOAD_ATTR" => effect == 0,
        "FOR_ITER" | "COMPARE_OP" | "CONTAINS_OP" => true,
        _ => ["CALL", "BINARY_", "INPLACE_", "UNARY_"].iter().any(|prefix| name.starts_with(prefix)),
    };
    u32::try_from(depth + effect - 1).ok().filter(|_| has_one)
}

/// The bytecode of a code object, and its address.
fn bytecode(memory: &impl Memory, layout: &Layout, code: u64) -> Option<(u64, Vec<u8>)> {
    if layout.free_threaded {
        return None; // objects have another header
    }
    let (start, size) = match (layout.code.bytecode, layout.code.code_adaptive) {
        (Some(bytecode), _) => {
            let bytes = memory.read_u64(code.checked_add(bytecode.into())?).ok()?;
            let length = memory.read_u64(bytes.checked_add(layout.bytes.length.into())?).ok()?;
            (bytes.checked_add(layout.bytes.data.into())?, length)
        }
        (None, Some(adaptive)) => {
            let units = memory.read_u64(code.checked_add(COUNT)?).ok()?;
            (code.checked_add(adaptive.into())?, units.checked_mul(UNIT as u64)?)
        }
        (None, None) => return None,
    };
    let size = usize::try_from(size).ok().filter(|size| *size <= BYTECODE_MAX)?;
    let mut bytecode = vec![0; size];
    memory.read(start, &mut bytecode).ok()?;
    Some((start, bytecode))
}

/// Where in a frame a value of the stack is that has this many values below it.
fn value(memory: &impl Memory, layout: &Layout, code: u64, below: u32) -> Option<Value> {
    let locals = match (layout.stack.pointer, layout.stack.locals) {
        (Some(_), _) => 0,
        (None, Some(locals)) => u64::from(locals) + 8 * variables(memory, layout, code)?,
        (None, None) => return None,
    };
    let start = u32::try_from(locals + 8 * u64::from(below)).ok()?;
    Some(Value { pointer: layout.stack.pointer, start })
}

/// Number of variables below a frame's values.
fn variables(memory: &impl Memory, layout: &Layout, code: u64) -> Option<u64> {
    let count = match (layout.stack.local_count, layout.stack.local_names) {
        (Some(count), _) => memory.read_u32(code.checked_add(count.into())?).ok()?.into(),
        (None, Some(names)) => {
            let tuple = memory.read_u64(code.checked_add(names.into())?).ok()?;
            memory.read_u64(tuple.checked_add(COUNT)?).ok()?
        }
        (None, None) => return None,
    };
    (count <= LOCALS_MAX).then_some(count)
}

/// How many values an instruction takes, and how many of these may be the callable. The argument names on top
/// of them belong to the code and are not operands.
fn taken(name: &str, argument: u32) -> Option<(u32, Option<u32>)> {
    let call = |called: u32| Some((argument.checked_add(called)?, Some(called)));
    match name {
        // The callable, and self or null. Specialized forms of 3.11's PRECALL make the call, and skip CALL
        // (https://github.com/python/cpython/blob/v3.11.0/Python/ceval.c).
        "CALL" | "PRECALL" | "CALL_METHOD" | "CALL_KW" => call(2),
        "CALL_FUNCTION" | "CALL_FUNCTION_KW" => call(1),
        "BINARY_SLICE" | SET_ITEM => Some((3, None)),
        _ if name.starts_with("BINARY_") || name.starts_with("INPLACE_") => Some((2, None)),
        "COMPARE_OP" | "CONTAINS_OP" => Some((2, None)),
        _ if name.starts_with("UNARY_") => Some((1, None)),
        _ => None,
    }
}

fn number_of(bytecode: &[u8], unit: usize) -> Option<u8> {
    bytecode.get(unit * UNIT).copied()
}

/// An instruction's argument, including its EXTENDED_ARG prefixes.
fn argument(version: Version, effects: &Effects, bytecode: &[u8], unit: usize) -> u32 {
    let mut argument = u32::from(bytecode.get(unit * UNIT + 1).copied().unwrap_or(0));
    for (before, shift) in (0..unit).rev().zip([8, 16, 24]) {
        let is_extended = number_of(bytecode, before)
            .and_then(|number| effects.get(number))
            .is_some_and(|(name, _)| name == "EXTENDED_ARG")
            && !is_cache(version, effects, bytecode, before);
        if !is_extended {
            break;
        }
        argument |= u32::from(bytecode[before * UNIT + 1]) << shift;
    }
    argument
}

/// Whether a unit belongs to an instruction before it. Caches can have any content.
fn is_cache(version: Version, effects: &Effects, bytecode: &[u8], unit: usize) -> bool {
    instruction_start(version, effects, bytecode, unit) != unit
}

/// The first unit of the instruction that a unit belongs to.
fn instruction_start(version: Version, effects: &Effects, bytecode: &[u8], unit: usize) -> usize {
    if version.minor < 11 {
        return unit;
    }
    let mut at = 0;
    loop {
        let caches = number_of(bytecode, at).and_then(|number| effects.get(number)).map_or(0, |(_, of)| of.caches);
        let next = at + 1 + usize::from(caches);
        if next > unit {
            return at;
        }
        at = next;
    }
}

/// The height of the stack before each unit; `None` if it is not reachable or not known.
fn depths(version: Version, effects: &Effects, bytecode: &[u8]) -> Vec<Option<i64>> {
    let units = bytecode.len() / UNIT;
    let mut depths = vec![None; units];
    let mut open = vec![(0, 0)];
    while let Some((mut unit, mut depth)) = open.pop() {
        let mut extended = 0u32;
        while unit < units && depths[unit].is_none() && (0..DEPTH_MAX).contains(&depth) {
            depths[unit] = Some(depth);
            let (number, low) = (bytecode[unit * UNIT], bytecode[unit * UNIT + 1]);
            let Some((name, instruction)) = effects.get(number) else { break };
            let argument = extended << 8 | u32::from(low);
            if name == "EXTENDED_ARG" {
                (extended, unit) = (argument, unit + 1);
                continue;
            }
            extended = 0;
            let next = unit + 1 + usize::from(instruction.caches);
            if let Some(target) = instruction.jump.and_then(|jump| target(version, jump, next, argument)) {
                open.push((target, depth + instruction.effect_jumped(argument)));
            }
            if instruction.ends {
                break;
            }
            depth += instruction.effect(argument);
            unit = next;
        }
    }
    depths
}

fn target(version: Version, jump: Jump, next: usize, argument: u32) -> Option<usize> {
    // In bytes until 3.9.
    let distance = if version.minor < 10 { argument as usize / UNIT } else { argument as usize };
    match jump {
        Jump::Forward => next.checked_add(distance),
        Jump::Backward => next.checked_sub(distance),
        Jump::Absolute => Some(distance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `for i in x: y = f(i, g[i])`, as compiled by CPython 3.8.
    #[test]
    fn the_stack_is_followed_through_a_loop() {
        let code = [
            116, 0, 68, 0, // LOAD_GLOBAL x, GET_ITER
            93, 18, // FOR_ITER to 24
            125, 0, 116, 1, 124, 0, // STORE_FAST i, LOAD_GLOBAL f, LOAD_FAST i
            116, 2, 124, 0, 25, 0, // LOAD_GLOBAL g, LOAD_FAST i, BINARY_SUBSCR
            131, 2, 125, 1, 113, 4, // CALL_FUNCTION 2, STORE_FAST y, JUMP_ABSOLUTE 4
            100, 0, 83, 0, 9, 0, // LOAD_CONST None, RETURN_VALUE, NOP
        ];
        let version = Version::new(3, 8, 18);
        let operands = |offset| at(version, &code, offset);
        let call = Operands { instruction: "CALL_FUNCTION", below: 1, count: 3, called: Some(1) };
        assert_eq!(operands(18), Some(call));
        let item = Operands { instruction: "BINARY_SUBSCR", below: 3, count: 2, called: None };
        assert_eq!(operands(16), Some(item));
        assert_eq!(operands(10), None, "it takes nothing");
        assert_eq!(operands(28), None, "nothing leads there");
        assert_eq!(operands(17), None);
        assert_eq!(operands(1000), None);
        let result = |offset| result_at(version, &code, offset);
        assert_eq!(
            [18, 16, 4].map(result),
            [Some(1), Some(3), Some(1)],
            "each is where its first operand was, or on top"
        );
        assert_eq!([6, 10].map(result), [None, None], "they call nothing");
    }

    /// `a[1] = x`, as compiled by CPython 3.12.
    #[test]
    fn setting_an_item_takes_three_values() {
        // RESUME, LOAD_NAME x, LOAD_NAME a, LOAD_CONST 1, STORE_SUBSCR and its cache, RETURN_CONST
        let code = [151, 0, 101, 0, 101, 1, 100, 0, 60, 0, 0, 0, 121, 1];
        let set = Operands { instruction: SET_ITEM, below: 0, count: 3, called: None };
        assert_eq!(at(Version::new(3, 12, 1), &code, 8), Some(set));
    }

    #[test]
    fn a_loop_is_not_straight() {
        let version = Version::new(3, 8, 18);
        // LOAD_FAST, POP_JUMP_IF_FALSE to 8, LOAD_CONST, RETURN_VALUE, LOAD_FAST, RETURN_VALUE
        assert!(is_straight(version, &[124, 0, 114, 8, 100, 1, 83, 0, 124, 0, 83, 0]));
        // FOR_ITER, STORE_FAST, JUMP_ABSOLUTE to 0
        assert!(!is_straight(version, &[93, 4, 125, 0, 113, 0, 100, 0, 83, 0]));
        assert!(!is_straight(version, &[255, 0]), "there is no such instruction");
        // JUMP_BACKWARD
        assert!(!is_straight(Version::new(3, 12, 1), &[151, 0, 140, 2, 83, 0]));
        assert!(is_straight(Version::new(3, 12, 1), &[151, 0, 100, 0, 83, 0]));
    }

    #[test]
    fn bytecode_that_makes_no_sense_is_left() {
        let version = Version::new(3, 12, 1);
        for code in [&[171, 255][..], &[255; 64], &[], &[171], &[144, 255, 144, 255, 144, 255, 144, 255, 171, 255]] {
            for offset in 0..64 {
                assert_eq!(at(version, code, offset), None);
            }
        }
    }
}
