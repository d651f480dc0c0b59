//! The family `ucx`: transfers of UCX, at the beginnings and ends of the calls that submit them and at the beginnings of
//! what completes them. [`ucxx`] has what comes before and after where the caller is UCXX.
//!
//! Requests are joined here: a request's address is used again within microseconds. A transfer leaves the kernel once,
//! when it is over.

mod asked;
mod counting;
mod progress;
mod table;
mod ucxx;

use core::hint::black_box;

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::{bpf_ktime_get_ns, generated::bpf_get_attach_cookie},
    macros::uprobe,
    programs::ProbeContext,
};
use pyobs_abi::{
    arena::library::Call,
    control::{COUNTED, counted},
    record::Loss,
    ucx::{Early, NOWHERE, ON_STACK, Submission, Transfer, callback, deed, flags, operation},
};

use self::{
    asked::{tell_stack, wants_stack},
    table::{CALLS, EARLY, OPEN, REQUESTS, announce, finish, is_of_ucxx, key, new, remember, sum, thread, took},
};
use crate::common::{
    maps::{control, count_loss, watched},
    memory::user,
    probe::{self, arguments, call},
};

/// Of ucp/api/ucp.h: bits of `ucp_request_param_t.op_attr_mask`.
const HAS_CALLBACK: u64 = 2;
const HAS_USER_DATA: u64 = 4;
const HAS_DATATYPE: u64 = 8;
/// Kinds of `ucp_datatype_t`, which are its lowest three bits.
const CONTIGUOUS: u64 = 0;
const VECTOR: u64 = 2;
/// Parts of a vector that are added up.
const PARTS: u64 = 8;
/// Results from here on are negative statuses (UCS_ERR_LAST in ucs/type/status.h).
const LOWEST_ERROR: u64 = -100_i64 as u64;
/// Of `ucp_am_recv_param_t.recv_attr`: only the message's announcement has come (UCP_AM_RECV_ATTR_FLAG_RNDV).
const ANNOUNCED: u64 = 1 << 17;
/// Where `ucp_am_handler_param_t` has the callback: behind the mask, the number and the flags.
const HANDLER: u64 = 16;

/// What a call is given that submits a transfer.
struct Submitted {
    submission: Submission,
    words: [u64; 6],
    /// A `ucp_datatype_t`.
    kind: u64,
    buffer: u64,
    bytes: u64,
    /// 0 for none.
    callback: u64,
    /// The caller's word.
    data: Option<u64>,
}

impl Submitted {
    #[inline(always)]
    fn of(context: &ProbeContext) -> Option<Self> {
        let submission = Submission(cookie(context));
        let words = arguments(context);
        let at = match submission.parameters() {
            ON_STACK => user(call(context).stack.wrapping_add(8))?,
            number => word(&words, number),
        };
        // The mask and the flags, the request, the callback, the datatype, the caller's word.
        let [mask, _, callback, datatype, data]: [u64; 5] = user(at)?;
        let callback = if mask & HAS_CALLBACK == 0 { 0 } else { callback };
        let (buffer, count) = (word(&words, submission.buffer()), word(&words, submission.count()));
        let kind = if mask & HAS_DATATYPE == 0 { 1 << 3 } else { datatype };
        let bytes = match kind & 7 {
            CONTIGUOUS => count.wrapping_mul(kind >> 3),
            VECTOR => vector(buffer, count),
            _ => 0,
        };
        let data = (mask & HAS_USER_DATA != 0).then_some(data);
        Some(Self { submission, words, kind, buffer, bytes, callback, data })
    }
}

/// A call begins that submits a transfer.
#[uprobe]
pub fn ucx_submit_enter(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    let which = control(COUNTED);
    if which == counted::ALL {
        counting::submitted(&context);
    } else if let Some(process) = watched() {
        tell_stack(&context, process, begin(&context, which));
    }
    0
}

/// Returns the id of a transfer whose stack is wanted, or 0. Not inlined: the frame holds a transfer, and does not fit beside those
/// of a walk ([`crate::calls`]).
#[inline(never)]
fn begin(context: &ProbeContext, which: u64) -> u64 {
    follow(context, which).unwrap_or(0)
}

#[inline(always)]
fn follow(context: &ProbeContext, which: u64) -> Option<u64> {
    let Submitted { submission, words, kind, buffer, bytes, callback, data } = Submitted::of(context)?;
    let call = call(context);
    let asked = data.and_then(|data| REQUESTS.get_ptr_mut(key(data)));
    let mut transfer = match asked {
        // SAFETY: the pointer is to an element of the map; only its own request's thread writes it now.
        Some(asked) if unsafe { (*asked).completed } == 0 => unsafe { *asked },
        _ => new(),
    };
    let is_new = transfer.request == 0;
    if let Some(thread) = thread() {
        // SAFETY: the pointer is to an element of the map; the key is the current thread.
        unsafe {
            (*thread).counts[deed::SUBMIT] += 1;
            if is_new {
                (*thread).counts[deed::REGISTER] += 1;
                // A message that has come to UCXX is fetched.
                if (*thread).current_stack > call.stack && submission.operation() == operation::AM_RECV {
                    transfer.flags |= (*thread).current_flags as u32 & (flags::UCXX | flags::RENDEZVOUS);
                }
            } else if transfer.register_tid != call.thread as u32 {
                (*thread).counts[deed::DISPATCH] += 1;
            }
        }
    }
    transfer.operation = submission.operation();
    transfer.submit_tid = call.thread as u32;
    transfer.through = words[0];
    transfer.buffer = buffer;
    transfer.bytes = bytes;
    if is_new && which != counted::NONE {
        let is_of_ucxx = is_of_ucxx(callback);
        if is_of_ucxx || which == counted::NEW {
            sum(transfer.operation, is_of_ucxx, bytes);
            return None;
        }
    } else if transfer.flags & flags::UCXX != 0 {
        remember(callback);
    }
    if submission.tag() != NOWHERE {
        transfer.tag = word(&words, submission.tag());
        transfer.flags |= flags::HAS_TAG;
    }
    let sends = matches!(
        transfer.operation,
        operation::TAG_SEND | operation::STREAM_SEND | operation::AM_SEND | operation::PUT
    );
    if sends && transfer.flags & flags::TOLD != 0 && kind & 7 == CONTIGUOUS {
        hash(&mut transfer);
    }
    // SAFETY: the helper has no preconditions.
    transfer.submitted = unsafe { bpf_ktime_get_ns() };
    let own = if transfer.flags & flags::PUBLISHED == 0 { call.stack } else { transfer.request };
    // A full table makes room by itself.
    let _ = CALLS.insert(Call { stack: own, ..call }, transfer, 0);
    if is_new && callback != 0 {
        let kind = match transfer.operation {
            operation::TAG_RECV => callback::TAG,
            operation::STREAM_RECV | operation::AM_RECV => callback::LENGTH,
            _ => callback::SEND,
        };
        announce(callback, kind);
    }
    is_new.then(|| wants_stack(&transfer))
}

/// A call ends that submitted a transfer.
#[uprobe]
pub fn ucx_submit_exit(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    let registers: *const pt_regs = context.as_ptr().cast();
    // SAFETY: as in `probe::arguments`.
    let handle = unsafe { (&raw const (*registers).rax).read_volatile() };
    let _ = returned(call(&context), handle);
    0
}

/// A call that submitted a transfer has returned this: a request, 0 or an error. It is known by where its return address is, or
/// by UCXX's request, which tells of it.
#[inline(always)]
fn returned(call: Call, handle: u64) -> Option<()> {
    // SAFETY: the value is copied; its thread is here.
    let mut transfer = unsafe { CALLS.get(call) }.copied()?;
    let _ = CALLS.remove(call);
    let asked = if transfer.request == 0 { None } else { REQUESTS.get_ptr_mut(key(transfer.request)) };
    // SAFETY: the pointer is to an element of the map; the key is the current thread.
    if thread().is_some_and(|thread| unsafe { (*thread).rendezvous } >= transfer.submitted) {
        transfer.flags |= flags::RENDEZVOUS;
    }
    let may_be_eager = matches!(transfer.operation, operation::TAG_SEND | operation::TAG_RECV | operation::AM_SEND);
    if handle == 0 && may_be_eager && transfer.flags & flags::RENDEZVOUS == 0 {
        transfer.flags |= flags::EAGER;
    }
    if handle == 0 || handle >= LOWEST_ERROR {
        transfer.status = handle as i32;
        transfer.flags |= flags::IMMEDIATE | flags::HAS_STATUS;
        // SAFETY: the helper has no preconditions.
        transfer.completed = unsafe { bpf_ktime_get_ns() };
        transfer.complete_tid = call.thread as u32;
        finish(&transfer);
        return Some(());
    }
    transfer.handle = handle;
    let open = key(handle);
    if OPEN.insert(open, transfer, 0).is_err() {
        count_loss(Loss::TransferTable);
    }
    // Another thread may have completed it before this one is back. Whoever removes it tells of it.
    if let Some(asked) = asked {
        // SAFETY: the pointer is to an element of the map.
        unsafe {
            (&raw mut (*asked).handle).write_volatile(handle);
            transfer.completed = (&raw const (*asked).completed).read_volatile();
            transfer.status = (*asked).status;
            transfer.complete_tid = (*asked).complete_tid;
        }
    // SAFETY: the value is copied.
    } else if let Some(early) = unsafe { EARLY.get(open) }.copied()
        && early.completed >= transfer.submitted
    {
        let _ = EARLY.remove(open);
        transfer.completed = early.completed;
        transfer.status = early.status;
        transfer.complete_tid = early.tid;
    }
    if transfer.completed != 0 && OPEN.remove(open).is_ok() {
        transfer.flags |= flags::HAS_STATUS;
        finish(&transfer);
    }
    Some(())
}

/// A callback begins that completes a request: its arguments are the request, a status and more.
#[uprobe]
pub fn ucx_complete(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if watched().is_none() {
        return 0;
    }
    let ([handle, status, more, ..], call) = (arguments(&context), call(&context));
    let status = i32::from(status as i8);
    let mut taken = took(handle);
    if let Some(thread) = thread() {
        // SAFETY: the pointer is to an element of the map; the key is the current thread.
        unsafe { (*thread).called_back = handle };
    }
    if taken.is_none() {
        // SAFETY: the helper has no preconditions.
        let completed = unsafe { bpf_ktime_get_ns() };
        // A full table makes room by itself.
        let _ = EARLY.insert(key(handle), Early { completed, tid: call.thread as u32, status }, 0);
        taken = took(handle);
    }
    let Some(mut transfer) = taken else { return 0 };
    let length = match cookie(&context) as u32 {
        callback::TAG => user(more.wrapping_add(8)),
        callback::LENGTH => Some(more),
        _ => None,
    };
    transfer.bytes = length.unwrap_or(transfer.bytes);
    complete(transfer, Some(status), call.stack);
    0
}

/// A request is given back. One that no callback has completed was completed before; of UCXX's, the status comes next. The cookie
/// is how many bytes before it the library's own part of it lies, which begins with its status (ucp/core/ucp_request.h), or 0.
#[uprobe]
pub fn ucx_free(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if watched().is_none() {
        return 0;
    }
    let (handle, call) = (arguments(&context)[0], call(&context));
    let Some(mut transfer) = took(handle) else {
        half_seen(handle, call.stack);
        return 0;
    };
    if transfer.request == 0 {
        complete(transfer, own_status(handle, cookie(&context)), call.stack);
    } else {
        transfer.handle = 0;
        // A full table makes room by itself.
        let _ = REQUESTS.insert(key(transfer.request), transfer, 0);
    }
    0
}

/// The status that the library has written down, unless the transfer is still under way.
#[inline(always)]
fn own_status(handle: u64, before: u64) -> Option<i32> {
    if before == 0 {
        return None;
    }
    let status = i32::from(user::<u8>(handle.wrapping_sub(before))? as i8);
    (status <= 0).then_some(status)
}

/// UCXX gives a request back while it completes it: one that is not known began before it could be seen. Where a callback was
/// called for it, that tells.
#[inline(always)]
fn half_seen(handle: u64, stack: u64) {
    let Some(thread) = thread() else { return };
    // SAFETY: the pointer is to an element of the map; the key is the current thread.
    unsafe {
        let is_unknown = (*thread).unknown_stack > stack && (*thread).called_back != handle;
        // Where it was counted when it was submitted, nothing is missing.
        if is_unknown && control(COUNTED) == counted::NONE {
            count_loss(Loss::TransferHalfSeen);
        }
        (*thread).unknown_stack = 0;
    }
}

#[inline(always)]
fn complete(mut transfer: Transfer, status: Option<i32>, stack: u64) {
    // SAFETY: the helper has no preconditions.
    transfer.completed = unsafe { bpf_ktime_get_ns() };
    if let Some(status) = status {
        transfer.status = status;
        transfer.flags |= flags::HAS_STATUS;
    }
    if let Some(thread) = thread() {
        // SAFETY: the pointer is to an element of the map; the key is the current thread.
        unsafe {
            (*thread).counts[deed::COMPLETE] += 1;
            (*thread).current = transfer.id;
            (*thread).current_stack = stack;
            (*thread).current_flags = transfer.flags.into();
        }
    }
    transfer.complete_tid = aya_ebpf::helpers::bpf_get_current_pid_tgid() as u32;
    finish(&transfer);
}

/// An active message has come: the arguments are the handler's word, header and length, data and length, and what the
/// message is. The cookie is 1 for UCXX's handler.
#[uprobe]
pub fn ucx_message(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if watched().is_none() {
        return 0;
    }
    let [_, _, _, buffer, bytes, about] = arguments(&context);
    let call = call(&context);
    let mut transfer = new();
    transfer.flags |= if cookie(&context) == 0 { 0 } else { flags::UCXX };
    let is_all = user::<u64>(about).is_some_and(|attributes| attributes & ANNOUNCED == 0);
    if let Some(thread) = thread() {
        // SAFETY: as in `complete`.
        unsafe {
            (*thread).counts[deed::COMPLETE] += u64::from(is_all);
            (*thread).current = if is_all { transfer.id } else { 0 };
            (*thread).current_stack = call.stack;
            (*thread).current_flags = (transfer.flags | if is_all { 0 } else { flags::RENDEZVOUS }).into();
        }
    }
    if is_all {
        transfer.operation = operation::AM_RECV;
        transfer.flags |= flags::IMMEDIATE | flags::HAS_STATUS | flags::EAGER;
        transfer.buffer = buffer;
        transfer.bytes = bytes;
        // SAFETY: the helper has no preconditions.
        transfer.submitted = unsafe { bpf_ktime_get_ns() };
        transfer.completed = transfer.submitted;
        transfer.submit_tid = call.thread as u32;
        transfer.complete_tid = call.thread as u32;
        finish(&transfer);
    }
    0
}

/// A handler of active messages is set.
#[uprobe]
pub fn ucx_handler(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if watched().is_some()
        && let Some(address) = user::<u64>(arguments(&context)[1].wrapping_add(HANDLER))
    {
        announce(address, callback::MESSAGE);
    }
    0
}

/// A receiver is told of a message to come, by the call that sends it, or begins to receive one that it was told of. The
/// cookie is 0 for the former, else how many bytes before a request the library's own part of it lies, which is the second
/// argument then.
#[uprobe]
pub fn ucx_rendezvous(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if watched().is_none() {
        return 0;
    }
    let before = cookie(&context);
    let own = arguments(&context)[1];
    let open = if before == 0 { None } else { OPEN.get_ptr_mut(key(own.wrapping_add(before))) };
    match (open, thread()) {
        // SAFETY: the pointer is to an element of the map. Nobody else writes the flags of one that is pending.
        (Some(open), _) => unsafe { (*open).flags |= flags::RENDEZVOUS },
        // SAFETY: the pointer is to an element of the map; the key is the current thread.
        (None, Some(thread)) => unsafe { (*thread).rendezvous = bpf_ktime_get_ns() },
        (None, None) => {}
    }
    0
}

#[inline(always)]
fn cookie(context: &ProbeContext) -> u64 {
    // SAFETY: the helper takes the context of a program that is attached to a perf event.
    unsafe { bpf_get_attach_cookie(context.as_ptr()) }
}

#[inline(always)]
fn word(words: &[u64; 6], number: u64) -> u64 {
    match number {
        0 => words[0],
        1 => words[1],
        2 => words[2],
        3 => words[3],
        4 => words[4],
        _ => words[5],
    }
}

/// What a vector's parts have together: address and length each (`ucp_dt_iov_t`).
#[inline(always)]
fn vector(buffer: u64, count: u64) -> u64 {
    let (mut part, mut bytes) = (0, 0_u64);
    let count = black_box(count);
    while part < PARTS {
        if part >= count {
            break;
        }
        let length = user::<u64>(buffer.wrapping_add(part * 16 + 8)).unwrap_or(0);
        bytes = bytes.wrapping_add(length);
        part += 1;
    }
    bytes
}

/// A sample of what is sent: four pieces of 32 bytes.
#[inline(always)]
fn hash(transfer: &mut Transfer) {
    const PIECE: u64 = 32;
    const PIECES: u64 = 4;
    if transfer.bytes < PIECE {
        return;
    }
    let step = (transfer.bytes - PIECE) / (PIECES - 1);
    // FNV-1a, by words.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut piece = 0;
    while piece < PIECES {
        let Some(words) = user::<[u64; 4]>(transfer.buffer.wrapping_add(piece * step)) else { return };
        for word in words {
            hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
        }
        piece += 1;
    }
    transfer.hash = hash;
    transfer.flags |= flags::HAS_HASH;
}
