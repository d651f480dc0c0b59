//! Takes over the terminal, and restores it on exit and on panic.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write, stdout};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::style::Print;
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};

/// Enables reports of buttons and the wheel in SGR mode, but not of the mouse's movements, which have no use here. With Shift,
/// terminals still select text.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";

type PanicHook = dyn Fn(&PanicHookInfo<'_>) + Sync + Send + 'static;

/// Standard output while the terminal is taken over. Afterwards it discards all output, because ratatui shows the cursor when
/// it is dropped, and would panic if the terminal is gone by then.
struct Output {
    stdout: Stdout,
    taken: Arc<AtomicBool>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.taken.load(Ordering::SeqCst) { self.stdout.write(bytes) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.taken.load(Ordering::SeqCst) { self.stdout.flush() } else { Ok(()) }
    }
}

type Backend = CrosstermBackend<BufWriter<Output>>;

/// The alternate screen in raw mode. Dropping it restores the terminal, and so does a panic.
pub(crate) struct TerminalGuard {
    terminal: Terminal<Backend>,
    taken: Arc<AtomicBool>,
    previous_hook: Arc<PanicHook>,
    /// Panics of other threads. They are printed after the terminal is restored, because the next picture would overwrite them.
    elsewhere: Arc<Mutex<Vec<String>>>,
}

impl TerminalGuard {
    pub(crate) fn take() -> io::Result<Self> {
        if !stdout().is_terminal() {
            return Err(io::Error::other("the dashboard needs a terminal, and standard output is not one"));
        }
        let previous_hook: Arc<PanicHook> = Arc::from(std::panic::take_hook());
        let elsewhere = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::new(AtomicBool::new(true));
        install_hook(&taken, &previous_hook, &elsewhere);
        let take = || {
            enable_raw_mode()?;
            execute!(stdout(), EnterAlternateScreen, Print(MOUSE_ON))?;
            let output = Output { stdout: stdout(), taken: Arc::clone(&taken) };
            Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(1 << 16, output)))
        };
        match take() {
            Ok(terminal) => Ok(Self { terminal, taken, previous_hook, elsewhere }),
            Err(error) => {
                give_back(&taken);
                std::panic::set_hook(Box::new(move |info| previous_hook(info)));
                Err(error)
            }
        }
    }

    pub(crate) fn size(&self) -> io::Result<(u16, u16)> {
        self.terminal.size().map(|size| (size.width, size.height))
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        execute_quietly(&mut self.terminal, true)?;
        self.terminal.draw(draw)?;
        execute_quietly(&mut self.terminal, false)
    }
}

/// Tells the terminal where a picture begins and ends, so that it never shows half of one.
fn execute_quietly(terminal: &mut Terminal<Backend>, begin: bool) -> io::Result<()> {
    let writer = terminal.backend_mut();
    if begin {
        ratatui::crossterm::queue!(writer, BeginSynchronizedUpdate)
    } else {
        execute!(writer, EndSynchronizedUpdate)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        give_back(&self.taken);
        if !std::thread::panicking() {
            let previous = Arc::clone(&self.previous_hook);
            std::panic::set_hook(Box::new(move |info| previous(info)));
        }
        for panic in self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // If standard error is gone, there is nowhere to report it.
            let _ = writeln!(io::stderr(), "{panic}");
        }
    }
}

fn install_hook(taken: &Arc<AtomicBool>, previous: &Arc<PanicHook>, elsewhere: &Arc<Mutex<Vec<String>>>) {
    let owner = std::thread::current().id();
    let (taken, previous, elsewhere) = (Arc::clone(taken), Arc::clone(previous), Arc::clone(elsewhere));
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == owner {
            give_back(&taken);
            previous(info);
        } else {
            elsewhere.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
        }
    }));
}

/// Restores the terminal, but only once: leaving the alternate screen again would move the cursor over newer output.
fn give_back(taken: &AtomicBool) {
    if taken.swap(false, Ordering::SeqCst) {
        // A terminal that is gone cannot be restored.
        let _ = execute!(stdout(), EndSynchronizedUpdate, Print(MOUSE_OFF), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
