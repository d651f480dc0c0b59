//! What a recording costs: `cost live FILE SECONDS RATE` appends at a pace, as capture does; `cost bulk FILE SAMPLES`
//! as fast as it can, for the size and the time of reading.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Program, meta};
use pyobs_recording::{Reader, Writer};
use rustix::time::{ClockId, clock_gettime};

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(mode), Some(path), Some(amount)) = (arguments.get(1), arguments.get(2), number(3)) else {
        eprintln!("cost live FILE SECONDS RATE | cost bulk FILE SAMPLES");
        return;
    };
    let path = Path::new(path);
    let mut program = Program::new(1, 20, 30);
    let mut writer = Writer::create(path, &meta()).expect("a place to write");
    writer.append(&program.start()).expect("room");
    let (begun, before) = (Instant::now(), cpu());
    let rate = number(4).unwrap_or(200);
    let (rounds, batch) = if mode == "live" { (amount * 10, rate / 10) } else { (amount / 20, 20) };
    let mut making = 0.0;
    for round in 0..rounds {
        let mut events = Vec::new();
        let start = cpu();
        for _ in 0..batch {
            program.sample(1_000_000_000 / rate, &mut events);
        }
        making += cpu() - start;
        writer.append(&events).expect("room");
        if mode == "live" {
            std::thread::sleep(Duration::from_millis((round + 1) * 100).saturating_sub(begun.elapsed()));
        }
    }
    writer.finish().expect("room");
    let (wall, used, samples) = (begun.elapsed().as_secs_f64(), cpu() - before - making, rounds * batch);
    let size = std::fs::metadata(path).expect("the file").len();
    println!("{samples} samples in {wall:.1} s: {:.2} % of a core", used / wall * 100.0);
    println!("{:.2} ms of CPU for 1,000 samples", used * 1e6 / samples as f64);
    println!("{size} bytes, {:.1} for a sample", size as f64 / samples as f64);
    let begun = Instant::now();
    let model = Reader::open(path).and_then(|mut reader| reader.model(None, None)).expect("a recording");
    println!("read in {:.2} s: {} samples", begun.elapsed().as_secs_f64(), model.cpu().total());
}
