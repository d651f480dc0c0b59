//! Offsets of the fields in CPython's structures that pyobs reads.
//!
//! One [`Layout`] describes an interpreter, wherever the numbers come from. Those for 3.6 to 3.12 are in
//! `offsets.toml`, which `cargo xtask offsets` generates from the debug information of real interpreters; it
//! is never edited by hand. For 3.13 and newer they come from the process itself (`debug_offsets.rs`), except
//! for some fields of the GIL ([`gil_of_newer`]). All numbers are byte offsets from the start of the
//! structure unless noted otherwise.

use super::version::Version;
use serde::Deserialize;
use std::sync::LazyLock;

/// The layouts of one interpreter's structures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Major and minor version: `[3, 8]`.
    pub version: [u8; 2],
    /// A build without the GIL (3.13+).
    #[serde(default)]
    pub free_threaded: bool,
    pub runtime: Runtime,
    pub interpreter: InterpreterState,
    pub thread_state: ThreadState,
    /// Set if the thread state points to a `_PyCFrame` instead of a frame (3.11 and 3.12).
    pub cframe: Option<CFrame>,
    pub frame: Frame,
    /// Empty if unknown (until 3.7).
    #[serde(default)]
    pub stack: Stack,
    pub code: Code,
    pub object: Object,
    pub unicode: Unicode,
    pub bytes: Bytes,
    /// `None` in 3.6, where its fields are separate variables, and if the process does not describe it.
    pub gil: Option<Gil>,
}

/// `_PyRuntimeState`, the type of `_PyRuntime` (3.7+). All fields are `None` in 3.6.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    pub size: Option<u32>,
    /// Points to the first `PyInterpreterState`.
    pub interpreters_head: Option<u32>,
    /// A `Py_tss_t`, `{ int is_initialized; pthread_key_t key; }`. `None` for 3.13+, because CPython's own
    /// table of offsets lacks it.
    pub auto_tss_key: Option<u32>,
    /// Points to the thread state that holds the GIL (until 3.11).
    pub tstate_current: Option<u32>,
    /// The [`Gil`] itself (until 3.11).
    pub gil: Option<u32>,
}

/// `PyInterpreterState`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterpreterState {
    pub size: u32,
    pub next: u32,
    pub id: Option<u32>,
    /// Points to the interpreter's first `PyThreadState`.
    pub threads_head: u32,
    /// Points to the names that all code sees; null until just before the interpreter runs its first code.
    pub builtins: u32,
    /// Points to the [`Gil`] that the interpreter's threads use: its own or the main interpreter's (3.12+).
    pub gil: Option<u32>,
    /// A counter that changes when code objects are freed (3.14+).
    pub code_object_generation: Option<u32>,
    /// A counter that changes when thread-local bytecode does (3.14+, free-threaded).
    pub tlbc_generation: Option<u32>,
}

/// `PyThreadState`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadState {
    pub size: u32,
    pub next: u32,
    pub interpreter: u32,
    /// Points to the innermost frame or, if the layout has a [`CFrame`], to that.
    pub frame: u32,
    /// `pthread_self()` of the thread.
    pub thread_id: u32,
    /// The kernel's thread id (3.11+).
    pub native_thread_id: Option<u32>,
}

/// `struct _gil_runtime_state`: the GIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gil {
    pub size: u32,
    /// What `_PyEval_GetSwitchInterval` returns (until 3.11, where it is needed).
    pub interval: Option<u32>,
    /// Points to the thread state that holds the GIL, or held it last.
    pub holder: u32,
    /// An int: 1 while a thread holds it, -1 before it is created.
    pub locked: u32,
    /// The condition variable on which threads wait for it.
    pub condition: u32,
    pub condition_size: u32,
    /// An int, 0 while the GIL is disabled (3.13+, free-threaded).
    pub enabled: Option<u32>,
}

/// `_PyCFrame`, which is on the C stack of the interpreter loop.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CFrame {
    pub current_frame: u32,
}

/// How a frame stores the instruction that it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Position {
    /// An int: the byte index of the last instruction started, -1 before the first (`f_lasti`, until 3.9).
    ByteIndex,
    /// An int: the same in code units of two bytes (`f_lasti`, 3.10).
    UnitIndex,
    /// A pointer to the last instruction started; before the first, one unit before the start of the bytecode
    /// (`prev_instr`, 3.11 and 3.12).
    PreviousPointer,
    /// A pointer to the instruction that is running or about to start; in a caller, to the call itself
    /// (`instr_ptr`, 3.13+).
    CurrentPointer,
}

/// `PyFrameObject` until 3.10, `_PyInterpreterFrame` since.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Number of bytes from the start that include every field listed here.
    pub header_size: u32,
    /// Points to the caller's frame.
    pub previous: u32,
    /// Points to the code object. A tagged reference in 3.14+: clear [`Frame::code_tags`] first.
    pub code: u32,
    /// The bits of the code reference that are not part of the address. 0 until 3.13.
    #[serde(default)]
    pub code_tags: u8,
    pub instruction: u32,
    pub position: Position,
    /// A byte that says who owns the frame's memory (3.11+).
    pub owner: Option<u32>,
    /// With this owner or a higher one, a frame is not a Python frame but marks an entry from C (3.12+: the
    /// shim pushed by `_PyEval_EvalFrameDefault`).
    pub shim_owner: Option<u8>,
    /// A bool: this frame was called by C, not by the loop (3.11).
    pub is_entry: Option<u32>,
    /// An int: the thread-local copy of the bytecode that contains the instruction (3.14+, free-threaded).
    pub tlbc_index: Option<u32>,
}

/// Where a frame's value stack is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// In the frame: points to the first value (until 3.10).
    pub pointer: Option<u32>,
    /// In the frame: the local variables, which the values follow (3.11+).
    pub locals: Option<u32>,
    /// In the code object: an int, the number of variables (3.11 and 3.12).
    pub local_count: Option<u32>,
    /// In the code object: points to the tuple of variable names (3.13+).
    pub local_names: Option<u32>,
    /// In the frame: points behind the last value. Null while the frame runs, except in calls of C (3.14+).
    #[serde(default)]
    pub end: Option<u32>,
}

/// `PyCodeObject`. The fields are pointers to objects, except the ints `argcount`, `posonlyargcount`,
/// `kwonlyargcount`, `flags` and `firstlineno`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Code {
    /// Size of the structure without bytecode.
    pub size: u32,
    pub argcount: u32,
    pub posonlyargcount: Option<u32>,
    pub kwonlyargcount: Option<u32>,
    pub flags: Option<u32>,
    pub firstlineno: u32,
    pub name: u32,
    /// 3.11+.
    pub qualname: Option<u32>,
    pub filename: u32,
    /// `co_lnotab` until 3.9, `co_linetable` since: three different formats.
    pub linetable: u32,
    /// A bytes object with the bytecode (until 3.10).
    pub bytecode: Option<u32>,
    /// Start of the bytecode itself (3.11+).
    pub code_adaptive: Option<u32>,
    /// Points to the array of thread-local copies of the bytecode (3.14+, free-threaded).
    pub tlbc: Option<u32>,
}

/// `PyObject` and `PyVarObject`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    pub size: u32,
    /// Points to the type.
    pub type_: u32,
}

/// `PyASCIIObject`, `PyCompactUnicodeObject` and `PyUnicodeObject`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unicode {
    /// In code points.
    pub length: u32,
    /// 32 bits of flags. The next three fields give bit positions in it, from the lowest.
    pub state: u32,
    /// Three bits: the bytes per code point, 1, 2 or 4.
    pub kind_shift: u8,
    /// One bit: the text follows the structure.
    pub compact_shift: u8,
    /// One bit: the text is ASCII.
    pub ascii_shift: u8,
    /// Start of the text of a compact ASCII string.
    pub ascii_data: u32,
    /// Start of the text of any other compact string.
    pub compact_data: u32,
}

/// `PyBytesObject`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bytes {
    /// In bytes.
    pub length: u32,
    pub data: u32,
}

#[derive(Deserialize)]
struct Table {
    layout: Vec<Entry>,
    supplement: Vec<Supplement>,
}

/// The generated entry of a version that describes itself; xtask compares the rest.
#[derive(Deserialize)]
struct Supplement {
    fields: Supplemented,
}

#[derive(Deserialize)]
struct Supplemented {
    gil: Gil,
}

#[derive(Deserialize)]
struct Entry {
    /// For xtask and human readers.
    #[expect(dead_code, reason = "its presence is what counts")]
    built_from: toml::Table,
    fields: Layout,
}

/// The layouts of ordinary builds, those of builds with `Py_TRACE_REFS`, and the GIL of 3.13.
static TABLE: LazyLock<(Vec<Layout>, Vec<Layout>, Gil)> = LazyLock::new(|| {
    let table: Table = toml::from_str(include_str!("offsets.toml")).expect("the tests parse the generated table");
    let gil = table.supplement.last().expect("the tests ask for it").fields.gil;
    let layouts: Vec<_> = table.layout.into_iter().map(|entry| entry.fields).collect();
    let traced = layouts.iter().cloned().map(Layout::with_trace_refs).collect();
    (layouts, traced, gil)
});

/// What `Py_TRACE_REFS` puts before the reference count of each object until 3.12: `_ob_next` and `_ob_prev`
/// (<https://github.com/python/cpython/blob/v3.12.0/Include/object.h>).
const TRACED_HEAD: u32 = 16;

impl Layout {
    /// Moves the fields of all objects behind the two pointers of a build with `Py_TRACE_REFS`.
    fn with_trace_refs(mut self) -> Self {
        let move_one = |field: &mut u32| *field += TRACED_HEAD;
        let move_some = |field: &mut Option<u32>| *field = field.map(|offset| offset + TRACED_HEAD);
        let frame_is_object = self.version < [3, 11];
        let Self { frame, stack, code, object, unicode, bytes, .. } = &mut self;
        for field in [&mut object.size, &mut object.type_, &mut bytes.length, &mut bytes.data] {
            move_one(field);
        }
        for field in [&mut unicode.length, &mut unicode.state, &mut unicode.ascii_data, &mut unicode.compact_data] {
            move_one(field);
        }
        let Code {
            size,
            argcount,
            posonlyargcount,
            kwonlyargcount,
            flags,
            firstlineno,
            name,
            qualname,
            filename,
            linetable,
            bytecode,
            code_adaptive,
            tlbc,
        } = code;
        for field in [size, argcount, firstlineno, name, filename, linetable] {
            move_one(field);
        }
        for field in [posonlyargcount, kwonlyargcount, flags, qualname, bytecode, code_adaptive, tlbc] {
            move_some(field);
        }
        move_some(&mut stack.local_count);
        if frame_is_object {
            for field in [&mut frame.header_size, &mut frame.previous, &mut frame.code, &mut frame.instruction] {
                move_one(field);
            }
            move_some(&mut stack.pointer);
        }
        self
    }
}

/// The GIL of 3.13, the newest version that the table was generated from. It supplies what `_Py_DebugOffsets`
/// lacks, for every version with such a table
/// (<https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_gil.h>, unchanged in 3.14).
pub fn gil_of_newer() -> &'static Gil {
    &TABLE.2
}

/// The layout of a release from 3.6 to 3.12. Within a minor version CPython keeps these structures unchanged,
/// except `_PyRuntimeState`, whose fields are checked against the interpreter's code (find.rs).
///
/// `Py_DEBUG` moves none of these fields, but implies `Py_TRACE_REFS` until 3.7.
pub fn layout_for(version: &Version, trace_refs: bool) -> Option<&'static Layout> {
    let table = if trace_refs { &TABLE.1 } else { &TABLE.0 };
    table.iter().find(|layout| layout.version == [version.major, version.minor])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_minor_once_and_its_fields_fit() {
        let minors: Vec<_> = TABLE.0.iter().map(|layout| layout.version).collect();
        assert_eq!(minors, (6..=12).map(|minor| [3, minor]).collect::<Vec<_>>());
        for layout in &TABLE.0 {
            let [major, minor] = layout.version;
            let version = Version::new(major, minor, 0);
            assert_eq!(layout_for(&version, false), Some(layout));
            assert_eq!(layout.cframe.is_some(), matches!(minor, 11 | 12), "{version}");
            assert_eq!(layout.runtime.auto_tss_key.is_some(), minor >= 7, "{version}");
            assert_eq!(layout.runtime.tstate_current.is_some(), (7..=11).contains(&minor), "{version}");
            assert_eq!(layout.code.qualname.is_some(), minor >= 11, "{version}");
            assert_eq!(layout.code.bytecode.is_some(), minor <= 10, "{version}");
            assert_eq!(layout.code.code_adaptive.is_some(), minor >= 11, "{version}");
            assert_eq!(layout.frame.is_entry.is_some(), minor == 11, "{version}");
            assert_eq!(layout.frame.shim_owner, (minor >= 12).then_some(3), "{version}");
            assert_eq!(layout.runtime.gil.is_some(), (7..=11).contains(&minor), "{version}");
            assert_eq!(layout.interpreter.gil.is_some(), minor == 12, "{version}");
            assert_eq!(layout.gil.is_some(), minor >= 7, "{version}");
            let traced = layout_for(&version, true).unwrap();
            assert!(traced.frame.header_size as usize <= pyobs_abi::process::FRAME_MAX, "{version}");
            assert!(layout.frame.previous + 8 <= layout.frame.header_size);
            assert!(layout.frame.instruction + 4 <= layout.frame.header_size);
            assert_eq!((layout.object.size, layout.object.type_), (16, 8));
            assert_eq!((layout.bytes.length, layout.bytes.data), (16, 32));
        }
        for gil in TABLE.0.iter().filter_map(|layout| layout.gil.as_ref()).chain([gil_of_newer()]) {
            // The kernel side and debug_offsets.rs rely on this order.
            assert!(gil.holder < gil.locked && gil.locked < gil.condition, "{gil:?}");
            assert!(gil.condition + gil.condition_size <= gil.size && gil.enabled.is_none(), "{gil:?}");
        }
        assert_eq!(layout_for(&Version::new(3, 13, 0), false), None);
        assert_eq!(layout_for(&Version::new(3, 13, 0), true), None);
        assert_eq!(layout_for(&Version::new(2, 7, 18), false), None);
    }
}
