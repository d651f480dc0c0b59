//! `threading.Thread` objects: the name of a thread, and the thread that another one joins.
//!
//! The object is `self` of the methods that run at the bottom of a thread's stack, and of `join`.

use super::frames::{At, TAG_BITS};
use super::objects::Objects;
use crate::cpython::operands;

const FILE: &str = "/threading.py";
/// The first method that a thread runs.
const FIRST: &str = "_bootstrap";
/// The methods that wait for the end of a thread: until 3.12 the second, called by the first.
const JOINS: [&str; 2] = ["join", "_wait_for_tstate_lock"];

/// A frame's function and file.
pub type Named<'a> = (&'a str, &'a str);

/// Whether a function is this method of this class. Until 3.10 its name is not qualified.
fn is_method((function, file): Named<'_>, class: &str, method: &str) -> bool {
    let unqualified = function.strip_prefix(class).and_then(|rest| rest.strip_prefix('.')).unwrap_or(function);
    unqualified == method && file.ends_with(FILE)
}

/// The lock that `Condition.wait` has released, although `with` still has it, if this is a frame of that method.
pub fn released(objects: &Objects<'_>, at: &At, named: Named<'_>) -> Option<u64> {
    let object = is_method(named, "Condition", "wait").then(|| receiver(objects, at)).flatten()?;
    // `_lock` is the first attribute that `Condition.__init__` sets.
    objects.attributes(object)?.into_iter().find(|value| *value != 0)
}

/// The name that the program gave the thread whose outermost frame this is.
pub fn name(objects: &Objects<'_>, at: &At, named: Named<'_>) -> Option<String> {
    let object = is_method(named, "Thread", FIRST).then(|| receiver(objects, at)).flatten()?;
    // `_name` is the first text that `Thread.__init__` sets.
    let texts = objects.attributes(object)?.into_iter().filter(|value| *value != 0);
    let mut texts = texts.filter(|value| objects.kind(*value).as_deref() == Some("str"));
    texts.next().and_then(|text| objects.text(text))
}

/// What `pthread_self()` of the thread that is joined may be, if this frame joins one.
pub fn joined(objects: &Objects<'_>, at: &At, named: Named<'_>) -> Option<Vec<u64>> {
    let object =
        JOINS.iter().any(|method| is_method(named, "Thread", method)).then(|| receiver(objects, at)).flatten()?;
    // One of the ints is `_ident`. Before 3.13 there are others, such as `_native_id`.
    let numbers = objects.attributes(object)?.into_iter().filter(|value| *value != 0);
    let numbers = numbers.filter(|value| objects.kind(*value).as_deref() == Some("int"));
    Some(numbers.filter_map(|number| objects.int(number)).collect())
}

/// `self` of a method without cells: the first variable.
fn receiver(objects: &Objects<'_>, at: &At) -> Option<u64> {
    let value = operands::variable(objects.memory, &objects.python.layout, at.frame.address, at.address, 0)?;
    Some(value & !TAG_BITS)
}
