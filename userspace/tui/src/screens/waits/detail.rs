//! One wait: its times, who ended it, and the stacks involved.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pyobs_model::families::{Sampled, Times, gil, offcpu};
use pyobs_model::views::By;
use pyobs_model::{FrameId, FrameKind, Model, Nanos, StackId, WaitReason};

use super::wait::{WaitCause, WaitKey, waker_label};
use crate::jump::Jump;
use crate::number;
use crate::paint::RowPainter;
use crate::scope::Scope;
use crate::screens::names::thread_label;
use crate::screens::names::{name, place, process_label, process_of};
use crate::screens::page::{self, PageLine};
use crate::ui::Ui;

/// The waits that a waker ended, or that a stack has, as a share of all.
pub(super) struct WaitShareLine {
    times: Times,
    whole: Nanos,
    words: String,
}

pub(super) type WaitDetail = page::PageDetail<WaitKey, WaitShareLine>;

/// The most wakers or stacks per list. The others are counted.
const PARTS_MAX: usize = 20;

impl WaitDetail {
    pub(super) fn compute(&mut self, model: &Model, scope: &Scope) {
        self.page.clear();
        match self.key.cause {
            WaitCause::Sleep { .. } => self.compute_sleep(model, scope),
            WaitCause::Gil { .. } => self.compute_gil(model, scope),
        }
    }

    fn compute_sleep(&mut self, model: &Model, scope: &Scope) {
        let sums = model.offcpu().sums(&scope.selection);
        let mut all = offcpu::SleepSum::default();
        let mut stacks: BTreeMap<StackId, Times> = BTreeMap::new();
        for (key, sum) in sums.into_iter().filter(|(key, _)| self.is_sleep(model, key, scope.look.by)) {
            stacks.entry(key.place.stack).or_default().add(sum.times);
            all.add(sum);
        }
        let whole = all.times.total;
        self.introduce(model, scope, all.times, all.sampled);
        let wakers = all.wakers.most().into_iter().map(|(waker, times)| {
            let jump = process_of(model, waker.pid).map(|process| Jump::thread(process, waker.tid));
            (WaitShareLine { times, whole, words: waker_label(waker) }, jump)
        });
        self.list("WOKEN BY", wakers.collect());
        self.list_stacks(model, "WAITED IN, INNERMOST FRAME FIRST", stacks, whole);
    }

    fn compute_gil(&mut self, model: &Model, scope: &Scope) {
        let sums = model.gil().sums(&scope.selection);
        let mut all = gil::GilSum::default();
        let mut waiters: BTreeMap<StackId, Times> = BTreeMap::new();
        let mut holders: BTreeMap<StackId, Times> = BTreeMap::new();
        for (key, sum) in sums.into_iter().filter(|(key, _)| self.is_gil(model, key, scope.look.by)) {
            all.add(sum);
            waiters.entry(key.waiter.stack).or_default().add(sum.times);
            if let Some(holder) = key.holder {
                holders.entry(holder.stack).or_default().add(sum.times);
            }
        }
        let whole = all.times.total;
        self.introduce(model, scope, all.times, all.sampled);
        self.list_stacks(model, "THE WAITER, INNERMOST FRAME FIRST", waiters, whole);
        self.list_stacks(model, "THE HOLDER, INNERMOST FRAME FIRST", holders, whole);
    }

    fn is_sleep(&self, model: &Model, key: &offcpu::SleepKey, by: By) -> bool {
        let WaitKey { process, tid, frame, cause: WaitCause::Sleep { reason, inner } } = self.key else { return false };
        let is_thread = (key.place.process, key.place.tid, key.reason) == (process, tid, reason);
        // Throttled time is not split by native functions.
        let is_there = reason == WaitReason::Throttled || is_in(model, key.place.stack, inner);
        is_thread && is_there && is_at(model, key.place.stack, by, frame)
    }

    fn is_gil(&self, model: &Model, key: &gil::GilKey, by: By) -> bool {
        let WaitKey { process, tid, frame, cause: WaitCause::Gil { holder, frame: held_at } } = self.key else {
            return false;
        };
        let is_thread = (key.waiter.process, key.waiter.tid, key.holder.map(|it| it.tid)) == (process, tid, holder);
        let is_held_there = || key.holder.is_none_or(|holder| is_at(model, holder.stack, by, held_at));
        is_thread && is_at(model, key.waiter.stack, by, frame) && is_held_there()
    }

    fn introduce(&mut self, model: &Model, scope: &Scope, times: Times, sampled: Sampled) {
        let WaitKey { process, tid, frame, cause } = self.key;
        let called = |frame: Option<FrameId>| match frame.and_then(|id| model.frame(id)) {
            Some(frame) => format!("{}  {}", name(frame), place(frame, scope.look.by)),
            None => "no Python frame".to_owned(),
        };
        let to_frame = |frame: Option<FrameId>| frame.map(|frame| Jump::frame(Some(process), frame));
        let to_thread = |tid| Jump::thread(process, tid);
        let mut pair = |name, words, jump| self.page.link(name, words, jump);
        let thread = format!("{} of {}", thread_label(model, process, tid), process_label(model, Some(process)));
        pair("thread", thread, Some(to_thread(tid)));
        pair("waits at", called(frame), to_frame(frame));
        match cause {
            WaitCause::Sleep { reason, inner } => {
                let inner = inner.and_then(|id| model.frame(id)).map(|it| format!(", in {}", name(it)));
                pair("for", format!("{}{}", reason.name(), inner.unwrap_or_default()), None);
            }
            WaitCause::Gil { holder, frame } => {
                let jump = holder.map(to_thread);
                let holder = holder.map_or("an unknown thread".to_owned(), |tid| thread_label(model, process, tid));
                pair("for", format!("the GIL, which {holder} held"), jump);
                pair("held at", called(frame), to_frame(frame));
            }
        }
        let since = match cause {
            WaitCause::Sleep { .. } => model.offcpu().since(&scope.selection),
            WaitCause::Gil { .. } => model.gil().since(&scope.selection),
        };
        let observed = model.observed(process, &scope.selection, since);
        if !sampled.is_enough() {
            let stacks = number::plural(sampled.stacks, "stack", "stacks");
            return pair("time", format!("not enough data: {stacks} of {} waits", times.count), None);
        }
        let share = number::percent(number::share(times.total.0, observed.0).min(100.0));
        pair("time", format!("{}, {share} % of the thread's time", number::time(times.total)), None);
        let mean = times.total.0.checked_div(times.count).map(|mean| number::time(Nanos(mean)));
        let mean = mean.map(|mean| format!(", {mean} on average")).unwrap_or_default();
        let longest = number::time(times.max);
        pair("waits", format!("{}{mean}, the longest {longest}", number::grouped(times.count)), None);
        if !sampled.is_exact() {
            let (stacks, error) = (number::grouped(sampled.stacks), number::percent(sampled.error() * 100.0));
            pair("rests on", format!("{stacks} sampled stacks, ± {error} %"), None);
        }
    }

    fn list(&mut self, heading: &'static str, mut parts: Vec<(WaitShareLine, Option<Jump>)>) {
        parts.sort_by_key(|(part, _)| Reverse(part.times.total));
        let parts = parts.into_iter().map(|(part, jump)| (PageLine::Custom(part), jump));
        self.page.list(heading, parts, PARTS_MAX);
    }

    fn list_stacks(&mut self, model: &Model, heading: &'static str, stacks: BTreeMap<StackId, Times>, whole: Nanos) {
        if stacks.is_empty() {
            return;
        }
        let mut stacks: Vec<(StackId, Times)> = stacks.into_iter().collect();
        stacks.sort_by_key(|(_, times)| Reverse(times.total));
        self.page.heading(heading);
        let count = stacks.len();
        for (stack, times) in stacks.into_iter().take(PARTS_MAX) {
            if count > 1 {
                self.page.custom(WaitShareLine { times, whole, words: String::new() }, None);
            }
            self.page.frames(model, Some(self.key.process), stack);
        }
        self.page.more(count.saturating_sub(PARTS_MAX));
    }
}

impl page::CustomLine for WaitShareLine {
    fn draw(&self, row: &mut RowPainter<'_>, _width: u16, _model: &Model, ui: &Ui) {
        let theme = ui.theme;
        let share = number::share(self.times.total.0, self.whole.0);
        row.right(7, &number::percent(share), theme.text());
        row.bar(8, share / 100.0, theme.total());
        row.right(8, &number::time(self.times.total), theme.dim());
        row.right(7, &format!("{}×", number::short(self.times.count)), theme.dim());
        row.rest(&self.words, theme.text());
    }
}

/// Whether `frame` is the innermost Python frame of a stack.
fn is_at(model: &Model, stack: StackId, by: By, frame: Option<FrameId>) -> bool {
    let leaf = model.stack(stack).iter().rfind(|id| is_python(model, **id)).copied();
    match by {
        By::Line => leaf == frame,
        By::Function => leaf.map(|id| model.function_of(id)) == frame.map(|id| model.function_of(id)),
    }
}

/// Whether `function` is below the innermost Python frame. `None` means that nothing is below it.
fn is_in(model: &Model, stack: StackId, function: Option<FrameId>) -> bool {
    let stack = model.stack(stack);
    let python = stack.iter().rposition(|id| is_python(model, *id));
    let below = &stack[python.map_or(0, |at| at + 1)..];
    match function {
        None => below.is_empty(),
        Some(function) => below.iter().any(|id| model.function_of(*id) == function),
    }
}

fn is_python(model: &Model, frame: FrameId) -> bool {
    model.frame(frame).is_some_and(|frame| frame.kind == FrameKind::Python)
}
