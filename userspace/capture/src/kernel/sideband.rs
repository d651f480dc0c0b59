//! The kernel's notices of executable mappings, through perf events that count nothing.
//!
//! They say which file was mapped by device and inode, so that a process whose files are known costs nothing more:
//! no scan of its memory map, no probe in its `mmap`.

use std::fs::File;
use std::os::fd::AsFd;

use perf_event_open::config::{Cpu, ExtraRecord, Mmap, Opts, Proc, UseBuildId, WakeUp, WakeUpOn};
use perf_event_open::count::Counter;
use perf_event_open::event::sw::Software;
use perf_event_open::sample::Sampler;
use perf_event_open::sample::record::Record;
use perf_event_open::sample::record::mmap::Info;

use crate::files::FileId;

/// Pages of each CPU's ring, as a power of two: 128 KiB hold some thousand notices.
const RING_PAGES: u8 = 5;

#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel refuses notices of new mappings on CPU {cpu} (perf_event_open): {error}; pyobs needs root or CAP_PERFMON"
)]
pub struct SidebandError {
    cpu: u32,
    error: std::io::Error,
}

/// Something was mapped executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mapped {
    pub pid: u32,
    /// `None` for memory without a file.
    pub file: Option<FileId>,
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

    /// What to poll for news.
    pub fn files(&self) -> impl Iterator<Item = impl AsFd> + '_ {
        self.cpus.iter().map(|(_, file)| file)
    }

    /// Takes all news; returns how many notices the kernel had to drop.
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
                        mapped(Mapped { pid: mmap.task.pid, file: (*inode != 0).then_some(file) });
                    }
                    Record::LostRecords(records) => lost += records.lost_records,
                    _ => {}
                }
            }
        }
        lost
    }
}
