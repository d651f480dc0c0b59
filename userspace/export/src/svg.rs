//! A flame graph by inferno, with search and zoom in any browser.

use std::io::Write;

use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};
use maud::{PreEscaped, html};
use pyobs_model::number::{plural, size, time};
use pyobs_model::{FrameKind, Model, Nanos};

use crate::folded::FoldedStacks;
use crate::names::{empty_selection, metadata, title, unit};
use crate::{Error, Options, Weight};

/// Frames below 1 / `NARROWEST` of the total are too narrow to see. inferno would drop them too, but only after parsing them.
const NARROWEST: u64 = 10_000;

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let stacks = FoldedStacks::new(model, options);
    if stacks.total() == 0 {
        return write_message(empty_selection(options.weight), out);
    }
    let mut text = String::new();
    stacks.lines(stacks.total() / NARROWEST, |stack, count| {
        text += stack;
        text += &format!(" {count}\n");
        Ok(())
    })?;

    let mut palette = PaletteMap::default();
    palette.insert("", colour("", None));
    for (name, kind) in stacks.names() {
        palette.insert(name, colour(name, kind));
    }
    let subtitle = subtitle(model, options.weight, stacks.total());
    let mut picture = flame_options(title(model, options, 120), subtitle, options.weight);
    picture.palette_map = Some(&mut palette);
    flamegraph::from_lines(&mut picture, text.lines(), out)?;
    Ok(())
}

/// Roots are at the top, as in the dashboard, so that the widest frames are in view however deep some stacks are.
pub(crate) fn flame_options<'palette>(
    title: String,
    subtitle: String,
    weight: Weight,
) -> flamegraph::Options<'palette> {
    let mut picture = flamegraph::Options::default();
    (picture.title, picture.subtitle) = (title, Some(subtitle));
    picture.count_name = unit(weight).to_owned();
    picture.name_type = "Frame:".to_owned();
    picture.direction = Direction::Inverted;
    picture.text_truncate_direction = TextTruncateDirection::Right;
    picture
}

/// A picture of a sentence, for an empty selection.
pub(crate) fn write_message(sentence: &str, out: &mut dyn Write) -> Result<(), Error> {
    let picture = html! {
        (PreEscaped(r#"<?xml version="1.0" standalone="no"?>"#))
        svg version="1.1" width="1200" height="60" viewBox="0 0 1200 60" xmlns="http://www.w3.org/2000/svg" {
            rect width="100%" height="100%" fill="#f8f8f8" {}
            text x="50%" y="36" text-anchor="middle" font-family="monospace" font-size="14" { (sentence) }
        }
    };
    Ok(out.write_all(picture.into_string().as_bytes())?)
}

fn subtitle(model: &Model, weight: Weight, total: u64) -> String {
    let about = model.meta();
    let seconds = model.now().as_secs_f64();
    let what = match weight {
        Weight::Cpu => {
            let (spent, sampler) = (time(Nanos(total)), metadata(&about.sampler));
            format!("{spent} of CPU time · {seconds:.1} s at {} Hz ({sampler})", about.rate_hz)
        }
        Weight::Redundant => {
            let samples = plural(total, "sample", "samples");
            format!("{samples} in native code that changed nothing · {seconds:.1} s")
        }
        Weight::OffCpu | Weight::Gil => format!("{} in all threads together · {seconds:.1} s", time(Nanos(total))),
        Weight::Bytes => format!("{} by who made it · {seconds:.1} s", size(total)),
    };
    format!("{what} · {} · orange: Python, blue: native, green: kernel", metadata(&about.started))
}

/// The hue says the kind of the frame, and colour-blind people can tell the hues apart. The shade depends on the name.
fn colour(name: &str, kind: Option<FrameKind>) -> Color {
    let (r, g, b): (u8, u8, u8) = match kind {
        None => (214, 214, 214),
        Some(FrameKind::Python) => (240, 176, 60),
        Some(FrameKind::Native) => (116, 190, 235),
        Some(FrameKind::Kernel) => (70, 178, 140),
    };
    if kind.is_none() {
        return Color { r, g, b };
    }
    // FNV-1a, not the standard hasher: a name has the same shade in every picture.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let shade = (hash % 31) as u8;
    let shaded = |channel: u8| channel.saturating_sub(20).saturating_add(shade);
    Color { r: shaded(r), g: shaded(g), b: shaded(b) }
}
