//! Which BPF programs, maps and helpers the kernel supports.

use std::io;

use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported};
use aya_obj::btf::{Btf, BtfKind};
use pyobs_model::Family;

use super::sys::{self, TRACE_FENTRY, TRACE_ITER};
use super::{ALL, Area, Check, Status, plain};
use crate::registry::{of_system_calls, with_probes};

const OLD: &str = "run a newer kernel";

pub(super) fn examine(checks: &mut Vec<Check>) {
    let btf = Btf::from_sys_fs().map_err(io::Error::other);
    maps_and_programs(&mut Area::new("bpf", checks));
    iterators(&mut Area::new("bpf", checks), &btf);
    trampolines(&mut Area::new("tracing", checks), &btf);
}

fn maps_and_programs(area: &mut Area<'_>) {
    area.tried(
        "bpf() system call",
        ALL,
        sys::create_map(sys::MAP_ARRAY, 0),
        "a map was created",
        "run a kernel built with CONFIG_BPF_SYSCALL=y, and allow bpf() in the container's seccomp profile",
    );
    area.tried("ring buffer", ALL, sys::create_map(sys::MAP_RINGBUF, 0), "a ring of 4 KiB was created", OLD);
    area.tried(
        "mappable array",
        ALL,
        sys::create_map(sys::MAP_ARRAY, sys::MAP_MMAPABLE),
        "an array for unwind tables was created",
        OLD,
    );
    area.tried(
        "program for samples",
        &[Family::Cpu, Family::Redundancy],
        sys::load_program(sys::PROG_PERF_EVENT, None),
        "a program of type perf_event was loaded",
        "run a kernel built with CONFIG_BPF_EVENTS=y",
    );
    area.tried(
        "program for probes",
        with_probes(),
        sys::load_program(sys::PROG_KPROBE, None),
        "a program of type kprobe was loaded",
        "run a kernel built with CONFIG_BPF_EVENTS=y and CONFIG_UPROBE_EVENTS=y",
    );

    let loops = helper(ProgramType::PerfEvent, BpfHelper::BPF_FUNC_loop);
    let todo = "nothing: a bounded loop takes its place; kernels from 5.17 on have it";
    area.preferred("bpf_loop", &[Family::Cpu, Family::Redundancy], loops, "the verifier knows the helper", todo);
    let mappings = helper(ProgramType::RawTracePoint, BpfHelper::BPF_FUNC_find_vma);
    let todo = "nothing: /proc tells what is mapped; kernels from 5.17 on have it";
    area.preferred("mapping at an address", &[Family::Shm], mappings, "the verifier knows bpf_find_vma", todo);
    let cookie = helper(ProgramType::KProbe, BpfHelper::BPF_FUNC_get_attach_cookie);
    area.tried(
        "probe cookies",
        with_probes(),
        cookie,
        "the verifier knows bpf_get_attach_cookie",
        "run a kernel from 5.15 on",
    );
    let stack = helper(ProgramType::PerfEvent, BpfHelper::BPF_FUNC_get_stack);
    area.tried("kernel stacks", ALL, stack, "the verifier knows bpf_get_stack", OLD);
    let registers = helper(ProgramType::RawTracePoint, BpfHelper::BPF_FUNC_task_pt_regs);
    let todo = "run a kernel from 5.15 on";
    area.tried("user registers", ALL, registers, "the verifier knows bpf_task_pt_regs", todo);

    area.preferred(
        "run-time statistics",
        ALL,
        sys::enable_stats(),
        "switched on and off again: pyobs can say what its programs cost",
        "nothing: the cost in the kernel is not shown; kernels from 5.8 on give it to root",
    );
}

fn helper(program: ProgramType, helper: BpfHelper) -> io::Result<()> {
    match is_helper_supported(program, helper) {
        Ok(true) => Ok(()),
        Ok(false) => Err(io::Error::new(io::ErrorKind::Unsupported, "the verifier does not know the helper")),
        Err(aya::programs::ProgramError::SyscallError(error)) => Err(error.io_error),
        Err(error) => Err(io::Error::other(error)),
    }
}

fn iterators(area: &mut Area<'_>, btf: &io::Result<Btf>) {
    let todo = "nothing: the account of segments is compared with /proc instead, some processes at a time; kernels from 5.12 on have it";
    for (name, function) in
        [("iterator over mappings", "bpf_iter_task_vma"), ("iterator over open files", "bpf_iter_task_file")]
    {
        let tried =
            load_for(btf, function, BtfKind::Func, TRACE_ITER).and_then(|program| sys::create_iterator(&program));
        area.preferred(name, &[Family::Shm], tried, "one was created and not read", todo);
    }
}

/// Tracing by the kernel's own types.
fn trampolines(area: &mut Area<'_>, btf: &io::Result<Btf>) {
    let fentry =
        load_for(btf, "vfs_read", BtfKind::Func, TRACE_FENTRY).and_then(|program| sys::attach_raw(None, &program));
    match fentry {
        Ok(_) => area.works("fentry", &[], "attached to vfs_read and taken off again"),
        Err(error) => area.lacks(
            "fentry",
            &[],
            Status::Missing,
            format!("on vfs_read: {}", plain(&error)),
            "nothing: tracepoints take its place",
        ),
    }
    let typed = |point: &str| {
        load_for(btf, &format!("btf_trace_{point}"), BtfKind::Typedef, sys::TRACE_RAW_TP)
            .and_then(|program| sys::attach_raw(None, &program))
    };
    let (works, todo) = (
        |point: &str| format!("attached to {point} and taken off again"),
        "run a kernel from 5.5 on, built with CONFIG_DEBUG_INFO_BTF=y",
    );
    for (name, point) in [("thread switches", "sched_switch"), ("thread wake-ups", "sched_waking")] {
        area.tried(name, &[Family::OffCpu, Family::Gil], typed(point), &works(point), todo);
    }
    // Needed only if the tracepoints of single calls are unavailable.
    area.preferred("typed tracepoints", of_system_calls(), typed("sys_enter"), &works("sys_enter"), todo);
}

fn load_for(btf: &io::Result<Btf>, name: &str, kind: BtfKind, attach: u32) -> io::Result<std::os::fd::OwnedFd> {
    let btf = btf.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let id = btf
        .id_by_type_name_kind(name, kind)
        .map_err(|_| io::Error::new(io::ErrorKind::NotFound, format!("the kernel's type information has no {name}")))?;
    sys::load_program(sys::PROG_TRACING, Some((attach, id)))
}
