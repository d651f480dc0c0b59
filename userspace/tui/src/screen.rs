//! The contract of a screen.
//!
//! A screen lives as long as the dashboard. It keeps its own state, such as rows, cursor, sort and open details. It knows the
//! model's views, the user's choices ([`Ui`]) and the drawing helpers (`paint`, `list`, `table`), but neither the app nor other
//! screens. A picture takes up to three steps, from the most expensive to the cheapest; each needs the ones before it:
//!
//! 1. `compute` turns the model into a view, for the time and the processes of [`Ui::scope`]. It runs at most twice a second,
//!    and only for the current screen.
//! 2. `arrange` filters and sorts the view. Keys that change only the filter or the order start here.
//! 3. `draw` shows the rows in sight. It changes no state, and its cost must not grow with the number of rows. It registers
//!    in [`Ui::hit_areas`] what a click means.
//!
//! Key tables ([`Keys`]) turn keys into actions: a screen has one for its list, and one for each kind of detail. `act` handles
//! an action and returns an [`Effect`]: what to do next, such as computing again, or a jump to what a row names. Keys that
//! mean the same on all screens, such as `/`, never reach a screen.
//!
//! Screens do not refer to each other: a jump leads to the screen whose `shows` accepts its destination. Before the dashboard
//! leaves a screen, it calls `save`, which closes the details and returns them; `restore` opens them again when the user comes
//! back. `close` closes one detail, `depth` counts the open ones.
//!
//! If `is_empty`, the dashboard explains why instead of drawing: the family is off, the filter matches nothing, no Python
//! runs, or what `empty` says.

use pyobs_model::views::Weight;
use pyobs_model::{Family, Model};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::binding::{Action, Keys};
use crate::jump::{Destination, Effect, Jump};
use crate::scope::Reach;
use crate::table::{AnyList, Saved};
use crate::ui::Ui;

/// A few words beside the tabs. If not all chips fit, those with the highest ranks stay.
pub(crate) struct Chip(pub(crate) u8, pub(crate) &'static str);

/// The constant properties of a screen.
pub(crate) struct About {
    /// The key that opens it.
    pub(crate) key: char,
    pub(crate) title: &'static str,
    /// For tabs with little room.
    pub(crate) short_title: &'static str,
    /// What a pattern filters; `None` if the screen takes no pattern. Screens that name the same thing share the pattern.
    pub(crate) filter: Option<&'static str>,
    /// The key tables: first that of the list or picture, then those of the details.
    pub(crate) keys: &'static [Keys],
}

pub(crate) trait Screen {
    fn about(&self) -> &'static About;

    /// The keys that work now.
    fn keys(&self) -> &'static Keys {
        let tables = self.about().keys;
        &tables[self.depth().min(tables.len() - 1)]
    }

    /// The current list, if the screen shows lists. The default methods below delegate to it.
    fn list(&self) -> Option<&dyn AnyList> {
        None
    }

    fn list_mut(&mut self) -> Option<&mut dyn AnyList> {
        None
    }

    /// The family whose events the screen shows; `None` if it always has something to show.
    fn family(&self, _ui: &Ui) -> Option<Family> {
        None
    }

    /// The time range that the screen covers.
    fn reach(&self) -> Reach {
        Reach::Window
    }

    fn compute(&mut self, model: &Model, ui: &mut Ui) {
        if let Some(list) = self.list_mut() {
            list.compute(model, ui);
        }
    }

    fn arrange(&mut self, model: &Model, ui: &Ui) {
        let filter = ui.filter(self.about().filter);
        if let Some(list) = self.list_mut() {
            list.arrange(model, ui, filter);
        }
    }

    /// Draws what is above the body even if the body is empty. Returns the area that is left for the body.
    fn draw_above(&self, _model: &Model, _ui: &Ui, area: Rect, _buf: &mut Buffer) -> Rect {
        area
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if let Some(list) = self.list() {
            list.draw(model, ui, area, buf);
        }
    }

    fn act(&mut self, action: Action, _model: &Model, ui: &Ui) -> Effect {
        self.list_mut().map_or(Effect::Nothing, |list| list.act(action, ui))
    }

    /// Selects the part that was clicked ([`Hit::Part`](crate::hit_areas::Hit)). Returns whether it was already selected, in
    /// which case the click opens it.
    fn click(&mut self, _part: isize, _column: u16, _model: &Model, _ui: &Ui) -> bool {
        false
    }

    /// The footer's hint for an action, which is usually `usual`. Empty if the action does nothing useful now.
    fn hint(&self, _action: Action, usual: &'static str, _model: &Model, _ui: &Ui) -> &'static str {
        usual
    }

    /// The screen's own chips, which come after those that all screens share.
    fn chips(&self, _ui: &Ui) -> Vec<Chip> {
        Vec::new()
    }

    fn is_empty(&self, _model: &Model, _ui: &Ui) -> bool {
        self.list().is_some_and(AnyList::is_empty)
    }

    /// Whether there are rows for a filter to hide.
    fn has_rows(&self) -> bool {
        self.list().is_some_and(AnyList::has_rows)
    }

    /// What is missing on an empty screen, and why. `None` means samples.
    fn empty(&self, _ui: &Ui) -> Option<(&'static str, &'static str)> {
        None
    }

    /// The texts of all rows, after the names of the columns. `None` if no table is shown.
    fn cells(&self, model: &Model, ui: &Ui) -> Option<Vec<Vec<String>>> {
        self.list().filter(|_| self.depth() == 0)?.cells(model, ui)
    }

    /// The number of open details.
    fn depth(&self) -> usize {
        self.list().map_or(0, AnyList::depth)
    }

    /// Whether `close` has something to close.
    fn is_inside(&self) -> bool {
        self.depth() > 0
    }

    /// Closes a detail, or zooms out. Returns false if there is nothing to close.
    fn close(&mut self, _ui: &Ui) -> bool {
        self.list_mut().is_some_and(AnyList::close)
    }

    /// Whether a jump to this destination leads to this screen.
    fn shows(&self, _destination: Destination) -> bool {
        false
    }

    /// Selects or opens the jump's destination.
    fn jump(&mut self, _jump: Jump) {}

    /// The weight to use after a jump from here to a frame; `None` keeps the current one.
    fn weight(&self) -> Option<Weight> {
        None
    }

    fn save(&mut self) -> Saved {
        self.list_mut().map_or_else(|| Box::new(()) as Saved, |list| list.save())
    }

    /// Restores what `save` returned.
    fn restore(&mut self, saved: Saved) {
        if let Some(list) = self.list_mut() {
            list.restore(saved);
        }
    }
}
