//! What the screens of stacks (frames, flame, waits) have in common: how they look at stacks, with hints and chips for that.

use pyobs_model::views::{By, Group, Look, Native, Weight};
use pyobs_model::{Family, Model};

use crate::binding::Action;
use crate::jump::Effect;
use crate::screen::Chip;

/// Frames and Flame share their pattern.
pub(super) const FILTER: Option<&str> = Some("frames");

/// The look after an action. `None` if the action does not change it.
pub(super) fn look_after(action: Action, model: &Model, look: Look) -> Option<Look> {
    match action {
        Action::By if look.by == By::Line => Some(Look { by: By::Function, ..look }),
        Action::By => Some(Look { by: By::Line, ..look }),
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
    vec![Chip(rank, measure), by_chip(look.by), Chip(1, native)]
}

/// The chip's name for the native code that is shown.
pub(super) fn native(native: Native) -> &'static str {
    match native {
        Native::Full => "all native",
        Native::Libraries => "libraries",
        Native::None => "no native",
    }
}

/// Groups of processes, which every view of processes has.
pub(super) const GROUPS: [Group; 4] = [Group::None, Group::Command, Group::Container, Group::User];

/// The look after grouping by the next of these.
pub(super) fn next_group(look: Look, groups: &[Group]) -> Effect {
    Effect::Look(Look { group: look.group.next_of(groups), ..look })
}

/// What the rows are grouped by, if this view can do that.
pub(super) fn group_chip(look: Look, groups: &[Group]) -> Option<Chip> {
    let words = match look.group {
        group if !groups.contains(&group) => return None,
        Group::None => return None,
        Group::Process => "by process",
        Group::Command => "by command",
        Group::Container => "by container",
        Group::User => "by user",
        Group::Task => "by task",
    };
    Some(Chip(3, words))
}

/// The title of the column that names processes, or groups of them.
pub(super) fn group_title(group: Group) -> &'static str {
    match group {
        Group::Command => "COMMAND",
        Group::Container => "CONTAINER",
        Group::User => "USER",
        _ => "PROCESS",
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
        Some(Family::Heap) => Some(("memory", "No Python process has taken more since pyobs began to watch it.")),
        _ => None,
    }
}
