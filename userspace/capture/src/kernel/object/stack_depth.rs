//! A test: how much stack the programs need, with the functions that they call. The kernel refuses programs that need
//! more than 512 bytes (`check_max_stack_depth` in
//! <https://github.com/torvalds/linux/blob/v6.1/kernel/bpf/verifier.c>), and newer kernels count less than older ones.

use std::collections::BTreeMap;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

const STACK_MAX: u32 = 512;
/// Linux 6.1 rounds the stack of each function up to this.
const ROUNDED: u32 = 32;
/// <https://docs.kernel.org/bpf/standardization/instruction-set.html>
const INSTRUCTION: u64 = 8;
const CALL: u8 = 0x85;
const LOAD_64: u8 = 0x18;
const MOVE: u8 = 0xbf;
const ADD_NUMBER: u8 = 0x07;
const CLASS_LOAD: u8 = 1;
const CLASSES_STORE: [u8; 2] = [2, 3];
const FRAME_POINTER: u8 = 10;
/// The source register of a call of another function of the object.
const OWN_FUNCTION: u8 = 1;

#[derive(Default)]
struct Function {
    name: String,
    stack: u32,
    calls: Vec<Place>,
}

/// A section's index and an offset in it.
type Place = (usize, u64);

#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    destination: u8,
    source: u8,
    offset: i16,
    number: i32,
}

impl Instruction {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; INSTRUCTION as usize] = bytes.get(..INSTRUCTION as usize)?.try_into().ok()?;
        let [code, registers, low, high, number @ ..] = bytes;
        let offset = i16::from_le_bytes([low, high]);
        let number = i32::from_le_bytes(number);
        Some(Self { code, destination: registers & 15, source: registers >> 4, offset, number })
    }

    /// How far below the frame pointer it reads, writes or points.
    fn depth(self, before: Option<Self>) -> i32 {
        let class = self.code & 7;
        let base = if class == CLASS_LOAD { self.source } else { self.destination };
        if (class == CLASS_LOAD || CLASSES_STORE.contains(&class)) && base == FRAME_POINTER {
            return -i32::from(self.offset);
        }
        let is_pointer = |before: Self| {
            before.code == MOVE && before.source == FRAME_POINTER && before.destination == self.destination
        };
        if self.code == ADD_NUMBER && before.is_some_and(is_pointer) { -self.number } else { 0 }
    }
}

fn functions(file: &object::File<'_>) -> BTreeMap<Place, Function> {
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        let Some(section) = symbol.section_index().and_then(|index| file.section_by_index(index).ok()) else {
            continue;
        };
        let (start, index) = (symbol.address(), section.index().0);
        let code = section.data_range(start, symbol.size()).unwrap().unwrap();
        let relocations: BTreeMap<u64, _> = section.relocations().collect();
        let mut function = Function { name: symbol.name().unwrap().to_owned(), ..Function::default() };
        let mut before = None;
        for (number, bytes) in (0..).zip(code.chunks(INSTRUCTION as usize)) {
            let instruction = Instruction::parse(bytes).unwrap();
            let at = start + number * INSTRUCTION;
            function.stack = function.stack.max(u32::try_from(instruction.depth(before)).unwrap_or(0));
            let target = relocations.get(&at).and_then(|relocation| match relocation.target() {
                object::RelocationTarget::Symbol(symbol) => file.symbol_by_index(symbol).ok(),
                _ => None,
            });
            let is_call = instruction.code == CALL && instruction.source == OWN_FUNCTION;
            let place = match target.filter(|_| is_call || instruction.code == LOAD_64) {
                // Of a section as a whole: the offset is in the instruction.
                Some(target) if target.kind() == SymbolKind::Section => target.section_index().map(|section| {
                    let number = i64::from(instruction.number);
                    let offset = if is_call { (number + 1) * INSTRUCTION as i64 } else { number };
                    (section.0, offset as u64)
                }),
                Some(target) => target.section_index().map(|section| (section.0, target.address())),
                None if is_call => {
                    let next = i64::try_from(at / INSTRUCTION).unwrap() + 1 + i64::from(instruction.number);
                    Some((index, next as u64 * INSTRUCTION))
                }
                None => None,
            };
            function.calls.extend(place);
            before = Some(instruction);
        }
        functions.insert((index, start), function);
    }
    functions
}

/// The stack of a function and of the deepest chain of calls from it, with their names.
fn deepest(functions: &BTreeMap<Place, Function>, place: Place) -> (u32, Vec<&str>) {
    // A place that is not a function is a map.
    let Some(function) = functions.get(&place) else { return (0, Vec::new()) };
    let calls = function.calls.iter().map(|call| deepest(functions, *call));
    let (below, mut names) = calls.max_by_key(|(depth, _)| *depth).unwrap_or_default();
    names.insert(0, &function.name);
    (function.stack.max(1).next_multiple_of(ROUNDED) + below, names)
}

#[test]
fn programs_fit_on_the_stack_of_linux_6_1() {
    let file = object::File::parse(super::OBJECT).unwrap();
    let functions = functions(&file);
    let names: Vec<&str> = functions.values().map(|function| function.name.as_str()).collect();
    for expected in ["cpu_sample", "walk_step", "offcpu_switch", "keep_turn"] {
        assert!(names.contains(&expected), "{names:?}");
    }
    let (most, chain) =
        functions.keys().map(|place| deepest(&functions, *place)).max_by_key(|(depth, _)| *depth).unwrap();
    assert!(chain.len() > 2, "no calls were found: {chain:?}");
    assert!(most <= STACK_MAX, "{most} bytes: {chain:?}");
}
