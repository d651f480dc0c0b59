//! Reads values of a JSON document by pointer ("/stacks/samples"). A missing one fails the case and shows the document.

use serde_json::Value;

#[track_caller]
pub fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} is not a number in {value:#}"))
}

#[track_caller]
pub fn count(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} is not a count in {value:#}"))
}

#[track_caller]
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.unwrap_or_else(|| panic!("{pointer} is not a list in {value:#}"))
}

#[track_caller]
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer} is not a string in {value:#}"))
}

/// A document that a program printed.
#[track_caller]
pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON: {error}\n{text}"))
}
