//! The family `shm`: who makes, holds, passes on and lets go of memory that processes share.
//!
//! The calls of all processes come by here. What a watched process makes or maps is a segment from then on, and
//! whoever gets hold of a segment is followed, whatever it runs. What takes something away is noticed when the call
//! begins, what gives something when it has ended: so a descriptor or an address that another thread gets at once is
//! told in the right order.
//!
//! The same programs see the calls that [`crate::arena`] is about, and those by which a process gets new [`code`]: a second
//! pair would cost every call of the machine as much again.

mod descriptors;
mod iterate;
mod lives;
mod mappings;

use aya_ebpf::{
    bindings::pt_regs,
    helpers::bpf_get_current_pid_tgid,
    macros::{btf_tracepoint, map},
    maps::HashMap,
    programs::BtfTracePointContext,
};
use pyobs_abi::{
    control::{FAMILY_ARENA, FAMILY_SHM},
    process::Process,
    record::{self, loss},
    shm::{Change, Facts, Hull, Inode as Key, Known, NAME_MAX, Segment, Unlink, what},
    stack,
};

use crate::{
    arena, code,
    common::{
        files::{File, Inode},
        maps::{PROCESSES, is_on, put},
        memory::user,
        registers::Registers,
        ring,
        walk::{SLOT_TASK, Walk},
    },
};

/// System calls (arch/x86/entry/syscalls/syscall_64.tbl).
mod number {
    pub const OPEN: u32 = 2;
    pub const CLOSE: u32 = 3;
    pub const MMAP: u32 = 9;
    pub const MPROTECT: u32 = 10;
    pub const MUNMAP: u32 = 11;
    pub const IOCTL: u32 = 16;
    pub const MREMAP: u32 = 25;
    pub const DUP: u32 = 32;
    pub const DUP2: u32 = 33;
    pub const SENDMSG: u32 = 46;
    pub const RECVMSG: u32 = 47;
    pub const FCNTL: u32 = 72;
    pub const FTRUNCATE: u32 = 77;
    pub const CREAT: u32 = 85;
    pub const UNLINK: u32 = 87;
    pub const OPENAT: u32 = 257;
    pub const UNLINKAT: u32 = 263;
    pub const FALLOCATE: u32 = 285;
    pub const DUP3: u32 = 292;
    pub const MEMFD_CREATE: u32 = 319;
    pub const PKEY_MPROTECT: u32 = 329;
    pub const CLOSE_RANGE: u32 = 436;
    pub const OPENAT2: u32 = 437;
    pub const PIDFD_GETFD: u32 = 438;
}

/// Of mmap(2) and mprotect(2), in their third argument.
const PROT_EXEC: u64 = 4;

/// Where shm_open has its files.
const FOLDER: &[u8; 9] = b"/dev/shm/";

/// Of fcntl(2) and ioctl(2).
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_DUPFD_CLOEXEC: u64 = 1030;
const FIONCLEX: u64 = 0x5450;
const FIOCLEX: u64 = 0x5451;

#[map]
static SHM_SEGMENTS: HashMap<Key, Known> = HashMap::with_max_entries(32_768, 0);

#[map]
static SHM_HOLDERS: HashMap<u32, Hull> = HashMap::with_max_entries(16_384, 0);

/// The system call that the current thread is in.
pub struct Call(*const pt_regs);

impl Call {
    /// Of `sys_enter` and `sys_exit`, whose first argument are the registers at the top of the task's kernel stack.
    #[inline(always)]
    fn of(context: &BtfTracePointContext) -> Self {
        Self(context.arg(0))
    }

    #[inline(always)]
    fn word(&self, at: impl Fn(*const pt_regs) -> *const u64) -> u64 {
        // SAFETY: the verifier knows the registers' type and checks each access. Volatile, as in `Registers::saved`.
        unsafe { at(self.0).read_volatile() }
    }

    #[inline(always)]
    fn number(&self) -> u32 {
        // SAFETY: only the field's address is taken.
        self.word(|saved| unsafe { &raw const (*saved).orig_rax }) as u32
    }

    #[inline(always)]
    pub fn first(&self) -> u64 {
        // SAFETY: as above, and below.
        self.word(|saved| unsafe { &raw const (*saved).rdi })
    }

    #[inline(always)]
    pub fn second(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).rsi })
    }

    #[inline(always)]
    pub fn third(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).rdx })
    }

    #[inline(always)]
    pub fn fourth(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).r10 })
    }

    #[inline(always)]
    pub fn fifth(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).r8 })
    }

    #[inline(always)]
    pub fn sixth(&self) -> u64 {
        // SAFETY: as above.
        self.word(|saved| unsafe { &raw const (*saved).r9 })
    }
}

/// `sys_enter(struct pt_regs *regs, long id)`
#[btf_tracepoint(function = "sys_enter")]
pub fn shm_call_enter(context: BtfTracePointContext) -> i32 {
    let number = context.arg::<u64>(1) as u32;
    match number {
        number::CLOSE | number::CLOSE_RANGE | number::DUP2 | number::DUP3 | number::MUNMAP | number::SENDMSG => {}
        _ => return 0,
    }
    let call = Call::of(&context);
    if number == number::MUNMAP && is_on(FAMILY_ARENA) {
        arena::unmapped(&call);
    }
    // Nobody holds anything while the family is off.
    if hull().is_none() {
        return 0;
    }
    let (first, second) = (call.first(), call.second());
    match number {
        number::CLOSE => descriptors::tell(what::CLOSED, first as u32),
        number::CLOSE_RANGE => descriptors::close_range(first, second, call.third()),
        number::DUP2 | number::DUP3 => descriptors::replace(first as u32, second as u32),
        number::MUNMAP => mappings::unmapped(first, second),
        _ => descriptors::message(what::SENT, second),
    }
    0
}

/// `sys_exit(struct pt_regs *regs, long ret)`
#[btf_tracepoint(function = "sys_exit")]
pub fn shm_call_exit(context: BtfTracePointContext) -> i32 {
    exit(&context, Walk::run)
}

/// For kernels without `bpf_loop`.
#[btf_tracepoint(function = "sys_exit")]
pub fn shm_call_exit_bounded(context: BtfTracePointContext) -> i32 {
    exit(&context, Walk::run_bounded)
}

#[inline(always)]
fn exit(context: &BtfTracePointContext, run: impl Fn(u32)) -> i32 {
    let result = context.arg::<i64>(1);
    let call = Call::of(context);
    let number = call.number();
    if result < 0 {
        return 0;
    }
    match number {
        number::MMAP if call.third() & PROT_EXEC != 0 => code::mapped(&call),
        number::MPROTECT | number::PKEY_MPROTECT if call.third() & PROT_EXEC != 0 => code::allowed(call.first()),
        _ => {}
    }
    let born = match number {
        number::MMAP if is_on(FAMILY_ARENA) && arena::is_one(&call) => {
            Some((record::ARENA_BIRTH, [result as u64, call.second()]))
        }
        _ if !is_on(FAMILY_SHM) => None,
        number::OPEN | number::CREAT => segment(descriptors::opened(result as u32, call.first())),
        number::OPENAT | number::OPENAT2 => segment(descriptors::opened(result as u32, call.second())),
        number::MEMFD_CREATE => segment(descriptors::created(result as u32)),
        number::MMAP => segment(mappings::mapped(&call, result as u64)),
        _ => {
            others(&call, number, result as u64);
            None
        }
    };
    if let Some((kind, detail)) = born {
        birth(kind, detail, run);
    }
    0
}

#[inline(always)]
fn segment(made: Option<Key>) -> Option<(u32, [u64; 2])> {
    made.map(|key| (record::SHM_BIRTH, [key.ino, key.dev.into()]))
}

#[inline(always)]
fn others(call: &Call, number: u32, result: u64) {
    let (first, second) = (call.first(), call.second());
    match number {
        number::DUP | number::DUP2 | number::DUP3 => descriptors::tell(what::OPENED, result as u32),
        number::FCNTL if second == F_DUPFD || second == F_DUPFD_CLOEXEC => {
            descriptors::tell(what::OPENED, result as u32);
        }
        number::FCNTL if second == F_SETFD => descriptors::tell(what::MARKED, first as u32),
        number::IOCTL if second == FIOCLEX || second == FIONCLEX => descriptors::tell(what::MARKED, first as u32),
        number::FTRUNCATE | number::FALLOCATE => descriptors::tell(what::RESIZED, first as u32),
        number::RECVMSG => descriptors::message(what::RECEIVED, second),
        number::PIDFD_GETFD => descriptors::taken(result as u32, first),
        number::MREMAP => mappings::moved(first, second, call.third(), result),
        number::UNLINK => unlinked(first),
        number::UNLINKAT => unlinked(second),
        _ => {}
    }
}

/// Whether a string of the current process begins with the folder of shared memory.
#[inline(always)]
fn is_in_folder(path: u64) -> bool {
    user::<[u8; 9]>(path).is_some_and(|start| start == *FOLDER)
}

#[inline(always)]
fn unlinked(path: u64) {
    if hull().is_none() && !is_in_folder(path) {
        return;
    }
    ring::send_filled(|record: *mut Unlink| {
        // SAFETY: the record is ours until it is sent; the helper ends the string inside of it.
        unsafe {
            (*record).header = ring::header(record::SHM_UNLINK);
            let name = (&raw mut (*record).path).cast();
            aya_ebpf::helpers::generated::bpf_probe_read_user_str(name, NAME_MAX as u32, path as *const _) > 0
        }
    });
}

/// Sends where a segment was made, or an arena, if it was in a watched process. User space should look at once: a program
/// that only makes a segment may end in a moment, and its names with it.
#[inline(always)]
fn birth(kind: u32, detail: [u64; 2], run: impl Fn(u32)) {
    let Some(process) = watched() else { return };
    let registers = Registers::saved();
    let number = Walk::number(SLOT_TASK);
    let Some(walk) = Walk::begin(number, SLOT_TASK) else { return };
    walk.sample.flags |= stack::flags::KERNEL_MODE;
    walk.sample.header = ring::header(kind);
    walk.sample.detail = detail;
    walk.start(process, &registers);
    run(number);
    ring::send_now(walk.record());
}

#[inline(always)]
fn pid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

#[inline(always)]
pub fn watched() -> Option<&'static Process> {
    // SAFETY: the value is read while others may update it: a torn one is an address that fails its checks.
    unsafe { PROCESSES.get(pid()) }
}

/// Of the current process, if it holds or held a segment.
#[inline(always)]
fn hull() -> Option<Hull> {
    // SAFETY: the value is copied; only threads of this process and user space write it.
    unsafe { SHM_HOLDERS.get(pid()) }.copied()
}

/// Notes that the current process holds something.
#[inline(always)]
fn hold(hull: Hull) {
    put(&SHM_HOLDERS, &pid(), &hull, loss::SHM_TABLE);
}

/// What is known of the inode, if it is a segment.
#[inline(always)]
fn facts(inode: Inode) -> Option<Facts> {
    let key = inode.key()?;
    let known = SHM_SEGMENTS.get_ptr_mut(key)?;
    let facts = inode.facts(key);
    // SAFETY: the pointer is to an element of the map; two that come at once write the same.
    unsafe {
        if (*known).found != 0 {
            *known = Known { generation: facts.generation, found: 0 };
        }
        ((*known).generation == facts.generation).then_some(facts)
    }
}

/// Makes a segment of what is none yet.
#[inline(always)]
fn begin(file: File, inode: Inode, flags: u32) -> Option<Facts> {
    let key = inode.key()?;
    let facts = inode.facts(key);
    if !put(&SHM_SEGMENTS, &key, &Known { generation: facts.generation, found: 0 }, loss::SHM_TABLE) {
        return None;
    }
    ring::send_filled(|record: *mut Segment| {
        // SAFETY: the record is ours until it is sent; the helper ends the string inside of it.
        unsafe {
            (*record).header = ring::header(record::SHM_SEGMENT);
            (*record).facts = facts;
            (*record).magic = inode.magic();
            (*record).flags = flags;
            let name = (&raw mut (*record).name).cast();
            let text = file.name().unwrap_or(0) as *const _;
            if aya_ebpf::helpers::generated::bpf_probe_read_kernel_str(name, NAME_MAX as u32, text) <= 0 {
                (*record).name[0] = 0;
            }
            true
        }
    });
    Some(facts)
}

/// A change with nothing in it yet but who and to which.
#[inline(always)]
fn change(what: u32, facts: Facts) -> Change {
    Change { header: ring::header(record::SHM_CHANGE), facts, what, ..Change::default() }
}

#[inline(always)]
fn send(change: &Change) {
    // SAFETY: plain integers without padding (pyobs-abi asserts it).
    ring::send(unsafe { core::slice::from_raw_parts((&raw const *change).cast(), size_of::<Change>()) });
}
