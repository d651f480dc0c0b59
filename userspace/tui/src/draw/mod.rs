//! Draws a picture of the whole dashboard:
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
mod tabs;

use pyobs_model::Model;
use ratatui::Frame;
use ratatui::layout::Rect;

pub(crate) use help::scroll_max as help_scroll_max;

use crate::navigation::Navigation;
use crate::ui::Ui;

const WIDTH_MIN: u16 = 30;
const HEIGHT_MIN: u16 = 6;

pub(crate) fn draw(model: &Model, ui: &Ui, navigation: &Navigation, frame: &mut Frame<'_>) {
    let area = frame.area();
    let buf = frame.buffer_mut();
    ui.hit_areas.clear();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        message::too_small(ui, area, buf, (WIDTH_MIN, HEIGHT_MIN));
        return;
    }
    header::draw(model, ui, navigation, Rect { height: 2, ..area }, buf);
    let body = ui.body().intersection(area);
    let screen = navigation.current();
    let rest = screen.draw_above(model, ui, body, buf);
    match message::instead_of(model, ui, screen) {
        Some(message) => message::draw(&message, ui, rest, buf),
        None => screen.draw(model, ui, rest, buf),
    }
    let below = Rect { y: body.bottom(), height: area.bottom().saturating_sub(body.bottom()), ..area };
    footer::draw(model, ui, navigation, below.intersection(area), buf);
    if let Some(top) = ui.help {
        help::draw(ui, navigation, top, area, buf);
    }
}
