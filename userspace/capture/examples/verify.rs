//! Loads every BPF program as on a kernel without `bpf_loop` and `bpf_find_vma` (before 5.17), and prints what the verifier made
//! of each: `cargo run --package pyobs-capture --example verify`, as root.

use pyobs_capture::kernel::features::Features;
use pyobs_capture::kernel::object::{Object, Wants};

fn main() {
    let old = Features { loops: false, find_vma: false };
    let mut object = Object::open(old, 0, Wants::default()).expect("the kernel takes the object");
    for program in object.verify() {
        match program.outcome {
            Ok(instructions) => println!("{:24} {:>9}", program.name, instructions.unwrap_or_default()),
            Err(error) => println!("{:24} {error}", program.name),
        }
    }
}
