//! The kernel's version and build options.

use std::fs;

use super::{ALL, Area, Check, Status};
use crate::kernel::release::{release, version};
use crate::rights;

const BTF: &str = "/sys/kernel/btf/vmlinux";

pub(super) fn examine(checks: &mut Vec<Check>) {
    let mut area = Area::new("kernel", checks);
    let release = release();
    // The first version with bpf_task_pt_regs, which a sample that hits the kernel needs.
    if version() >= (5, 15) {
        area.works("version", ALL, format!("{release}, and 5.15 is needed"));
    } else {
        area.lacks(
            "version",
            ALL,
            Status::Missing,
            format!("{release} is older than 5.15"),
            "run a kernel of 5.15 or newer",
        );
    }

    if cfg!(target_arch = "x86_64") {
        area.works("architecture", ALL, std::env::consts::ARCH);
    } else {
        let why = format!("pyobs does not know the registers of {}", std::env::consts::ARCH);
        area.lacks("architecture", ALL, Status::Missing, why, "run it on x86_64");
    }

    match fs::metadata(BTF) {
        Ok(meta) => area.works("type information (BTF)", ALL, format!("{BTF}, {} KiB", meta.len() / 1024)),
        Err(error) => area.lacks(
            "type information (BTF)",
            ALL,
            Status::Missing,
            format!("{BTF}: {error}"),
            "run a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions' kernels are",
        ),
    }

    lockdown(&mut area);

    let jit = fs::read_to_string("/proc/sys/net/core/bpf_jit_enable");
    match jit.as_deref().map(str::trim) {
        Ok("0") => area.lacks(
            "BPF compiler (JIT)",
            ALL,
            Status::Degraded,
            "net.core.bpf_jit_enable is 0: programs are interpreted, several times slower",
            "`sysctl net.core.bpf_jit_enable=1`",
        ),
        Ok(value) => area.works("BPF compiler (JIT)", ALL, format!("net.core.bpf_jit_enable is {value}")),
        Err(error) => {
            area.works("BPF compiler (JIT)", ALL, format!("cannot be read here ({error}), so it was not checked"));
        }
    }
}

fn lockdown(area: &mut Area<'_>) {
    match rights::lockdown() {
        None => area.works("lockdown", ALL, "the kernel has none, or securityfs is not mounted"),
        Some(_) if rights::is_locked_down() => area.lacks(
            "lockdown",
            ALL,
            Status::Missing,
            "mode `confidentiality`: BPF programs may not read memory",
            "start the kernel with lockdown=integrity or none",
        ),
        Some(mode) => area.works("lockdown", ALL, format!("mode `{mode}`")),
    }
}
