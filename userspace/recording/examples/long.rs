//! `long FILE STEPS` writes a recording of so many milliseconds, about 1 KB each, to measure what reads it.

#[path = "../tests/common/long.rs"]
mod long;
#[path = "../tests/common/meta.rs"]
mod meta;

use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, steps] = arguments.as_slice() else {
        eprintln!("long FILE STEPS");
        return;
    };
    let steps = steps.parse().expect("a number of steps");
    long::write(Path::new(file), steps).expect("a place to write");
    println!("{} bytes", std::fs::metadata(file).expect("the file").len());
}
