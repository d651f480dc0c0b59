//! The fuzzer's program: runs the target that `PYOBS_FUZZ_TARGET` names.

#![no_main]

#[path = "../../src/fuzz.rs"]
mod fuzz;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("PYOBS_FUZZ_TARGET").expect("`cargo xtask fuzz` names a target");
    fuzz::targets().find(|(name, _)| *name == wanted).expect("the target exists").1
});

fuzz_target!(|input: &[u8]| TARGET(input));
