//! A terminal that runs pyobs: sends what a user types, and reads what a user sees.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vt100::{Parser, Screen};

/// Nothing takes this long; it only keeps a hanging case from hanging the suite.
const PATIENCE: Duration = Duration::from_secs(60);

/// The sizes that the dashboard supports and the cases use.
pub const SIZES: [(u16, u16); 3] = [(60, 15), (80, 24), (140, 40)];

/// The terminal's output so far.
struct Seen {
    parser: Parser,
    raw: Vec<u8>,
}

/// A pseudo-terminal whose foreground process is pyobs. Dropping it kills the process.
pub struct Terminal {
    child: Child,
    master: Option<File>,
    before: libc::termios,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Runs `pyobs` with these arguments in a terminal of this size: columns and rows.
    #[track_caller]
    pub fn open<S: AsRef<OsStr>>(size: (u16, u16), arguments: impl IntoIterator<Item = S>) -> Self {
        let mut pyobs = Command::new(pyobs_tests::pyobs());
        pyobs.args(arguments).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        Self::with(size, pyobs)
    }

    #[track_caller]
    pub fn with(size: (u16, u16), mut command: Command) -> Self {
        let (master, slave) = open_pty(size);
        let before = settings(&master);
        let shown = format!("{command:?}");
        let standard = || slave.try_clone().unwrap();
        command.stdin(standard()).stdout(standard()).stderr(standard());
        // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is allocated.
        unsafe { command.pre_exec(take_terminal) };
        let child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        drop((command, slave));
        let parser = Parser::new(number(size.1), number(size.0), 0);
        let seen = Arc::new(Mutex::new(Seen { parser, raw: Vec::new() }));
        let stop = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (seen, stop, from) = (Arc::clone(&seen), Arc::clone(&stop), master.try_clone().unwrap());
            move || read(from, &seen, &stop)
        });
        Self { child, master: Some(master), before, seen, stop, reader: Some(reader) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current screen, line by line.
    pub fn text(&self) -> String {
        self.seen().parser.screen().contents()
    }

    /// Every byte of output so far.
    pub fn raw(&self) -> Vec<u8> {
        self.seen().raw.clone()
    }

    /// Waits until the screen meets a condition.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Screen) -> bool) {
        let since = Instant::now();
        while !is_so(self.seen().parser.screen()) {
            assert!(since.elapsed() < PATIENCE, "the screen does not show {what}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this text is on the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contents().contains(text));
    }

    /// Waits until this text is not on the screen.
    #[track_caller]
    pub fn wait_until_gone(&self, text: &str) {
        self.wait_until(&format!("no {text}"), |screen| !screen.contents().contains(text));
    }

    /// Sends keys as a terminal does.
    #[track_caller]
    pub fn press(&mut self, keys: impl AsRef<[u8]>) {
        self.master.as_mut().unwrap().write_all(keys.as_ref()).unwrap();
    }

    /// Resizes the terminal as when a window is dragged; the kernel notifies pyobs.
    #[track_caller]
    pub fn resize(&self, size: (u16, u16)) {
        let window = window(size);
        let master = self.master.as_ref().unwrap();
        self.seen().parser.set_size(number(size.1), number(size.0));
        // SAFETY: the descriptor is open, and the address is that of a local variable.
        let result = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const window) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    pub fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.pid()).unwrap();
        // SAFETY: the call takes two numbers. The child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(pid, signal) };
    }

    /// Closes the terminal, as when its window is closed or the connection is lost.
    pub fn hang_up(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.master = None;
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until pyobs has ended by itself and all its output has been read.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let since = Instant::now();
        while self.is_alive() {
            assert!(since.elapsed() < PATIENCE, "pyobs does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(reader) = self.reader.take() {
            // The terminal's output ends when no process has it open any more.
            reader.join().unwrap();
        }
        self.child.wait().unwrap()
    }

    /// Asserts that the terminal is in its original state.
    #[track_caller]
    pub fn is_restored(&self) {
        let seen = self.seen();
        let screen = seen.parser.screen();
        assert!(!screen.alternate_screen(), "still in the alternate screen:\n{}", screen.contents());
        assert!(!screen.hide_cursor(), "the cursor is still hidden");
        assert!(!screen.bracketed_paste(), "bracketed paste is still on");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        let now = settings(self.master.as_ref().unwrap());
        let flags = |settings: &libc::termios| (settings.c_iflag, settings.c_oflag, settings.c_cflag, settings.c_lflag);
        assert_eq!(flags(&now), flags(&self.before), "the terminal's settings changed");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.stop.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Makes standard input the controlling terminal of a new session. The kernel kills the process with its parent. No signal is
/// ignored, even if the tests run under `nohup`.
fn take_terminal() -> std::io::Result<()> {
    // SAFETY: these calls take numbers, and descriptor 0 is the terminal.
    let result = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::setsid();
        libc::ioctl(0, libc::TIOCSCTTY, 0)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[track_caller]
fn open_pty(size: (u16, u16)) -> (File, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let window = window(size);
    let none = std::ptr::null_mut();
    // SAFETY: the addresses are those of local variables. Null asks for no name and no settings.
    let result = unsafe { libc::openpty(&raw mut master, &raw mut slave, none, none.cast(), &raw const window) };
    assert_eq!(result, 0, "openpty: {}", std::io::Error::last_os_error());
    for fd in [master, slave] {
        // SAFETY: the call takes numbers. (A child that inherited the master would keep the terminal open.)
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: the two descriptors are new, and nothing else owns them.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}

fn window((columns, rows): (u16, u16)) -> libc::winsize {
    libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn number(cells: u16) -> NonZeroU16 {
    NonZeroU16::new(cells).unwrap()
}

#[track_caller]
fn settings(terminal: &File) -> libc::termios {
    let mut settings = std::mem::MaybeUninit::uninit();
    // SAFETY: the descriptor is open, and the address is that of a local variable.
    let result = unsafe { libc::tcgetattr(terminal.as_raw_fd(), settings.as_mut_ptr()) };
    assert_eq!(result, 0, "tcgetattr: {}", std::io::Error::last_os_error());
    // SAFETY: tcgetattr has succeeded, so it has filled the structure.
    unsafe { settings.assume_init() }
}

/// Reads until the terminal ends or `stop` is set.
fn read(mut from: File, seen: &Mutex<Seen>, stop: &AtomicBool) {
    const PAUSE_MS: libc::c_int = 50;
    let mut bytes = [0; 1 << 16];
    while !stop.load(Ordering::SeqCst) {
        let mut ready = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the address is that of one entry in a local variable.
        if unsafe { libc::poll(&raw mut ready, 1, PAUSE_MS) } <= 0 {
            continue;
        }
        match from.read(&mut bytes) {
            Ok(length @ 1..) => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.parser.process(&bytes[..length]);
                seen.raw.extend_from_slice(&bytes[..length]);
            }
            // EIO: no process has the other side open any more.
            Ok(0) | Err(_) => return,
        }
    }
}
