//! The tabs: each screen's key and name, shortened if there is little room.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::hit_areas::Hit;
use crate::navigation::Navigation;
use crate::paint::put;
use crate::screen::Screen;
use crate::text;
use crate::ui::Ui;

/// How the tabs of the other screens are labelled. The longest wording that fits is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TabWording {
    /// ` 2 Frames  3 Flame `
    Titles,
    /// ` 2 Frames 3 Flame`
    Short,
    /// ` 2  3 `
    Keys,
}

/// Leaves `all` cells free on the right if short names make that possible, or else the `needed` ones. Returns the column
/// after the tabs.
pub(super) fn draw(
    ui: &Ui,
    navigation: &Navigation,
    area: Rect,
    (all, needed): (usize, usize),
    buf: &mut Buffer,
) -> u16 {
    let wordings = [(TabWording::Titles, all), (TabWording::Short, all), (TabWording::Short, needed)];
    let tab = |at: usize, wording| words(&*navigation.screens()[at], at == navigation.at(), wording);
    let all = 0..navigation.screens().len();
    let used = |wording| 2 + all.clone().map(|at| width(&tab(at, wording))).sum::<usize>();
    let fits = |(wording, right): &(TabWording, usize)| used(*wording) + right <= usize::from(area.width);
    let wording = wordings.into_iter().find(fits).map_or(TabWording::Keys, |(wording, _)| wording);
    let mut x = 1;
    for at in all.clone() {
        let begin = x;
        let (key, name) = tab(at, wording);
        if at == navigation.at() {
            x = put(buf, area, x, 0, &format!("{key}{name}"), ui.theme.active_tab());
        } else {
            x = put(buf, area, x, 0, &key, ui.theme.key());
            x = put(buf, area, x, 0, &name, ui.theme.text());
        }
        ui.hit_areas.add(Rect { x: area.x + begin, width: x - begin, ..area }, Hit::Tab(at));
    }
    x + 1
}

fn words(screen: &dyn Screen, is_in_sight: bool, wording: TabWording) -> (String, String) {
    let key = screen.about().key;
    match wording {
        _ if is_in_sight => (format!(" {key} "), format!("{} ", screen.about().title)),
        TabWording::Titles => (format!(" {key}"), format!(" {} ", screen.about().title)),
        TabWording::Short => (format!(" {key}"), format!(" {}", screen.about().short_title)),
        TabWording::Keys => (format!(" {key} "), String::new()),
    }
}

fn width((key, name): &(String, String)) -> usize {
    key.len() + text::width(name, usize::MAX / 8)
}
