//! Native frames of threads that do not run, joined with their Python frames.

use std::sync::Arc;

use pyobs_abi::process::entry;
use pyobs_abi::stack::{loop_word, native, native_address};
use pyobs_model::dump::NativeState;
use pyobs_model::views::Native;
use pyobs_model::{Frame, FrameKind, is_interpreter_module};

use super::frames::{Frames, Outcome};
use super::process::{Process, Python};
use crate::native::merge::{Halves, Merged, greenlet_part, merge};
use crate::native::names::NAMELESS;
use crate::native::walk::{Files, Stack};
use crate::process_maps::Module;

pub struct Natives {
    pub files: Files,
    /// Which frames are shown.
    pub shown: Native,
}

impl Natives {
    /// Returns the frames of a thread, the innermost first.
    pub fn joined(
        &mut self,
        process: &Process,
        python: Option<&Python>,
        stack: &Stack,
    ) -> (Vec<Frame>, Option<NativeState>) {
        let layout = &process.attachment.layout;
        let one_each = layout.entry == entry::EACH;
        let (mut words, mut is_complete) = (stack.words.clone(), stack.outcome == native::COMPLETE);
        let named = python.map_or(&[][..], |python| &python.named);
        if let Some(python) = python {
            count_frames(&mut words, stack, &python.frames);
            let greenlet = process.mappings.greenlet();
            let own = greenlet.and_then(|code| greenlet_part(&words, named.len(), one_each, &code));
            if let Some(own) = own {
                words.truncate(own);
                is_complete = true;
            }
        }
        let halves = Halves {
            one_each,
            native_complete: is_complete,
            python_truncated: python.is_some_and(|python| python.frames.outcome == Outcome::Truncated),
        };
        let mut merged = Vec::new();
        let fits = merge(&words, named.len(), halves, &mut merged);
        let mut frames = Vec::new();
        for frame in merged {
            match frame {
                Merged::Python(number) => frames.extend(named[number].clone()),
                Merged::Native(number) => self.native(process, native_address(words[number]), &mut frames),
            }
        }
        let is_python = |frame: &Frame| frame.kind == FrameKind::Python;
        if frames.iter().any(is_python) {
            frames.retain(|frame| match self.shown {
                Native::Full => true,
                Native::Libraries => is_python(frame) || !is_interpreter(process, frame),
                Native::None => is_python(frame),
            });
        }
        (frames, Some(if fits && is_complete { NativeState::Complete } else { NativeState::Partial }))
    }

    /// Adds the functions at an address, the innermost first.
    fn native(&mut self, process: &Process, address: u64, frames: &mut Vec<Frame>) {
        let mapping = process.mappings.find(address);
        let Module { name, package } = mapping.map_or_else(Module::unknown, Module::of);
        let frame = |function| Frame {
            module: Some(Arc::clone(&name)),
            package: package.clone(),
            ..Frame::new(FrameKind::Native, function)
        };
        let names = mapping.map(|mapping| self.files.names(process.pid, mapping, address)).unwrap_or_default();
        if names.is_empty() {
            frames.push(frame(Arc::from(NAMELESS)));
        }
        frames.extend(names.into_iter().rev().map(|name| Frame {
            file: name.file,
            line: name.line,
            ..frame(name.function)
        }));
    }
}

/// Notes how many Python frames each C frame of the interpreter's loop runs.
fn count_frames(words: &mut [u64], stack: &Stack, frames: &Frames) {
    let mut runs = frames.runs.iter().peekable();
    for (index, start, end) in &stack.loops {
        // From 3.12 on, the C frame has the shim that ends its run.
        let is_own = |run: &&(u32, u64)| run.1 == 0 || (*start..*end).contains(&run.1);
        let count = runs.next_if(is_own).map_or(0, |run| run.0);
        words[*index] = loop_word(native_address(words[*index]), count);
    }
}

fn is_interpreter(process: &Process, frame: &Frame) -> bool {
    let of_loop = process.mappings.find(process.attachment.process.loops[0][0]);
    let Some(module) = &frame.module else { return false };
    is_interpreter_module(module) || of_loop.is_some_and(|mapping| mapping.name == *module)
}
