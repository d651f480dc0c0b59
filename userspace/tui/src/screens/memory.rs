//! Memory: the segments that processes share, the arenas that hold their objects, the MemInfos of compiled code, or what processes
//! have in memory.

mod births;
mod births_detail;
mod detail;
mod residents;
mod segments;

use pyobs_model::Model;
use pyobs_model::findings::Target;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::births::Births;
use self::residents::Residents;
use self::segments::Segments;
pub(super) use self::segments::label as segment_label;
use super::Outcome;
use crate::binding::Action;
use crate::filter::Filter;
use crate::history::{Jump, Place};
use crate::ui::{Scope, Ui};

/// What the rows are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Table {
    #[default]
    Segments,
    Arenas,
    MemInfos,
    Processes,
}

impl Table {
    const ALL: [Self; 4] = [Self::Segments, Self::Arenas, Self::MemInfos, Self::Processes];

    pub(crate) fn family(self) -> &'static str {
        match self {
            Self::Segments | Self::Processes => "shm",
            Self::Arenas => "arena",
            Self::MemInfos => "nrt",
        }
    }

    /// For the footer.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Segments => "segments",
            Self::Arenas => "arenas",
            Self::MemInfos => "MemInfos",
            Self::Processes => "processes",
        }
    }

    pub(crate) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|table| *table == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// What was open.
pub(crate) struct MemoryAside {
    table: Table,
    births: Births,
    segment: Option<detail::Detail>,
}

pub(crate) struct MemoryScreen {
    table: Table,
    segments: Segments,
    births: Births,
    residents: Residents,
}

impl MemoryScreen {
    pub(crate) fn new(model: &Model) -> Self {
        let table = Table::ALL.into_iter().find(|table| model.is_on(table.family())).unwrap_or_default();
        Self { table, segments: Segments::default(), births: Births::of(table), residents: Residents::default() }
    }

    pub(crate) fn table(&self) -> Table {
        self.table
    }

    pub(crate) fn compute(&mut self, model: &Model, scope: &Scope) {
        match self.table {
            Table::Segments => self.segments.compute(model, scope),
            Table::Arenas | Table::MemInfos => self.births.compute(model, scope),
            Table::Processes => self.residents.compute(model, scope),
        }
    }

    pub(crate) fn arrange(&mut self, model: &Model, filter: Option<&Filter>, body: Rect) {
        match self.table {
            Table::Segments => self.segments.arrange(model, filter, body),
            Table::Arenas | Table::MemInfos => self.births.arrange(model, filter, body),
            Table::Processes => self.residents.arrange(model, filter, body),
        }
    }

    pub(crate) fn act(&mut self, action: Action, body: Rect) -> Outcome {
        if action == Action::Measure {
            self.table = self.table.next();
            self.births = Births::of(self.table);
            return Outcome::View;
        }
        match self.table {
            Table::Segments => self.segments.act(action, body),
            Table::Arenas | Table::MemInfos => self.births.act(action, body),
            Table::Processes => self.residents.act(action, body),
        }
    }

    pub(crate) fn jump(&mut self, jump: Jump) {
        let (Place::Row(target) | Place::Detail(target)) = jump.place else { return };
        let opens = jump.is_into_detail();
        self.table = match target {
            Target::Arenas(_) => Table::Arenas,
            Target::MemInfos(_) => Table::MemInfos,
            _ => Table::Segments,
        };
        self.births = Births::of(self.table);
        match target {
            Target::Arenas(frame) | Target::MemInfos(frame) => self.births.jump(jump.process, frame, opens),
            Target::Segment(id) => self.segments.jump(id, opens),
            _ => {}
        }
    }

    pub(crate) fn put_aside(&mut self) -> MemoryAside {
        let births = std::mem::replace(&mut self.births, Births::of(self.table));
        MemoryAside { table: self.table, births, segment: self.segments.put_aside() }
    }

    pub(crate) fn put_back(&mut self, aside: MemoryAside) {
        (self.table, self.births) = (aside.table, aside.births);
        self.segments.put_back(aside.segment);
    }

    /// Whether there was one to close.
    pub(crate) fn close_detail(&mut self) -> bool {
        match self.table {
            Table::Segments => self.segments.close_detail(),
            Table::Arenas | Table::MemInfos => self.births.close_detail(),
            Table::Processes => false,
        }
    }

    pub(crate) fn shows_detail(&self) -> bool {
        match self.table {
            Table::Segments => self.segments.shows_detail(),
            Table::Arenas | Table::MemInfos => self.births.shows_detail(),
            Table::Processes => false,
        }
    }

    pub(crate) fn has_rows(&self) -> bool {
        match self.table {
            Table::Segments => self.segments.has_rows(),
            Table::Arenas | Table::MemInfos => self.births.has_rows(),
            Table::Processes => self.residents.has_rows(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self.table {
            Table::Segments => self.segments.is_empty(),
            Table::Arenas | Table::MemInfos => self.births.is_empty(),
            Table::Processes => self.residents.is_empty(),
        }
    }

    pub(crate) fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        match self.table {
            Table::Segments => self.segments.draw(model, ui, area, buf),
            Table::Arenas | Table::MemInfos => self.births.draw(model, ui, area, buf),
            Table::Processes => self.residents.draw(model, ui, area, buf),
        }
    }
}
