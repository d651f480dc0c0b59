//! `pyobs doctor`: prints what works on this machine, what does not, and what to do.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, IsTerminal, Write};

use pyobs_capture::doctor::{Check, Program, Status, examine, suffices};
use pyobs_model::Family;
use serde::Serialize;

use crate::cli::Doctor;
use crate::exit::{Failure, one_line, output};
use crate::probes::Probes;
use pyobs_model::number::grouped;

const VERSION: u32 = 1;

#[derive(Serialize)]
struct Examination<'a> {
    version: u32,
    host: String,
    kernel: String,
    checks: &'a [Check],
    programs: &'a [Program],
}

pub(super) fn run(arguments: &Doctor) -> Result<(), Failure> {
    let pyobs_capture::doctor::Examination { checks, programs } = examine();
    let names = rustix::system::uname();
    let examination = Examination {
        version: VERSION,
        host: names.nodename().to_string_lossy().into_owned(),
        kernel: names.release().to_string_lossy().into_owned(),
        checks: &checks,
        programs: &programs,
    };
    let stdout = io::stdout();
    let colored = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut out = BufWriter::new(stdout.lock());
    let written = if arguments.json {
        let written = serde_json::to_writer_pretty(&mut out, &examination).map_err(io::Error::from);
        written.and_then(|()| writeln!(out))
    } else {
        words(&examination, colored, &mut out).and_then(|()| match arguments.verbose {
            true => verifier(&programs, &mut out),
            false => Ok(()),
        })
    };
    output(written.and_then(|()| out.flush()))?;

    let families = Probes::default().families;
    if suffices(&checks, &families) {
        return Ok(());
    }
    let lacking = checks.iter().filter(|check| !suffices(std::slice::from_ref(check), &families));
    let names: Vec<_> = lacking.clone().map(|check| check.name).collect();
    let todo: BTreeSet<_> = lacking.filter_map(|check| check.todo.as_deref()).collect();
    let (names, todo) = (names.join(", "), todo.into_iter().collect::<Vec<_>>().join("; "));
    Err(Failure::Lacking(format!("not every family that is on by default can run: {names}; what to do: {todo}")))
}

/// ```text
/// bpf
///   ✔ works     ring buffer         a ring of 4 KiB was created
///   ✘ missing   fentry              on vfs_read: Operation not permitted
///                                   for offcpu shm; what to do: nothing: tracepoints take its place
/// ```
fn words(examination: &Examination<'_>, colored: bool, out: &mut dyn Write) -> io::Result<()> {
    let checks = examination.checks;
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let every = checks.iter().map(|check| check.families.len()).max().unwrap_or(0);
    writeln!(out, "{}, Linux {}", one_line(&examination.host), one_line(&examination.kernel))?;
    let mut areas: Vec<&str> = Vec::new();
    for check in checks {
        if !areas.contains(&check.area) {
            areas.push(check.area);
        }
    }
    for area in areas {
        writeln!(out, "\n{area}")?;
        for check in checks.iter().filter(|check| check.area == area) {
            let status = status(check.status, colored);
            writeln!(out, "  {status} {:width$}  {}", check.name, one_line(&check.why))?;
            if let Some(todo) = &check.todo {
                let families = match check.families.len() {
                    0 => "no family needs it".to_owned(),
                    count if count == every => "every family needs it".to_owned(),
                    _ => format!("for {}", joined(check.families)),
                };
                writeln!(out, "{:indent$}{families}; what to do: {}", "", one_line(todo), indent = width + 16)?;
            }
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    writeln!(
        out,
        "\n{} work, {} degraded, {} missing",
        count(Status::Works),
        count(Status::Degraded),
        count(Status::Missing)
    )
}

/// Prints how the verifier judged each program, with its whole log for those it refused.
fn verifier(programs: &[Program], out: &mut dyn Write) -> io::Result<()> {
    let width = programs.iter().map(|program| program.name.len()).max().unwrap_or(0);
    writeln!(out, "\nprograms, and the instructions that the verifier processed for each (limit: 1,000,000)")?;
    for program in programs {
        let outcome = match (&program.why, program.instructions) {
            (Some(_), _) => "refused".to_owned(),
            (None, Some(instructions)) => grouped(instructions.into()),
            (None, None) => "loads".to_owned(),
        };
        writeln!(out, "  {:width$}  {outcome:>9}  {}", program.name, joined(program.families))?;
    }
    for program in programs {
        if let Some(why) = &program.why {
            writeln!(out, "\n{}", one_line(why))?;
            program.log.lines().try_for_each(|line| writeln!(out, "  {}", one_line(line)))?;
        }
    }
    Ok(())
}

fn status(status: Status, colored: bool) -> String {
    let (mark, color) = match status {
        Status::Works => ('✔', "32"),
        Status::Degraded => ('~', "33"),
        Status::Missing => ('✘', "31"),
    };
    let text = format!("{mark} {:9}", status.name());
    if colored { format!("\x1b[{color}m{text}\x1b[0m") } else { text }
}

fn joined(families: &[Family]) -> String {
    families.iter().map(|family| family.name()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &'static str, status: Status, todo: Option<&str>) -> Check {
        let families = &[Family::Shm];
        Check { area: "bpf", name, families, status, why: "so\u{1b}".to_owned(), todo: todo.map(str::to_owned) }
    }

    fn table(colored: bool) -> String {
        let checks = [check("ring", Status::Works, None), check("a longer name", Status::Missing, Some("nothing"))];
        let examination = Examination {
            version: VERSION,
            host: "h".to_owned(),
            kernel: "6.18".to_owned(),
            checks: &checks,
            programs: &[],
        };
        let mut out = Vec::new();
        words(&examination, colored, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_table_is_aligned_and_says_what_to_do() {
        let expected = "h, Linux 6.18\n\nbpf\n  \
             ✔ works     ring           so\\u{1b}\n  \
             ✘ missing   a longer name  so\\u{1b}\n                             \
             every family needs it; what to do: nothing\n\n1 work, 0 degraded, 1 missing\n";
        assert_eq!(table(false), expected);
    }

    #[test]
    fn color_appears_only_if_requested() {
        assert!(!table(false).contains("\x1b["));
        assert!(table(true).contains("\x1b[31m✘ missing"));
    }
}
