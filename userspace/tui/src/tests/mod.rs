//! Tests of the whole dashboard, drawn into memory.

mod evidence;
mod fuzz;
mod kinds;
mod links;
mod mouse;
mod nasty;
mod pictures;
mod redundancy;
mod replay;
mod sampled;
mod saved;
mod screens;
mod spans;
mod states;
pub(crate) mod synthetic;
mod tasks;
mod time;
mod toy;
mod ucx;

use std::time::Duration;

use pyobs_model::{Family, Model};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::app::{App, Flow, Msg};
use crate::input::Key;
use crate::{Batch, Color, Options, ReplayLog, Source};

/// Keys that lead to every screen, table and detail.
const EVERYWHERE: [&str; 38] = [
    "0",
    "0\n",
    "1",
    "1t",
    "2",
    "2f",
    "2\n",
    "2c",
    "2cp",
    "2m\n",
    "2?",
    "2/x",
    "3↓↓",
    "3mf↓↓↓",
    "4",
    "4\n",
    "4m",
    "4m\n",
    "4/x",
    "5",
    "6",
    "6\n",
    "6m",
    "6m\n",
    "6mm",
    "6mm\n",
    "6mmm",
    "6mmm\n",
    "6mmmm",
    "7",
    "7\n",
    "7m",
    "8",
    "8\n",
    "9",
    "a",
    "a\n",
    "3g",
];

/// The sizes of most pictures.
const USUAL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (140, 40);

/// An app with a terminal in memory and a clock that moves only when told to.
struct Bench {
    app: App,
    terminal: Terminal<TestBackend>,
    now: Duration,
}

impl Bench {
    fn new(model: Model, source: Source, size: (u16, u16)) -> Self {
        Self::with_color(model, source, size, Color::Rich)
    }

    /// A replay of a recording of these events.
    fn replaying(log: ReplayLog, size: (u16, u16)) -> Self {
        let source = Source::Replay { file: "/tmp/one.pyobs".to_owned() };
        let mut bench = Self::of(|options| App::replaying(log, options, size), source, size, Color::Rich);
        bench.msg(Msg::Ended);
        while bench.app.is_seeking() {
            bench.msg(Msg::Tick);
        }
        bench
    }

    fn with_color(model: Model, source: Source, size: (u16, u16), color: Color) -> Self {
        Self::of(|options| App::new(model, options, size), source, size, color)
    }

    fn of(app: impl FnOnce(Options) -> App, source: Source, size: (u16, u16), color: Color) -> Self {
        let terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        let source_line =
            Box::new(|_, file: &str, line| file.starts_with('/').then(|| format!("text {line}\u{1b}[31m")));
        let options =
            Options { source, color, source_line, signals: None, save: Box::new(|saved| format!("{saved:?}")) };
        Self { app: app(options), terminal, now: Duration::ZERO }
    }

    /// A live app that received the synthetic events.
    fn live(size: (u16, u16)) -> Self {
        let mut bench = Self::new(synthetic::model(), Source::Live, size);
        bench.send(Batch::Events(synthetic::events()));
        bench
    }

    /// A live app with all families on, and waits.
    fn waiting(size: (u16, u16)) -> Self {
        let mut bench = Self::new(synthetic::model_of(&Family::ALL), Source::Live, size);
        bench.send(Batch::Events(synthetic::waiting()));
        bench
    }

    /// A live app with all families on, a few waits, and nothing to find.
    fn quiet(size: (u16, u16)) -> Self {
        let mut bench = Self::new(synthetic::model_of(&Family::ALL), Source::Live, size);
        bench.send(Batch::Events(synthetic::quiet()));
        bench
    }

    fn sharing(size: (u16, u16)) -> Self {
        let mut bench = Self::new(synthetic::model_of(&Family::ALL), Source::Live, size);
        bench.send(Batch::Events(synthetic::sharing()));
        bench
    }

    fn dispatching(size: (u16, u16)) -> Self {
        let mut bench = Self::new(synthetic::model_of(&Family::ALL), Source::Live, size);
        bench.send(Batch::Events(redundancy::dispatching()));
        bench
    }

    /// The fixture of most pictures: all families are on and have events.
    fn watching(size: (u16, u16)) -> Self {
        Self::of_all(size, Color::Rich)
    }

    fn of_all(size: (u16, u16), color: Color) -> Self {
        let mut bench = Self::with_color(synthetic::model_of(&Family::ALL), Source::Live, size, color);
        bench.send(Batch::Events(states::events()));
        bench
    }

    fn replay(size: (u16, u16)) -> Self {
        Self::replaying(synthetic::log(synthetic::meta(), synthetic::events()), size)
    }

    fn msg(&mut self, msg: Msg) -> Flow {
        self.app.update(msg, self.now)
    }

    fn send(&mut self, batch: Batch) {
        assert_eq!(self.msg(Msg::Batch(batch)), Flow::GoOn);
    }

    fn press(&mut self, key: Key) -> Flow {
        self.msg(Msg::Key(key))
    }

    /// Presses characters as keys. Draws before each one, because that computes the views.
    fn keys(&mut self, keys: &str) -> &mut Self {
        for key in keys.chars() {
            let key = match key {
                '\n' => Key::Enter,
                '\u{1b}' => Key::Esc,
                '↑' => Key::Up,
                '↓' => Key::Down,
                '→' => Key::Right,
                '←' => Key::Left,
                '⇱' => Key::Home,
                c => Key::Char(c),
            };
            self.draw();
            assert_eq!(self.press(key), Flow::GoOn);
        }
        self
    }

    fn draw(&mut self) {
        self.now += Duration::from_millis(1);
        self.app.prepare(self.now);
        self.terminal.draw(|frame| self.app.draw(frame)).unwrap();
    }

    fn resize(&mut self, width: u16, height: u16) {
        self.terminal.backend_mut().resize(width, height);
        assert_eq!(self.msg(Msg::Resize(width, height)), Flow::GoOn);
    }

    fn picture(&mut self) -> String {
        self.draw();
        self.terminal.backend().to_string()
    }
}
