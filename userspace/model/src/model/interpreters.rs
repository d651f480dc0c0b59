//! Which native frames are the interpreter's own.

use std::collections::HashSet;
use std::sync::Arc;

use crate::{Frame, FrameId, FrameKind};

/// The interpreter loop (Python/ceval.c). Compilers add suffixes such as `.cold` to parts of it.
const LOOP: &str = "_PyEval_EvalFrameDefault";

/// Interpreter modules, known by their file name, or because the interpreter loop was seen in them, as in a program
/// that links CPython statically.
#[derive(Debug, Default)]
pub(super) struct Interpreters {
    modules: HashSet<Arc<str>>,
    /// Indexed by frame id.
    is_own: Vec<bool>,
}

impl Interpreters {
    pub(super) fn has(&self, frame: FrameId) -> bool {
        self.is_own.get(frame.0 as usize).copied().unwrap_or(false)
    }

    /// Classifies the last frame, which is new.
    pub(super) fn add(&mut self, frames: &[Frame]) {
        let Some(frame) = frames.last() else { return };
        let Some(module) = native_module(frame) else { return self.is_own.push(false) };
        let is_known = self.modules.contains(module);
        self.is_own.push(is_known);
        if !is_known && (is_interpreter_module(module) || frame.function.starts_with(LOOP)) {
            self.modules.insert(Arc::clone(module));
            for (frame, is_own) in frames.iter().zip(&mut self.is_own) {
                *is_own |= native_module(frame) == Some(module);
            }
        }
    }
}

fn native_module(frame: &Frame) -> Option<&Arc<str>> {
    frame.module.as_ref().filter(|_| frame.kind == FrameKind::Native)
}

/// Matches names such as `python3.12`, `python3.13t`, `python3.8-dbg` and `libpython3.8m.so.1.0`.
pub fn is_interpreter_module(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or(module);
    let (is_library, rest) = match name.strip_prefix("lib") {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let Some(rest) = rest.strip_prefix("python") else { return false };
    let (version, ending) = match rest.split_once(".so") {
        Some((version, ending)) if is_library => (version, ending),
        _ if is_library => return false,
        _ => (rest, ""),
    };
    let version = version.strip_suffix("-dbg").unwrap_or(version).trim_end_matches(['d', 'm', 't', 'u']);
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_number(version) && is_number(ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(function: &str, module: &str) -> Frame {
        Frame { module: Some(module.into()), ..Frame::new(FrameKind::Native, function.into()) }
    }

    #[test]
    fn interpreters_are_known_by_their_names() {
        let known = ["python", "python3", "python3.12", "python3.13t", "python3.8d", "python3.11-dbg", "python3.6m"];
        for name in known.into_iter().chain(["libpython3.8m.so.1.0", "libpython3.13t.so", "/usr/bin/python3.9"]) {
            assert!(is_interpreter_module(name), "{name}");
        }
        for name in
            ["libpython_helper.so", "python-config", "pythonw.py", "libc.so.6", "_multiarray.cpython-312.so", ""]
        {
            assert!(!is_interpreter_module(name), "{name}");
        }
    }

    #[test]
    fn a_module_with_the_loop_is_an_interpreter_from_its_first_frame_on() {
        let mut frames = Vec::new();
        let mut interpreters = Interpreters::default();
        for (function, module) in [("main", "app"), ("memcpy", "libc.so.6"), (LOOP, "app"), ("PyList_New", "app")] {
            frames.push(native(function, module));
            interpreters.add(&frames);
        }
        assert_eq!([0, 1, 2, 3].map(|id| interpreters.has(FrameId(id))), [true, false, true, true]);
    }
}
