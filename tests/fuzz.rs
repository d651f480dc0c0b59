//! Replays the fuzz corpus in `tests/fuzz/corpus`: inputs that once broke a decoder, and some others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pyobs_tests::fuzz::targets;
use pyobs_tests::{Case, case, run};

fn main() -> ExitCode {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    run(targets().map(|(name, target)| replayed(name, target, corpus.join(name))).collect())
}

fn replayed(name: &str, target: fn(&[u8]), folder: PathBuf) -> Case {
    let body = move || {
        let mut inputs: Vec<PathBuf> =
            fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{} is empty", folder.display());
        for input in inputs {
            // If the target crashes, the last name printed is the input that did it.
            println!("{}", input.display());
            let bytes = fs::read(&input).expect("the input can be read");
            target(&bytes);
            // Truncated inputs must not break it either.
            (0..bytes.len()).step_by(bytes.len() / 64 + 1).for_each(|end| target(&bytes[..end]));
        }
    };
    case(format!("{name}_breaks_by_no_input_that_is_known"), body)
}
