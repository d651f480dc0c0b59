//! Tests the names of native functions: those that debug information gives inlined calls, and those that programs give
//! the code they generate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use object::{Object, ObjectSymbol};
use pyobs_tests::{
    Case, Folder, Place, Record, Recording, Workload, case, compare, json, needs, shared_library, shared_library_named,
    workload,
};
use serde_json::Value;

const RATE: u32 = 999;

pub fn cases() -> Vec<Case> {
    vec![
        case("inlined_calls_have_the_names_and_lines_of_the_debug_information", inlined)
            .needs(needs::root())
            .needs(needs::python("3.12"))
            .needs(needs::compiler(&["-g"]))
            .needs(needs::program("addr2line")),
        case("generated_code_has_the_names_of_its_perf_map", made_code)
            .needs(needs::root())
            .needs(needs::python("3.12"))
            .needs(needs::compiler(&[])),
    ]
}

/// Functions and their lines, outermost first.
type Chain = Vec<(String, Option<u64>)>;

const CALLER: &str = "\
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
while time.thread_time() < 1: library.outermost(ctypes.c_ulong(1 << 20))
";

fn inlined() {
    let folder = Folder::new();
    let library = shared_library_named(&workload("inlined.c"), &folder.join("inlined.so"), &["-O2", "-g"]);
    let known = chains(&library, "outermost");
    let mut command = needs::python("3.12").unwrap().inline(CALLER);
    command.arg(&library);
    let recording = Record::new().rate(RATE).argument("--probe").argument("cpu").command(command).run();
    assert!(recording.status.success(), "{}", recording.stderr);
    let (mut deepest, mut all) = (0.0, 0.0);
    let mut wrong = BTreeMap::<Chain, f64>::new();
    for (chain, weight) in from(&recording, "outermost") {
        let functions: Vec<&str> = chain.iter().map(|(function, _)| function.as_str()).collect();
        all += weight;
        deepest += if functions == ["outermost", "middle", "innermost"] { weight } else { 0.0 };
        if !known.contains(&chain) {
            *wrong.entry(chain).or_default() += weight;
        }
    }
    assert!(wrong.is_empty(), "chains unknown to addr2line, with seconds: {wrong:#?}\n{known:#?}");
    compare::at_least("seconds in the function", all, 0.5);
    compare::at_least("of these in the innermost", deepest, all * 0.95);
}

/// The chains that addr2line gives for every address of a function.
fn chains(library: &Path, function: &str) -> BTreeSet<Chain> {
    let bytes = fs::read(library).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(function)).unwrap();
    let mut addr2line = Command::new("addr2line");
    addr2line.args(["-a", "-f", "-i", "-e"]).arg(library).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut addr2line = addr2line.spawn().unwrap();
    let addresses: String =
        (symbol.address()..symbol.address() + symbol.size()).map(|address| format!("{address:#x}\n")).collect();
    addr2line.stdin.take().unwrap().write_all(addresses.as_bytes()).unwrap();
    let output = String::from_utf8(addr2line.wait_with_output().unwrap().stdout).unwrap();
    // The output has an address, then two lines for each function, innermost first: its name and its place.
    let chain = |output: &str| {
        let lines: Vec<&str> = output.lines().skip(1).collect();
        let line = |place: &str| place.rsplit(':').next()?.split(' ').next()?.parse().ok().filter(|line| *line > 0);
        let frames = lines.chunks_exact(2).rev().map(|frame| (frame[0].to_owned(), line(frame[1])));
        frames.collect()
    };
    output.split("\n0x").map(chain).collect()
}

/// The parts of stacks from a function on, with their seconds.
fn from(recording: &Recording, function: &str) -> Vec<(Chain, f64)> {
    let document = json::parse(&recording.export("speedscope", &["--lines"]));
    let frames = json::list(&document, "/shared/frames");
    let frame = |number: &Value| {
        let frame = &frames[number.as_u64().unwrap() as usize];
        (json::text(frame, "/name").to_owned(), frame["line"].as_u64())
    };
    let stack = |numbers: &Value| {
        let stack = numbers.as_array().unwrap().iter().map(frame).filter(|(name, _)| !name.ends_with("[kernel]"));
        stack.skip_while(|(name, _)| name != function).collect::<Chain>()
    };
    let profiles = json::list(&document, "/profiles").iter();
    let all = profiles.flat_map(|profile| {
        let weights = json::list(profile, "/weights").iter().map(|weight| weight.as_f64().unwrap());
        json::list(profile, "/samples").iter().map(stack).zip(weights)
    });
    all.filter(|(chain, _)| !chain.is_empty()).collect()
}

fn made_code() {
    let folder = Folder::new();
    let mut command = needs::python("3.12").unwrap().inline("import ctypes, sys; ctypes.CDLL(sys.argv[1]).run()");
    command.arg(shared_library(&workload("made_code.c"), &folder));
    let (recording, names) = with_map(command);
    let mut seen = BTreeMap::<Vec<&str>, u64>::new();
    let stacks = recording.stacks();
    for stack in &stacks {
        let functions = stack.frames.iter().filter(|frame| frame.place != Place::Kernel).map(|frame| &*frame.function);
        *seen.entry(functions.skip_while(|function| *function != "run").skip(1).collect()).or_default() +=
            stack.samples;
    }
    let all: u64 = seen.values().sum();
    let of = |names: &[String]| seen.get(&names.iter().map(String::as_str).collect::<Vec<_>>()).copied().unwrap_or(0);
    compare::at_least("samples", all as f64, 20.0);
    compare::at_least(&format!("samples in the inner one: {seen:?}"), of(&names) as f64, all as f64 * 0.6);
    compare::at_least(&format!("samples in the outer one: {seen:?}"), of(&names[..1]) as f64, all as f64 * 0.1);
}

/// Records a program that prints "ready"; also returns the names in its perf map.
fn with_map(command: Command) -> (Recording, Vec<String>) {
    let mut program = Workload::start(command);
    program.wait_for("ready");
    let pid = program.pid();
    let recording = Record::new().rate(RATE).argument("--probe").argument("cpu").pid(pid).seconds(2.0).run();
    program.kill();
    let path = format!("/tmp/perf-{pid}.map");
    let map = fs::read_to_string(&path).unwrap();
    fs::remove_file(path).unwrap();
    // Each line has an address, a size and a name.
    (recording, map.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap().to_owned()).collect())
}
