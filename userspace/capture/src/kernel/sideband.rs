//! The kernel's notices of executable mappings, from perf events that count nothing. They cost every mmap and
//! munmap on the machine, so where programs run at system calls, these report mappings instead
//! (`ebpf/programs/src/code.rs`).
//!
//! A notice gives the mapped file's device and inode, so that a process whose files are all known needs no
//! scan of its memory map.

use std::fs::File;
use std::os::fd::AsFd;

use perf_event_open::config::{Cpu, ExtraRecord, Mmap, Opts, Proc, UseBuildId, WakeUp, WakeUpOn};
use perf_event_open::count::Counter;
use perf_event_open::event::sw::Software;
use perf_event_open::sample::Sampler;
use perf_event_open::sample::record::Record;
use perf_event_open::sample::record::mmap::Info;

use pyobs_abi::process;

use crate::files::FileId;

/// Pages of each CPU's ring buffer, as a power of two: 128 KiB hold about a thousand notices. When it is
/// full, the kernel drops notices and counts them.
const RING_PAGES: u8 = 5;

#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel refuses notices of new mappings on CPU {cpu} (perf_event_open): {error}; pyobs needs root or CAP_PERFMON"
)]
pub struct SidebandError {
    cpu: u32,
    error: std::io::Error,
}

/// A notice of an executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mapped {
    pub pid: u32,
    pub behind: Behind,
}

/// What was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Behind {
    /// Anonymous memory.
    Nothing,
    File(FileId),
    Unknown,
}

impl From<&process::Mapped> for Mapped {
    fn from(record: &process::Mapped) -> Self {
        let file = FileId { device: (record.dev >> 20, record.dev & 0x000f_ffff), inode: record.ino };
        let behind = match (record.is_known, record.ino) {
            (0, _) => Behind::Unknown,
            (_, 0) => Behind::Nothing,
            _ => Behind::File(file),
        };
        Self { pid: record.header.pid, behind }
    }
}

pub struct Sideband {
    cpus: Vec<(Sampler, File)>,
}

impl Sideband {
    pub fn open(cpus: &[u32]) -> Result<Self, SidebandError> {
        let opts = Opts {
            enable: true,
            extra_record: ExtraRecord {
                mmap: Mmap { code: true, data: false, ext: Some(UseBuildId(false)) },
                ..ExtraRecord::default()
            },
            wake_up: WakeUp { on: WakeUpOn::Bytes(1), ..WakeUp::default() },
            ..Opts::default()
        };
        let open = |cpu: u32| -> std::io::Result<(Sampler, File)> {
            let counter = Counter::new(Software::Dummy, (Proc::ALL, Cpu(cpu)), &opts)?;
            let file = counter.file().try_clone()?;
            Ok((counter.sampler(RING_PAGES)?, file))
        };
        let cpus = cpus.iter().map(|cpu| open(*cpu).map_err(|error| SidebandError { cpu: *cpu, error }));
        Ok(Self { cpus: cpus.collect::<Result<_, _>>()? })
    }

    /// The descriptors to poll for notices.
    pub fn files(&self) -> impl Iterator<Item = impl AsFd> + '_ {
        self.cpus.iter().map(|(_, file)| file)
    }

    /// Takes all notices; returns how many the kernel had to drop.
    pub fn drain(&mut self, mut mapped: impl FnMut(Mapped)) -> u64 {
        let mut lost = 0;
        for (sampler, _) in &self.cpus {
            let Some(records) = sampler.iter() else { continue };
            for (_, record) in records {
                match record {
                    Record::Mmap(mmap) => {
                        let device = mmap.ext.as_ref().map(|ext| &ext.info);
                        let Some(Info::Device { major, minor, inode, .. }) = device else { continue };
                        let file = FileId { device: (*major, *minor), inode: *inode };
                        let behind = if *inode == 0 { Behind::Nothing } else { Behind::File(file) };
                        mapped(Mapped { pid: mmap.task.pid, behind });
                    }
                    Record::LostRecords(records) => lost += records.lost_records,
                    _ => {}
                }
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_record_says_what_is_behind_a_mapping() {
        let behind = |ino, dev, is_known| {
            let record = process::Mapped { ino, dev, is_known, ..process::Mapped::default() };
            Mapped::from(&record).behind
        };
        // MKDEV(8, 17) in the kernel's format.
        let file = FileId { device: (8, 17), inode: 42 };
        assert_eq!(behind(42, 8 << 20 | 17, 1), Behind::File(file));
        assert_eq!(behind(0, 0, 1), Behind::Nothing);
        assert_eq!(behind(0, 0, 0), Behind::Unknown);
    }
}
