//! The words of `_Py_DebugOffsets`, one list for each minor version that changed them.

use super::version::Version;

type Group = (&'static str, &'static [&'static str]);

/// The words that pyobs needs, structure by structure.
pub(super) struct Words(&'static [Group]);

const HEADER: Group = ("header", &["cookie", "version", "free_threaded"]);
const RUNTIME: Group = ("runtime_state", &["size", "finalizing", "interpreters_head"]);
const OBJECT: Group = ("pyobject", &["size", "ob_type"]);
const SEQUENCE: &[&str] = &["size", "ob_item", "ob_size"];
const SET: Group = ("set_object", &["size", "used", "table", "mask"]);
const DICT: Group = ("dict_object", &["size", "ma_keys", "ma_values"]);
const FLOAT: Group = ("float_object", &["size", "ob_fval"]);
const LONG: Group = ("long_object", &["size", "lv_tag", "ob_digit"]);
const BYTES: Group = ("bytes_object", &["size", "ob_size", "ob_sval"]);
const TYPE: Group = ("type_object", &["size", "tp_name", "tp_repr", "tp_flags"]);

/// <https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h>, unchanged up to 3.13.18.
const V3_13: Words = Words(&[
    HEADER,
    RUNTIME,
    (
        "interpreter_state",
        &[
            "size",
            "id",
            "next",
            "threads_head",
            "gc",
            "imports_modules",
            "sysdict",
            "builtins",
            "ceval_gil",
            "gil_runtime_state",
            "gil_runtime_state_enabled",
            "gil_runtime_state_locked",
            "gil_runtime_state_holder",
        ],
    ),
    THREAD_3_13,
    ("interpreter_frame", &["size", "previous", "executable", "instr_ptr", "localsplus", "owner"]),
    (
        "code_object",
        &[
            "size",
            "filename",
            "name",
            "qualname",
            "linetable",
            "firstlineno",
            "argcount",
            "localsplusnames",
            "localspluskinds",
            "co_code_adaptive",
        ],
    ),
    OBJECT,
    TYPE,
    ("tuple_object", SEQUENCE),
    ("list_object", SEQUENCE),
    DICT,
    FLOAT,
    LONG,
    BYTES,
    ("unicode_object", &["size", "state", "length", "asciiobject_size"]),
]);

const THREAD_3_13: Group = (
    "thread_state",
    &["size", "prev", "next", "interp", "current_frame", "thread_id", "native_thread_id", "datastack_chunk", "status"],
);

const INTERPRETER_3_14: Group = (
    "interpreter_state",
    &[
        "size",
        "id",
        "next",
        "threads_head",
        "threads_main",
        "gc",
        "imports_modules",
        "sysdict",
        "builtins",
        "ceval_gil",
        "gil_runtime_state",
        "gil_runtime_state_enabled",
        "gil_runtime_state_locked",
        "gil_runtime_state_holder",
        "code_object_generation",
        "tlbc_generation",
    ],
);
const FRAME_3_14: Group = (
    "interpreter_frame",
    &["size", "previous", "executable", "instr_ptr", "localsplus", "owner", "stackpointer", "tlbc_index"],
);
const CODE_3_14: Group = (
    "code_object",
    &[
        "size",
        "filename",
        "name",
        "qualname",
        "linetable",
        "firstlineno",
        "argcount",
        "localsplusnames",
        "localspluskinds",
        "co_code_adaptive",
        "co_tlbc",
    ],
);

/// <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h>
const V3_14: Words = Words(&[
    HEADER,
    RUNTIME,
    INTERPRETER_3_14,
    THREAD_3_13,
    FRAME_3_14,
    CODE_3_14,
    OBJECT,
    TYPE,
    ("tuple_object", SEQUENCE),
    ("list_object", SEQUENCE),
    SET,
    DICT,
    FLOAT,
    LONG,
    BYTES,
    ("unicode_object", &["size", "state", "length", "asciiobject_size"]),
]);

/// Include/internal/pycore_debug_offsets.h of 3.15.
const V3_15: Words = Words(&[
    HEADER,
    RUNTIME,
    INTERPRETER_3_14,
    (
        "thread_state",
        &[
            "size",
            "prev",
            "next",
            "interp",
            "current_frame",
            "base_frame",
            "last_profiled_frame",
            "last_profiled_frame_seq",
            "thread_id",
            "native_thread_id",
            "datastack_chunk",
            "status",
            "holds_gil",
            "gil_requested",
            "current_exception",
            "exc_state",
        ],
    ),
    ("err_stackitem", &["exc_value"]),
    FRAME_3_14,
    CODE_3_14,
    OBJECT,
    ("type_object", &["size", "tp_name", "tp_repr", "tp_flags", "tp_basicsize", "tp_dictoffset"]),
    ("heap_type_object", &["size", "ht_cached_keys"]),
    ("tuple_object", SEQUENCE),
    ("list_object", SEQUENCE),
    SET,
    DICT,
    FLOAT,
    LONG,
    BYTES,
    ("unicode_object", &["size", "state", "length", "asciiobject_size", "compactunicodeobject_size"]),
]);

impl Words {
    /// A newer version is tried with the newest list; the checks show whether it fits.
    pub(super) fn of(version: Version) -> Option<&'static Self> {
        match (version.major, version.minor) {
            (3, 13) => Some(&V3_13),
            (3, 14) => Some(&V3_14),
            _ => version.since(15).then_some(&V3_15),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|(_, fields)| fields.len()).sum()
    }

    pub(super) fn index(&self, structure: &str, field: &str) -> Option<usize> {
        let mut start = 0;
        for (name, fields) in self.0 {
            if *name == structure {
                return Some(start + fields.iter().position(|name| *name == field)?);
            }
            start += fields.len();
        }
        None
    }
}
