//! A BPF iterator over the machine's threads. It reports the registers that the kernel saved, and which threads are
//! throttled by a CPU limit.

use aya::programs::Iter;
use aya::{Ebpf, EbpfLoader};
use foldhash::HashMap;
use pyobs_abi::dump::{Thread, flags};

use crate::bytes;
use crate::families::offcpu::throttled_offsets;
use crate::kernel::btf::Btf;
use crate::kernel::iterators;
use crate::kernel::object::{Refusal, innermost};
use crate::native::walk::Registers;
use crate::rights::{self, Namespace};

static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("PYOBS_BPF_DUMP_OBJECT"));
const PROGRAM: &str = "dump_thread";
const KIND: &str = "task";

/// The program, loaded.
pub struct TaskIterator(Ebpf);

/// What the iterator reports about a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub registers: Registers,
    pub is_throttled: bool,
}

impl TaskIterator {
    /// Loads the program. The error is a sentence for the user.
    pub fn load() -> Result<Self, String> {
        if !Namespace::Pid.may_be_first() {
            // The program knows threads by their ids in the machine's first pid namespace.
            return Err(format!("this is a pid namespace; {}", rights::todo()));
        }
        let btf = Btf::of_running_kernel().map_err(|error| error.to_string())?;
        let number = iterators::number(&btf, KIND).ok_or("the kernel has no iterator over threads")?;
        let offset = |field| btf.offset("task_struct", field).map_err(|error| error.to_string());
        let offsets = [("TASK_TGID", offset("tgid")?), ("TASK_PID", offset("pid")?)];
        let throttled = throttled_offsets(&btf).map_err(|error| error.to_string())?;
        let mut loader = EbpfLoader::new();
        for (name, offset) in offsets.iter().chain(&throttled) {
            loader.override_global(name, offset, true);
        }
        // Without the kernel's BTF, which aya would parse as a whole.
        let mut ebpf = loader.btf(None).load(OBJECT).map_err(|error| innermost(&error))?;
        let program: &mut Iter = program(&mut ebpf).ok_or("the program is missing in this build of pyobs")?;
        iterators::load(program, KIND, number).map_err(|error| Refusal::new(PROGRAM, &error).to_string())?;
        Ok(Self(ebpf))
    }

    /// Returns the threads of the machine by tid.
    pub fn threads(&mut self) -> HashMap<u32, Listed> {
        let rows = program(&mut self.0).and_then(|program| iterators::run(program).ok()).unwrap_or_default();
        let listed = |thread: Thread| {
            let ip = if thread.flags & flags::AFTER != 0 { thread.ip.wrapping_sub(1) } else { thread.ip };
            let registers = Registers { ip, sp: thread.sp, bp: thread.bp };
            (thread.tid, Listed { registers, is_throttled: thread.flags & flags::THROTTLED != 0 })
        };
        bytes::rows(&rows).map(listed).collect()
    }
}

fn program(ebpf: &mut Ebpf) -> Option<&mut Iter> {
    ebpf.program_mut(PROGRAM)?.try_into().ok()
}
