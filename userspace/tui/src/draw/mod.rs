//! The picture:
//!
//! ```text
//! pyobs  host · 99 Hz cpu-clock · 12,345 samples · costs 0.4 % of a core        LIVE    header
//! 0 Overview  1 Processes  2 Frames ...                     last 10 s   4242 app         tabs, chips
//! ...                                                                                    body: the screen
//! one sentence, while there is one                                                       status
//! Enter detail  o own  t total  / filter  ...                            ? help  q quit  footer
//! ```

mod footer;
mod header;
mod help;
mod message;
mod paint;
mod tabs;

use pyobs_model::Model;
use ratatui::Frame;
use ratatui::layout::Rect;

pub(crate) use crate::screens::health_lines;
pub(crate) use help::scroll_max as help_scroll_max;
pub(crate) use message::how_to_see;
pub(crate) use paint::{Heading, Order, Row, put, put_more, put_path};

use crate::ui::{Tab, Ui};

const WIDTH_MIN: u16 = 30;
const HEIGHT_MIN: u16 = 6;

pub(crate) fn draw(model: &Model, ui: &Ui, frame: &mut Frame<'_>) {
    let area = frame.area();
    let buf = frame.buffer_mut();
    ui.hit_areas.clear();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        message::too_small(ui, area, buf, (WIDTH_MIN, HEIGHT_MIN));
        return;
    }
    header::draw(model, ui, Rect { height: 2, ..area }, buf);
    let body = ui.body().intersection(area);
    let rest = match ui.tab {
        Tab::Waits if message::allows_shares(model, ui) => ui.waits.draw_shares(model, ui, body, buf),
        _ => body,
    };
    match message::instead_of(model, ui) {
        Some(message) => message::draw(&message, ui, rest, buf),
        None => match ui.tab {
            Tab::Overview => ui.overview.draw(model, ui, body, buf),
            Tab::Processes => ui.processes.draw(model, ui, body, buf),
            Tab::Frames => ui.frames.draw(model, ui, body, buf),
            Tab::Flame => ui.flame.draw(model, ui, body, buf),
            Tab::Waits => ui.waits.draw(model, ui, rest, buf),
            Tab::Health => ui.health.draw(model, ui, body, buf),
            Tab::Memory => ui.memory.draw(model, ui, body, buf),
            Tab::Transfers => ui.transfers.draw(model, ui, body, buf),
            Tab::Redundancy => ui.redundancy.draw(model, ui, body, buf),
            Tab::Timeline => ui.timeline.draw(model, ui, body, buf),
        },
    }
    let below = Rect { y: body.bottom(), height: area.bottom().saturating_sub(body.bottom()), ..area };
    footer::draw(model, ui, below.intersection(area), buf);
    if let Some(top) = ui.help {
        help::draw(ui, top, area, buf);
    }
}
