//! Tests both drivers of the stack walk on this kernel: `bpf_loop`, and the bounded loop for kernels without it.

use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use pyobs_capture::session::{Options, Session, Walk};
use pyobs_model::{Event, Family, Outcome, Reason};
use pyobs_tests::{case, needs, options, run};

/// A Python program that spins at `depth` calls below its module.
struct Spinner(Child);

impl Spinner {
    fn start(depth: u32) -> Self {
        let source = format!(
            "import sys\nsys.setrecursionlimit(10000)\ndef down(n):\n  while not n: pass\n  down(n - 1)\ndown({depth})\n"
        );
        Self(Command::new("python3").args(["-c", &source]).stdin(Stdio::null()).spawn().expect("python3 starts"))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The outcomes and depths of the samples of two seconds.
fn walk(depth: u32, bounded: bool) -> Vec<(Outcome, usize)> {
    let spinner = Spinner::start(depth);
    std::thread::sleep(Duration::from_millis(500));
    let walk = if bounded { Walk::Bounded } else { Walk::Best };
    let options = Options { walk, ..options(spinner.0.id(), &[Family::Cpu], 500) };
    let mut session = Session::start(&options).expect("the session starts");
    let mut events = Vec::new();
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        session.poll(Duration::from_millis(100), &mut events).expect("records come");
    }
    session.finish(&mut events);
    let mut stacks = Vec::new();
    let mut samples = Vec::new();
    for event in events {
        match event {
            Event::Stack { frames, .. } => stacks.push(frames.len()),
            Event::Sample(sample) => {
                // Native frames are missing until the files' unwind tables are made; these cases are about Python
                // frames.
                let outcome = match sample.outcome {
                    Outcome::NativePartial(Reason::UnwindTableMissing) => Outcome::Complete,
                    outcome => outcome,
                };
                samples.push((outcome, stacks[sample.stack.0 as usize]));
            }
            _ => {}
        }
    }
    assert!(samples.len() > 20, "{} samples of a spinning program", samples.len());
    samples
}

#[track_caller]
fn assert_all(samples: &[(Outcome, usize)], outcome: Outcome, depth: usize) {
    let odd: Vec<_> = samples.iter().filter(|(got, frames)| *got != outcome || *frames < depth).collect();
    // A sample at a call or a return is one frame short.
    assert!(odd.len() * 100 <= samples.len(), "{} of {}: {odd:?}", odd.len(), samples.len());
}

fn main() -> ExitCode {
    let cases = vec![
        case("both_samplers_walk_thirty_frames_to_their_end", || {
            for bounded in [false, true] {
                assert_all(&walk(28, bounded), Outcome::Complete, 30);
            }
        }),
        case("deep_stacks_are_truncated_at_the_root_and_marked", || {
            for bounded in [false, true] {
                assert_all(&walk(1300, bounded), Outcome::Truncated, 1024);
            }
        }),
        case("a_thousand_frames_are_walked_to_their_end", || {
            for bounded in [false, true] {
                assert_all(&walk(1000, bounded), Outcome::Complete, 1002);
            }
        }),
    ];
    run(cases.into_iter().map(|case| case.needs(needs::root()).needs(needs::program("python3"))).collect())
}
