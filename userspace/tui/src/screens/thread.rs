//! What threads are called.

use pyobs_model::views::role;
use pyobs_model::{Model, ProcessRef, Tid};

use crate::text;

/// Its name, and its role where it has one: `ucxx-0 progress`.
pub(super) fn thread_name(model: &Model, process: ProcessRef, tid: Tid) -> String {
    let thread = model.process(process).and_then(|state| state.threads.get(&tid));
    let name = text::head(thread.and_then(|thread| thread.name.as_deref()).unwrap_or("(no name)"), 512);
    match role(model, process, tid) {
        Some(role) => format!("{name} {}", role.name()),
        None => name.to_owned(),
    }
}

/// `4243 loader-0`.
pub(super) fn thread_label(model: &Model, process: ProcessRef, tid: Tid) -> String {
    format!("{tid} {}", thread_name(model, process, tid))
}
