//! Repeated calls: compares their arguments and results with those last seen at the same instruction.
//!
//! The kernel side reads operands at the instructions it is told about, and can compare them if it knows
//! their types (ebpf/programs/src/redundancy/prints.rs). User space tells it both, from the first sample at
//! an instruction on.

use std::collections::HashMap;
use std::sync::Arc;

use aya::maps::{HashMap as BpfMap, MapData};
use pyobs_abi::hash::mix;
use pyobs_abi::process::NONE;
use pyobs_abi::redundancy::{ClassKey, OPERANDS, Operand, Registers, Spot, SpotKey, Trap, class, period};
use pyobs_abi::stack::Frame;
use pyobs_model::{CalledBy, Compared};

use super::place::{ARRAY, Place};
use crate::cpython::offsets::Layout;
use crate::cpython::operands::{self, Located, Operands, SET_ITEM};
use crate::cpython::version::Version;
use crate::memory::{Memory, ProcessMemory};

/// How many instructions and types the kernel side keeps; further ones are not compared.
pub const SPOTS_MAX: u32 = 4096;
pub const CLASSES_MAX: u32 = 4096;
/// How many instructions, each with its callers, have a last call.
const LAST_MAX: usize = 1 << 14;
/// Size of an object's header.
const HEADER: u64 = 16;
/// What joins arrays into a new one.
const CONCATENATE: &str = "concatenate";
/// The method of an array that returns one element.
const ITEM: &str = "item";
/// The items of a container whose types are examined.
const ITEMS: u64 = 8;
/// An index with more numbers than this is not examined.
const DIMENSIONS: u64 = 8;

/// The kernel side's maps.
pub struct Maps {
    pub spots: BpfMap<MapData, SpotKey, Spot>,
    pub classes: BpfMap<MapData, ClassKey, u64>,
}

/// What calls depend on in a process's interpreter.
pub struct Interpreter {
    pub version: Version,
    pub layout: Layout,
}

/// What a sample shows about a call that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    pub callee: Arc<str>,
    pub called_by: CalledBy,
    pub compared: Compared,
}

/// A place where a result is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub key: SpotKey,
    pub address: u64,
    pub instruction: u64,
    /// As in [`Registers`].
    pub caller: u64,
    pub path: u64,
    pub callee: Arc<str>,
    pub called_by: CalledBy,
    /// A hash of the arguments.
    pub given: u64,
}

/// What a sample shows about its instruction.
#[derive(Default)]
pub struct Sampled {
    pub calls: Vec<Observed>,
    pub wanted: Option<Wanted>,
    /// The array, if the instruction reads or writes a single element.
    pub element_of: Option<Arc<str>>,
}

pub(super) struct Known {
    /// `None` if the operands cannot be located.
    pub operands: Option<Operands>,
    callee: Option<Arc<str>>,
    /// In the format of the kernel side's `cpython::instruction`.
    instruction: u64,
    /// The kernel side sends its operands while it waits for what it called.
    pub waits: bool,
    /// Results that were looked at.
    pub results: u32,
}

/// What the last calls at an instruction were given and returned, by those who called it.
#[derive(Default)]
pub(super) struct Last {
    /// The period that all of it is of.
    period: u64,
    arguments: HashMap<(SpotKey, u64), [u64; OPERANDS]>,
    /// With the hash of the arguments.
    results: HashMap<(SpotKey, u64), (u64, u64)>,
}

pub struct Calls {
    pub(super) maps: Maps,
    pub(super) spots: HashMap<SpotKey, Known>,
    pub(super) classes: HashMap<ClassKey, u64>,
    pub(super) last: Last,
}

impl Calls {
    pub fn new(maps: Maps) -> Self {
        Self { maps, spots: HashMap::new(), classes: HashMap::new(), last: Last::default() }
    }

    /// Examines the call that a sample is in. If the arguments equal the last ones, says where the result
    /// goes.
    pub fn sampled(&mut self, place: &mut Place, sample: &Registers) -> Sampled {
        let key = SpotKey { pid: sample.header.pid, padding: 0, code: sample.code, detail: sample.detail };
        if !self.spots.contains_key(&key) {
            self.learn(place, key);
        }
        let Some(known) = self.spots.get_mut(&key) else { return Sampled::default() };
        let Some(operands) = known.operands.as_ref().filter(|_| sample.operands_at != 0) else {
            return Sampled::default();
        };
        let given = &sample.operands[..(operands.count as usize).min(OPERANDS)];
        let (called, instruction) = (operands.called, operands.instruction);
        let mut name = || called_name(place, called.map_or(&[][..], |called| &given[..called as usize]));
        let callee = known.callee.get_or_insert_with(|| name().unwrap_or_else(|| Arc::from(instruction)));
        let callee = Arc::clone(callee);
        let element_of = element_of(place, instruction, &callee, given);
        let mut sampled = Sampled { element_of, ..Sampled::default() };
        if instruction == SET_ITEM {
            // Assigning the same value again may be necessary, so repeated operands prove no waste.
            return sampled;
        }
        let prints = prints(given).or_else(|| self.prints_of(place, key.pid, given, period(sample.header.time)));
        self.classify(place, sample.header.pid, given);
        self.classify_items(place, sample.header.pid, given);
        let [largest, others] = sample.sizes;
        if &*callee == CONCATENATE && largest > 0 {
            let compared = Compared::Copied { copied: largest, added: others };
            let (callee, called_by) = (Arc::clone(&callee), CalledBy::Innermost);
            sampled.calls.push(Observed { callee, called_by, compared });
        }
        let (Some(known), Some(prints)) = (self.spots.get(&key), prints) else { return sampled };
        let before = self.last.of(period(sample.header.time)).arguments(key, sample.path, prints);
        let Some(before) = before else { return sampled };
        let varying = varying(&before, &prints, called.unwrap_or(0));
        let wanted = Wanted {
            key,
            address: sample.operands_at,
            instruction: known.instruction,
            caller: sample.caller,
            path: sample.path,
            callee: Arc::clone(&callee),
            called_by: CalledBy::Innermost,
            given: hash(&prints),
        };
        let compared = Compared::Arguments { varying };
        sampled.calls.push(Observed { callee, called_by: CalledBy::Innermost, compared });
        Sampled { wanted: (varying == 0).then_some(wanted), ..sampled }
    }

    /// Whether the result that a trap saw equals the last one of the same arguments. `None` if there is nothing to compare with.
    pub fn returned(&mut self, place: &mut Place, wanted: &Wanted, trap: &Trap) -> Option<bool> {
        let Wanted { key, path, given, .. } = *wanted;
        // Calls that return nothing or a success flag are made for their side effects.
        if matches!(place.type_name(trap.class).as_deref(), Some("NoneType" | "bool")) {
            return None;
        }
        let Trap { object, class, value: print, .. } = *trap;
        let now = period(trap.header.time);
        let result = match print {
            0 => self.prints_of(place, key.pid, &[Operand { object, class, print }], now)?[0],
            print => print,
        };
        let is_same = self.last.of(now).result((key, path), given, result)?;
        if let Some(known) = self.spots.get_mut(&key) {
            known.results += 1;
        }
        Some(is_same)
    }

    pub fn forget(&mut self, pid: u32) {
        // Removal fails if the kernel side never got the entry.
        for key in self.spots.extract_if(|key, _| key.pid == pid).map(|(key, _)| key) {
            let _ = self.maps.spots.remove(&key);
        }
        for key in self.classes.extract_if(|key, _| key.pid == pid).map(|(key, _)| key) {
            let _ = self.maps.classes.remove(&key);
        }
        self.last.arguments.retain(|(key, _), _| key.pid != pid);
        self.last.results.retain(|(key, _), _| key.pid != pid);
    }

    /// Learns about an instruction at its first sample.
    pub(super) fn learn(&mut self, place: &Place, key: SpotKey) {
        if self.spots.len() >= SPOTS_MAX as usize {
            return;
        }
        let found = find(place.interpreter(), place.memory(), key);
        let (operands, instruction) = match found {
            Some((operands, spot, instruction)) if self.maps.spots.insert(key, spot, 0).is_ok() => {
                (Some(operands), instruction)
            }
            _ => (None, 0),
        };
        let known = Known { operands, callee: None, instruction, waits: false, results: 0 };
        self.spots.insert(key, known);
    }

    /// Tells the kernel side how to compare objects of these types.
    pub(super) fn classify(&mut self, place: &mut Place, pid: u32, given: &[Operand]) {
        for operand in given.iter().filter(|operand| operand.class != 0 && operand.print == 0) {
            let key = ClassKey { pid, padding: 0, address: operand.class };
            if self.classes.contains_key(&key) || self.classes.len() >= CLASSES_MAX as usize {
                continue;
            }
            let name = place.type_name(operand.class);
            let class = name.map_or(class::UNKNOWN, |name| class_of(&name, place.interpreter()));
            if class == class::UNKNOWN || self.maps.classes.insert(key, class, 0).is_ok() {
                self.classes.insert(key, class);
            }
        }
    }

    /// Tells the kernel side how to compare the items of containers that it could not compare.
    fn classify_items(&mut self, place: &mut Place, pid: u32, given: &[Operand]) {
        for operand in given.iter().filter(|operand| operand.class != 0 && operand.print == 0) {
            let key = ClassKey { pid, padding: 0, address: operand.class };
            let Some(class) = self.classes.get(&key) else { continue };
            let items = items(place, operand.object, *class);
            self.classify(place, pid, &items);
        }
    }
}

impl Last {
    /// Forgets what is of another period, because hashes are comparable only within one.
    pub fn of(&mut self, period: u64) -> &mut Self {
        if self.period != period {
            *self = Self { period, ..Self::default() };
        }
        self
    }

    pub fn arguments(&mut self, key: SpotKey, path: u64, now: [u64; OPERANDS]) -> Option<[u64; OPERANDS]> {
        Self::replace(&mut self.arguments, (key, path), now)
    }

    /// Whether the result is that of the last call, if that had the same arguments.
    fn result(&mut self, key: (SpotKey, u64), given: u64, result: u64) -> Option<bool> {
        let (before, same) = Self::replace(&mut self.results, key, (given, result))?;
        (before == given).then_some(same == result)
    }

    /// Further calls are not compared once too many are kept.
    fn replace<T>(last: &mut HashMap<(SpotKey, u64), T>, key: (SpotKey, u64), now: T) -> Option<T> {
        if last.len() < LAST_MAX || last.contains_key(&key) { last.insert(key, now) } else { None }
    }
}

/// Returns the array if the instruction reads or writes one element or row, as `array[i]`, `array[i, j]`, `array.item(i)` and
/// `array[i] = value` do.
fn element_of(place: &mut Place, instruction: &str, callee: &str, given: &[Operand]) -> Option<Arc<str>> {
    let [.., container, index] = given else { return None };
    let is_of_one = instruction.starts_with("BINARY_SUBSCR") || instruction == SET_ITEM || callee == ITEM;
    if !is_of_one || place.type_name(container.class).as_deref() != Some(ARRAY) {
        return None;
    }
    is_single(place, index).then(|| place.array_name(container.object).unwrap_or_else(|| Arc::from(ARRAY)))
}

/// Whether the index is a number or a tuple of numbers.
fn is_single(place: &mut Place, index: &Operand) -> bool {
    let Some(kind) = place.type_name(index.class) else { return false };
    if &*kind != "tuple" {
        return is_number(&kind);
    }
    let word = |place: &Place, at: u64| place.memory().read_u64(at).unwrap_or(0);
    let items = index.object.wrapping_add(tuple_items(place.interpreter().version));
    let count = word(place, index.object.wrapping_add(HEADER));
    (1..=DIMENSIONS).contains(&count)
        && (0..count).all(|number| {
            let item = word(place, items + 8 * number);
            let class = word(place, item.wrapping_add(8));
            place.type_name(class).is_some_and(|name| is_number(&name))
        })
}

fn is_number(name: &str) -> bool {
    matches!(name, "int" | "numpy.int64" | "numpy.longlong" | "numpy.int32" | "numpy.uint64")
}

/// The first items of a container whose items the kernel side compares.
pub(super) fn items(place: &Place, container: u64, class: u64) -> Vec<Operand> {
    let word = |at: u64| place.memory().read_u64(at).ok();
    let of = |first: Option<u64>, count: Option<u64>| first.zip(count.map(|count| count.min(ITEMS)));
    let size = || word(container.wrapping_add(HEADER));
    let found = match class & 0xff {
        class::LIST => of(word(container.wrapping_add(HEADER + 8)), size()),
        class::ITEMS => {
            let count = class >> 16 & 0xff;
            of(Some(container.wrapping_add(class >> 8 & 0xff)), if count > 0 { Some(count) } else { size() })
        }
        _ => None,
    };
    let (first, count) = found.unwrap_or_default();
    let item = |number: u64| {
        let object = word(first.wrapping_add(8 * number))?;
        Some(Operand { object, class: word(object.wrapping_add(8))?, print: 0 })
    };
    (0..count).map_while(item).collect()
}

/// Offset of the items of a tuple.
pub fn tuple_items(version: Version) -> u64 {
    HEADER + version.tuple_items()
}

/// How objects of a type are compared. Types whose contents can change at the same address are not, unless the contents
/// themselves are compared.
pub fn class_of(name: &str, interpreter: &Interpreter) -> u64 {
    let Interpreter { version, layout } = interpreter;
    let has_tag = version.minor >= 12;
    match name {
        "str" => class::data(layout.unicode.ascii_data as u8, layout.unicode.ascii_shift),
        "bytes" => class::data(layout.bytes.data as u8, class::ANY),
        "tuple" => class::items(tuple_items(*version) as u8, 0),
        // Start, stop and step, and the length of a range.
        "slice" => class::items(HEADER as u8, 3),
        "range" => class::items(HEADER as u8, 4),
        "list" => class::LIST,
        "float" | "numpy.float64" | "numpy.int64" | "numpy.uint64" | "numpy.longlong" => class::bytes(16, 8),
        "numpy.float32" | "numpy.int32" | "numpy.uint32" => class::bytes(16, 4),
        "numpy.bool" | "numpy.bool_" | "numpy.int8" | "numpy.uint8" => class::bytes(16, 1),
        "complex" | "numpy.complex128" => class::bytes(16, 16),
        // The code, the defaults and the closure, and until 3.9 the globals among them
        // (https://github.com/python/cpython/blob/v3.10.0/Include/funcobject.h).
        "function" if version.minor >= 10 => class::bytes(48, 32),
        "function" => class::bytes(16, 40),
        "method" => class::items(HEADER as u8, 2),
        // The function, its arguments and its keywords.
        "functools.partial" => class::items(HEADER as u8, 3),
        // Behind the cached hash.
        "datetime.timedelta" | "datetime.datetime" => class::bytes(24, 12),
        "datetime.date" => class::bytes(24, 5),
        // With the unit.
        "numpy.datetime64" | "numpy.timedelta64" => class::bytes(16, 16),
        // The method definition, the bound object and the module.
        "builtin_function_or_method" => class::bytes(16, 24),
        // These live as long as their module, so the address is enough.
        "NoneType"
        | "bool"
        | "type"
        | "module"
        | "ellipsis"
        | "numpy.ufunc"
        | "method_descriptor"
        | "numpy._ArrayFunctionDispatcher"
        | "numpy._DTypeMeta" => class::ADDRESS,
        name if name.starts_with("numpy.dtypes.") || name.starts_with("numpy.dtype[") => class::ADDRESS,
        "int" if has_tag => class::INT_TAGGED,
        "int" => class::INT,
        ARRAY => class::ARRAY,
        _ => class::UNKNOWN,
    }
}

/// `None` if an operand cannot be compared.
fn prints(given: &[Operand]) -> Option<[u64; OPERANDS]> {
    let mut prints = [0; OPERANDS];
    for (print, operand) in prints.iter_mut().zip(given) {
        *print = operand.print;
    }
    given.iter().all(|operand| operand.print != 0).then_some(prints)
}

/// One hash of all operands.
pub fn hash(prints: &[u64; OPERANDS]) -> u64 {
    prints.iter().fold(0, |sum, print| mix(sum, *print))
}

/// The bits of [`Compared::Arguments`].
pub fn varying(before: &[u64; OPERANDS], now: &[u64; OPERANDS], called: u32) -> u16 {
    let differ = before.iter().zip(now).zip(0u32..).filter(|((one, other), _)| one != other);
    differ.fold(0, |bits, (_, index)| bits | 1 << (index + 1).saturating_sub(called))
}

/// Where an instruction's operands are, and the kernel side's key and value for it.
fn find(interpreter: &Interpreter, memory: &ProcessMemory, key: SpotKey) -> Option<(Operands, Spot, u64)> {
    let offset = Frame { address: key.code, detail: key.detail }.offset()?;
    let Interpreter { version, layout } = interpreter;
    let Located { operands, pointer, start, instruction } =
        operands::locate(memory, *version, layout, key.code, u32::try_from(offset).ok()?)?;
    if operands.count as usize > OPERANDS || operands.called.is_some_and(|called| called > operands.count) {
        return None;
    }
    let spot = Spot { pointer: pointer.unwrap_or(NONE), start, count: operands.count, waits: 0 };
    Some((operands, spot, instruction))
}

/// The callable's name, if its type has one.
fn called_name(place: &mut Place, called: &[Operand]) -> Option<Arc<str>> {
    let function = called.iter().find(|operand| operand.object != 0)?;
    let kind = place.type_name(function.class)?;
    let memory = place.memory();
    let name = match &*kind {
        // `PyUFuncObject.name` (numpy/ufuncobject.h), `PyMethodDef.ml_name`
        // (https://github.com/python/cpython/blob/v3.13.0/Include/methodobject.h).
        "numpy.ufunc" => memory.read_u64(function.object.checked_add(56)?).ok(),
        "builtin_function_or_method" => {
            memory.read_u64(function.object.checked_add(HEADER)?).ok().and_then(|method| memory.read_u64(method).ok())
        }
        // `PyArray_ArrayFunctionDispatcherObject.public_name`, a `str`
        // (https://github.com/numpy/numpy/blob/v2.0.0/numpy/_core/src/multiarray/arrayfunction_override.c).
        "numpy._ArrayFunctionDispatcher" => {
            let name = memory.read_u64(function.object.checked_add(56)?).ok();
            name.map(|name| name.wrapping_add(place.interpreter().layout.unicode.ascii_data.into()))
        }
        "method_descriptor" => {
            let method = memory.read_u64(function.object.checked_add(40)?).ok();
            method.and_then(|method| memory.read_u64(method).ok())
        }
        _ => None,
    };
    Some(name.and_then(|at| place.name_at(at)).unwrap_or(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::offsets::layout_for;

    #[test]
    fn what_varies_is_counted_from_what_is_called() {
        let before = [1, 2, 3, 4, 0, 0, 0, 0];
        assert_eq!(varying(&before, &before, 2), 0);
        assert_eq!(varying(&before, &[1, 2, 9, 4, 0, 0, 0, 0], 2), 0b10, "the first argument");
        assert_eq!(varying(&before, &[9, 2, 3, 9, 0, 0, 0, 0], 2), 0b101, "what is called, and the second");
        assert_eq!(varying(&before, &[9, 2, 3, 4, 0, 0, 0, 0], 0), 0b10, "no call: the first operand");
    }

    #[test]
    fn results_of_other_arguments_are_not_compared() {
        let mut last = Last::default();
        let key = (SpotKey { pid: 7, padding: 0, code: 0x1000, detail: 2 }, 3);
        assert_eq!(last.result(key, 1, 10), None, "the first");
        assert_eq!(last.result(key, 1, 10), Some(true));
        assert_eq!(last.result(key, 1, 11), Some(false));
        assert_eq!(last.result(key, 2, 11), None, "other arguments");
        assert_eq!(last.result(key, 2, 11), Some(true));
        assert_eq!(last.of(1).result(key, 2, 11), None, "another period");
    }

    #[test]
    fn one_that_is_not_known_is_enough() {
        let known = Operand { object: 0x1000, class: 0x2000, print: 7 };
        assert!(prints(&[known, known]).is_some());
        assert_eq!(prints(&[known, Operand { print: 0, ..known }]), None);
    }

    #[test]
    fn what_can_change_in_its_place_has_no_print() {
        for name in ["dict", "set", "bytearray", "numpy.random._generator.Generator", "Model"] {
            assert_eq!(class_of(name, &interpreter(12)), class::UNKNOWN);
        }
    }

    /// The offsets are those of the structures in CPython's source.
    #[test]
    fn the_print_of_a_type_follows_the_version() {
        for (minor, int, text) in [(8, class::INT, 48), (11, class::INT, 48), (12, class::INT_TAGGED, 40)] {
            let found = ["int", "str", "bytes"].map(|name| class_of(name, &interpreter(minor)));
            assert_eq!(found, [int, class::data(text, 6), class::data(32, class::ANY)], "3.{minor}");
        }
        assert_eq!((tuple_items(Version::new(3, 13, 0)), tuple_items(Version::new(3, 14, 0))), (24, 32));
    }

    fn interpreter(minor: u8) -> Interpreter {
        let version = Version::new(3, minor, 0);
        Interpreter { version, layout: layout_for(&version, false).unwrap().clone() }
    }
}
