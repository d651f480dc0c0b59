//! Tests stacks at known points: the program writes down its Python frames and what C code calls them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::Command;

use pyobs_tests::{
    Case, Folder, Frame, Place, Python, Record, Recording, Stack, case, command, compare, executable, json, needs,
    plus_plus_library, workload,
};
use regex::Regex;
use serde_json::Value;

use super::{Known, are_fully_unwound, base, python_frames};

const RATE: u32 = 999;
const LOOP: &str = "_PyEval_EvalFrameDefault";

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Python::all().iter().map(at_known_points).collect();
    cases.extend(Python::all().iter().filter(|python| python.venv.is_some()).map(with_numpy));
    cases.extend(["3.8", "3.12"].map(in_an_embedder));
    cases.push(in_assembly());
    cases
}

fn at_known_points(python: &Python) -> Case {
    let name = format!("{}::stacks_match_what_the_program_says", python.name());
    let every = needs::every(python);
    let python = python.clone();
    let body = move || {
        let folder = Folder::new();
        let mut command = python.script(workload("points.py"));
        if python.root.is_none() && needs::program("c++").is_ok() {
            command.arg(plus_plus_library(&workload("points.cpp"), &folder));
        }
        let recording = are_as_it_says(command, &python);
        // Half of the run imports modules, whose code objects are short-lived.
        are_fully_unwound(&recording, 0.95);
    };
    case(name, body).needs(needs::root()).needs(every)
}

fn with_numpy(python: &Python) -> Case {
    let name = format!("{}::stacks_with_numpy_match_what_the_program_says", python.name());
    let (few, numpy) = (needs::few(python), needs::numpy(python));
    let python = python.clone();
    let body = move || {
        let equipped = Python { executable: needs::numpy(&python).unwrap(), ..python.clone() };
        let mut command = equipped.script(workload("points.py"));
        command.arg("numpy");
        are_as_it_says(command, &python);
    };
    case(name, body).needs(needs::root()).needs(few).needs(numpy)
}

/// C calls Python, which calls C, which calls Python, which calls C, which calls Python.
fn in_an_embedder(version: &str) -> Case {
    let name = format!("python{version}::stacks_in_an_embedder_match_what_the_program_says");
    let embeddable = needs::embeddable(version);
    let found = embeddable.clone();
    let body = move || {
        let (python, library) = found.clone().unwrap();
        let folder = Folder::new();
        let mut program = command(executable(&workload("embed.c"), &folder));
        program.arg(fs::canonicalize(library).unwrap()).arg(workload("points.py")).arg("0");
        program.env("PYTHONHOME", python.executable.parent().unwrap().parent().unwrap()).env("POINTS", "embedded");
        are_as_it_says(program, &python);
    };
    case(name, body).needs(needs::root()).needs(needs::compiler(&[])).needs(embeddable)
}

/// Functions written in assembly, with matching call frame information, lie above the leaf.
fn in_assembly() -> Case {
    let body = || {
        let python = needs::python("3.12").unwrap();
        let mut command = python.script(workload("points.py"));
        command.arg("hashed");
        are_as_it_says(command, &python);
    };
    case("stacks_through_hand_written_assembly_match_what_the_program_says", body)
        .needs(needs::root())
        .needs(needs::python("3.12"))
}

fn are_as_it_says(command: Command, python: &Python) -> Recording {
    let recording = Record::new().rate(RATE).command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let truth = json::parse(recording.stdout.lines().last().unwrap_or_default());
    agree(&recording, &points(&truth, python));
    recording
}

/// What must lie between a Python frame and its caller.
enum Via {
    /// The interpreter decides what lies between.
    Anything,
    Nothing,
    Called(Regex),
}

struct Point {
    name: String,
    cpu_s: f64,
    frames: Vec<Known>,
    vias: Vec<Via>,
    leaf: Regex,
    /// Module and exported function of each native frame, up to the last that called a Python function.
    native: Option<Vec<(String, Option<String>)>>,
}

fn points(truth: &Value, python: &Python) -> Vec<Point> {
    let pattern = |text: &str| Regex::new(text).unwrap();
    let via = |value: &Value| match value.as_str() {
        None => Via::Anything,
        // Before 3.11 each call of a Python function is also one of the C function that runs it.
        Some("") => {
            if python.minor() < 11 {
                Via::Anything
            } else {
                Via::Nothing
            }
        }
        Some(text) => Via::Called(pattern(text)),
    };
    let point = |point: &Value| {
        let frames: Vec<(String, String, u32, Value)> = serde_json::from_value(point["frames"].clone()).unwrap();
        Point {
            name: json::text(point, "/name").to_owned(),
            cpu_s: json::number(point, "/cpu_s"),
            vias: frames.iter().map(|(.., text)| via(text)).collect(),
            frames: frames.into_iter().map(|(function, file, line, _)| (function, base(&file), line)).collect(),
            leaf: pattern(json::text(point, "/leaf")),
            native: serde_json::from_value(point["native"].clone()).unwrap(),
        }
    };
    let points: Vec<Point> = json::list(truth, "/points").iter().map(point).collect();
    let scenarios = json::count(truth, "/scenarios") as usize;
    assert!(points.len() >= scenarios, "{scenarios} scenarios have {} points", points.len());
    points
}

fn agree(recording: &Recording, points: &[Point]) {
    let at: Known = points[0].frames.last().unwrap().clone();
    let busy = Regex::new("deflate").unwrap();
    let (mut seen, mut all) = (BTreeMap::<usize, u64>::new(), 0);
    let (mut wrong, mut count, mut early) = (Vec::new(), 0, 0);
    for stack in recording.stacks() {
        let frames = python_frames(&stack);
        let segments = segments(&stack);
        let is_busy = segments.last().is_some_and(|natives| natives.iter().any(|native| busy.is_match(native)));
        if frames.last() != Some(&at) && !is_busy {
            continue;
        }
        all += stack.samples;
        let same = (0..points.len()).filter(|index| points[*index].frames == frames);
        let verdicts: Vec<_> = same.map(|index| (index, misplaced(&segments, &points[index]))).collect();
        let is_early = !verdicts.is_empty() && verdicts.iter().all(|(_, why)| matches!(why, Some(Misplaced::Leaf)));
        match verdicts.iter().find(|(_, verdict)| verdict.is_none()) {
            Some((index, _)) => *seen.entry(*index).or_default() += stack.samples,
            // The sample was taken on the way into the C function, or out of it.
            None if is_early => early += stack.samples,
            None => {
                let whys: Vec<String> = verdicts.into_iter().filter_map(|(_, why)| Some(why?.to_string())).collect();
                let frames: Vec<String> = stack.frames.iter().map(shown).collect();
                wrong.push(format!("{} {whys:?}: {}", stack.samples, frames.join("; ")));
                count += stack.samples;
            }
        }
    }
    assert!(early * 200 <= all, "{early} of {all} stacks are not in the C function that the program runs");
    let wrong = wrong.join("\n");
    assert!(count * 1000 <= all, "{count} of {all} stacks are not what the program says:\n{wrong}");
    for (index, point) in points.iter().enumerate() {
        // Points with the same frames cannot be told apart.
        let samples: u64 =
            seen.iter().filter(|(other, _)| points[**other].frames == point.frames).map(|(_, n)| n).sum();
        let least = point.cpu_s * f64::from(RATE) * 0.5;
        compare::at_least(&format!("samples at {} {index}: {:?}", point.name, point.frames), samples as f64, least);
    }
}

/// The native frames before, between and after the Python frames, without the kernel's.
fn segments(stack: &Stack) -> Vec<Vec<String>> {
    let mut segments = vec![Vec::new()];
    for frame in &stack.frames {
        match &frame.place {
            Place::Line { .. } => segments.push(Vec::new()),
            _ => segments.last_mut().unwrap().push(shown(frame)),
        }
    }
    let kernel = |text: &String| text.ends_with("[kernel]");
    let last = segments.last_mut().unwrap();
    let user = last.iter().rposition(|text| !kernel(text)).map_or(0, |index| index + 1);
    last.truncate(user);
    segments
}

fn shown(frame: &Frame) -> String {
    match &frame.place {
        Place::Kernel => format!("{} [kernel]", frame.function),
        Place::Line { line, .. } => format!("{} ({}:{line})", frame.function, frame.file()),
        Place::File(_) => format!("{} ({})", frame.function, frame.file()),
    }
}

/// Which native frames differ from what the program says.
enum Misplaced {
    Root,
    Between(String),
    Native(String),
    Leaf,
}

impl fmt::Display for Misplaced {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => write!(to, "the root"),
            Self::Between(what) | Self::Native(what) => write!(to, "{what}"),
            Self::Leaf => write!(to, "the leaf"),
        }
    }
}

fn misplaced(segments: &[Vec<String>], point: &Point) -> Option<Misplaced> {
    let has = |natives: &[String], pattern: &Regex| {
        // An interpreter without symbols has unnamed functions.
        natives.iter().any(|native| pattern.is_match(native) || native.starts_with("<native> (python"))
    };
    let root = Regex::new("libc|ld-linux").unwrap();
    if !segments[0].iter().any(|native| root.is_match(native)) {
        return Some(Misplaced::Root);
    }
    for (index, via) in point.vias.iter().enumerate() {
        let natives = &segments[index];
        let right = match via {
            Via::Anything => true,
            Via::Nothing => natives.is_empty(),
            Via::Called(pattern) => has(natives, pattern),
        };
        if !right || natives.iter().any(|native| native.ends_with("[kernel]")) {
            return Some(Misplaced::Between(format!("{}: what calls {:?}", point.name, point.frames[index])));
        }
    }
    if let Some(native) = &point.native
        && !is_native_half(&segments[..point.vias.len()].concat(), native)
    {
        return Some(Misplaced::Native(format!("{}: the native frames are not {native:?}", point.name)));
    }
    (!has(&segments[point.vias.len()], &point.leaf)).then_some(Misplaced::Leaf)
}

/// Whether native frames go through the same files in the same order, and include the known functions in order. There
/// may be more, because not all functions are exported and some are inlined.
fn is_native_half(shown: &[String], known: &[(String, Option<String>)]) -> bool {
    let shown: Vec<(&str, &str)> = shown.iter().filter_map(|text| text.strip_suffix(')')?.rsplit_once(" (")).collect();
    let mut files: Vec<&str> = shown.iter().map(|(_, file)| *file).collect();
    files.dedup();
    // The interpreter that runs the last Python function comes after its caller.
    files.pop();
    let mut known_files: Vec<&str> = known.iter().map(|(file, _)| file.as_str()).collect();
    known_files.dedup();
    let mut left = shown.iter();
    // A function may have several names.
    let mut is_next = |function: &str| left.any(|(name, _)| name.contains(function));
    // Python frames replace the interpreter's loop.
    let known = known.iter().filter_map(|(_, function)| function.as_deref());
    files == known_files && known.filter(|function| *function != LOOP).all(&mut is_next)
}
