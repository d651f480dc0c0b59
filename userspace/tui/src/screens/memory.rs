//! Memory: the lines that use it, shared segments, arenas of Python objects, MemInfos of code compiled by Numba, or the
//! resident memory of processes.

mod births;
mod births_detail;
mod heap;
mod heap_detail;
mod life;
mod residents;
mod shm;
mod shm_detail;

use pyobs_model::findings::Target;
use pyobs_model::{Family, Model};

use self::births::BirthTable;
use self::heap::{HeapSite, HeapTable};
use self::residents::ResidentTable;
use self::shm::SegmentTable;
use crate::binding::{Action, FOLLOW, GROUP, Keys, SORT_NEXT, SORT_PREVIOUS, bind};
use crate::input::Key;
use crate::jump::{Destination, Effect, Jump};
use crate::scope::Reach;
use crate::screen::{About, Chip, Screen};
use crate::screens::stacks;
use crate::table::{AnyList, List, Saved};
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
                bind(&[Key::Enter], Action::Open, "detail", "what is known of the line, the segment, or the arenas"),
                SORT_NEXT,
                SORT_PREVIOUS,
                bind(&[Key::Char('m')], Action::Measure, "arenas", "lines, segments, arenas, MemInfos, processes"),
                GROUP,
            ],
        },
        Keys { title: "A line, a segment, or arenas", bindings: &[FOLLOW] },
    ],
};

/// What the rows stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MemoryKind {
    Lines,
    #[default]
    Segments,
    Arenas,
    MemInfos,
    Processes,
}

impl MemoryKind {
    const ALL: [Self; 5] = [Self::Lines, Self::Segments, Self::Arenas, Self::MemInfos, Self::Processes];

    fn family(self) -> Family {
        match self {
            Self::Lines => Family::Heap,
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
            Self::Lines => "lines",
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
struct OpenMemory {
    shown: MemoryKind,
    births: List<BirthTable>,
    segment: Saved,
}

pub(super) struct MemoryScreen {
    shown: MemoryKind,
    lines: List<HeapTable>,
    segments: List<SegmentTable>,
    /// Arenas or MemInfos.
    births: List<BirthTable>,
    residents: List<ResidentTable>,
}

impl MemoryScreen {
    pub(super) fn new(model: &Model) -> Self {
        let shown = MemoryKind::ALL.into_iter().find(|shown| model.is_on(shown.family())).unwrap_or_default();
        let births = shown.births();
        Self { shown, lines: List::default(), segments: List::default(), births, residents: List::default() }
    }

    fn show(&mut self, shown: MemoryKind) {
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

    /// Lines show what is held now, MemInfos are only counted per birthplace, and resident memory is that of the latest
    /// measurement.
    fn reach(&self) -> Reach {
        if matches!(self.shown, MemoryKind::Lines | MemoryKind::MemInfos | MemoryKind::Processes) {
            Reach::All
        } else {
            Reach::Window
        }
    }

    fn list(&self) -> Option<&dyn AnyList> {
        Some(match self.shown {
            MemoryKind::Lines => &self.lines,
            MemoryKind::Segments => &self.segments,
            MemoryKind::Arenas | MemoryKind::MemInfos => &self.births,
            MemoryKind::Processes => &self.residents,
        })
    }

    fn list_mut(&mut self) -> Option<&mut dyn AnyList> {
        Some(match self.shown {
            MemoryKind::Lines => &mut self.lines,
            MemoryKind::Segments => &mut self.segments,
            MemoryKind::Arenas | MemoryKind::MemInfos => &mut self.births,
            MemoryKind::Processes => &mut self.residents,
        })
    }

    fn act(&mut self, action: Action, _model: &Model, ui: &Ui) -> Effect {
        if action == Action::Measure {
            self.show(self.shown.next());
            return Effect::View;
        }
        if action == Action::Group && self.shown == MemoryKind::Processes {
            return stacks::next_group(ui.look, &stacks::GROUPS);
        }
        self.list_mut().map_or(Effect::Nothing, |list| list.act(action, ui))
    }

    fn hint(&self, action: Action, usual: &'static str, _model: &Model, _ui: &Ui) -> &'static str {
        match action {
            Action::Measure => self.shown.next().title(),
            Action::Group if self.shown != MemoryKind::Processes => "",
            _ => usual,
        }
    }

    fn chips(&self, ui: &Ui) -> Vec<Chip> {
        let is_grouped = self.shown == MemoryKind::Processes;
        stacks::group_chip(ui.look, &stacks::GROUPS).filter(|_| is_grouped).into_iter().collect()
    }

    fn empty(&self, _ui: &Ui) -> Option<(&'static str, &'static str)> {
        Some(match self.shown {
            MemoryKind::Lines => ("growth", "No Python process has taken more memory since pyobs began to watch it."),
            MemoryKind::Segments | MemoryKind::Processes => {
                ("shared segments", "No Python process has made or mapped one.")
            }
            MemoryKind::Arenas => ("arenas", "No Python process has any, or none uses CPython's allocator."),
            MemoryKind::MemInfos => ("MemInfos", "No code compiled by Numba has made one."),
        })
    }

    fn shows(&self, destination: Destination) -> bool {
        matches!(
            destination.target(),
            Some(Target::Memory(..) | Target::Arenas(_) | Target::MemInfos(_) | Target::Segment(_))
        )
    }

    fn jump(&mut self, jump: Jump) {
        let Some(target) = jump.destination.target() else { return };
        let opens = jump.is_into_detail();
        self.show(match target {
            Target::Memory(..) => MemoryKind::Lines,
            Target::Arenas(_) => MemoryKind::Arenas,
            Target::MemInfos(_) => MemoryKind::MemInfos,
            _ => MemoryKind::Segments,
        });
        match target {
            Target::Arenas(frame) | Target::MemInfos(frame) => {
                let process = jump.process;
                self.births.seek(move |site| process == Some(site.process) && site.frame == frame, opens);
            }
            Target::Memory(used_for, frame) => {
                let process = jump.process;
                let is_it = move |site: &HeapSite| {
                    process == Some(site.process) && site.used_for == used_for && site.frame == frame
                };
                self.lines.seek(is_it, opens);
            }
            Target::Segment(id) => self.segments.go(id, opens),
            _ => {}
        }
    }

    fn save(&mut self) -> Saved {
        let births = std::mem::replace(&mut self.births, self.shown.births());
        Box::new(OpenMemory { shown: self.shown, births, segment: self.segments.save() })
    }

    fn restore(&mut self, saved: Saved) {
        if let Ok(open) = saved.downcast::<OpenMemory>() {
            (self.shown, self.births) = (open.shown, open.births);
            self.segments.restore(open.segment);
        }
    }
}
