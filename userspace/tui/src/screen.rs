//! The contract of a screen.
//!
//! A screen lives as long as the dashboard. It keeps its own state, such as rows, cursor, sort and open details, and knows
//! the model's views, the user's choices ([`Ui`]) and the drawing helpers (`paint`, `list`, `table`). It knows neither the app nor
//! another screen. Its life is three steps, from the most expensive to the cheapest; each needs the ones before it:
//!
//! 1. `compute` turns the model into a view: twice a second at most, and only for the screen in sight. It covers the time
//!    and the processes of [`Ui::scope`].
//! 2. `arrange` filters and sorts the view; a key that changes no more needs no more.
//! 3. `draw` shows the rows in sight. It changes nothing and must not be slower for more rows. It notes what a click means
//!    in [`Ui::hit_areas`].
//!
//! Keys come from tables ([`Keys`]): a screen has one for its table, and one for each detail. `act` gets what a key means
//! and answers with an [`Outcome`]: what to do next, such as compute again, or jump to what a row names. Keys that mean the
//! same on all screens, such as `/`, never reach a screen.
//!
//! Screens name places, not each other: a jump goes to the screen whose `shows` accepts its place. Before the dashboard
//! leaves a screen it calls `save`, which closes what is open and returns it; `restore` opens it again when the user comes
//! back. `close` closes one detail, `depth` counts those that are open.
//!
//! If `is_empty`, the dashboard explains why instead of drawing: the family is off, the filter matches nothing, no Python
//! runs, or what `empty` says.

use pyobs_model::views::Weight;
use pyobs_model::{Family, Model};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::binding::{Action, Keys};
use crate::jump::{Jump, Outcome, Place};
use crate::scope::Reach;
use crate::table::{Listed, Saved};
use crate::ui::Ui;

/// A few words on the line of tabs. If there is no room for all, those of the highest rank stay.
pub(crate) struct Chip(pub(crate) u8, pub(crate) &'static str);

/// What never changes about a screen.
pub(crate) struct About {
    /// The key that shows it.
    pub(crate) key: char,
    pub(crate) title: &'static str,
    /// For tabs with little room.
    pub(crate) short_title: &'static str,
    /// What a pattern chooses from; `None` if it takes no pattern. Screens that name the same share the pattern.
    pub(crate) filter: Option<&'static str>,
    /// Its tables of keys: that of the list or picture first, then that of a detail.
    pub(crate) keys: &'static [Keys],
}

pub(crate) trait Screen {
    fn about(&self) -> &'static About;

    /// The keys that work now.
    fn keys(&self) -> &'static Keys {
        let tables = self.about().keys;
        &tables[self.depth().min(tables.len() - 1)]
    }

    /// The list that is shown, for a screen of lists: it computes, arranges, draws and closes what the screen does not.
    fn list(&self) -> Option<&dyn Listed> {
        None
    }

    fn list_mut(&mut self) -> Option<&mut dyn Listed> {
        None
    }

    /// The family whose events it shows; `None` if it always has something to show.
    fn family(&self, _ui: &Ui) -> Option<Family> {
        None
    }

    /// The time that it covers.
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

    /// Draws what stands above the body even if the body is empty. Returns the room below it.
    fn draw_above(&self, _model: &Model, _ui: &Ui, area: Rect, _buf: &mut Buffer) -> Rect {
        area
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        if let Some(list) = self.list() {
            list.draw(model, ui, area, buf);
        }
    }

    fn act(&mut self, action: Action, _model: &Model, ui: &Ui) -> Outcome {
        self.list_mut().map_or(Outcome::Nothing, |list| list.act(action, ui))
    }

    /// Selects the part that was clicked ([`Hit::Part`](crate::hit_areas::Hit)). Returns whether it was selected before:
    /// then the click opens it.
    fn click(&mut self, _part: isize, _column: u16, _model: &Model, _ui: &Ui) -> bool {
        false
    }

    /// What the footer says of an action, instead of what it usually says; nothing if the action is of no use now.
    fn hint(&self, _action: Action, usual: &'static str, _model: &Model, _ui: &Ui) -> &'static str {
        usual
    }

    /// What restricts or changes the view, besides what every screen has.
    fn chips(&self, _ui: &Ui) -> Vec<Chip> {
        Vec::new()
    }

    fn is_empty(&self, _model: &Model, _ui: &Ui) -> bool {
        self.list().is_some_and(Listed::is_empty)
    }

    /// Whether there are rows for a filter to hide.
    fn has_rows(&self) -> bool {
        self.list().is_some_and(Listed::has_rows)
    }

    /// What an empty screen lacks, and why. `None` means samples.
    fn empty(&self, _ui: &Ui) -> Option<(&'static str, &'static str)> {
        None
    }

    /// How many details are open, one behind the other.
    fn depth(&self) -> usize {
        self.list().map_or(0, Listed::depth)
    }

    /// Whether `close` has something to close.
    fn is_inside(&self) -> bool {
        self.depth() > 0
    }

    /// Closes a detail, or zooms out; whether there was anything to close.
    fn close(&mut self, _ui: &Ui) -> bool {
        self.list_mut().is_some_and(Listed::close)
    }

    /// Whether a jump to this place leads here.
    fn shows(&self, _place: Place) -> bool {
        false
    }

    /// Selects or opens the place of the jump.
    fn jump(&mut self, _jump: Jump) {}

    /// How to weigh a frame to which a jump leads from here, if not as before.
    fn weight(&self) -> Option<Weight> {
        None
    }

    fn save(&mut self) -> Saved {
        self.list_mut().map_or_else(|| Box::new(()) as Saved, |list| list.save())
    }

    /// Takes what `save` returned.
    fn restore(&mut self, saved: Saved) {
        if let Some(list) = self.list_mut() {
            list.restore(saved);
        }
    }
}
