//! The documentation's pictures of the dashboard, as SVG.
//!
//! `PYOBS_PICTURES=1 cargo test -p pyobs-tui pictures` writes them. Without it, the test compares them with new ones.

use std::fmt::Write;
use std::path::Path;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color as Ink, Modifier};

use super::{Bench, redundancy, replay, synthetic, tasks, ucx};

const SIZE: (u16, u16) = (110, 28);
/// The size of a cell and the baseline of its text, in pixels.
const WIDTH: u32 = 8;
const HEIGHT: u32 = 17;
const BASELINE: u32 = 13;
const SIZE_MAX: usize = 40_000;
const INK: &str = "#d8dee9";
const PAPER: &str = "#16181d";

/// The RGB value of one of xterm's 256 colours.
fn hex(number: u8) -> String {
    match number {
        16..=231 => {
            let level = |of: u8| if of == 0 { 0 } else { 55 + 40 * u32::from(of) };
            let of = number - 16;
            format!("#{:02x}{:02x}{:02x}", level(of / 36), level(of / 6 % 6), level(of % 6))
        }
        232.. => format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * u32::from(number - 232)),
        _ => panic!("the sixteen look different everywhere"),
    }
}

fn ink(color: Ink, otherwise: &str) -> String {
    match color {
        Ink::Indexed(number) => hex(number),
        Ink::Reset => otherwise.to_owned(),
        other => panic!("{other:?}"),
    }
}

/// The colours of a cell's text and background.
fn colors(cell: &Cell) -> (String, String) {
    let (fg, bg) = (ink(cell.fg, INK), ink(cell.bg, PAPER));
    if cell.modifier.contains(Modifier::REVERSED) { (bg, fg) } else { (fg, bg) }
}

fn look(cell: &Cell) -> (String, String, Modifier) {
    let (fg, bg) = colors(cell);
    (fg, bg, cell.modifier & (Modifier::BOLD | Modifier::ITALIC | Modifier::UNDERLINED))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn svg(buffer: &Buffer) -> String {
    let (columns, rows) = (u32::from(buffer.area.width), u32::from(buffer.area.height));
    let (width, height) = (columns * WIDTH, rows * HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans Mono, Menlo, \
         Consolas, monospace\" font-size=\"13\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"{PAPER}\"/>\n"
    );
    let mut texts = String::new();
    for (row, y) in buffer.content.chunks(usize::from(buffer.area.width)).zip(0u32..) {
        let mut x = 0;
        for run in row.chunk_by(|a, b| look(a) == look(b)) {
            let (fg, bg, modifier) = look(&run[0]);
            let (left, length) = (x * WIDTH, run.len() as u32 * WIDTH);
            x += run.len() as u32;
            if bg != PAPER {
                let top = y * HEIGHT;
                writeln!(svg, "<rect x=\"{left}\" y=\"{top}\" width=\"{length}\" height=\"{HEIGHT}\" fill=\"{bg}\"/>")
                    .unwrap();
            }
            let words: String = run.iter().map(Cell::symbol).collect();
            let before = words.chars().take_while(|c| *c == ' ').count() as u32;
            let words = words.trim();
            if words.is_empty() {
                continue;
            }
            let (left, base) = (left + before * WIDTH, y * HEIGHT + BASELINE);
            let length = words.chars().count() as u32 * WIDTH;
            let fg = if fg == INK { String::new() } else { format!(" fill=\"{fg}\"") };
            let bold = if modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
            let italic = if modifier.contains(Modifier::ITALIC) { " font-style=\"italic\"" } else { "" };
            let line = if modifier.contains(Modifier::UNDERLINED) { " text-decoration=\"underline\"" } else { "" };
            let words = escaped(words);
            writeln!(
                texts,
                "<text x=\"{left}\" y=\"{base}\" textLength=\"{length}\"{fg}{bold}{italic}{line}>{words}</text>"
            )
            .unwrap();
        }
    }
    // Spaces are preserved, because each character has a cell.
    format!("{svg}<g fill=\"{INK}\" style=\"white-space:pre\" xml:space=\"preserve\">\n{texts}</g>\n</svg>\n")
}

#[test]
fn pictures_of_the_documentation_are_up_to_date() {
    let of = |events| Bench::replaying(synthetic::log(replay::meta(), events), SIZE);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    let makes = std::env::var_os("PYOBS_PICTURES").is_some();
    if makes {
        std::fs::create_dir_all(&folder).unwrap();
    }
    for (name, mut bench, keys) in [
        ("overview", of(synthetic::sharing()), ""),
        ("processes", of(synthetic::sharing()), "1t↓"),
        ("containers", of(synthetic::events()), "1gg\n"),
        ("frames", of(synthetic::sharing()), "2"),
        ("frame", of(synthetic::sharing()), "2t↓\n"),
        ("flame", of(synthetic::sharing()), "3↓↓"),
        ("waits", of(synthetic::sharing()), "4m"),
        ("wait", of(synthetic::sharing()), "4m\n"),
        ("health", of(synthetic::sharing()), "5"),
        ("memory", of(synthetic::sharing()), "6"),
        ("segment", of(synthetic::sharing()), "6\n"),
        ("transfers", of(ucx::events()), "7"),
        ("transfer", of(ucx::events()), "7\n"),
        ("redundancy", of(redundancy::dispatching()), "8"),
        ("tasks", of(tasks::events()), "a"),
        ("timeline", of(synthetic::sharing()), "9↓↓←←←"),
        ("replay", of(synthetic::sharing()), "{....]] 9"),
    ] {
        bench.keys(keys).draw();
        let drawn = svg(bench.terminal.backend().buffer());
        assert!(drawn.len() < SIZE_MAX, "{name}: {}", drawn.len());
        let path = folder.join(format!("{name}.svg"));
        if makes {
            std::fs::write(&path, drawn).unwrap();
        } else {
            let kept = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(kept == drawn, "docs/pictures/{name}.svg is out of date; PYOBS_PICTURES=1 writes it again");
        }
    }
}
