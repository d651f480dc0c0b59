//! Greenlets: which function one began with.

use std::path::Path;
use std::sync::Arc;

use pyobs_abi::stack::walk;
use pyobs_model::Frame;

use crate::native::merge::greenlet_part;
use crate::pipeline::decode::Stack;
use crate::pipeline::processes::Watched;

/// The packages whose functions begin the greenlets of others.
const PACKAGES: [&str; 2] = ["gevent", "eventlet"];
/// Their files with the event loops, which run in a greenlet of their own.
const LOOPS: [&str; 2] = ["gevent/hub.py", "eventlet/hubs"];

/// Returns the function that the greenlet of a stack began with, at its first line. `None` if the stack is not a
/// greenlet's, or is that of an event loop.
pub fn first_function(stack: &Stack, watched: &Watched) -> Option<Frame> {
    let greenlet = watched.greenlet()?;
    let python = watched.python.as_deref()?;
    let one_each = python.layout.frame.owner.is_none();
    if stack.sample.walk != walk::COMPLETE {
        return None;
    }
    greenlet_part(&stack.native, stack.frames.len(), one_each, &greenlet)?;
    let mut outermost = None;
    for raw in stack.frames.iter().rev() {
        let code = watched.names.code(*raw)?;
        if code.is_interpreters() {
            continue;
        }
        let file = Path::new(&*code.file);
        if outermost.is_none() && is_loop(file) {
            return None;
        }
        let (function, line) = (Arc::clone(&code.function), Some(code.first_line));
        let frame = Frame::python(function, Arc::clone(&code.file), line, line);
        if !file.components().any(|part| PACKAGES.iter().any(|package| part.as_os_str() == *package)) {
            return Some(frame);
        }
        outermost.get_or_insert(frame);
    }
    outermost
}

fn is_loop(file: &Path) -> bool {
    LOOPS.iter().any(|end| file.ends_with(end) || file.parent().is_some_and(|folder| folder.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_loops_are_known_by_their_files() {
        assert!(is_loop(Path::new("/venv/site-packages/gevent/hub.py")));
        assert!(is_loop(Path::new("/venv/site-packages/eventlet/hubs/poll.py")));
        assert!(!is_loop(Path::new("/venv/site-packages/gevent/greenlet.py")));
        assert!(!is_loop(Path::new("/srv/hub.py")));
    }
}
