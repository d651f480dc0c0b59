//! Notes the cases that passed only on a retry, and limits how many a run may have.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::{env, io};

/// How many cases of one run may need a retry.
pub const MOST: usize = 3;
/// The number of recent runs in which a case may need at most one retry.
pub const RUNS: usize = 10;

/// The notes of the run that just ended, named by `cargo xtask test`. The history of recent runs lies beside it.
pub fn file() -> Option<PathBuf> {
    env::var_os("PYOBS_FLAKY").map(PathBuf::from)
}

/// Notes a case that needed a retry. Several test programs may write at once.
pub(crate) fn note(name: &str) {
    let Some(file) = env::var_os("PYOBS_FLAKY_NOTES").map(PathBuf::from) else { return };
    let program = env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    // Cargo adds a hash to the program's name.
    let program = program.unwrap_or_default();
    let suite = program.rsplit_once('-').map_or(program.as_str(), |(suite, _)| suite);
    let line = format!("{suite}: {name}\n");
    let written =
        OpenOptions::new().create(true).append(true).open(&file).and_then(|mut it| it.write_all(line.as_bytes()));
    if let Err(error) = written {
        eprintln!("{}: {error}", file.display());
    }
}

/// The cases that the run that just ended noted.
pub fn noted() -> io::Result<Vec<String>> {
    let text = file().map(fs::read_to_string).transpose();
    let text = text.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) })?;
    Ok(text.unwrap_or_default().lines().map(str::to_owned).collect())
}

/// Appends a run to the history, and returns the cases that needed a retry in more than one of its runs. A line is a
/// run.
pub fn remember(history: &str, run: &[String]) -> (String, Vec<String>) {
    let earlier = history.lines().map(|line| line.split('\t').filter(|name| !name.is_empty()).collect::<Vec<_>>());
    let mut runs: Vec<Vec<&str>> = earlier.collect();
    runs.push(run.iter().map(String::as_str).collect());
    let mut runs = runs.split_off(runs.len().saturating_sub(RUNS));
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for run in &mut runs {
        run.sort_unstable();
        run.dedup();
        for name in run {
            *times.entry(name).or_default() += 1;
        }
    }
    let often = times.into_iter().filter(|(_, times)| *times > 1).map(|(name, _)| name.to_owned()).collect();
    let lines: String = runs.iter().map(|run| run.join("\t") + "\n").collect();
    (lines, often)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_case_is_reported_at_its_second_retry_in_ten_runs() {
        let (history, often) = remember("", &names(&["a", "b"]));
        assert_eq!((history.as_str(), often), ("a\tb\n", names(&[])));
        let (history, often) = remember(&history, &names(&["b"]));
        assert_eq!((history.as_str(), often), ("a\tb\nb\n", names(&["b"])));
    }

    #[test]
    fn older_runs_are_forgotten() {
        let mut history = "a\n".to_owned();
        for _ in 0..RUNS - 1 {
            history = remember(&history, &[]).0;
        }
        assert_eq!(remember(&history, &names(&["a"])).1, names(&[]));
        assert_eq!(remember("a\n", &names(&["a"])).1, names(&["a"]));
    }
}
