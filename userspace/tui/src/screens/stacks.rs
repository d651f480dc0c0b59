//! What the screens of stacks (frames, flame, waits) have in common: how they look at stacks, with hints and chips for that.

use pyobs_model::views::{By, Group, Look, Native, Weight};
use pyobs_model::{Family, Model};

use crate::binding::Action;
use crate::screen::Chip;

/// Frames and Flame share their pattern.
pub(super) const FILTER: Option<&str> = Some("frames");

/// The look after an action. `None` if the action does not change it.
pub(super) fn look_after(action: Action, model: &Model, look: Look) -> Option<Look> {
    match action {
        Action::By if look.by == By::Line => Some(Look { by: By::Function, ..look }),
        Action::By => Some(Look { by: By::Line, ..look }),
        Action::Group if look.group == Group::Task => Some(Look { group: Group::None, ..look }),
        Action::Group if model.tasks().is_empty() => None,
        Action::Group => Some(Look { group: Group::Task, ..look }),
        Action::Fold => Some(Look { native: look.native.next(), ..look }),
        Action::Measure => {
            let at = Weight::ALL.iter().position(|weight| *weight == look.weight).unwrap_or(0);
            let others = Weight::ALL.iter().cycle().skip(at + 1).take(Weight::ALL.len());
            let next = others.copied().find(|weight| weight.is_known(model));
            Some(Look { weight: next.unwrap_or(look.weight), ..look })
        }
        _ => None,
    }
}

pub(super) fn hint(action: Action, usual: &'static str, model: &Model) -> &'static str {
    let weights = Weight::ALL.iter().filter(|weight| weight.is_known(model)).count();
    match action {
        Action::Measure if weights < 2 => "",
        Action::Group if model.tasks().is_empty() => "",
        _ => usual,
    }
}

pub(super) fn chips(look: Look, native: &'static str) -> Vec<Chip> {
    let measure = match look.weight {
        Weight::Cpu => "cpu time",
        Weight::OffCpu => "offcpu time",
        Weight::Gil => "gil time",
        Weight::Redundant => "redundant samples",
        Weight::Bytes => "bytes held",
    };
    // The default measure may be left out if there is little room.
    let rank = if look.weight == Weight::Cpu { 0 } else { 4 };
    let group = (look.group == Group::Task).then_some(Chip(3, "by task"));
    [Chip(rank, measure), by_chip(look.by), Chip(1, native)].into_iter().chain(group).collect()
}

/// The chip's name for the native code that is shown.
pub(super) fn native(native: Native) -> &'static str {
    match native {
        Native::Full => "all native",
        Native::Libraries => "libraries",
        Native::None => "no native",
    }
}

pub(super) fn by_chip(by: By) -> Chip {
    Chip(2, if by == By::Line { "by line" } else { "by function" })
}

/// What is missing on an empty screen, and why.
pub(super) fn empty(weight: Weight) -> Option<(&'static str, &'static str)> {
    match weight.families().first().copied() {
        Some(Family::OffCpu) => Some(("sleeps", "A sleep appears when it is over.")),
        Some(Family::Gil) => Some(("waits for the GIL", "A wait appears when it is over.")),
        Some(Family::Redundancy) => Some(("accesses", "No native code was seen that Python called.")),
        Some(Family::Arena) => Some(("arenas", "No Python process has any, or none uses CPython's allocator.")),
        _ => None,
    }
}
