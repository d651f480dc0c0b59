//! The family `ucx`: transfers of UCX, at the beginnings and ends of the calls that submit them, and at the beginnings
//! of the functions that complete them. [`ucxx`] has what comes before and after if the caller is UCXX.
//!
//! Requests are joined here, because a request's address is reused within microseconds. A transfer leaves the kernel
//! once, when it is complete.
//!
//! Layouts: <https://github.com/openucx/ucx/blob/v1.18.0/src/ucp/api/ucp.h>.

mod counting;
mod progress;
mod stacks;
mod submission;
mod table;
mod ucxx;

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::uprobe, programs::ProbeContext};
use pyobs_abi::{
    control::{COUNTED, counted},
    probe::Call,
    record::Loss,
    ucx::{Early, NOWHERE, Transfer, activity, callback, flags, operation},
};

use self::{
    stacks::{send_stack, wants_stack},
    submission::{CONTIGUOUS, Submitted, hash, word},
    table::{CALLS, EARLY, OPEN, REQUESTS, announce, finish, is_of_ucxx, key, new, remember, sum, take, thread},
};
use crate::common::{
    maps::{control, count_loss, watched},
    memory::user,
    probe::{self, arguments, call, cookie},
};

/// Results from here on are negative statuses: `UCS_ERR_LAST` in
/// <https://github.com/openucx/ucx/blob/v1.18.0/src/ucs/type/status.h>.
const LOWEST_ERROR: u64 = -100_i64 as u64;
/// A bit of `ucp_am_recv_param_t.recv_attr`: only the announcement of the message has arrived
/// (`UCP_AM_RECV_ATTR_FLAG_RNDV`).
const ANNOUNCED: u64 = 1 << 17;
/// The offset of the callback in `ucp_am_handler_param_t`, behind the mask, the number and the flags.
const HANDLER: u64 = 16;

/// A call that submits a transfer begins.
#[uprobe]
pub fn ucx_submit_enter(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    let which = control(COUNTED);
    if which == counted::ALL {
        counting::submitted(&context);
    } else if let Some(process) = watched() {
        send_stack(&context, process, begin(&context, which));
    }
    0
}

/// Returns the id of a transfer whose stack is wanted, or 0. Not inlined: its frame holds a transfer, and does not fit
/// beside those of a walk ([`crate::calls`]).
#[inline(never)]
fn begin(context: &ProbeContext, which: u64) -> u64 {
    follow(context, which).unwrap_or(0)
}

#[inline(always)]
fn follow(context: &ProbeContext, which: u64) -> Option<u64> {
    let Submitted { submission, words, kind, buffer, bytes, callback, data } = Submitted::of(context)?;
    let call = call(context);
    let registered = data.and_then(|data| REQUESTS.get_ptr_mut(key(data)));
    let mut transfer = match registered {
        // SAFETY: the pointer is to an element of the map; only its own request's thread writes it now.
        Some(registered) if unsafe { (*registered).completed } == 0 => unsafe { *registered },
        _ => new(),
    };
    let is_new = transfer.request == 0;
    if let Some(thread) = thread() {
        // SAFETY: the pointer is to an element of the map; the key is the current thread.
        unsafe {
            (*thread).counts[activity::SUBMIT] += 1;
            if is_new {
                (*thread).counts[activity::REGISTER] += 1;
                // UCXX fetches a message that has arrived.
                if (*thread).current_stack > call.stack && submission.operation() == operation::AM_RECV {
                    transfer.flags |= (*thread).current_flags as u32 & (flags::UCXX | flags::RENDEZVOUS);
                }
            } else if transfer.register_tid != call.thread as u32 {
                (*thread).counts[activity::DISPATCH] += 1;
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
    if sends && transfer.flags & flags::REPORTED != 0 && kind & 7 == CONTIGUOUS {
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

/// A call that submitted a transfer ends.
#[uprobe]
pub fn ucx_submit_exit(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    let _ = returned(call(&context), probe::result(&context));
    0
}

/// A call that submitted a transfer has returned `handle`: a request, 0 or an error. `call` has the address of its
/// return address or, if UCXX publishes the result, UCXX's request.
#[inline(always)]
fn returned(call: Call, handle: u64) -> Option<()> {
    // SAFETY: the value is copied; its thread is here.
    let mut transfer = unsafe { CALLS.get(call) }.copied()?;
    let _ = CALLS.remove(call);
    let registered = if transfer.request == 0 { None } else { REQUESTS.get_ptr_mut(key(transfer.request)) };
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
    // Another thread may have completed it before this one is back. The one that removes it reports it.
    if let Some(registered) = registered {
        // SAFETY: the pointer is to an element of the map.
        unsafe {
            (&raw mut (*registered).handle).write_volatile(handle);
            transfer.completed = (&raw const (*registered).completed).read_volatile();
            transfer.status = (*registered).status;
            transfer.complete_tid = (*registered).complete_tid;
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

/// A callback that completes a request begins: its arguments are the request, a status and more.
#[uprobe]
pub fn ucx_complete(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if watched().is_none() {
        return 0;
    }
    let ([handle, status, more, ..], call) = (arguments(&context), call(&context));
    let status = i32::from(status as i8);
    let mut taken = take(handle);
    if let Some(thread) = thread() {
        // SAFETY: the pointer is to an element of the map; the key is the current thread.
        unsafe { (*thread).called_back = handle };
    }
    if taken.is_none() {
        // SAFETY: the helper has no preconditions.
        let completed = unsafe { bpf_ktime_get_ns() };
        // A full table makes room by itself.
        let _ = EARLY.insert(key(handle), Early { completed, tid: call.thread as u32, status }, 0);
        taken = take(handle);
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

/// A request is freed. If it is still pending here, no callback has reported its completion. A request of UCX then
/// completes here; one of UCXX completes when UCXX sets its status, which comes next. The cookie is the distance from
/// the request back to the library's own part of it, which begins with the status; 0 if unknown:
/// <https://github.com/openucx/ucx/blob/v1.18.0/src/ucp/core/ucp_request.h>
#[uprobe]
pub fn ucx_free(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if watched().is_none() {
        return 0;
    }
    let (handle, call) = (arguments(&context)[0], call(&context));
    let Some(mut transfer) = take(handle) else {
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

/// Returns the status that the library has stored, unless the transfer is still under way.
#[inline(always)]
fn own_status(handle: u64, before: u64) -> Option<i32> {
    if before == 0 {
        return None;
    }
    let status = i32::from(user::<u8>(handle.wrapping_sub(before))? as i8);
    (status <= 0).then_some(status)
}

/// Counts a UCXX transfer whose beginning was not seen. UCXX frees a request while it sets the status of its own, so an
/// unknown request that is freed within such a call is one. If its callback was called, `EARLY` has it already.
#[inline(always)]
fn half_seen(handle: u64, stack: u64) {
    let Some(thread) = thread() else { return };
    // SAFETY: the pointer is to an element of the map; the key is the current thread.
    unsafe {
        let is_unknown = (*thread).unknown_stack > stack && (*thread).called_back != handle;
        // If it was counted when it was submitted, nothing is missing.
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
            (*thread).counts[activity::COMPLETE] += 1;
            (*thread).current = transfer.id;
            (*thread).current_stack = stack;
            (*thread).current_flags = transfer.flags.into();
        }
    }
    transfer.complete_tid = aya_ebpf::helpers::bpf_get_current_pid_tgid() as u32;
    finish(&transfer);
}

/// An active message has arrived. The arguments are the handler's word, header and length, data and length, and a
/// description of the message. The cookie is 1 for UCXX's handler.
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
            (*thread).counts[activity::COMPLETE] += u64::from(is_all);
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

/// The call that sends a message announces it to the receiver, or a receiver begins to receive an announced message.
/// The cookie is 0 for the former. Else the second argument is the library's own part of a request, and the cookie is
/// the distance from it to the request.
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
