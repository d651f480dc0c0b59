//! Why the kernel refuses a program: reduces the verifier's log to one sentence.

use std::error::Error;
use std::fmt;

use aya::programs::ProgramError;

/// What the verifier says about programs that need a newer kernel
/// (<https://github.com/torvalds/linux/blob/v6.1/kernel/bpf/verifier.c>).
const LACKS: [&str; 4] = ["unknown func", "invalid func", "cannot use helper", "number of funcs in func_info"];
const OLD: &str = "run Linux 5.15 or newer";
const OURS: &str = "this is a fault of pyobs: please report it with what `pyobs doctor --verbose` prints";
const MACHINE: &str = "`pyobs doctor` says what this machine lacks";

/// A program that the kernel refused.
#[derive(Debug)]
pub struct Refusal {
    program: &'static str,
    /// The verifier's verdict, or the system's error if there is no log.
    why: String,
    todo: &'static str,
    log: String,
}

impl Refusal {
    pub fn new(program: &'static str, error: &ProgramError) -> Self {
        let log = match error {
            ProgramError::LoadError { verifier_log, .. } => verifier_log.to_string(),
            _ => String::new(),
        };
        let refusal = match verdict(&log) {
            Some(verdict) => Self { program, why: verdict.to_owned(), todo: advice(verdict), log },
            None => Self { program, why: innermost(error), todo: MACHINE, log },
        };
        log::debug!("the kernel refuses {program}: {error}\n{}", refusal.log);
        refusal
    }

    /// The verifier's whole log.
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refuses the BPF program {}: {}; {}", self.program, self.why, self.todo)
    }
}

impl Error for Refusal {}

/// The line of a log that states the reason: the last one before the statistics. The lines above it trace the
/// instructions.
fn verdict(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 3] = ["processed ", "verification time ", "stack depth "];
    let is_verdict = |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|start| line.starts_with(start));
    log.lines().map(str::trim).rfind(is_verdict)
}

fn advice(verdict: &str) -> &'static str {
    if LACKS.iter().any(|words| verdict.contains(words)) { OLD } else { OURS }
}

/// The first cause, as one line.
pub fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    // Without the number that the standard library appends.
    line.split(" (os error").next().unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_comes_before_the_statistics() {
        let log = "func#0 @0\n0: R1=ctx(off=0,imm=0) R10=fp0\ncombined stack size of 3 calls is 544. Too large\n\
            verification time 2482902 usec\nstack depth 352+0+0\nprocessed 108211 insns (limit 1000000)\n\n";
        assert_eq!(verdict(log), Some("combined stack size of 3 calls is 544. Too large"));
        assert_eq!(verdict("processed 0 insns (limit 1000000)\n"), None);
    }

    #[test]
    fn only_a_kernel_that_lacks_something_is_to_be_replaced() {
        assert_eq!(advice("unknown func bpf_task_pt_regs#175"), OLD);
        assert_eq!(advice("program of this type cannot use helper bpf_loop#181"), OLD);
        assert_eq!(advice("R0 invalid mem access 'scalar'"), OURS);
    }
}
