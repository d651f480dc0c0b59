//! What writing a real recording costs: `rewrite FROM TO SECONDS` writes the last so many seconds of one again, each
//! event at its time, and prints the writing thread's share of a core. What has no time (names, stacks, processes) is
//! written first; it counts by the length of the whole recording, in which it came.

use std::path::Path;
use std::time::{Duration, Instant};

use pyobs_model::{Event, Nanos};
use pyobs_recording::{Reader, Writer};
use rustix::time::{ClockId, clock_gettime};

/// As capture appends.
const BATCH: Duration = Duration::from_millis(250);

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What this takes of the thread's time.
fn cost(work: impl FnOnce()) -> f64 {
    let before = cpu();
    work();
    cpu() - before
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let seconds = arguments.get(3).and_then(|text| text.parse::<u64>().ok());
    let (Some(from), Some(to), Some(seconds)) = (arguments.get(1), arguments.get(2), seconds) else {
        eprintln!("rewrite FROM TO SECONDS");
        return;
    };
    let mut reader = Reader::open(Path::new(from)).expect("a recording");
    let mut writer = Writer::create(Path::new(to), reader.meta()).expect("a place to write");
    let (mut timeless, mut timed) = (Vec::new(), Vec::new());
    let mut end = Nanos(0);
    reader
        .replay(|event| match event.at() {
            Some(at) => {
                end = end.max(at);
                timed.push((at, event));
            }
            None => timeless.push(event),
        })
        .expect("a recording that can be read");
    let start = end.0.saturating_sub(seconds * 1_000_000_000);
    timed.retain(|(at, _)| at.0 >= start);

    let names = cost(|| writer.append(&timeless).expect("room"));
    let begun = Instant::now();
    let mut events = timed.into_iter().peekable();
    let mut writing = 0.0;
    let batches = seconds * 1000 / BATCH.as_millis() as u64;
    for batch in 1..=batches {
        let until = start + batch * BATCH.as_nanos() as u64;
        let due: Vec<Event> =
            std::iter::from_fn(|| events.next_if(|(at, _)| at.0 < until)).map(|(_, event)| event).collect();
        std::thread::sleep((begun + BATCH * batch as u32).saturating_duration_since(Instant::now()));
        writing += cost(|| writer.append(&due).expect("room"));
    }
    writing += cost(|| writer.finish().expect("room"));
    let share = names / (end.0 as f64 / 1e9).max(1.0) + writing / begun.elapsed().as_secs_f64();
    println!("{share}");
}
