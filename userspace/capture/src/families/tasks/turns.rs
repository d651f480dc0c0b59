//! Where asyncio's event loop keeps the time at which its present turn began.
//!
//! `BaseEventLoop._run_once` waits for input, takes the time in its local variable `end_time`, and runs the callbacks that
//! are ready: <https://github.com/python/cpython/blob/v3.12.0/Lib/asyncio/base_events.py>

use pyobs_abi::process::{NONE, Turn};
use pyobs_abi::stack::Frame as RawFrame;

use crate::cpython::attached::Attached;
use crate::dump::objects::Objects;
use crate::dump::pages::Pages;
use crate::pipeline::decode::Stack;
use crate::pipeline::processes::Watched;

/// The names of the function from 3.11 on, and before, when frames have no qualified names.
const FUNCTIONS: [&str; 2] = ["BaseEventLoop._run_once", "_run_once"];
const FILE: &str = "asyncio/base_events.py";
const VARIABLE: &str = "end_time";
/// How far above a task's frame the loop's is looked for: asyncio has one frame between them, debuggers have more.
const FRAMES_MAX: usize = 16;
/// From 3.8 to 3.12 the function has this many variables, and the time is in the one with this number.
const VARIABLES: u32 = 12;
const NUMBER: u32 = 7;

/// Finds the frame of the event loop above the Python frame with this number, and what the kernel side needs to read its
/// variable.
pub fn find(stack: &Stack, above: usize, watched: &Watched, python: &Attached) -> Option<Turn> {
    let frames = stack.frames.get(above..)?.iter().take(FRAMES_MAX);
    let code = frames.copied().find(|frame| is_loop(*frame, watched))?.address;
    let layout = &python.layout;
    let minor = python.number.minor;
    let value = layout.object.size;
    match (layout.stack.pointer, layout.stack.locals) {
        // The values follow the variables.
        (Some(pointer), _) if minor >= 8 => {
            Some(Turn { code, values: pointer, local: (NUMBER as i32 - VARIABLES as i32) * 8, value, padding: 0 })
        }
        (None, Some(locals)) => {
            let number = if minor < 13 { NUMBER } else { number(watched.pid, python, code)? };
            let local = i32::try_from(locals + 8 * number).ok()?;
            Some(Turn { code, values: NONE, local, value, padding: 0 })
        }
        _ => None,
    }
}

fn is_loop(frame: RawFrame, watched: &Watched) -> bool {
    let Some(code) = watched.names.code(frame) else { return false };
    FUNCTIONS.contains(&&*code.function) && code.file.ends_with(FILE)
}

/// The number of the variable, by the names in the code object.
fn number(pid: u32, python: &Attached, code: u64) -> Option<u32> {
    let memory = Pages::new(pid);
    let objects = Objects::new(&memory, python);
    let names = objects.word(code.checked_add(python.layout.stack.local_names?.into())?)?;
    let is_it = |name: &u64| objects.text(*name).is_some_and(|name| name == VARIABLE);
    objects.tuple(names)?.iter().position(is_it).and_then(|number| u32::try_from(number).ok())
}
