//! Names of new files, after the present time.

use std::fs;
use std::path::PathBuf;

/// Names that are tried. Further files of the same second replace nothing: making them fails.
const TRIED: u32 = 1000;

/// A name in the current folder that no file has, such as `pyobs-2026-11-03-040506-frames.csv` for `-frames` and `csv`.
pub(crate) fn unused(suffix: &str, ending: &str) -> PathBuf {
    let base = base(&local_time());
    let first = std::iter::once(format!("{base}{suffix}.{ending}"));
    let names = first.chain((2..TRIED).map(|number| format!("{base}{suffix}-{number}.{ending}")));
    names.map(PathBuf::from).find(|name| fs::symlink_metadata(name).is_err()).unwrap_or_else(|| base.clone().into())
}

fn base(time: &libc::tm) -> String {
    let (year, month, day) = (time.tm_year + 1900, time.tm_mon + 1, time.tm_mday);
    format!("pyobs-{year}-{month:02}-{day:02}-{:02}{:02}{:02}", time.tm_hour, time.tm_min, time.tm_sec)
}

fn local_time() -> libc::tm {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = libc::time_t::try_from(now.as_secs()).unwrap_or_default();
    // SAFETY: it has only integers and a nullable pointer, for which zero is valid.
    let mut time = unsafe { std::mem::zeroed() };
    // SAFETY: both addresses are of live values. localtime_r reads the environment, which pyobs never changes. If it
    // fails, the time stays zero.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut time) };
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_time() {
        // SAFETY: as in `local_time`.
        let mut time: libc::tm = unsafe { std::mem::zeroed() };
        (time.tm_year, time.tm_mon, time.tm_mday) = (126, 10, 3);
        (time.tm_hour, time.tm_min, time.tm_sec) = (4, 5, 6);
        assert_eq!(base(&time), "pyobs-2026-11-03-040506");
        assert!(local_time().tm_year >= 125);
    }
}
