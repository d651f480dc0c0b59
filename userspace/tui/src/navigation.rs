//! The screens, the current one, and the navigation history: the jumps that led there, and the way back.

use pyobs_model::Model;
use pyobs_model::views::Look;

use crate::binding::{self, Keys};
use crate::input::Key;
use crate::jump::{Destination, Jump};
use crate::scope::Picked;
use crate::screen::Screen;
use crate::screens;
use crate::table::Saved;
use crate::ui::Ui;

/// A screen that a jump left, with what is needed to come back.
struct Crumb {
    at: usize,
    words: &'static str,
    /// The title of the detail that was left.
    detail: Option<&'static str>,
    saved: Saved,
    picked: Option<Picked>,
    look: Look,
    filter: String,
    is_into_detail: bool,
}

/// A longer history loses its oldest steps.
const STEPS_MAX: usize = 32;

pub(crate) struct Navigation {
    screens: Vec<Box<dyn Screen>>,
    at: usize,
    /// Empty if the current screen was opened by its key or tab.
    history: Vec<Crumb>,
}

impl Navigation {
    pub(crate) fn new(model: &Model) -> Self {
        Self { screens: screens::all(model), at: 0, history: Vec::new() }
    }

    #[cfg(test)]
    pub(crate) fn add(&mut self, screen: Box<dyn Screen>) {
        self.screens.push(screen);
    }

    pub(crate) fn screens(&self) -> &[Box<dyn Screen>] {
        &self.screens
    }

    /// The index of the current screen.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn current(&self) -> &dyn Screen {
        &*self.screens[self.at]
    }

    pub(crate) fn current_mut(&mut self) -> &mut dyn Screen {
        &mut *self.screens[self.at]
    }

    /// The key tables that apply now. The first one that binds a key wins.
    pub(crate) fn keys(&self, ui: &Ui) -> Vec<&'static Keys> {
        match (ui.help, &ui.prompt) {
            (Some(_), _) => vec![&binding::HELP],
            (None, Some(_)) => vec![&binding::PROMPT],
            (None, None) => vec![self.current().keys(), &binding::EVERYWHERE, &binding::REPLAY],
        }
    }

    /// The index of the screen that a key opens.
    pub(crate) fn screen_of_key(&self, key: Key) -> Option<usize> {
        self.screens.iter().position(|screen| Key::Char(screen.about().key) == key)
    }

    pub(crate) fn neighbour(&self, by: isize) -> usize {
        self.at.wrapping_add_signed(by).wrapping_add(self.screens.len()) % self.screens.len()
    }

    fn screen_of(&self, destination: Destination) -> Option<usize> {
        self.screens.iter().position(|screen| screen.shows(destination))
    }

    pub(crate) fn show(&mut self, at: usize) {
        self.history.clear();
        self.at = at;
    }

    /// Shows the screen of a destination, as if its key had been pressed.
    pub(crate) fn show_destination(&mut self, destination: Destination) {
        self.show(self.screen_of(destination).unwrap_or(self.at));
    }

    /// Whether a pattern can filter the current view.
    pub(crate) fn takes_filter(&self) -> bool {
        self.current().depth() == 0 && self.current().about().filter.is_some()
    }

    /// Whether Esc has something to undo.
    pub(crate) fn can_go_back(&self, ui: &Ui) -> bool {
        let is_filtered = ui.filter(self.current().about().filter).is_some();
        let is_away = self.current().is_inside() || !self.history.is_empty();
        is_away || is_filtered || ui.span.is_some() || ui.picked.is_some()
    }

    pub(crate) fn steps(&self) -> usize {
        self.history.len()
    }

    fn detail(&self) -> Option<&'static str> {
        (self.current().depth() > 0).then(|| self.current().keys().title)
    }

    /// Follows a jump, and adds the current screen to the history.
    pub(crate) fn follow_jump(&mut self, jump: Jump, ui: &mut Ui) {
        let Some(to) = self.screen_of(jump.destination) else { return };
        if self.history.len() == STEPS_MAX {
            self.history.remove(0);
        }
        let filter = ui.filter(self.current().about().filter);
        let crumb = Crumb {
            at: self.at,
            words: jump.why,
            detail: self.detail(),
            picked: ui.picked,
            look: ui.look,
            filter: filter.map(|filter| filter.text().to_owned()).unwrap_or_default(),
            is_into_detail: jump.is_into_detail(),
            saved: self.current_mut().save(),
        };
        self.history.push(crumb);
        if let (Some(weight), Destination::Frame(_)) = (self.current().weight(), jump.destination) {
            ui.look.weight = weight;
        }
        if let (Some(process), Some(tid)) = (jump.process, jump.picks()) {
            ui.picked = Some(Picked { process, tid });
        }
        self.at = to;
        ui.set_filter(self.current().about().filter, "");
        self.current_mut().jump(jump);
    }

    pub(crate) fn close_details(&mut self, ui: &Ui) {
        let screen = self.current_mut();
        while screen.depth() > 0 && screen.close(ui) {}
    }

    /// Whether a jump opened the current detail, so that closing the detail also undoes the jump.
    pub(crate) fn was_opened_by_jump(&self) -> bool {
        self.current().depth() == 1 && self.history.last().is_some_and(|crumb| crumb.is_into_detail)
    }

    /// Goes back to the screen that was left last. Returns false if there is none.
    pub(crate) fn go_back(&mut self, ui: &mut Ui) -> bool {
        let Some(crumb) = self.history.pop() else { return false };
        // Details that were opened on the way do not stay open.
        self.close_details(ui);
        self.at = crumb.at;
        (ui.picked, ui.look) = (crumb.picked, crumb.look);
        ui.set_filter(self.current().about().filter, &crumb.filter);
        self.current_mut().restore(crumb.saved);
        true
    }

    /// The steps to the current view, each with the number of crumbs before it. Empty if there is only one.
    pub(crate) fn breadcrumb(&self) -> Vec<(usize, &'static str)> {
        let detail = self.detail();
        if self.history.is_empty() && detail.is_none() {
            return Vec::new();
        }
        let steps = self.history.iter().zip(0..).flat_map(|(crumb, at)| {
            let title = self.screens[crumb.at].about().title;
            [Some(title), crumb.detail, Some(crumb.words)].into_iter().flatten().map(move |words| (at, words))
        });
        let here =
            [Some(self.current().about().title), detail].into_iter().flatten().map(|words| (self.history.len(), words));
        steps.chain(here).collect()
    }
}
