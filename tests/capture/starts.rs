//! Follows interpreters through their start, from one system call to the next. What they ask the kernel for tells, without
//! their memory, whether they run Python code yet.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use pyobs_capture::cpython::attached::Progress;
use pyobs_capture::cpython::mapped::attach_to;
use pyobs_capture::memory::{Memory as _, ProcessMemory};
use pyobs_tests::{Case, Python};

use crate::for_every_python;

pub fn cases() -> Vec<Case> {
    for_every_python("starts", "the_progress_of_a_start_is_known_before_code_runs", progress)
}

/// The first package that an interpreter imports from a file, in Python code.
const FIRST_IMPORT: &str = "/encodings/__init__";
const SYSTEM_CALLS_MAX: usize = 2000;
const PATH_MAX: usize = 256;

fn progress(python: &Python) {
    let mut command = python.command();
    command.args(["-S", "-E", "-c", "pass"]);
    let mut traced = Traced::start(command);
    let mut seen = Vec::new();
    for _ in 0..SYSTEM_CALLS_MAX {
        let imports = traced.paths().iter().any(|path| path.contains(FIRST_IMPORT));
        if let Some(Ok(attachment)) = attach_to(traced.pid.cast_unsigned()).unwrap() {
            seen.push(attachment.progress);
        }
        if imports {
            break;
        }
        traced.next_system_call();
    }
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(seen.first(), Some(&Progress::Loaded), "{seen:?}");
    assert_eq!(seen.last(), Some(&Progress::MayHaveRun), "{seen:?}");
    assert!(seen.contains(&Progress::Initializing), "{seen:?}");
}

/// A child that stops before and after each system call.
struct Traced {
    child: Child,
    pid: libc::pid_t,
}

impl Traced {
    /// It stops after its exec.
    fn start(mut command: Command) -> Self {
        // SAFETY: ptrace is a plain system call, which may be made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        let pid = libc::pid_t::try_from(child.id()).unwrap();
        let traced = Self { child, pid };
        traced.wait();
        traced
    }

    fn wait(&self) {
        let mut status = 0;
        // SAFETY: a plain call on our own child; `status` outlives it.
        assert_eq!(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }, self.pid);
        assert!(libc::WIFSTOPPED(status), "it has ended: {status:#x}");
    }

    fn next_system_call(&mut self) {
        // SAFETY: a plain call on our own child, which has stopped.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.pid, 0, 0) }, 0);
        self.wait();
    }

    /// What the first two arguments of the system call point to, as text.
    fn paths(&self) -> [String; 2] {
        // SAFETY: only integers, for which zero is valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: `registers` has the type that PTRACE_GETREGS fills, and outlives the call.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers) }, 0);
        let memory = ProcessMemory::new(self.pid.cast_unsigned());
        [registers.rdi, registers.rsi].map(|address| {
            let text: Vec<u8> = (address..).take(PATH_MAX).map_while(|at| byte(&memory, at)).collect();
            String::from_utf8_lossy(&text).into_owned()
        })
    }
}

/// `None` for the end of a text.
fn byte(memory: &ProcessMemory, at: u64) -> Option<u8> {
    let mut byte = [0];
    memory.read(at, &mut byte).ok().filter(|()| byte != [0])?;
    Some(byte[0])
}

impl Drop for Traced {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
