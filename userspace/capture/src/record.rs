//! Records of the ring, from bytes. The bytes come from our own programs, yet nothing is believed: a length that does
//! not fit is no record.

use pyobs_abi::arena::Freed;
use pyobs_abi::arena::library::Hit;
use pyobs_abi::copy::StackCopy;
use pyobs_abi::nrt::Death;
use pyobs_abi::offcpu::Wake;
use pyobs_abi::process::{Fork, Mapped};
use pyobs_abi::record::{self, COMM_LEN, Header};
use pyobs_abi::shm::{Change, Segment, Unlink};
use pyobs_abi::stack::{FRAMES_MAX, Frame, KERNEL_MAX, NATIVE_MAX, Sample};
use pyobs_abi::ucx::{Callback, Done, Woken};

use crate::cpython::copied::CopiedCode;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Code(Box<CopiedCode>),
    CpuSample(Stack),
    Sleep(Stack),
    Wake(Wake),
    GilHolder(Stack),
    Life(Life),
    Mapped(Mapped),
    StackCopy(Box<StackCopy>),
    Shm(Box<Shm>),
    Birth(Stack),
    ArenaBirth(Stack),
    ArenaFreed(Freed),
    ArenaHit(Hit),
    ArenaStack(Stack),
    NrtBirth(Stack),
    NrtDeath(Death),
    Ucx(Box<Ucx>),
    UcxAsked(Stack),
    RedundancyStack(Stack),
}

/// Of the family `ucx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ucx {
    Done(Done),
    Woken(Woken),
    Callback(Callback),
}

/// Of the family `shm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shm {
    Segment(Segment),
    Change(Change),
    Unlink(Unlink),
    Fork(Fork),
    Exec(Header),
    Exit(Header),
}

/// A turn in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Fork { parent: Header, child: u32 },
    Exec(Header),
    Exit(Header),
}

/// A sample with its frames, leaf first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    pub sample: Sample,
    pub kernel: Vec<u64>,
    /// Words, as `pyobs_abi::stack` has them.
    pub native: Vec<u64>,
    pub frames: Vec<Frame>,
}

impl Stack {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let sample: Sample = read(bytes, 0)?;
        let counts = [sample.kernel_frames, sample.native_frames, sample.frames].map(|count| count as usize);
        let [kernel, native, frames] = counts;
        if kernel > KERNEL_MAX || native > NATIVE_MAX || frames > FRAMES_MAX {
            return None;
        }
        let kernel_at = size_of::<Sample>();
        let native_at = kernel_at + 8 * kernel;
        let frames_at = native_at + 8 * native;
        Some(Self {
            sample,
            kernel: read_all(bytes, kernel_at, kernel)?,
            native: read_all(bytes, native_at, native)?,
            frames: read_all(bytes, frames_at, frames)?,
        })
    }
}

impl Record {
    /// The stack in it, if it has one.
    pub fn stack(&self) -> Option<&Stack> {
        match self {
            Self::CpuSample(stack)
            | Self::Sleep(stack)
            | Self::GilHolder(stack)
            | Self::Birth(stack)
            | Self::ArenaBirth(stack)
            | Self::ArenaStack(stack)
            | Self::NrtBirth(stack)
            | Self::UcxAsked(stack)
            | Self::RedundancyStack(stack) => Some(stack),
            Self::Code(_)
            | Self::Wake(_)
            | Self::Life(_)
            | Self::Mapped(_)
            | Self::StackCopy(_)
            | Self::Shm(_)
            | Self::ArenaFreed(_)
            | Self::ArenaHit(_)
            | Self::NrtDeath(_)
            | Self::Ucx(_) => None,
        }
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header: Header = read(bytes, 0)?;
        match header.kind {
            record::CODE_COPY => Some(Self::Code(Box::new(CopiedCode::parse(bytes)?))),
            record::CPU_SAMPLE => Some(Self::CpuSample(Stack::parse(bytes)?)),
            record::OFFCPU_SLEEP => Some(Self::Sleep(Stack::parse(bytes)?)),
            record::OFFCPU_WAKE => Some(Self::Wake(read(bytes, 0)?)),
            record::GIL_HOLDER => Some(Self::GilHolder(Stack::parse(bytes)?)),
            record::STACK_COPY => Some(Self::StackCopy(Box::new(read(bytes, 0)?))),
            record::SHM_SEGMENT => shm(Shm::Segment(read(bytes, 0)?)),
            record::SHM_CHANGE => shm(Shm::Change(read(bytes, 0)?)),
            record::SHM_UNLINK => shm(Shm::Unlink(read(bytes, 0)?)),
            record::SHM_BIRTH => Some(Self::Birth(Stack::parse(bytes)?)),
            record::ARENA_BIRTH => Some(Self::ArenaBirth(Stack::parse(bytes)?)),
            record::ARENA_FREED => Some(Self::ArenaFreed(read(bytes, 0)?)),
            record::ARENA_HIT => Some(Self::ArenaHit(read(bytes, 0)?)),
            record::ARENA_STACK => Some(Self::ArenaStack(Stack::parse(bytes)?)),
            record::NRT_BIRTH => Some(Self::NrtBirth(Stack::parse(bytes)?)),
            record::NRT_DEATH => Some(Self::NrtDeath(read(bytes, 0)?)),
            record::UCX_TRANSFER => ucx(Ucx::Done(read(bytes, 0)?)),
            record::UCX_WOKEN => ucx(Ucx::Woken(read(bytes, 0)?)),
            record::UCX_CALLBACK => ucx(Ucx::Callback(read(bytes, 0)?)),
            record::UCX_ASKED => Some(Self::UcxAsked(Stack::parse(bytes)?)),
            record::REDUNDANCY_STACK => Some(Self::RedundancyStack(Stack::parse(bytes)?)),
            record::SHM_FORK => shm(Shm::Fork(read(bytes, 0)?)),
            record::SHM_EXEC => shm(Shm::Exec(header)),
            record::SHM_EXIT => shm(Shm::Exit(header)),
            record::PROCESS_FORK => {
                let fork: Fork = read(bytes, 0)?;
                Some(Self::Life(Life::Fork { parent: fork.header, child: fork.child }))
            }
            record::EXEC_MAPPED => Some(Self::Mapped(read(bytes, 0)?)),
            record::PROCESS_EXEC => Some(Self::Life(Life::Exec(header))),
            record::PROCESS_EXIT => Some(Self::Life(Life::Exit(header))),
            _ => None,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as all other records")]
fn shm(record: Shm) -> Option<Record> {
    Some(Record::Shm(Box::new(record)))
}

#[expect(clippy::unnecessary_wraps, reason = "as all other records")]
fn ucx(record: Ucx) -> Option<Record> {
    Some(Record::Ucx(Box::new(record)))
}

/// A thread's name as the kernel has it.
pub fn name(comm: &[u8; COMM_LEN]) -> String {
    let length = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..length]).into_owned()
}

fn read_all<T: aya::Pod>(bytes: &[u8], at: usize, count: usize) -> Option<Vec<T>> {
    (0..count).map(|index| read(bytes, at + size_of::<T>() * index)).collect()
}

/// A value at a place in bytes, if it lies in them.
pub fn read<T: aya::Pod>(bytes: &[u8], at: usize) -> Option<T> {
    let bytes = bytes.get(at..at.checked_add(size_of::<T>())?)?;
    // SAFETY: the slice has the type's size, and every bit pattern is a value of a Pod type.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<T: aya::Pod>(value: &T) -> Vec<u8> {
        // SAFETY: Pod types are plain bytes without padding.
        unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }.to_vec()
    }

    fn sample() -> (Vec<u8>, Stack) {
        let header = Header {
            kind: record::CPU_SAMPLE,
            pid: 7,
            tid: 8,
            comm: *b"worker\0\0\0\0\0\0\0\0\0\0",
            ..Header::default()
        };
        let sample = Sample { header, kernel_frames: 1, native_frames: 1, frames: 2, ..Sample::default() };
        let frames = vec![Frame::python(0x1000, 77, -2), Frame::python(0x2000, 0, 1 << 40)];
        let mut record = bytes(&sample);
        record.extend(bytes(&0xffff_ffff_8100_0000_u64));
        record.extend(bytes(&0x5555_5555_0000_u64));
        frames.iter().for_each(|frame| record.extend(bytes(frame)));
        (record, Stack { sample, kernel: vec![0xffff_ffff_8100_0000], native: vec![0x5555_5555_0000], frames })
    }

    #[test]
    fn a_sample_round_trips() {
        let (record, expected) = sample();
        assert_eq!(Record::parse(&record), Some(Record::CpuSample(expected.clone())));
        assert_eq!(name(&expected.sample.header.comm), "worker");
        assert_eq!((expected.frames[0].check(), expected.frames[0].offset()), (77, Some(-2)));
        assert_eq!(expected.frames[1].offset(), None);
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_record() {
        let (record, expected) = sample();
        for length in 0..record.len() {
            assert_eq!(Record::parse(&record[..length]), None, "{length} bytes");
        }
        let huge = Sample { frames: u32::MAX, kernel_frames: u32::MAX, ..expected.sample };
        assert_eq!(Record::parse(&bytes(&huge)), None);
        let unknown = Header { kind: 999, ..expected.sample.header };
        assert_eq!(Record::parse(&bytes(&unknown)), None);
    }
}
