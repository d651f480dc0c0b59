//! Records of the ring, from bytes. The bytes come from our own programs, yet nothing is believed: a length that does
//! not fit is no record.

use pyobs_abi::cpu::CpuSample;
use pyobs_abi::process::Fork;
use pyobs_abi::record::{self, Header};
use pyobs_abi::stack::{FRAMES_MAX, Frame, KERNEL_MAX};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    CpuSample(CpuStack),
    Life(Life),
}

/// A turn in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Fork { parent: Header, child: u32 },
    Exec(Header),
    Exit(Header),
}

/// A CPU sample with its frames, leaf first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuStack {
    pub sample: CpuSample,
    pub kernel: Vec<u64>,
    pub frames: Vec<Frame>,
}

impl Record {
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header: Header = read(bytes, 0)?;
        match header.kind {
            record::CPU_SAMPLE => {
                let sample: CpuSample = read(bytes, 0)?;
                let (kernel, frames) = (sample.kernel_frames as usize, sample.frames as usize);
                if kernel > KERNEL_MAX || frames > FRAMES_MAX {
                    return None;
                }
                let kernel_at = size_of::<CpuSample>();
                let frames_at = kernel_at + 8 * kernel;
                Some(Self::CpuSample(CpuStack {
                    sample,
                    kernel: (0..kernel).map(|index| read(bytes, kernel_at + 8 * index)).collect::<Option<_>>()?,
                    frames: (0..frames)
                        .map(|index| read(bytes, frames_at + size_of::<Frame>() * index))
                        .collect::<Option<_>>()?,
                }))
            }
            record::PROCESS_FORK => {
                let fork: Fork = read(bytes, 0)?;
                Some(Self::Life(Life::Fork { parent: fork.header, child: fork.child }))
            }
            record::PROCESS_EXEC => Some(Self::Life(Life::Exec(header))),
            record::PROCESS_EXIT => Some(Self::Life(Life::Exit(header))),
            _ => None,
        }
    }
}

/// The thread's name in a header.
pub fn comm(header: &Header) -> String {
    let length = header.comm.iter().position(|byte| *byte == 0).unwrap_or(header.comm.len());
    String::from_utf8_lossy(&header.comm[..length]).into_owned()
}

fn read<T: aya::Pod>(bytes: &[u8], at: usize) -> Option<T> {
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

    fn sample() -> (Vec<u8>, CpuStack) {
        let header = Header {
            kind: record::CPU_SAMPLE,
            pid: 7,
            tid: 8,
            comm: *b"worker\0\0\0\0\0\0\0\0\0\0",
            ..Header::default()
        };
        let sample = CpuSample { header, kernel_frames: 1, frames: 2, ..CpuSample::default() };
        let frames = vec![Frame::python(0x1000, 77, -2), Frame::python(0x2000, 0, 1 << 40)];
        let mut record = bytes(&sample);
        record.extend(bytes(&0xffff_ffff_8100_0000_u64));
        frames.iter().for_each(|frame| record.extend(bytes(frame)));
        (record, CpuStack { sample, kernel: vec![0xffff_ffff_8100_0000], frames })
    }

    #[test]
    fn a_sample_round_trips() {
        let (record, expected) = sample();
        assert_eq!(Record::parse(&record), Some(Record::CpuSample(expected.clone())));
        assert_eq!(comm(&expected.sample.header), "worker");
        assert_eq!((expected.frames[0].check(), expected.frames[0].offset()), (77, Some(-2)));
        assert_eq!(expected.frames[1].offset(), None);
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_record() {
        let (record, expected) = sample();
        for length in 0..record.len() {
            assert_eq!(Record::parse(&record[..length]), None, "{length} bytes");
        }
        let huge = CpuSample { frames: u32::MAX, kernel_frames: u32::MAX, ..expected.sample };
        assert_eq!(Record::parse(&bytes(&huge)), None);
        let unknown = Header { kind: 999, ..expected.sample.header };
        assert_eq!(Record::parse(&bytes(&unknown)), None);
    }
}
