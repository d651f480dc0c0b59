//! Tests where the operands of calls lie in the bytecode that real interpreters run, and in their memory. The source is
//! the reference: outer calls wait on the stack for inner ones, and a call's arguments lie there.

use std::collections::BTreeSet;
use std::time::Duration;

use pyobs_capture::cpython::mapped::attach_to;
use pyobs_capture::cpython::offsets::Position;
use pyobs_capture::cpython::operands::{self, Operands};
use pyobs_capture::cpython::version::Version;
use pyobs_capture::memory::{Memory as _, ProcessMemory};
use pyobs_tests::{Case, Python, Workload};
use serde_json::Value;

use crate::for_pythons;

/// Nested calls in a loop and in a branch, run often enough to be specialised.
const PROGRAM: &str = "
import json, sys
def nested(f, numbers):
    for x in numbers:
        if x:
            f(x, f(x, f(x, 0)))
    return [x for x in numbers]
def items(a, numbers):
    for x in numbers:
        a[x] + 2 * a[x]
nested(max, list(range(200)))
items(list(range(200)), list(range(200)))
def describe(function):
    code = function.__code__
    data = getattr(code, '_co_code_adaptive', None) or code.co_code
    return {'code': list(data), 'most': code.co_stacksize}
print(json.dumps({'version': sys.version_info[:3], 'nested': describe(nested), 'items': describe(items)}))
";

pub fn cases() -> Vec<Case> {
    let need =
        |python: &Python| if python.minor() >= 8 { Ok(()) } else { Err("operands are unknown before 3.8".to_owned()) };
    let places = for_pythons("operands", "operands_lie_where_the_source_says", lie_where_the_source_says, need);
    let values = for_pythons("operands", "a_waiting_call_has_its_argument_there", have_their_values, need);
    places.into_iter().chain(values).collect()
}

fn lie_where_the_source_says(python: &Python) {
    let output = python.command().args(["-c", PROGRAM]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |index: usize| u8::try_from(printed["version"][index].as_u64().unwrap()).unwrap();
    let version = Version::new(number(0), number(1), number(2));
    let all = |name: &str| -> Vec<Operands> {
        let code: Vec<u8> = serde_json::from_value(printed[name]["code"].clone()).unwrap();
        let most = u32::try_from(printed[name]["most"].as_u64().unwrap()).unwrap();
        let found = (0..code.len()).filter_map(|offset| operands::at(version, &code, offset));
        let found: Vec<_> = found.collect();
        assert!(found.iter().all(|operands| operands.below + operands.count <= most), "{version}: {found:?} in {most}");
        found
    };
    let found = |name: &str| -> BTreeSet<(String, u32, u32)> {
        all(name).iter().map(|one| (kind(one).to_owned(), one.below, one.count)).collect()
    };
    // From 3.11 on, self or null lies beside the callee.
    let called = if version.minor >= 11 { 2 } else { 1 };
    let each = called + 1;
    let call = |depth: u32| ("call".to_owned(), 1 + depth * each, called + 2);
    // The iterator lies below all of them.
    let expected = BTreeSet::from([call(0), call(1), call(2)]);
    let calls: BTreeSet<_> = found("nested").into_iter().filter(|(kind, ..)| kind == "call").collect();
    // Until 3.11 the comprehension is a call of its own.
    assert!(expected.is_subset(&calls) && calls.len() <= expected.len() + 1, "{version}: {calls:?}");
    let work = |below| ("work".to_owned(), below, 2);
    let works = found("items");
    // These are a[x], a[x] below 2 below a[x], their product, and their sum.
    assert_eq!(works, BTreeSet::from([work(1), work(2), work(3)]), "{version}");
    let subscripts = all("items").into_iter().filter(|one| one.instruction.contains("SUBSCR"));
    assert_eq!(subscripts.map(|one| one.below).collect::<BTreeSet<_>>(), BTreeSet::from([1, 3]), "{version}");
}

/// Prints its thread state, and waits in a nested call in a loop.
const WAITS: &str = "
import ctypes, time
state = ctypes.pythonapi.PyThreadState_Get
state.restype = ctypes.c_void_p
def waits(numbers, wait):
    one, two, three = numbers
    for x in numbers:
        print(state(), flush=True)
        max(one, wait(1234.5))
waits([1, 2, 3], time.sleep)
";

fn have_their_values(python: &Python) {
    let mut command = python.command();
    command.args(["-c", WAITS]);
    let mut program = Workload::start(command);
    let state: u64 = program.line().parse().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let pid = program.pid();
    let attached = attach_to(pid).unwrap().unwrap().unwrap().attached;
    let (layout, memory) = (&attached.layout, ProcessMemory::new(pid));
    let word = |at: u64| memory.read_u64(at).unwrap();
    let mut frame = word(state + u64::from(layout.thread_state.frame));
    if let Some(cframe) = &layout.cframe {
        frame = word(frame + u64::from(cframe.current_frame));
    }
    let code = word(frame + u64::from(layout.frame.code)) & !u64::from(layout.frame.code_tags);
    let at = frame + u64::from(layout.frame.instruction);
    let offset = match (layout.frame.position, layout.code.code_adaptive) {
        (Position::ByteIndex, _) => memory.read_u32(at).unwrap(),
        (Position::UnitIndex, _) => 2 * memory.read_u32(at).unwrap(),
        (_, adaptive) => u32::try_from(word(at) - code - u64::from(adaptive.unwrap())).unwrap(),
    };
    let located = operands::locate(&memory, attached.number, layout, code, offset).unwrap();
    let base = located.pointer.map_or(frame, |pointer| word(frame + u64::from(pointer)));
    let object = |index: u32| word(base + u64::from(located.start) + 8 * u64::from(index)) & !7;
    let last = located.operands.count - 1;
    // A float's value lies behind its header.
    assert_eq!(f64::from_bits(word(object(last) + 16)), 1234.5, "{}: {located:?}", attached.version);
    let called = (0..last).map(object).find(|object| *object != 0).unwrap();
    let name = word(word(word(called + 8) + 24));
    assert_eq!(&name.to_ne_bytes(), b"builtin_", "{}", attached.version);
}

fn kind(operands: &Operands) -> &'static str {
    if operands.called.is_some() { "call" } else { "work" }
}
