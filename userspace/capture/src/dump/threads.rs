//! What /proc says about the threads of a process.

use std::cell::RefCell;
use std::fs;
use std::thread;
use std::time::Duration;

use foldhash::HashMap;
use pyobs_model::dump::State;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::machine::monotonic;

/// Bounds the threads of a process.
const THREADS_MAX: usize = 16_384;
/// Bounds what is read of a file in /proc.
const NAME_MAX: usize = 256;

/// What the kernel knows of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    pub tid: u32,
    /// Its id in the innermost pid namespace that it is in.
    pub inner_tid: u32,
    pub name: String,
    pub state: State,
    pub cpu: Option<u32>,
    pub call: Option<Call>,
    pub kernel_function: Option<String>,
    pub asleep: Option<Duration>,
    /// How often it has given up a CPU. A thread that sleeps throughout has the same number.
    switches: u64,
}

/// Where a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The system call; `None` for a page fault.
    pub number: Option<u32>,
    pub arguments: [u64; 6],
}

impl Kernel {
    /// Whether it has not run since it was read. A thread that runs now may have run before.
    pub fn is_still_asleep(&self, pid: u32) -> bool {
        let rests = |state| matches!(state, State::Asleep | State::Uninterruptible | State::Stopped | State::Traced);
        rests(self.state)
            && Status::of(pid, self.tid).is_some_and(|now| rests(now.state) && now.switches == self.switches)
    }
}

/// The threads of a process. Those that end meanwhile are left out.
pub fn of_process(pid: u32, clock: &Clock) -> Vec<Kernel> {
    let tids = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut threads: Vec<Kernel> = tids.take(THREADS_MAX).filter_map(|tid| of_thread(pid, tid, clock)).collect();
    threads.sort_unstable_by_key(|thread| (thread.tid != pid, thread.tid));
    threads
}

fn read(pid: u32, tid: u32, file: &str) -> Option<String> {
    fs::read(format!("/proc/{pid}/task/{tid}/{file}")).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// One thread. `None` if it has ended.
pub fn of_thread(pid: u32, tid: u32, clock: &Clock) -> Option<Kernel> {
    let status = Status::of(pid, tid)?;
    let name = read(pid, tid, "comm")?.trim_end_matches('\n').chars().take(NAME_MAX).collect();
    let stat = read(pid, tid, "stat")?;
    // The fields after the name, which may contain anything: the state is the 3rd, the CPU the 39th (proc(5)).
    let cpu = stat.rsplit_once(')')?.1.split_whitespace().nth(36).and_then(|cpu| cpu.parse().ok());
    let rests = status.state != State::Running && status.state != State::Ended;
    let function = |name: String| (name != "0" && !name.is_empty()).then_some(name);
    Some(Kernel {
        tid,
        inner_tid: status.inner_tid,
        name,
        state: status.state,
        cpu,
        call: rests.then(|| call(&read(pid, tid, "syscall")?)).flatten(),
        kernel_function: rests.then(|| read(pid, tid, "wchan").and_then(function)).flatten(),
        asleep: rests.then(|| clock.since(cpu?, &read(pid, tid, "sched")?)).flatten(),
        switches: status.switches,
    })
}

/// `number arguments… sp pc`; `-1 sp pc` outside of a system call; `running`.
fn call(line: &str) -> Option<Call> {
    let mut words = line.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    if number < 0 {
        return Some(Call { number: None, arguments: [0; 6] });
    }
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()?;
    }
    Some(Call { number: number.try_into().ok(), arguments })
}

/// The part of `/proc/PID/task/TID/status` that is of use.
struct Status {
    inner_tid: u32,
    state: State,
    switches: u64,
}

impl Status {
    fn of(pid: u32, tid: u32) -> Option<Self> {
        Self::parse(tid, &read(pid, tid, "status")?)
    }

    fn parse(tid: u32, text: &str) -> Option<Self> {
        let mut status = Self { inner_tid: tid, state: State::Running, switches: 0 };
        let mut has_state = false;
        // The name, which could look like another field, comes first and has its line ends escaped.
        for line in text.lines().skip(1) {
            let Some((key, value)) = line.split_once(':') else { continue };
            match key {
                "State" => {
                    status.state = state(value.trim_start().chars().next()?);
                    has_state = true;
                }
                "NSpid" => status.inner_tid = value.split_whitespace().last()?.parse().ok()?,
                "voluntary_ctxt_switches" | "nonvoluntary_ctxt_switches" => {
                    status.switches = status.switches.wrapping_add(value.trim().parse().ok()?);
                }
                _ => {}
            }
        }
        has_state.then_some(status)
    }
}

/// The letters of <https://github.com/torvalds/linux/blob/v6.1/fs/proc/array.c>.
fn state(letter: char) -> State {
    match letter {
        'S' | 'I' | 'P' => State::Asleep,
        'D' => State::Uninterruptible,
        'T' => State::Stopped,
        't' => State::Traced,
        'Z' | 'X' | 'x' => State::Ended,
        _ => State::Running,
    }
}

/// Converts the scheduler's clocks to ours. The scheduler notes when it last charged a thread for its time, which for a
/// thread that sleeps is when it went to sleep (`se.exec_start` in `/proc/PID/sched`, with `CONFIG_SCHED_DEBUG`). Each CPU
/// has its own clock, which stands still while interrupts and other virtual machines have the CPU (`rq_clock_task` in
/// <https://github.com/torvalds/linux/blob/v6.1/kernel/sched/core.c>), so a sleep may be longer than it seems.
#[derive(Default)]
pub struct Clock {
    /// By CPU: `CLOCK_MONOTONIC` minus its clock, in nanoseconds.
    ahead: RefCell<HashMap<u32, Option<i128>>>,
}

impl Clock {
    fn since(&self, cpu: u32, sched: &str) -> Option<Duration> {
        let ahead = *self.ahead.borrow_mut().entry(cpu).or_insert_with(|| ahead(cpu));
        let since = i128::from(monotonic().0) - i128::from(exec_start(sched)?) - ahead?;
        Some(Duration::from_nanos(u64::try_from(since.max(0)).ok()?))
    }
}

/// A thread that begins to run on a CPU has the CPU's present time noted.
fn ahead(cpu: u32) -> Option<i128> {
    let read = move || {
        let mut only = CpuSet::new();
        only.set(cpu as usize);
        sched_setaffinity(None, &only).ok()?;
        let own = fs::read_to_string("/proc/thread-self/sched").ok()?;
        Some(i128::from(monotonic().0) - i128::from(exec_start(&own)?))
    };
    // A thread of its own, because the affinity is not restored.
    let is_known = (cpu as usize) < CpuSet::MAX_CPU;
    is_known.then(|| thread::spawn(read).join().ok().flatten()).flatten()
}

/// In nanoseconds.
fn exec_start(sched: &str) -> Option<u64> {
    let line = sched.lines().find_map(|line| line.strip_prefix("se.exec_start"))?;
    let (millis, rest) = line.split_once(':')?.1.trim().split_once('.')?;
    let nanos: u64 = rest.parse().ok().filter(|_| rest.len() == 6)?;
    millis.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(nanos)
}

/// For the fuzzer.
pub fn parse_all(text: &str) {
    let _ = (call(text), Status::parse(1, text), exec_start(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_by_its_keys() {
        let text = "Name:\tState: Z\\nNSpid:\t9\nState:\tS (sleeping)\nNSpid:\t4000\t17\n\
                    voluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        let status = Status::parse(4000, text).unwrap();
        assert_eq!((status.inner_tid, status.state, status.switches), (17, State::Asleep, 42));
        assert!(Status::parse(1, "Name:\tx\n").is_none());
    }

    #[test]
    fn a_system_call_has_a_number_and_arguments() {
        let futex = call("202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe 0x7f01\n").unwrap();
        assert_eq!((futex.number, futex.arguments[0], futex.arguments[5]), (Some(202), 0x7f00, 0xffff_ffff));
        assert_eq!(call("-1 0x7ffe 0x7f01\n"), Some(Call { number: None, arguments: [0; 6] }));
        assert_eq!(call("running\n"), None);
    }

    #[test]
    fn the_schedulers_clock_has_six_decimals() {
        assert_eq!(exec_start("x\nse.exec_start            :        255267.214642\n"), Some(255_267_214_642));
        assert_eq!(exec_start("se.exec_start : 1.2\n"), None);
    }

    #[test]
    fn a_thread_that_sleeps_is_still_asleep_until_it_has_run() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let clock = Clock::default();
        let asleep = loop {
            let threads = of_process(child.id(), &clock);
            match threads.into_iter().find(|thread| thread.state == State::Asleep && &thread.name == "sleep") {
                Some(thread) => break thread,
                None => thread::yield_now(),
            }
        };
        assert!(asleep.is_still_asleep(child.id()));
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::STOP).unwrap();
        while asleep.is_still_asleep(child.id()) {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
