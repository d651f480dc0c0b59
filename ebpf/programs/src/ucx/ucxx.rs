//! UCXX: which thread begins a transfer before it reaches UCX, and which thread is woken when it is complete.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::uprobe, programs::ProbeContext};
use pyobs_abi::{
    control::{COUNTED, counted},
    probe::Call,
    record::{self, Loss},
    ucx::{Future, Thread, Transfer, Woken, activity, flags, operation, site},
};

use super::{
    returned,
    stacks::{send_stack, wants_stack},
    table::{FUTURES, OPEN, REQUESTS, finish, key, new, sum, thread},
};
use crate::common::{
    maps::{control, count_loss, watched},
    memory::user,
    probe::{self, arguments, call, cookie},
    ring::{self, Route},
};

/// A function of UCXX begins or ends; the cookie says which.
#[uprobe]
pub fn ucx_ucxx(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if let Some(process) = watched() {
        send_stack(&context, process, come(&context));
    }
    0
}

/// Returns the id of a transfer whose stack is wanted, or 0. Not inlined, as [`super::begin`].
#[inline(never)]
fn come(context: &ProbeContext) -> u64 {
    follow(context).unwrap_or(0)
}

#[inline(always)]
fn follow(context: &ProbeContext) -> Option<u64> {
    let ([first, second, ..], call) = (arguments(context), call(context));
    let thread = thread()?;
    let site = cookie(context);
    let _ = match site {
        site::REGISTER | site::REGISTER_PUBLISHED => {
            let more = if site == site::REGISTER { 0 } else { flags::PUBLISHED };
            return register(&call, (second, more), thread);
        }
        site::PUBLISH => returned(Call { stack: first, ..call }, second),
        site::MULTI_SEND | site::MULTI_RECV => {
            let operation = if site == site::MULTI_SEND { operation::MULTI_SEND } else { operation::MULTI_RECV };
            return several(&call, (first, operation), thread);
        }
        site::STATUS => status(first, second, call.stack, thread),
        _ => {
            // SAFETY: the pointer is to an element of the map; the key is the current thread.
            unsafe { rest(site, first, call.stack, thread) }
        }
    };
    None
}

/// A request is registered. `shared` is the address of a shared pointer to it, and `more` are additional flags.
#[inline(always)]
fn register(call: &Call, (shared, more): (u64, u32), thread: *mut Thread) -> Option<u64> {
    if matches!(control(COUNTED), counted::NEW | counted::ALL) {
        return None;
    }
    let request = user(shared)?;
    let mut transfer = new();
    // SAFETY: the pointer is to an element of the map; the key is the current thread.
    unsafe {
        (*thread).counts[activity::REGISTER] += 1;
        // The call that makes parts has not returned: its return address is where it was.
        if (*thread).parent != 0
            && (*thread).parent_stack > call.stack
            && user((*thread).parent_stack) == Some((*thread).parent_return)
        {
            transfer.parent = (*thread).parent;
            transfer.flags = (*thread).parent_flags as u32 & flags::REPORTED;
        }
    }
    transfer.flags |= more;
    begun(&mut transfer, request, call.thread as u32);
    let _ = REQUESTS.insert(key(request), transfer, 0);
    (transfer.parent == 0).then(|| wants_stack(&transfer))
}

#[inline(always)]
fn begun(transfer: &mut Transfer, request: u64, tid: u32) {
    transfer.flags |= flags::UCXX;
    transfer.request = request;
    transfer.register_tid = tid;
    // SAFETY: the helper has no preconditions.
    transfer.registered = unsafe { bpf_ktime_get_ns() };
}

/// A request for several buffers is about to make its parts.
#[inline(always)]
fn several(call: &Call, (request, operation): (u64, u32), thread: *mut Thread) -> Option<u64> {
    let key = key(request);
    // SAFETY: the value is copied.
    let known = unsafe { REQUESTS.get(key) }.copied();
    let known = known.filter(|known| known.completed == 0 && known.operation == operation);
    let is_new = known.is_none();
    let mut transfer = known.unwrap_or_else(new);
    if is_new {
        begun(&mut transfer, request, call.thread as u32);
        transfer.operation = operation;
        transfer.submitted = transfer.registered;
        transfer.submit_tid = transfer.register_tid;
        // SAFETY: the pointer is to an element of the map; the key is the current thread.
        if unsafe { completes_unknown(thread, call.stack) } {
            transfer.flags = transfer.flags & !flags::REPORTED | flags::HALF_SEEN;
        }
        let _ = REQUESTS.insert(key, transfer, 0);
    }
    let is_half_seen = transfer.flags & flags::HALF_SEEN != 0;
    let is_new = is_new && !is_half_seen;
    // SAFETY: the pointer is to an element of the map; the key is the current thread.
    unsafe {
        (*thread).counts[activity::REGISTER] += u64::from(is_new);
        (*thread).parent = if is_half_seen { 0 } else { transfer.id };
        (*thread).parent_stack = call.stack;
        (*thread).parent_return = user(call.stack).unwrap_or(0);
        (*thread).parent_flags = transfer.flags.into();
    }
    if is_new && matches!(control(COUNTED), counted::NEW | counted::ALL) {
        sum(operation, true, 0);
        return None;
    }
    is_new.then(|| wants_stack(&transfer))
}

/// Whether the thread is in the call that completes an unknown request. What begins there belongs to a transfer whose
/// beginning was not seen.
#[inline(always)]
unsafe fn completes_unknown(thread: *mut Thread, stack: u64) -> bool {
    // SAFETY: the caller's promise.
    let (unknown, back) = unsafe { ((*thread).unknown_stack, (*thread).unknown_return) };
    // That call may have returned long ago.
    unknown > stack && user(unknown) == Some(back)
}

/// A request gets its status: it is complete.
#[inline(always)]
fn status(request: u64, status: u64, stack: u64, thread: *mut Thread) -> Option<()> {
    // A completed request stays until its memory is reused, perhaps by a request that was not registered.
    let registered = REQUESTS.get_ptr_mut(key(request)).filter(|registered| unsafe { (**registered).completed } == 0);
    // SAFETY: the pointer is to an element of the map; the key is the current thread.
    unsafe {
        (*thread).unknown_stack = 0;
        if registered.is_none() {
            (*thread).unknown_stack = stack;
            (*thread).unknown_return = user(stack).unwrap_or(0);
            // UCXX sets a status from within a message handler or a callback, which may have set `current`. A call that
            // is deeper in the stack than this one has returned, so its transfer is no longer current.
            if (*thread).current_stack < stack {
                (*thread).current = 0;
            }
        }
    }
    let registered = registered?;
    // SAFETY: the pointers are to elements of maps. A request is completed by one thread.
    let (handle, transfer) = unsafe {
        (*registered).status = i32::from(status as i8);
        (*registered).complete_tid = aya_ebpf::helpers::bpf_get_current_pid_tgid() as u32;
        (&raw mut (*registered).completed).write_volatile(bpf_ktime_get_ns());
        (*thread).current = (*registered).id;
        (*thread).current_stack = stack;
        (*thread).current_flags = (*registered).flags.into();
        ((&raw const (*registered).handle).read_volatile(), *registered)
    };
    if handle == 0 {
        if transfer.flags & flags::HALF_SEEN != 0 {
            count_loss(Loss::TransferHalfSeen);
        } else if transfer.operation != operation::NONE {
            let is_multi = matches!(transfer.operation, operation::MULTI_SEND | operation::MULTI_RECV);
            // SAFETY: as above.
            unsafe { (*thread).counts[activity::COMPLETE] += u64::from(!is_multi) };
            let transfer = Transfer { flags: transfer.flags | flags::HAS_STATUS, ..transfer };
            finish(&transfer);
        }
        return Some(());
    }
    let open = key(handle);
    // SAFETY: the value is copied.
    let mut pending = unsafe { OPEN.get(open) }.copied()?;
    // The request's memory may serve another by now.
    if pending.id != transfer.id || OPEN.remove(open).is_err() {
        return None;
    }
    pending.completed = transfer.completed;
    pending.complete_tid = transfer.complete_tid;
    pending.status = transfer.status;
    pending.flags |= flags::HAS_STATUS;
    // SAFETY: as above.
    unsafe { (*thread).counts[activity::COMPLETE] += 1 };
    finish(&pending);
    Some(())
}

/// # Safety
/// `thread` must point to the current thread's element.
#[inline(always)]
unsafe fn rest(site: u64, first: u64, stack: u64, thread: *mut Thread) -> Option<()> {
    // SAFETY: the caller's promise.
    unsafe {
        match site {
            site::MULTI_END if (*thread).parent_stack == stack => (*thread).parent = 0,
            site::NOTIFY if (*thread).current != 0 && (*thread).current_stack > stack => {
                let reported = (*thread).current_flags & u64::from(flags::REPORTED);
                let future = Future { id: (*thread).current, notified: bpf_ktime_get_ns(), reported };
                let _ = FUTURES.insert(key(first), future, 0);
                (*thread).current = 0;
            }
            site::WAIT => (*thread).counts[activity::NOTIFY] += 1,
            site::WAKE => {
                (*thread).counts[activity::WAKE] += 1;
                let future = FUTURES.get(key(first)).copied()?;
                let _ = FUTURES.remove(key(first));
                if future.reported != 0 {
                    let header = ring::header(record::UCX_WOKEN);
                    let woken = Woken { header, id: future.id, notified: future.notified };
                    ring::send(&woken, Route::lazy());
                }
            }
            _ => {}
        }
    }
    Some(())
}
