//! What threads wait for, as slices on their tracks.

use std::collections::BTreeMap;

use pyobs_model::views::{self, birthplace};
use pyobs_model::{Family, number};
use pyobs_model::{Model, Nanos, Place, ProcessRef, Selection, Tid, WaitReason};

use super::trace::{Slice, TraceWriter, Track};
use crate::{Error, names};

/// The category of the slices.
const CATEGORY: &str = "wait";

/// A period in which a thread slept.
struct WaitSlice {
    name: String,
    place: Place,
    from: Nanos,
    to: Nanos,
    args: BTreeMap<&'static str, String>,
}

/// Sleeps and waits for the GIL. A wait for the GIL is a sleep too, so sleeps with that reason are left out if the family `gil`
/// was on.
fn waits(model: &Model, selection: &Selection) -> Vec<WaitSlice> {
    let line = |stack| {
        let frame = birthplace(model, Some(stack)).and_then(|frame| model.frame(frame));
        frame.map(|frame| names::frame(frame, true))
    };
    let has_gil_waits = model.is_on(Family::Gil);
    let sleeps =
        views::whole_sleeps(model, selection).into_iter().filter(|it| it.reason != WaitReason::Gil || !has_gil_waits);
    let sleeps = sleeps.map(|sleep| {
        let mut args = BTreeMap::new();
        args.extend(line(sleep.stack).map(|line| ("at", line)));
        args.extend(sleep.waker.as_ref().map(|waker| ("woken_by", names::waker(model, waker))));
        if sleep.count > 1 {
            args.insert("stands_for", format!("{} sleeps, {}", sleep.count, number::time(sleep.total)));
        }
        let name = format!("sleep: {}", sleep.reason.name());
        WaitSlice { name, place: sleep.place(), from: sleep.at.saturating_sub(sleep.length), to: sleep.at, args }
    });
    let gil = model.gil().waits(selection).map(|wait| {
        let mut args = BTreeMap::new();
        args.extend(line(wait.stack).map(|line| ("at", line)));
        if let Some(holder) = wait.holder {
            args.insert("behind", names::thread(model, wait.process, holder.tid));
            args.extend(line(holder.stack).map(|line| ("which_is_at", line)));
        }
        let name = "wait for the GIL".to_owned();
        WaitSlice { name, place: wait.place(), from: wait.at.saturating_sub(wait.length), to: wait.at, args }
    });
    sleeps.chain(gil).collect()
}

pub(super) fn write(model: &Model, selection: &Selection, trace: &mut TraceWriter<'_>) -> Result<(), Error> {
    let mut threads: BTreeMap<(ProcessRef, Tid), Vec<Slice>> = BTreeMap::new();
    for WaitSlice { name, place, from, to, args } in waits(model, selection) {
        let slice = Slice { name, category: CATEGORY, from, to: Some(to), args, arrow: None };
        threads.entry((trace.process(place.process), place.tid)).or_default().push(slice);
    }
    threads.into_iter().try_for_each(|((process, tid), slices)| trace.slices(Track::Thread(process, tid), slices))
}
