//! Parses records from the ring buffer. Our own programs write them, but no length is trusted: one that does
//! not fit makes the record malformed.

use pyobs_abi::copy::StackCopy;
use pyobs_abi::process::{Fork, Mapped};
use pyobs_abi::record::{self, COMM_LEN, Header};
use pyobs_abi::stack::{FRAMES_MAX, Frame, KERNEL_MAX, NATIVE_MAX, Sample};
use pyobs_model::Family;

use crate::bytes::{read, read_all};
use crate::cpython::copied::CopiedCode;

/// A kind of record (`pyobs_abi::record`) that belongs to a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub family: Family,
    pub has_stack: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A family's record with a stack.
    Stack(Family, Stack),
    /// A family's record without a stack.
    Plain(Family, Plain),
    Code(Box<CopiedCode>),
    Lifecycle(Lifecycle),
    Mapped(Mapped),
    StackCopy(Box<StackCopy>),
}

/// A record that its family parses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    pub header: Header,
    bytes: Box<[u8]>,
}

impl Plain {
    /// Reads the record as this type, which begins with a header; `None` if it is too short.
    pub fn read<T: aya::Pod>(&self) -> Option<T> {
        read(&self.bytes, 0)
    }
}

/// An event in the lifecycle of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    Fork { parent: Header, child: u32 },
    Exec(Header),
    Exit(Header),
}

/// A sample with its frames, leaf first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    pub sample: Sample,
    pub kernel: Vec<u64>,
    /// Words in the format of `pyobs_abi::stack`.
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
    /// The record's stack, if it has one.
    pub fn stack(&self) -> Option<&Stack> {
        if let Self::Stack(_, stack) = self { Some(stack) } else { None }
    }

    /// `kind_of` looks up the kinds of families' records.
    pub fn parse(bytes: &[u8], kind_of: impl FnOnce(u32) -> Option<Kind>) -> Option<Self> {
        let header: Header = read(bytes, 0)?;
        match header.kind {
            record::CODE_COPY => Some(Self::Code(Box::new(CopiedCode::parse(bytes)?))),
            record::STACK_COPY => Some(Self::StackCopy(Box::new(read(bytes, 0)?))),
            record::PROCESS_FORK => {
                let fork: Fork = read(bytes, 0)?;
                Some(Self::Lifecycle(Lifecycle::Fork { parent: fork.header, child: fork.child }))
            }
            record::EXEC_MAPPED => Some(Self::Mapped(read(bytes, 0)?)),
            record::PROCESS_EXEC => Some(Self::Lifecycle(Lifecycle::Exec(header))),
            record::PROCESS_EXIT => Some(Self::Lifecycle(Lifecycle::Exit(header))),
            kind => {
                let Kind { family, has_stack } = kind_of(kind)?;
                Some(match has_stack {
                    true => Self::Stack(family, Stack::parse(bytes)?),
                    false => Self::Plain(family, Plain { header, bytes: bytes.into() }),
                })
            }
        }
    }
}

/// A thread's name in the kernel's format.
pub fn name(comm: &[u8; COMM_LEN]) -> String {
    let length = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..length]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<T: aya::Pod>(value: &T) -> Vec<u8> {
        // SAFETY: Pod types are plain bytes without padding.
        unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }.to_vec()
    }

    fn parse(bytes: &[u8]) -> Option<Record> {
        let samples = Kind { family: Family::Cpu, has_stack: true };
        Record::parse(bytes, |kind| (kind == record::CPU_SAMPLE).then_some(samples))
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
        assert_eq!(parse(&record), Some(Record::Stack(Family::Cpu, expected.clone())));
        assert_eq!(name(&expected.sample.header.comm), "worker");
        assert_eq!((expected.frames[0].check(), expected.frames[0].offset()), (77, Some(-2)));
        assert_eq!(expected.frames[1].offset(), None);
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_record() {
        let (record, expected) = sample();
        for length in 0..record.len() {
            assert_eq!(parse(&record[..length]), None, "{length} bytes");
        }
        let huge = Sample { frames: u32::MAX, kernel_frames: u32::MAX, ..expected.sample };
        assert_eq!(parse(&bytes(&huge)), None);
        let unknown = Header { kind: 999, ..expected.sample.header };
        assert_eq!(parse(&bytes(&unknown)), None);
    }
}
