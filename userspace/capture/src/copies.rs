//! Copies of stacks for tests, sent by the program `cpu_sample_copied`.

use pyobs_abi::copy::{PAGE_SIZE, StackCopy};
use pyobs_abi::stack::Sample;

use crate::pipeline::decode::Stack;

/// How long a sample's pages may take to arrive, in nanoseconds.
const UNDER_WAY: u64 = 20_000_000;

/// A page of memory.
#[derive(Clone, Debug)]
pub struct Page {
    pub address: u64,
    pub bytes: Box<[u8; PAGE_SIZE]>,
}

/// The registers of user space.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// The thread is in a system call, so its instruction is the one before `ip`.
    pub after: bool,
}

/// The walker's result for a stack, and its input.
#[derive(Clone, Debug)]
pub struct Copied {
    pub sample: Sample,
    /// Addresses, leaf first.
    pub kernel: Vec<u64>,
    /// Words in the format of `pyobs_abi::stack`.
    pub native: Vec<u64>,
    /// `None` if the ring buffer had no room for them.
    pub registers: Option<Registers>,
    /// By address.
    pub pages: Vec<Page>,
}

#[derive(Debug, Default)]
pub struct Copies(Vec<Copied>);

impl Copies {
    pub fn sample(&mut self, stack: &Stack) {
        self.0.push(Copied {
            sample: stack.sample,
            kernel: stack.kernel.clone(),
            native: stack.native.clone(),
            registers: None,
            pages: Vec::new(),
        });
    }

    pub fn page(&mut self, copy: &StackCopy) {
        let key = |header: &pyobs_abi::record::Header| (header.time, header.tid);
        let sample = self.0.iter_mut().rev().find(|copied| key(&copied.sample.header) == key(&copy.header));
        // The sample may have been lost because the ring buffer was full.
        let Some(copied) = sample else { return };
        let StackCopy { ip, sp, bp, after, address, .. } = *copy;
        copied.registers = Some(Registers { ip, sp, bp, after: after != 0 });
        copied.pages.push(Page { address, bytes: Box::new(copy.bytes) });
    }

    /// The samples whose pages have all arrived by this time on the kernel's clock.
    pub fn take(&mut self, now: u64) -> Vec<Copied> {
        let whole = self.0.partition_point(|copied| copied.sample.header.time.saturating_add(UNDER_WAY) < now);
        self.0.drain(..whole).collect()
    }
}
