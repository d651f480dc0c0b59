//! The BPF program of `pyobs dump`. It has its own object, without maps, which loads quickly.
#![no_std]
#![no_main]
#![expect(dead_code, reason = "the modules are shared with the other object, which uses more of them")]

#[path = "../common/iterator.rs"]
mod iterator;
#[path = "../common/object.rs"]
mod object;
#[path = "../common/registers.rs"]
mod registers;
#[path = "../common/typed.rs"]
mod typed;

use core::ffi::c_void;

use iterator::{TASK, word, write};
use pyobs_abi::dump::{Thread, flags};
use registers::Registers;
use typed::{Typed, TypedTask};

/// Lists the threads of the machine.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
extern "C" fn dump_thread(context: *const c_void) -> i32 {
    // SAFETY: it is the context of this program.
    let task = unsafe { word(context, TASK) };
    if task == 0 {
        return 0;
    }
    // SAFETY: the iterator holds the task.
    let registers = unsafe { Registers::saved_of(task as *mut c_void) };
    let task = TypedTask(Typed(task as *const u8));
    let after = if registers.after { flags::AFTER } else { 0 };
    let throttled = if task.is_throttled() { flags::THROTTLED } else { 0 };
    let row = Thread {
        pid: task.tgid(),
        tid: task.pid(),
        flags: after | throttled,
        padding: 0,
        ip: registers.ip,
        sp: registers.sp,
        bp: registers.bp,
    };
    write(context, &row);
    0
}
