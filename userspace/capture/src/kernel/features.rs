//! Features of the running kernel. They are probed, because distributions backport features and the version
//! says little.

use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported};

/// Features for which the programs have a substitute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `bpf_loop` (Linux 5.17) with a callback; a bounded loop replaces it.
    pub loops: bool,
    /// `bpf_find_vma` (Linux 5.17); without it, `/proc` shows what is mapped at an address.
    pub find_vma: bool,
}

impl Features {
    pub fn of_running_kernel() -> Self {
        // Without the JIT compiler the kernel refuses every callback (`fixup_call_args` in
        // https://github.com/torvalds/linux/blob/v6.1/kernel/bpf/verifier.c).
        let callbacks = is_jit_on();
        let has = |program, helper| callbacks && is_helper_supported(program, helper).unwrap_or(false);
        Self {
            loops: has(ProgramType::PerfEvent, BpfHelper::BPF_FUNC_loop),
            find_vma: has(ProgramType::RawTracePoint, BpfHelper::BPF_FUNC_find_vma),
        }
    }
}

/// Whether the kernel JIT-compiles BPF programs. A kernel that always does may lack this switch.
pub fn is_jit_on() -> bool {
    std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").map_or(true, |value| value.trim() != "0")
}
