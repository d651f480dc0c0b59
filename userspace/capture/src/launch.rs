//! Starts a command that waits, before its first instruction, until the probes are in place.
//!
//! pyobs executes itself as a launcher, which waits for one byte on a pipe and then execs the command in the
//! same process. So the pid is known from the start and can be probed, and no trace of pyobs is in the
//! process once the command runs. If pyobs dies, the launcher reads the end of the pipe and exits without
//! running anything.
//!
//! The binary's `main` must call [`run_if_launcher`] before anything else.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

const MARK: &str = "__launch";
/// A shell's exit codes for a command that does not exist, and for one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// A command whose process exists and waits, or runs.
#[derive(Debug)]
pub struct Launch {
    child: Child,
    /// Dropped when the command is released.
    go: Option<File>,
    failure: File,
}

impl Launch {
    /// Nothing of the command has run, and none of it will until [`Launch::go`] is called.
    pub fn prepare(command: &[OsString]) -> io::Result<Self> {
        Self::prepare_with(Command::new("/proc/self/exe"), command)
    }

    fn prepare_with(mut launcher: Command, command: &[OsString]) -> io::Result<Self> {
        if command.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
        }
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (failure, fail) = pipe_with(PipeFlags::CLOEXEC)?;
        let inherited = [wait.as_raw_fd(), fail.as_raw_fd()];
        launcher.arg(MARK).args(inherited.map(|fd| fd.to_string())).args(command);
        // SAFETY: only fcntl is called between fork and exec. It is async-signal-safe, and no memory is
        // allocated: an error of the kernel is a plain number.
        unsafe {
            launcher.pre_exec(move || inherited.iter().try_for_each(|fd| keep_across_exec(*fd)));
        }
        let child = launcher.spawn()?;
        Ok(Self { child, go: Some(go.into()), failure: failure.into() })
    }

    /// The pid of the launcher now, and of the command later.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the command run. Returns once the exec has succeeded, or an error that says why it failed.
    pub fn go(&mut self) -> io::Result<()> {
        let Some(mut go) = self.go.take() else { return Ok(()) };
        go.write_all(&[1])?;
        let mut number = [0; 4];
        match self.failure.read_exact(&mut number) {
            Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number))),
            // End of the pipe: a successful exec has closed the other side.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A descriptor that is readable once the command has ended.
    pub fn ending(&self) -> io::Result<OwnedFd> {
        Ok(pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?)
    }

    /// The status of a command that has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Launch {
    /// Ends a launcher that was not released; a running command is left alone.
    fn drop(&mut self) {
        if self.go.take().is_some() {
            // It exits by itself at the end of the pipe, so an error does not matter.
            let _ = self.child.wait();
        }
    }
}

/// The exit code that a shell would report: 128 plus the signal's number for a command killed by a signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The exit code that a shell would report: 127 for a command that does not exist, 126 for one that cannot be
/// executed.
pub fn failure_code(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Becomes the command if the process was started as a launcher; returns otherwise.
pub fn run_if_launcher() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() == Some(OsStr::new(MARK)) {
        std::process::exit(launch(arguments).into());
    }
}

/// Returns only if the command was not or could not be executed.
fn launch(mut arguments: impl Iterator<Item = OsString>) -> u8 {
    let (Some(mut wait), Some(mut fail)) = (inherited(arguments.next()), inherited(arguments.next())) else {
        return 2;
    };
    let Some(program) = arguments.next() else { return 2 };
    let mut byte = [0];
    if wait.read_exact(&mut byte).is_err() {
        return 1;
    }
    // exec in the standard library restores SIGPIPE's default action, which every Rust program changes, and
    // empties the signal mask. Both pipes close on a successful exec.
    let error = Command::new(program).args(arguments).exec();
    let number = error.raw_os_error().unwrap_or(libc::EINVAL);
    // Fails if pyobs has died; then there is nobody to report to.
    let _ = fail.write_all(&number.to_ne_bytes());
    failure_code(&error)
}

/// Takes over a descriptor that [`Launch::prepare`] passed on, and closes it on exec.
fn inherited(number: Option<OsString>) -> Option<File> {
    const FIRST_AFTER_STANDARD: RawFd = 3;
    let number: RawFd = number?.to_str()?.parse().ok()?;
    if number < FIRST_AFTER_STANDARD {
        return None;
    }
    // SAFETY: this program has just started and has opened nothing, so whatever is open under this number was
    // inherited and has no other owner; the two numbers of a launch differ.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    match fcntl_setfd(&fd, FdFlags::CLOEXEC) {
        Ok(()) => Some(fd.into()),
        Err(_) => {
            // Not an open descriptor: the user typed the hidden word. Closing it would be an error.
            std::mem::forget(fd);
            None
        }
    }
}

fn keep_across_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is a number whose owner outlives the call, and only its flags change.
    let got = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    if got == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::*;

    /// The launcher of these tests: this test binary, told to run only [`acts_as_launcher`].
    fn launcher() -> Command {
        let mut launcher = Command::new(std::env::current_exe().unwrap());
        launcher.args(["--exact", "launch::tests::acts_as_launcher", "--nocapture", "--test-threads=1", "--"]);
        launcher
    }

    #[test]
    fn acts_as_launcher() {
        let mut arguments = std::env::args_os().skip_while(|argument| argument != MARK);
        if arguments.next().is_some() {
            std::process::exit(launch(arguments).into());
        }
    }

    #[track_caller]
    fn prepare(command: &[&str]) -> Launch {
        let command: Vec<_> = command.iter().map(OsString::from).collect();
        Launch::prepare_with(launcher(), &command).unwrap()
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("pyobs-launch-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_command_waits_until_it_is_let_go() {
        let folder = folder("waits");
        let file = folder.join("ran");
        let mut launch = prepare(&["touch", file.to_str().unwrap()]);
        std::thread::sleep(Duration::from_millis(200));
        assert!(!file.exists());
        assert_eq!(launch.try_wait().unwrap(), None);
        launch.go().unwrap();
        assert!(launch.wait().unwrap().success());
        assert!(file.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_pid_stays_the_same() {
        let folder = folder("pid");
        let file = folder.join("pid");
        let mut launch = prepare(&["sh", "-c", "echo $$ >$0", file.to_str().unwrap()]);
        let pid = launch.pid();
        launch.go().unwrap();
        launch.wait().unwrap();
        assert_eq!(fs::read_to_string(file).unwrap().trim(), pid.to_string());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_launch_that_is_dropped_never_runs() {
        let folder = folder("dropped");
        let file = folder.join("ran");
        let launch = prepare(&["touch", file.to_str().unwrap()]);
        let pid = launch.pid();
        drop(launch);
        assert!(!file.exists());
        assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_executed_says_why() {
        let mut launch = prepare(&["/no/such/program"]);
        let error = launch.go().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(failure_code(&error), 127);
        assert_eq!(exit_code(launch.wait().unwrap()), 127);

        let mut launch = prepare(&["/etc/passwd"]);
        let error = launch.go().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        assert_eq!(exit_code(launch.wait().unwrap()), 126);
    }

    #[test]
    fn the_status_is_that_of_a_shell() {
        let mut launch = prepare(&["sh", "-c", "exit 7"]);
        launch.go().unwrap();
        assert_eq!(exit_code(launch.wait().unwrap()), 7);
        let mut launch = prepare(&["sh", "-c", "kill -TERM $$"]);
        launch.go().unwrap();
        assert_eq!(exit_code(launch.wait().unwrap()), 143);
    }

    #[test]
    fn the_command_gets_no_descriptor_and_no_ignored_signal_of_ours() {
        let folder = folder("clean");
        let file = folder.join("seen");
        let script = "ls -l /proc/self/fd >$0; grep -E 'SigIgn|SigBlk' /proc/self/status >>$0";
        let words = ["sh", "-c", script, file.to_str().unwrap()];
        let pipes = |seen: &str| seen.lines().filter(|line| line.contains("pipe:[")).count();
        // What this test inherited itself, its children inherit anyway.
        assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success());
        let inherited = pipes(&fs::read_to_string(&file).unwrap());
        let mut launch = prepare(&words);
        launch.go().unwrap();
        launch.wait().unwrap();
        let seen = fs::read_to_string(&file).unwrap();
        assert_eq!(pipes(&seen), inherited, "{seen}");
        for mask in ["SigIgn:\t", "SigBlk:\t"] {
            let bits = seen.lines().find_map(|line| line.strip_prefix(mask)).unwrap();
            const PIPE: u64 = 1 << (libc::SIGPIPE - 1);
            assert_eq!(u64::from_str_radix(bits, 16).unwrap() & PIPE, 0, "{seen}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    /// To the launcher, a `kill -9` of pyobs is just the end of its pipe.
    #[test]
    fn a_launcher_whose_pyobs_dies_ends() {
        let mut launch = prepare(&["sleep", "60"]);
        drop(launch.go.take());
        let start = Instant::now();
        let status = launch.wait().unwrap();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert!(!status.success());
    }

    #[test]
    fn the_hidden_word_typed_by_hand_is_harmless() {
        let arguments = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>().into_iter();
        assert_eq!(launch(arguments(&[])), 2);
        assert_eq!(launch(arguments(&["0", "1", "sh"])), 2);
        assert_eq!(launch(arguments(&["x", "y", "sh"])), 2);
        assert_eq!(launch(arguments(&["99998", "99999", "sh"])), 2);
    }
}
