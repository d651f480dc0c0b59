//! The navigation history: the way from screen to screen along what details name, and back.

use pyobs_model::findings::Target;
use pyobs_model::views::Look;
use pyobs_model::{FrameId, ProcessRef, Tid};

use crate::screens::{FramesAside, MemoryAside, RedundancyAside, TransfersAside, WaitsAside};
use crate::ui::{Picked, Tab, Ui};

/// What can be gone to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The row of it on its screen.
    Row(Target),
    /// All that is known of it.
    Detail(Target),
    /// Who calls a frame, and what it calls.
    Frame(FrameId),
    /// What a thread does.
    Thread(Tid),
    Process,
}

/// To something, of a process where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Jump {
    pub(crate) process: Option<ProcessRef>,
    pub(crate) place: Place,
    /// What it is of, in a word.
    pub(crate) why: &'static str,
}

impl Jump {
    pub(crate) fn frame(process: Option<ProcessRef>, frame: FrameId) -> Self {
        Self { process, place: Place::Frame(frame), why: "frame" }
    }

    pub(crate) fn thread(process: ProcessRef, tid: Tid) -> Self {
        Self { process: Some(process), place: Place::Thread(tid), why: "thread" }
    }

    pub(crate) fn process(process: ProcessRef) -> Self {
        Self { process: Some(process), place: Place::Process, why: "process" }
    }

    pub(crate) fn detail(process: Option<ProcessRef>, target: Target, why: &'static str) -> Self {
        Self { process, place: Place::Detail(target), why }
    }

    /// The screen that shows it.
    pub(crate) fn tab(&self) -> Tab {
        match self.place {
            Place::Row(target) | Place::Detail(target) => match target {
                Target::GilWaits(_) => Tab::Waits,
                Target::Arenas(_) | Target::MemInfos(_) | Target::Segment(_) => Tab::Memory,
                Target::Worker(_) | Target::Transfers(_) => Tab::Transfers,
                Target::Line(_) => Tab::Redundancy,
            },
            Place::Frame(_) | Place::Thread(_) | Place::Process => Tab::Frames,
        }
    }

    /// Whether it leads into a detail, rather than to a row.
    pub(crate) fn is_into_detail(&self) -> bool {
        matches!(self.place, Place::Detail(_) | Place::Frame(_))
    }
}

/// What was open on a screen.
enum Aside {
    Nothing,
    Frames(FramesAside),
    Waits(WaitsAside),
    Memory(MemoryAside),
    Transfers(TransfersAside),
    Redundancy(RedundancyAside),
}

/// A screen from which another was opened, and what for.
pub(crate) struct Crumb {
    pub(crate) tab: Tab,
    pub(crate) words: &'static str,
    /// What the way led through, if it was a detail.
    detail: Option<&'static str>,
    aside: Aside,
    picked: Option<Picked>,
    look: Look,
    filter: String,
    is_into_detail: bool,
}

/// Longer ways forget where they began.
const STEPS_MAX: usize = 32;

impl Ui {
    /// Shows the screen that a jump leads to, and remembers this one.
    pub(crate) fn leave_for(&mut self, jump: Jump) {
        if self.history.len() == STEPS_MAX {
            self.history.remove(0);
        }
        let context = self.context();
        let detail = context.is_detail().then(|| context.title());
        let aside = match self.tab {
            Tab::Frames => Aside::Frames(self.frames.put_aside()),
            Tab::Waits => Aside::Waits(self.waits.put_aside()),
            Tab::Memory => Aside::Memory(self.memory.put_aside()),
            Tab::Transfers => Aside::Transfers(self.transfers.put_aside()),
            Tab::Redundancy => Aside::Redundancy(self.redundancy.put_aside()),
            Tab::Overview | Tab::Processes | Tab::Flame | Tab::Health | Tab::Timeline => Aside::Nothing,
        };
        self.history.push(Crumb {
            tab: self.tab,
            words: jump.why,
            detail,
            aside,
            picked: self.picked,
            look: self.look,
            filter: self.filter().map(|filter| filter.text().to_owned()).unwrap_or_default(),
            is_into_detail: jump.is_into_detail(),
        });
        if let (Tab::Waits, Place::Frame(_)) = (self.tab, jump.place) {
            // Who waits uses no CPU.
            self.look.weight = self.waits.table().weight();
        }
        self.tab = jump.tab();
        self.set_filter("");
        match self.tab {
            Tab::Frames => {
                let tid = if let Place::Thread(tid) = jump.place { Some(tid) } else { None };
                if let (Some(process), Place::Thread(_) | Place::Process) = (jump.process, jump.place) {
                    self.picked = Some(Picked { process, tid });
                }
                self.frames.jump(jump);
            }
            Tab::Waits => self.waits.jump(jump),
            Tab::Memory => self.memory.jump(jump),
            Tab::Transfers => self.transfers.jump(jump),
            _ => self.redundancy.jump(jump),
        }
    }

    /// Whether closing the detail in sight is going back to where it was opened from.
    pub(crate) fn is_straight_from_elsewhere(&self) -> bool {
        let depth = if self.tab == Tab::Frames { self.frames.depth() } else { 1 };
        depth == 1 && self.context().is_detail() && self.history.last().is_some_and(|crumb| crumb.is_into_detail)
    }

    /// Shows the screen again that was left last; whether there was one.
    pub(crate) fn return_to_crumb(&mut self) -> bool {
        let Some(crumb) = self.history.pop() else { return false };
        if self.tab == Tab::Frames {
            // What was opened on the way is not what was there before.
            self.frames.put_back(FramesAside::default());
        }
        self.tab = crumb.tab;
        (self.picked, self.look) = (crumb.picked, crumb.look);
        self.set_filter(&crumb.filter);
        match crumb.aside {
            Aside::Nothing => {}
            Aside::Frames(aside) => self.frames.put_back(aside),
            Aside::Waits(aside) => self.waits.put_back(aside),
            Aside::Memory(aside) => self.memory.put_back(aside),
            Aside::Transfers(aside) => self.transfers.put_back(aside),
            Aside::Redundancy(aside) => self.redundancy.put_back(aside),
        }
        true
    }

    /// Where one is and how one came there, step by step, where that is more than one; each with the number of the crumb that leads
    /// back to it.
    pub(crate) fn breadcrumb(&self) -> Vec<(usize, &'static str)> {
        let context = self.context();
        let detail = context.is_detail().then(|| context.title());
        if self.history.is_empty() && detail.is_none() {
            return Vec::new();
        }
        let steps = self.history.iter().zip(0..).flat_map(|(crumb, at)| {
            [Some(crumb.tab.title()), crumb.detail, Some(crumb.words)]
                .into_iter()
                .flatten()
                .map(move |words| (at, words))
        });
        let here = [Some(self.tab.title()), detail].into_iter().flatten().map(|words| (self.history.len(), words));
        steps.chain(here).collect()
    }
}
