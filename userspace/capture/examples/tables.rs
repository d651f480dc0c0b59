//! `tables PID...`: makes the unwind tables of all files that the processes map, each file once, and says in JSON how
//! long that took and how large they are. `cargo xtask bench tables` runs it.

use std::collections::HashSet;
use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use procfs::process::{MMPermissions, MMapPath, Process};
use pyobs_capture::native::table;

fn main() -> Result<()> {
    let (mut seen, mut spent, mut words, mut files) = (HashSet::new(), Duration::ZERO, 0, 0);
    for pid in std::env::args().skip(1) {
        let maps = Process::new(pid.parse().with_context(|| format!("{pid} is no pid"))?)?.maps()?;
        for map in maps.into_iter().filter(|map| map.perms.contains(MMPermissions::EXECUTE)) {
            let MMapPath::Path(path) = &map.pathname else { continue };
            if !seen.insert((map.dev, map.inode)) {
                continue;
            }
            let Ok(file) = File::open(path) else { continue };
            let size = file.metadata()?.len();
            let start = Instant::now();
            let made = table::read(&file, size);
            spent += start.elapsed();
            if let Ok(table) = made {
                words += table.words.len();
                files += 1;
            }
        }
    }
    println!(r#"{{"files": {files}, "seconds": {:.6}, "bytes": {}}}"#, spent.as_secs_f64(), 8 * words);
    Ok(())
}
