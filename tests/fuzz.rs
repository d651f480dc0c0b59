//! Inputs that once broke what reads foreign bytes, and some others, in `tests/fuzz/corpus`: nothing breaks by them any more.

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
            // If it breaks, the last one that is named was it.
            println!("{}", input.display());
            let bytes = fs::read(&input).expect("it can be read");
            target(&bytes);
            // Cut off anywhere, it breaks nothing either.
            (0..bytes.len()).step_by(bytes.len() / 64 + 1).for_each(|end| target(&bytes[..end]));
        }
    };
    case(format!("{name}_breaks_by_no_input_that_is_known"), body)
}
