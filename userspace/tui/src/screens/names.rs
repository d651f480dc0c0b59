//! Display names of frames, processes and threads.

use pyobs_model::views::{By, Group, group_name, role};
use pyobs_model::{Frame, FrameKind, Model, Pid, ProcessRef, Tid};

use crate::filter::Filter;
use crate::paint::RowPainter;
use crate::text;
use crate::theme::Theme;

pub(super) fn matches(frame: &Frame, filter: &Filter) -> bool {
    let of = |text: &Option<std::sync::Arc<str>>| text.as_deref().is_some_and(|text| filter.matches(text));
    filter.matches(&frame.function) || of(&frame.file) || of(&frame.module)
}

/// The function's name. A prefix marks native and kernel frames, because not everyone can tell them by colour.
pub(super) fn name(frame: &Frame) -> String {
    let mark = match frame.kind {
        FrameKind::Python => "",
        FrameKind::Native => "n:",
        FrameKind::Kernel => "k:",
    };
    format!("{mark}{}", text::head(&frame.function, 4096))
}

/// Draws the function and its place, as the last two columns of a row.
pub(super) fn draw_frame(row: &mut RowPainter<'_>, width: usize, frame: &Frame, by: By, theme: Theme) {
    row.left(width, &name(frame), theme.kind(frame.kind));
    row.rest_of_path(&place(frame, by), theme.dim());
}

/// A frame's file and line, or else its module.
pub(super) fn place(frame: &Frame, by: By) -> String {
    let line = match by {
        By::Line => frame.line,
        By::Function => frame.first_line.or(frame.line),
    };
    // The end of a path matters most, and no screen is wider than this.
    let tail = |text: &str| text[text.ceil_char_boundary(text.len().saturating_sub(4096))..].to_owned();
    match (&frame.file, line, &frame.module) {
        (Some(file), Some(line), _) => format!("{}:{line}", tail(file)),
        (Some(file), None, _) => tail(file),
        (None, _, Some(module)) => format!("[{}]", tail(module)),
        (None, _, None) if frame.kind == FrameKind::Kernel => "[kernel]".to_owned(),
        (None, _, None) => "–".to_owned(),
    }
}

pub(crate) fn process_label(model: &Model, process: Option<ProcessRef>) -> String {
    match process.and_then(|process| model.process(process)) {
        Some(state) => {
            format!("{} {}", state.process.pid, text::head(text::command(&state.process.command), 4096))
        }
        None => "(unknown process)".to_owned(),
    }
}

/// A process, or the group that it stands for.
pub(crate) fn group_label(model: &Model, group: Group, process: ProcessRef) -> String {
    let name = group.merges_processes().then(|| group_name(model, group, process)).flatten();
    name.map_or_else(|| process_label(model, Some(process)), |name| text::head(&name, 512).to_owned())
}

/// The latest process with this pid.
pub(super) fn process_of(model: &Model, pid: Pid) -> Option<ProcessRef> {
    model.processes_of(pid).next_back().map(|(id, _)| id)
}

/// A thread's name, and its role if it has one: `ucxx-0 progress`.
pub(super) fn thread_name(model: &Model, process: ProcessRef, tid: Tid) -> String {
    let thread = model.process(process).and_then(|state| state.threads.get(&tid));
    let name = text::head(thread.and_then(|thread| thread.name.as_deref()).unwrap_or("(no name)"), 512);
    match role(model, process, tid) {
        Some(role) => format!("{name} {}", role.name()),
        None => name.to_owned(),
    }
}

/// `4243 loader-0`, or the group that all its threads are in.
pub(super) fn waiter_label(model: &Model, group: Group, process: ProcessRef, tid: Tid) -> String {
    if tid == Tid(0) { group_label(model, group, process) } else { thread_label(model, process, tid) }
}

/// `4243 loader-0`.
pub(super) fn thread_label(model: &Model, process: ProcessRef, tid: Tid) -> String {
    format!("{tid} {}", thread_name(model, process, tid))
}
