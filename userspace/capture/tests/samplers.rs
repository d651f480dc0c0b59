//! Both drivers of the walk, on this kernel: `bpf_loop` and the bounded loop for kernels that lack it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pyobs_capture::session::{Options, Session, StartError, Targets};
use pyobs_model::{Event, Outcome};

/// A Python program that spins at `depth` calls below its module.
struct Spinner(Child);

impl Spinner {
    fn start(depth: u32) -> Option<Self> {
        let source = format!(
            "import sys\nsys.setrecursionlimit(10000)\ndef down(n):\n  while not n: pass\n  down(n - 1)\ndown({depth})\n"
        );
        let spinner = Command::new("python3").args(["-c", &source]).stdin(Stdio::null()).spawn();
        spinner.ok().map(Self)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Outcomes of the samples of two seconds, and their depths; `None` where this machine cannot be watched.
fn walk(depth: u32, bounded_walk: bool) -> Option<Vec<(Outcome, usize)>> {
    let Some(spinner) = Spinner::start(depth) else {
        println!("skipped: there is no python3");
        return None;
    };
    std::thread::sleep(Duration::from_millis(500));
    let options = Options {
        targets: Targets::Pids(vec![spinner.0.id()]),
        rate_hz: 500,
        probes: vec!["cpu"],
        budget: 100.0,
        budget_binds_rate: false,
        bounded_walk,
    };
    let mut session = match Session::start(&options) {
        Err(StartError::NoRights) => {
            println!("skipped: watching needs root");
            return None;
        }
        session => session.unwrap(),
    };
    let mut events = Vec::new();
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        session.poll(Duration::from_millis(100), &mut events).unwrap();
    }
    session.finish(&mut events);
    let mut stacks = Vec::new();
    let mut samples = Vec::new();
    for event in events {
        match event {
            Event::Stack { frames, .. } => stacks.push(frames.len()),
            Event::Sample(sample) => samples.push((sample.outcome, stacks[sample.stack.0 as usize])),
            _ => {}
        }
    }
    assert!(samples.len() > 20, "{} samples of a spinning program", samples.len());
    Some(samples)
}

#[track_caller]
fn assert_all(samples: &[(Outcome, usize)], outcome: Outcome, depth: usize) {
    let odd: Vec<_> = samples.iter().filter(|(got, frames)| *got != outcome || *frames < depth).collect();
    // A thread that is just being entered or left is one frame short.
    assert!(odd.len() * 100 <= samples.len(), "{} of {}: {odd:?}", odd.len(), samples.len());
}

#[test]
fn both_samplers_walk_thirty_frames_to_their_end() {
    for bounded in [false, true] {
        let Some(samples) = walk(28, bounded) else { return };
        assert_all(&samples, Outcome::Complete, 30);
    }
}

#[test]
fn deep_stacks_are_cut_at_the_root_and_say_so() {
    let Some(samples) = walk(1000, false) else { return };
    assert_all(&samples, Outcome::Truncated, 512);
    let Some(samples) = walk(200, true) else { return };
    assert_all(&samples, Outcome::Truncated, 90);
}

#[test]
fn five_hundred_frames_are_walked_to_their_end() {
    let Some(samples) = walk(498, false) else { return };
    assert_all(&samples, Outcome::Complete, 500);
}
