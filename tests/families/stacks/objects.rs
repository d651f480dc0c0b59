//! Tests that the stack of a new object's `__init__` is that of a traceback. Since 3.13 the interpreter runs code of its own
//! between it and the line that makes the object.

use pyobs_tests::{Case, Frame, Place, Python, Record, case, compare, json, needs};

use super::python_frames;

const RATE: u32 = 999;
const INIT: &str = "__init__";

/// Prints the functions of its stack, outermost first, once it is warm enough for the interpreter to specialize its calls.
const PROGRAM: &str = "
import json, sys, time
class Thing:
    def __init__(self, seen):
        if seen is not None:
            frame = sys._getframe()
            while frame:
                seen.insert(0, frame.f_code.co_name)
                frame = frame.f_back
        sum(range(2000))
def make():
    end = time.process_time() + 1
    while time.process_time() < end: Thing(None)
    seen = []
    Thing(seen)
    print(json.dumps(seen))
make()
";

pub fn cases() -> Vec<Case> {
    Python::all().iter().map(of).collect()
}

fn of(python: &Python) -> Case {
    let (name, every, python) = (python.name(), needs::every(python), python.clone());
    let body = move || {
        let recording = Record::new().rate(RATE).command(python.inline(PROGRAM)).run();
        assert!(recording.status.success(), "{}", recording.stderr);
        let known: Vec<String> = serde_json::from_value(json::parse(recording.stdout.trim())).unwrap();
        let (mut right, mut odd, mut others) = (0, 0, Vec::new());
        for stack in recording.stacks() {
            let of_interpreter = |frame: &&Frame| frame.function == INIT && !matches!(frame.place, Place::Line { .. });
            odd += stack.frames.iter().filter(of_interpreter).count();
            let frames = python_frames(&stack).into_iter().map(|(function, ..)| bare(&function)).collect::<Vec<_>>();
            if frames == known {
                right += stack.samples;
            } else if frames.last() == known.last() && frames.iter().any(|frame| frame == "make") {
                others.push((stack.samples, frames));
            }
        }
        assert_eq!(odd, 0, "frames of {INIT} without a line");
        assert!(others.is_empty(), "other stacks than {known:?}: {others:?}");
        compare::at_least("stacks", right as f64, f64::from(RATE) * 0.3);
    };
    case(format!("{name}::a_new_object_is_made_by_the_line_that_makes_it"), body).needs(needs::root()).needs(every)
}

/// The last part of a qualified name.
fn bare(function: &str) -> String {
    function.rsplit('.').next().unwrap_or(function).to_owned()
}
