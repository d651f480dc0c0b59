//! The system calls that the examination tries, with attributes that neither aya nor perf-event-open offers.

use std::ffi::{CStr, c_long};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya_obj::generated::perf_event_attr;

use crate::kernel::bpf::{self, Attributes, LinkCreate, MapCreate};

const BPF_PROG_LOAD: c_long = 5;
const BPF_RAW_TRACEPOINT_OPEN: c_long = 17;
const BPF_ENABLE_STATS: c_long = 32;
const BPF_ITER_CREATE: c_long = 33;

pub const MAP_ARRAY: u32 = 2;
pub const MAP_RINGBUF: u32 = 27;
pub const MAP_MMAPABLE: u32 = 1 << 10;

pub(super) const PROG_KPROBE: u32 = 2;
pub(super) const PROG_PERF_EVENT: u32 = 7;
pub(super) const PROG_RAW_TRACEPOINT: u32 = 17;
pub(super) const PROG_TRACING: u32 = 26;

pub(super) const TRACE_RAW_TP: u32 = 23;
pub(super) const TRACE_FENTRY: u32 = 24;
pub(super) const TRACE_ITER: u32 = 28;

const PERF_EVENT_IOC_SET_BPF: libc::Ioctl = 0x4004_2408;

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach: u32,
    btf_fd: u32,
    func_info_size: u32,
    func_info: u64,
    func_info_count: u32,
    line_info_size: u32,
    line_info: u64,
    line_info_count: u32,
    attach_btf_id: u32,
}

#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
    zero: u32,
}

#[repr(C)]
struct IteratorCreate {
    link: u32,
    flags: u32,
}

// SAFETY: 8-byte fields are at multiples of 8 (8, 16, 32, 80, 96); the addresses are statics or null.
unsafe impl Attributes for ProgramLoad {}
// SAFETY: the name is null or a C string that `attach_raw` borrows for longer than the call.
unsafe impl Attributes for RawTracepoint {}
// SAFETY: two words and no address.
unsafe impl Attributes for IteratorCreate {}
// SAFETY: one word: the kind of statistics.
unsafe impl Attributes for u32 {}

pub fn create_map(kind: u32, flags: u32) -> io::Result<OwnedFd> {
    let ring = kind == MAP_RINGBUF;
    bpf::create_map(&MapCreate {
        kind,
        key_size: if ring { 0 } else { 4 },
        value_size: if ring { 0 } else { 8 },
        entries: if ring { 4096 } else { 1 },
        flags,
    })
}

/// Where to attach a tracing program: (attach type, BTF id).
pub(super) type Target = (u32, u32);

/// Loads a program of two instructions that returns 0.
pub(super) fn load_program(kind: u32, target: Option<Target>) -> io::Result<OwnedFd> {
    // r0 = 0; exit
    static INSTRUCTIONS: [u64; 2] = [0x0000_00b7, 0x0000_0095];
    static LICENSE: &CStr = c"Dual MIT/GPL";
    let (expected_attach, attach_btf_id) = target.unwrap_or_default();
    let load = ProgramLoad {
        kind,
        instruction_count: 2,
        instructions: INSTRUCTIONS.as_ptr().addr() as u64,
        license: LICENSE.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: *b"pyobs_doctor\0\0\0\0",
        interface: 0,
        expected_attach,
        btf_fd: 0,
        func_info_size: 0,
        func_info: 0,
        func_info_count: 0,
        line_info_size: 0,
        line_info: 0,
        line_info_count: 0,
        attach_btf_id,
    };
    // The verifier returns EAGAIN when a signal arrives.
    (0..4)
        .map(|_| bpf::open(BPF_PROG_LOAD, &load))
        .find(|result| !matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock))
        .unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EAGAIN)))
}

/// Attaches to a raw tracepoint by name or, without a name, to what the program was loaded for.
pub(super) fn attach_raw(name: Option<&CStr>, program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = name.map_or(0, |name| name.as_ptr().addr() as u64);
    bpf::open(BPF_RAW_TRACEPOINT_OPEN, &RawTracepoint { name, program: bpf::number(program.as_fd()), zero: 0 })
}

/// An iterator program's link, and an instance of it that could be read.
pub(super) fn create_iterator(program: &OwnedFd) -> io::Result<(OwnedFd, OwnedFd)> {
    let link = bpf::create_link(&LinkCreate {
        program: bpf::number(program.as_fd()),
        target: 0,
        attach: TRACE_ITER,
        flags: 0,
        cookie: 0,
    })?;
    let iterator = bpf::open(BPF_ITER_CREATE, &IteratorCreate { link: bpf::number(link.as_fd()), flags: 0 })?;
    Ok((link, iterator))
}

/// Counts the run time of all BPF programs while the descriptor lives.
pub(super) fn enable_stats() -> io::Result<OwnedFd> {
    const RUN_TIME: u32 = 0;
    bpf::open(BPF_ENABLE_STATS, &RUN_TIME)
}

/// An attribute block with its size set and the event disabled, so that nothing fires while it is examined.
pub fn event(kind: u32, config: u64) -> perf_event_attr {
    // SAFETY: every field is an integer, a bit field of integers or a union of integers, for which zero is valid.
    let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.type_ = kind;
    attributes.config = config;
    attributes.set_disabled(1);
    attributes
}

pub const EVENT_SOFTWARE: u32 = 1;
pub(super) const EVENT_BREAKPOINT: u32 = 5;
pub const SOFTWARE_CPU_CLOCK: u64 = 0;
pub(super) const SOFTWARE_DUMMY: u64 = 9;

/// `pid` 0 is the calling thread and -1 all; `cpu` -1 is any.
///
/// An address in `config1` must be that of a `'static` C string: the kernel copies it during the call, and
/// reads nothing else through the attributes.
pub fn open_event(attributes: &perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    const NO_GROUP: c_long = -1;
    const CLOSE_ON_EXEC: c_long = 8;
    // SAFETY: the attributes are initialized and give their own size, and the kernel reads them only during
    // the call.
    let got = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            c_long::from(pid),
            c_long::from(cpu),
            NO_GROUP,
            CLOSE_ON_EXEC,
        )
    };
    bpf::owned(got)
}

pub(super) fn attach_to_event(event: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    // SAFETY: this ioctl takes a descriptor by value and touches none of our memory.
    let got = unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()) };
    if got == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
