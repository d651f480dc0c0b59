//! Reads keys and mouse events from the terminal, and signals to the process.
//!
//! A dedicated thread waits in `poll(2)`, because crossterm's reader spins when the terminal goes away. Here the loss of the
//! terminal, like a signal, is an input.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc;

use crate::{Signal, Signals};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Char(char),
    Ctrl(char),
    Enter,
    Esc,
    Backspace,
    Delete,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MouseEventKind {
    /// The left button was pressed.
    Press,
    WheelUp,
    WheelDown,
}

/// An event at a cell. Cells are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MouseEvent {
    pub(crate) kind: MouseEventKind,
    pub(crate) x: u16,
    pub(crate) y: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Key(Key),
    Mouse(MouseEvent),
    /// The terminal was resized.
    Resized,
    /// The terminal went away, or a signal asked pyobs to quit.
    Gone,
}

/// An escape byte that no other byte follows within this time is the Escape key.
const ESCAPE_DELAY: Duration = Duration::from_millis(30);

/// Reads inputs in a thread until it is dropped.
pub(crate) struct InputReader {
    keys: Option<mpsc::Receiver<Input>>,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl InputReader {
    pub(crate) fn start(signals: Option<Box<dyn Signals>>) -> io::Result<Self> {
        let tty: OwnedFd = if io::stdin().is_terminal() {
            io::stdin().as_fd().try_clone_to_owned()?
        } else {
            File::open("/dev/tty")?.into()
        };
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (sender, keys) = mpsc::channel(256);
        let thread = std::thread::Builder::new().name("pyobs-keys".to_owned()).spawn(move || {
            read_inputs(&tty, &stopped, signals, &sender);
        })?;
        Ok(Self { keys: Some(keys), stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) async fn next(&mut self) -> Input {
        match &mut self.keys {
            Some(keys) => keys.recv().await.unwrap_or(Input::Gone),
            None => Input::Gone,
        }
    }
}

impl Drop for InputReader {
    fn drop(&mut self) {
        self.keys = None;
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

fn read_inputs(tty: &OwnedFd, stopped: &OwnedFd, mut signals: Option<Box<dyn Signals>>, sender: &mpsc::Sender<Input>) {
    let mut decoder = Decoder::default();
    let mut bytes = [0; 1024];
    loop {
        let timeout = decoder.is_waiting().then_some(ESCAPE_DELAY);
        let ready = match wait(tty, stopped, signals.as_deref(), timeout) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
            Ok(ready) => ready,
        };
        if ready.is_stopped {
            return;
        }
        let mut inputs = Vec::new();
        if ready.has_signal {
            let arrived = std::iter::from_fn(|| signals.as_mut()?.next_signal());
            inputs.extend(arrived.map(|signal| match signal {
                Signal::Quit => Input::Gone,
                Signal::Resize => Input::Resized,
            }));
        }
        if ready.has_bytes {
            match rustix::io::read(tty, &mut bytes) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(_) | Ok(0) => break,
                Ok(length) => decoder.feed(&bytes[..length], &mut inputs),
            }
        } else if !ready.has_signal {
            inputs.extend(decoder.give_up_waiting().map(Input::Key));
        }
        for input in inputs {
            if sender.blocking_send(input).is_err() {
                return;
            }
        }
    }
    // If the receiver is gone, the dashboard is ending anyway.
    let _ = sender.blocking_send(Input::Gone);
}

/// Which sources have something to read. None has after a timeout.
struct Ready {
    has_bytes: bool,
    is_stopped: bool,
    has_signal: bool,
}

fn wait(
    tty: &OwnedFd,
    stopped: &OwnedFd,
    signals: Option<&dyn Signals>,
    timeout: Option<Duration>,
) -> rustix::io::Result<Ready> {
    let mut fds = vec![PollFd::new(tty, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
    fds.extend(signals.map(|signals| PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)));
    poll(&mut fds, timeout.and_then(|timeout| timeout.try_into().ok()).as_ref())?;
    let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ok(Ready { has_bytes: is_ready(0), is_stopped: is_ready(1), has_signal: is_ready(2) })
}

/// Decodes bytes from a terminal and returns the number of inputs. For the fuzzer.
pub fn decode_all(bytes: &[u8]) -> usize {
    let (mut decoder, mut inputs) = (Decoder::default(), Vec::new());
    decoder.feed(bytes, &mut inputs);
    inputs.len() + usize::from(decoder.give_up_waiting().is_some())
}

/// Longer sequences are discarded.
const SEQUENCE_MAX: usize = 32;

/// Decodes inputs from a stream of bytes that may be split anywhere.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pending: Vec<u8>,
}

impl Decoder {
    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], inputs: &mut Vec<Input>) {
        for byte in bytes {
            self.pending.push(*byte);
            match decode(&self.pending) {
                Decoded::Unfinished if self.pending.len() < SEQUENCE_MAX => {}
                Decoded::Unfinished | Decoded::Nothing => self.pending.clear(),
                Decoded::Key(key) => {
                    self.pending.clear();
                    inputs.push(Input::Key(key));
                }
                Decoded::Mouse(mouse) => {
                    self.pending.clear();
                    inputs.push(Input::Mouse(mouse));
                }
                Decoded::EscapeBefore => {
                    self.pending.drain(..1);
                    inputs.push(Input::Key(Key::Esc));
                }
            }
        }
    }

    pub(crate) fn give_up_waiting(&mut self) -> Option<Key> {
        let is_escape = self.pending == [0x1b];
        self.pending.clear();
        is_escape.then_some(Key::Esc)
    }
}

enum Decoded {
    Unfinished,
    Nothing,
    Key(Key),
    Mouse(MouseEvent),
    /// Escape was pressed, and a new sequence begins.
    EscapeBefore,
}

fn decode(bytes: &[u8]) -> Decoded {
    match bytes {
        [0x1b] | [0x1b, b'[' | b'O'] => Decoded::Unfinished,
        [0x1b, 0x1b] => Decoded::EscapeBefore,
        [0x1b, b'O', last] => letter(*last),
        // X10 mouse reports. Terminals that do not support the SGR mode below send them although pyobs asked for SGR.
        [0x1b, b'[', b'M', place @ ..] => match place {
            [button, x, y] => mouse([button, x, y].map(|byte| u16::from(byte.saturating_sub(32))), true),
            _ => Decoded::Unfinished,
        },
        [0x1b, b'[', b'<', parameters @ .., last @ (b'M' | b'm')] => sgr_mouse(parameters, *last == b'M'),
        [0x1b, b'[', parameters @ .., last @ 0x40..=0x7e] => match last {
            b'~' => number(parameters),
            last => letter(*last),
        },
        [0x1b, b'[', ..] => Decoded::Unfinished,
        [0x1b, ..] => Decoded::Nothing,
        [b'\r' | b'\n'] => Decoded::Key(Key::Enter),
        [b'\t'] => Decoded::Key(Key::Tab),
        [0x08 | 0x7f] => Decoded::Key(Key::Backspace),
        [0] => Decoded::Nothing,
        [control @ 1..=26] => Decoded::Key(Key::Ctrl(char::from(control - 1 + b'a'))),
        [_control @ 27..=31] => Decoded::Nothing,
        bytes => match std::str::from_utf8(bytes) {
            Ok(text) => text.chars().next().map_or(Decoded::Nothing, |c| Decoded::Key(Key::Char(c))),
            Err(error) if error.error_len().is_none() => Decoded::Unfinished,
            Err(_) => Decoded::Nothing,
        },
    }
}

fn sgr_mouse(parameters: &[u8], is_press: bool) -> Decoded {
    let mut numbers = [0; 3];
    let parts = parameters.split(|byte| *byte == b';');
    for (number, part) in numbers.iter_mut().zip(parts) {
        let Some(parsed) = std::str::from_utf8(part).ok().and_then(|text| text.parse().ok()) else {
            return Decoded::Nothing;
        };
        *number = parsed;
    }
    mouse(numbers, is_press)
}

/// Decodes a mouse report, which counts cells from 1.
fn mouse([button, x, y]: [u16; 3], is_press: bool) -> Decoded {
    // Shift, Alt and Ctrl.
    const MODIFIERS: u16 = 4 | 8 | 16;
    let kind = match button & !MODIFIERS {
        0 if is_press => MouseEventKind::Press,
        64 => MouseEventKind::WheelUp,
        65 => MouseEventKind::WheelDown,
        _ => return Decoded::Nothing,
    };
    match (x.checked_sub(1), y.checked_sub(1)) {
        (Some(x), Some(y)) => Decoded::Mouse(MouseEvent { kind, x, y }),
        _ => Decoded::Nothing,
    }
}

fn letter(last: u8) -> Decoded {
    Decoded::Key(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'Z' => Key::BackTab,
        b'M' => Key::Enter,
        _ => return Decoded::Nothing,
    })
}

fn number(parameters: &[u8]) -> Decoded {
    Decoded::Key(match parameters.split(|byte| *byte == b';').next() {
        Some(b"1" | b"7") => Key::Home,
        Some(b"3") => Key::Delete,
        Some(b"4" | b"8") => Key::End,
        Some(b"5") => Key::PageUp,
        Some(b"6") => Key::PageDown,
        _ => return Decoded::Nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(bytes: &[u8]) -> Vec<Input> {
        let mut inputs = Vec::new();
        let mut decoder = Decoder::default();
        decoder.feed(bytes, &mut inputs);
        inputs.extend(decoder.give_up_waiting().map(Input::Key));
        inputs
    }

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let key = |input| if let Input::Key(key) = input { Some(key) } else { None };
        inputs(bytes).into_iter().filter_map(key).collect()
    }

    #[test]
    fn clicks_and_the_wheel_are_decoded_from_both_kinds_of_reports() {
        let mouse = |kind, x, y| Input::Mouse(MouseEvent { kind, x, y });
        assert_eq!(inputs(b"\x1b[<0;1;1M\x1b[<0;1;1m"), [mouse(MouseEventKind::Press, 0, 0)]);
        assert_eq!(inputs(b"\x1b[<64;300;20M"), [mouse(MouseEventKind::WheelUp, 299, 19)]);
        assert_eq!(inputs(b"\x1b[<69;7;8M"), [mouse(MouseEventKind::WheelDown, 6, 7)], "with Shift");
        assert_eq!(
            inputs(b"\x1b[M \x21\x22\x1b[M#\x21\x22q"),
            [mouse(MouseEventKind::Press, 0, 1), Input::Key(Key::Char('q'))]
        );
        for nothing in
            [&b"\x1b[<0;0;1M"[..], b"\x1b[<2;3;4M", b"\x1b[<35;3;4M", b"\x1b[<;;M", b"\x1b[<99999999;1;1M", b"\x1b[<M"]
        {
            assert_eq!(inputs(nothing), [], "{nothing:?}");
        }
    }

    #[test]
    fn key_sequences_of_different_terminals_are_decoded() {
        assert_eq!(keys(b"\x1b[A\x1bOB\x1b[1;5C"), [Key::Up, Key::Down, Key::Right]);
        assert_eq!(keys(b"\x1b[5~\x1b[6~\x1b[1~\x1b[F"), [Key::PageUp, Key::PageDown, Key::Home, Key::End]);
        assert_eq!(keys(b"\r\t\x1b[Z\x7f\x03"), [Key::Enter, Key::Tab, Key::BackTab, Key::Backspace, Key::Ctrl('c')]);
        assert_eq!(keys("é漢x".as_bytes()), [Key::Char('é'), Key::Char('漢'), Key::Char('x')]);
    }

    #[test]
    fn escape_alone_and_twice() {
        assert_eq!(keys(b"\x1b"), [Key::Esc]);
        assert_eq!(keys(b"\x1b\x1b"), [Key::Esc, Key::Esc]);
        assert_eq!(keys(b"\x1b\x1b[A"), [Key::Esc, Key::Up]);
    }

    #[test]
    fn bytes_split_anywhere_give_the_same_keys() {
        let bytes = "\x1b[5~é\x1bOA\x1b[<0;12;3M\x1b[M !!q".as_bytes();
        let mut decoder = Decoder::default();
        let mut one_by_one = Vec::new();
        for byte in bytes {
            decoder.feed(&[*byte], &mut one_by_one);
        }
        assert_eq!(one_by_one, inputs(bytes));
    }

    #[test]
    fn garbage_is_discarded_and_does_not_accumulate() {
        let mut decoder = Decoder::default();
        let mut found = Vec::new();
        decoder.feed(&[0x1b, b'['], &mut found);
        decoder.feed(&[b'1'; 10_000], &mut found);
        assert!(decoder.pending.len() < SEQUENCE_MAX);
        assert_eq!(keys(&[0xff, 0xfe, b'q']), [Key::Char('q')]);
    }
}
