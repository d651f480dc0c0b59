//! Parses the format `folded`: `python3.12 (4242);main (app.py:31);<native> (libz.so.1);do_syscall_64 [kernel] 17`.

/// The name of a Python function whose name could not be read.
pub const UNREADABLE: &str = "<unreadable>";

/// One line of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    pub process: String,
    pub pid: u32,
    /// Root first.
    pub frames: Vec<Frame>,
    pub samples: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    pub function: String,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A Python frame, in an export with `--lines`.
    Line {
        file: String,
        line: u32,
    },
    /// A native frame's module, or a Python frame's file in an export without lines.
    File(String),
    Kernel,
}

impl Stack {
    /// The Python frames alone, as `(function, file, line)`, root first. A frame without a name has line 0.
    pub fn python(&self) -> Vec<(&str, &str, u32)> {
        let line = |frame: &Frame| match &frame.place {
            Place::Line { line, .. } => Some(*line),
            Place::File(_) => (frame.function == UNREADABLE).then_some(0),
            Place::Kernel => None,
        };
        self.frames.iter().filter_map(|frame| Some((frame.function.as_str(), frame.file(), line(frame)?))).collect()
    }

    /// Whether the stack has a function of this name.
    pub fn has(&self, function: &str) -> bool {
        self.frames.iter().any(|frame| frame.function == function)
    }
}

impl Frame {
    /// The file, the module, or "kernel".
    pub fn file(&self) -> &str {
        match &self.place {
            Place::Line { file, .. } | Place::File(file) => file,
            Place::Kernel => "kernel",
        }
    }
}

/// Panics at a line that does not match the grammar.
#[track_caller]
pub(crate) fn parse(text: &str) -> Vec<Stack> {
    text.lines().map(|line| stack(line).unwrap_or_else(|| panic!("not a folded stack: {line:?}"))).collect()
}

fn stack(line: &str) -> Option<Stack> {
    let (frames, samples) = line.rsplit_once(' ')?;
    let mut frames = frames.split(';');
    let process = frame(frames.next()?)?;
    let Place::File(pid) = &process.place else { return None };
    let pid = pid.parse().ok()?;
    let frames = frames.map(frame).collect::<Option<Vec<Frame>>>()?;
    Some(Stack { process: process.function, pid, frames, samples: samples.parse().ok()? })
}

fn frame(text: &str) -> Option<Frame> {
    if let Some(function) = text.strip_suffix(" [kernel]") {
        return Some(Frame { function: function.to_owned(), place: Place::Kernel });
    }
    let (function, place) = text.strip_suffix(')')?.rsplit_once(" (")?;
    let numbered = place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
    let place = match numbered {
        Some((file, line)) => Place::Line { file: file.to_owned(), line },
        None => Place::File(place.to_owned()),
    };
    Some(Frame { function: function.to_owned(), place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_frame_is_read() {
        let line = "python3.12 (42);f.<locals>.<lambda> (a b.py:31);<native> (libz.so.1);do_syscall_64 [kernel] 17";
        let [stack] = &parse(line)[..] else { panic!() };
        assert_eq!((stack.process.as_str(), stack.pid, stack.samples), ("python3.12", 42, 17));
        assert_eq!(stack.python(), [("f.<locals>.<lambda>", "a b.py", 31)]);
        assert_eq!(stack.frames[1].place, Place::File("libz.so.1".to_owned()));
        assert_eq!(stack.frames[2].place, Place::Kernel);
    }

    #[test]
    #[should_panic(expected = "not a folded stack")]
    fn a_line_outside_the_grammar_is_refused() {
        parse("python3.12 (42);main 3");
    }
}
