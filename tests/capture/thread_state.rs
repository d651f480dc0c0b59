//! Walks every way to a thread state by hand in live interpreters, and compares the results.
//!
//! The thread pointer is read with ptrace, which pyobs itself never uses: its kernel side takes it from the task.

use std::path::PathBuf;
use std::time::Duration;

use pyobs_capture::cpython::debug_offsets;
use pyobs_capture::cpython::find::{Interpreter, LayoutSource, inspect};
use pyobs_capture::cpython::offsets::Layout;
use pyobs_capture::cpython::thread_local::TlsAccess;
use pyobs_capture::libc_layout::{LibcLayout, inspect_libc};
use pyobs_capture::memory::{Memory as _, ProcessMemory};
use pyobs_tests::{Case, Python, Workload};

use crate::for_every_python;

pub fn cases() -> Vec<Case> {
    let what = "every_way_leads_to_the_same_thread_state_and_on_to_the_innermost_frame";
    for_every_python("thread_state", what, every_way)
}

/// A running interpreter.
struct Process {
    workload: Workload,
    memory: ProcessMemory,
    thread_pointer: u64,
}

const PROGRAM: &str = "
import sys
def innermost():
    print('ready', flush=True)
    while True: pass
innermost()
";

impl Process {
    /// The program must run Python code, because a waiting thread has given up its state (3.12+).
    fn start(python: &Python) -> Self {
        let mut command = python.command();
        command.args(["-S", "-E", "-c", PROGRAM]);
        let mut workload = Workload::start(command);
        assert_eq!(workload.line(), "ready");
        // It may still be returning from the write, during which it had given up the GIL.
        std::thread::sleep(Duration::from_millis(200));
        let pid = workload.pid();
        Self { thread_pointer: thread_pointer(pid), memory: ProcessMemory::new(pid), workload }
    }

    fn word(&self, address: u64) -> u64 {
        self.memory.read_u64(address).unwrap_or_else(|error| panic!("{address:#x}: {error}"))
    }
}

/// The files that a process maps, with the address that corresponds to address 0 of each.
pub fn modules(pid: u32) -> Vec<(PathBuf, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut modules: Vec<(PathBuf, u64)> = Vec::new();
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() == 6 && fields[5].starts_with('/') && fields[2] == "00000000" {
            let start = u64::from_str_radix(fields[0].split('-').next().unwrap(), 16).unwrap();
            // A file that is not relocatable is mapped where it was linked.
            let path = PathBuf::from(fields[5]);
            let fixed = std::fs::read(&path).is_ok_and(|data| data.get(16) == Some(&2));
            modules.push((path, if fixed { 0 } else { start }));
        }
    }
    modules
}

fn thread_pointer(pid: u32) -> u64 {
    let pid = libc::pid_t::try_from(pid).unwrap();
    // SAFETY: plain calls on our own child. `registers` has the type that PTRACE_GETREGS fills, and outlives the call.
    unsafe {
        assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0), 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0), 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        assert_eq!(libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers), 0);
        // A group stop keeps the process stopped, so that its memory does not change during the comparison.
        libc::kill(pid, libc::SIGSTOP);
        assert_eq!(libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0), 0);
        registers.fs_base
    }
}

fn by_key(process: &Process, libc: &LibcLayout, base: u64, interpreter: &Interpreter) -> Option<u64> {
    let key = interpreter.thread_state.key?;
    if let Some(initialized) = key.initialized {
        assert_ne!(process.memory.read_u32(base + initialized).unwrap(), 0);
    }
    let key = process.memory.read_u32(base + key.key).unwrap();
    assert!(key < libc.level1_size * libc.level2_size, "{key}");
    let pointer = process.thread_pointer + u64::from(libc.specific_offset) + u64::from(key / libc.level2_size) * 8;
    let element = libc.elements_offset + key % libc.level2_size * libc.element_size + libc.data_offset;
    Some(process.word(process.word(pointer) + u64::from(element)))
}

fn by_thread_local(process: &Process, libc: &LibcLayout, base: u64, interpreter: &Interpreter) -> Option<u64> {
    let dynamic = |module: u64, offset: u64| {
        let vector = process.word(process.thread_pointer + u64::from(libc.dtv_offset));
        let entry = vector + module * u64::from(libc.dtv_entry_size) + u64::from(libc.dtv_pointer_offset);
        process.word(entry) + offset
    };
    let address = match interpreter.thread_state.tls? {
        TlsAccess::Offset(offset) => process.thread_pointer.wrapping_add_signed(offset),
        TlsAccess::GotSlot(slot) => process.thread_pointer.wrapping_add(process.word(base + slot)),
        TlsAccess::Dynamic { module_id_slot, offset } => dynamic(process.word(base + module_id_slot), offset),
        TlsAccess::Descriptor { slot } => {
            let argument = process.word(base + slot + 8);
            if argument.cast_signed().unsigned_abs() < 1 << 30 {
                process.thread_pointer.wrapping_add(argument)
            } else {
                dynamic(process.word(argument), process.word(argument + 8))
            }
        }
    };
    Some(process.word(address))
}

/// The name of the innermost frame's code object.
fn innermost_name(process: &Process, layout: &Layout, state: u64) -> String {
    let mut frame = process.word(state + u64::from(layout.thread_state.frame));
    if let Some(cframe) = &layout.cframe {
        frame = process.word(frame + u64::from(cframe.current_frame));
    }
    let code = process.word(frame + u64::from(layout.frame.code)) & !u64::from(layout.frame.code_tags);
    let name = process.word(code + u64::from(layout.code.name));
    let flags = process.memory.read_u32(name + u64::from(layout.unicode.state)).unwrap();
    let flag = |shift: u8, mask: u32| flags >> shift & mask;
    let unicode = &layout.unicode;
    let what = (flag(unicode.kind_shift, 7), flag(unicode.compact_shift, 1), flag(unicode.ascii_shift, 1));
    assert_eq!(what, (1, 1, 1), "expected one byte, compact and ASCII");
    let length = process.word(name + u64::from(unicode.length));
    let mut text = vec![0; usize::try_from(length.min(100)).unwrap()];
    process.memory.read(name + u64::from(unicode.ascii_data), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn every_way(python: &Python) {
    let process = Process::start(python);
    let (mut interpreter, mut libc) = (None, None);
    for (module, base) in modules(process.workload.pid()) {
        let data = std::fs::read(&module).unwrap();
        if let Some(found) = inspect(&data).ok().flatten() {
            interpreter = Some((found, base));
        }
        libc = libc.or(inspect_libc(&data).ok().flatten());
    }
    let (interpreter, base) = interpreter.unwrap();
    let libc = libc.expect("no glibc was found");
    let version = interpreter.version;

    let by_key = by_key(&process, &libc, base, &interpreter);
    let by_thread_local = by_thread_local(&process, &libc, base, &interpreter);
    let state = by_key.or(by_thread_local).unwrap();
    if let (Some(by_key), Some(by_thread_local)) = (by_key, by_thread_local) {
        assert_eq!(by_key, by_thread_local, "{version}");
    }
    if let Some(current) = interpreter.current {
        assert_eq!(process.word(base + current), state, "{version}");
    }

    let from_memory;
    let layout = match interpreter.layout {
        LayoutSource::Table(layout) => layout,
        LayoutSource::DebugOffsets => {
            let runtime = base + interpreter.runtime.as_ref().unwrap().start;
            from_memory = debug_offsets::read(&process.memory, runtime, version).unwrap();
            &from_memory
        }
    };
    // The list that debuggers walk has the same state.
    let first = process.word(base + interpreter.interpreters_head.unwrap());
    assert_eq!(process.word(first + u64::from(layout.interpreter.threads_head)), state, "{version}");
    assert_eq!(process.word(state + u64::from(layout.thread_state.interpreter)), first, "{version}");
    assert_eq!(process.word(state + u64::from(layout.thread_state.thread_id)), process.thread_pointer, "{version}");
    if let Some(native) = layout.thread_state.native_thread_id {
        assert_eq!(process.word(state + u64::from(native)), u64::from(process.workload.pid()), "{version}");
    }
    assert_eq!(innermost_name(&process, layout, state), "innermost", "{version}");
}
