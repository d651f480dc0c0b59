//! What the fuzzer calls: the parts of a dump that parse untrusted bytes.

use super::frames::Frames;
use super::{files, tcp, threads};
use crate::containers::Group;
use crate::cpython::attached::kernel_layout;
use crate::cpython::offsets::Layout;
use crate::memory::Memory;

/// Walks the frames of a thread state.
pub fn frames_of(memory: &impl Memory, layout: &Layout, state: u64) {
    if let Some(layout) = kernel_layout(layout, layout.gil) {
        Frames::of(memory, &layout, state);
    }
}

/// Parses a text as each of the files of /proc.
pub fn files_of(text: &str) {
    threads::parse_all(text);
    files::parse_all(text);
    tcp::parse_all(text);
    let _ = Group::parse(text).and_then(|group| group.container());
}
