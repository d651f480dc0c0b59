//! Features of the running kernel, probed: distributions backport features, so its version says little.

use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported};

/// Features that the programs have a substitute for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `bpf_loop` (Linux 5.17) with a callback; a bounded loop replaces it.
    pub loops: bool,
    /// `bpf_find_vma` (Linux 5.17); without it, /proc tells what lies at an address.
    pub find_vma: bool,
}

impl Features {
    pub fn of_running_kernel() -> Self {
        // Without the JIT compiler the kernel refuses every callback (kernel/bpf/verifier.c, fixup_call_args).
        let callbacks = is_jit_on();
        let has = |program, helper| callbacks && is_helper_supported(program, helper).unwrap_or(false);
        Self {
            loops: has(ProgramType::PerfEvent, BpfHelper::BPF_FUNC_loop),
            find_vma: has(ProgramType::RawTracePoint, BpfHelper::BPF_FUNC_find_vma),
        }
    }
}

/// Whether the kernel compiles BPF programs. One that always does may have no switch for it.
pub fn is_jit_on() -> bool {
    std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").map_or(true, |value| value.trim() != "0")
}
