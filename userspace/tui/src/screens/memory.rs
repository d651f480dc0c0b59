//! Memory: shared segments, arenas of Python objects, MemInfos of code compiled by Numba, or the resident memory of processes.

mod births;
mod births_detail;
mod detail;
mod life;
mod residents;
mod segments;

use pyobs_model::findings::Target;
use pyobs_model::{Family, Model};

use self::births::BirthTable;
use self::residents::ResidentTable;
use self::segments::SegmentTable;
use crate::binding::{Action, FOLLOW, Keys, SORT_NEXT, SORT_PREVIOUS, bind};
use crate::input::Key;
use crate::jump::{Jump, Outcome, Place};
use crate::scope::Reach;
use crate::screen::{About, Screen};
use crate::table::{List, Listed, Saved};
use crate::ui::Ui;

static ABOUT: About = About {
    key: '6',
    title: "Memory",
    short_title: "Memory",
    filter: Some("memory"),
    keys: &[
        Keys {
            title: "Memory",
            bindings: &[
                bind(&[Key::Enter], Action::Open, "detail", "what is known of the segment, or the arenas"),
                SORT_NEXT,
                SORT_PREVIOUS,
                bind(&[Key::Char('m')], Action::Measure, "arenas", "shared segments, arenas, or MemInfos of Numba"),
            ],
        },
        Keys { title: "A segment, or arenas", bindings: &[FOLLOW] },
    ],
};

/// What the rows stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Segments,
    Arenas,
    MemInfos,
    Processes,
}

impl Shown {
    const ALL: [Self; 4] = [Self::Segments, Self::Arenas, Self::MemInfos, Self::Processes];

    fn family(self) -> Family {
        match self {
            Self::Segments | Self::Processes => Family::Shm,
            Self::Arenas => Family::Arena,
            Self::MemInfos => Family::Nrt,
        }
    }

    fn births(self) -> List<BirthTable> {
        List::new(BirthTable::of_meminfos(self == Self::MemInfos))
    }

    /// The name in the footer.
    fn title(self) -> &'static str {
        match self {
            Self::Segments => "segments",
            Self::Arenas => "arenas",
            Self::MemInfos => "MemInfos",
            Self::Processes => "processes",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|shown| *shown == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// What `save` returns.
struct Open {
    shown: Shown,
    births: List<BirthTable>,
    segment: Saved,
}

pub(super) struct MemoryScreen {
    shown: Shown,
    segments: List<SegmentTable>,
    /// Arenas or MemInfos.
    births: List<BirthTable>,
    residents: List<ResidentTable>,
}

impl MemoryScreen {
    pub(super) fn new(model: &Model) -> Self {
        let shown = Shown::ALL.into_iter().find(|shown| model.is_on(shown.family())).unwrap_or_default();
        let births = shown.births();
        Self { shown, segments: List::default(), births, residents: List::default() }
    }

    fn show(&mut self, shown: Shown) {
        self.shown = shown;
        self.births = shown.births();
    }
}

impl Screen for MemoryScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn family(&self, _ui: &Ui) -> Option<Family> {
        Some(self.shown.family())
    }

    /// MemInfos are only counted per birthplace, and resident memory is that of the latest measurement.
    fn reach(&self) -> Reach {
        if matches!(self.shown, Shown::MemInfos | Shown::Processes) { Reach::All } else { Reach::Window }
    }

    fn list(&self) -> Option<&dyn Listed> {
        Some(match self.shown {
            Shown::Segments => &self.segments,
            Shown::Arenas | Shown::MemInfos => &self.births,
            Shown::Processes => &self.residents,
        })
    }

    fn list_mut(&mut self) -> Option<&mut dyn Listed> {
        Some(match self.shown {
            Shown::Segments => &mut self.segments,
            Shown::Arenas | Shown::MemInfos => &mut self.births,
            Shown::Processes => &mut self.residents,
        })
    }

    fn act(&mut self, action: Action, _model: &Model, ui: &Ui) -> Outcome {
        if action == Action::Measure {
            self.show(self.shown.next());
            return Outcome::View;
        }
        self.list_mut().map_or(Outcome::Nothing, |list| list.act(action, ui))
    }

    fn hint(&self, action: Action, usual: &'static str, _model: &Model, _ui: &Ui) -> &'static str {
        if action == Action::Measure { self.shown.next().title() } else { usual }
    }

    fn empty(&self, _ui: &Ui) -> Option<(&'static str, &'static str)> {
        Some(match self.shown {
            Shown::Segments | Shown::Processes => ("shared segments", "No Python process has made or mapped one."),
            Shown::Arenas => ("arenas", "No Python process has any, or none uses CPython's allocator."),
            Shown::MemInfos => ("MemInfos", "No code compiled by Numba has made one."),
        })
    }

    fn shows(&self, place: Place) -> bool {
        matches!(place.target(), Some(Target::Arenas(_) | Target::MemInfos(_) | Target::Segment(_)))
    }

    fn jump(&mut self, jump: Jump) {
        let Some(target) = jump.place.target() else { return };
        let opens = jump.is_into_detail();
        self.show(match target {
            Target::Arenas(_) => Shown::Arenas,
            Target::MemInfos(_) => Shown::MemInfos,
            _ => Shown::Segments,
        });
        match target {
            Target::Arenas(frame) | Target::MemInfos(frame) => {
                let process = jump.process;
                self.births.seek(move |site| process == Some(site.process) && site.frame == frame, opens);
            }
            Target::Segment(id) => self.segments.go(id, opens),
            _ => {}
        }
    }

    fn save(&mut self) -> Saved {
        let births = std::mem::replace(&mut self.births, self.shown.births());
        Box::new(Open { shown: self.shown, births, segment: self.segments.save() })
    }

    fn restore(&mut self, saved: Saved) {
        if let Ok(open) = saved.downcast::<Open>() {
            (self.shown, self.births) = (open.shown, open.births);
            self.segments.restore(open.segment);
        }
    }
}
