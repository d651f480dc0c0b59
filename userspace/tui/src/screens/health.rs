//! The state of pyobs itself: complete and failed stacks, losses, cost, and facts about the recording.

use pyobs_model::Model;
use pyobs_model::loss::Losses;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::finding::{advice, severity};
use crate::binding::{Action, Keys};
use crate::jump::Effect;
use crate::list::scroll;
use crate::paint::{put, put_more};
use crate::scope::Reach;
use crate::screen::{About, Screen};
use crate::theme::Theme;
use crate::ui::Ui;
use crate::{number, text};

#[derive(Default)]
pub(crate) struct HealthScreen {
    top: usize,
}

/// A line of the screen: texts with the columns where they begin.
struct HealthLine(Vec<(usize, String, Style)>);

const VALUES: usize = 12;
const NAMES: usize = 14;
const SENTENCES: usize = 40;

static ABOUT: About = About {
    key: '5',
    title: "Health",
    short_title: "Health",
    filter: None,
    keys: &[Keys { title: "Health", bindings: &[] }],
};

impl Screen for HealthScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    /// Losses are counted since the start.
    fn reach(&self) -> Reach {
        Reach::All
    }

    fn compute(&mut self, model: &Model, ui: &mut Ui) {
        ui.update_findings(model);
    }

    fn act(&mut self, action: Action, model: &Model, ui: &Ui) -> Effect {
        self.top = scroll(self.top, action, lines(model, ui).len(), ui.body().height.into());
        Effect::Nothing
    }

    fn is_empty(&self, _model: &Model, _ui: &Ui) -> bool {
        false
    }

    fn draw(&self, model: &Model, ui: &Ui, area: Rect, buf: &mut Buffer) {
        let lines = lines(model, ui);
        let height = usize::from(area.height);
        let top = self.top.min(lines.len().saturating_sub(height));
        for (line, y) in lines.iter().skip(top).take(height).zip(0..) {
            for (x, text, style) in &line.0 {
                put(buf, area, *x as u16, y, text, *style);
            }
        }
        put_more(buf, area, lines.len().saturating_sub(top + height), ui.theme);
    }
}

fn lines(model: &Model, ui: &Ui) -> Vec<HealthLine> {
    let mut page = HealthPage { lines: Vec::new(), theme: ui.theme, width: usize::from(ui.size.0) };
    // Refused families come first, because they affect everything else.
    refused(&mut page, model);
    findings(&mut page, ui);
    stacks(&mut page, model);
    lost(&mut page, model);
    cost(&mut page, model);
    recording(&mut page, model);
    notes(&mut page, ui);
    page.lines
}

struct HealthPage {
    lines: Vec<HealthLine>,
    theme: Theme,
    width: usize,
}

impl HealthPage {
    fn heading(&mut self, text: &str) {
        if !self.lines.is_empty() {
            self.lines.push(HealthLine(Vec::new()));
        }
        self.lines.push(HealthLine(vec![(1, text.to_owned(), self.theme.heading())]));
    }

    fn pair(&mut self, name: &str, value: &str) {
        let pieces = vec![(3, name.to_owned(), self.theme.dim()), (3 + VALUES, value.to_owned(), self.theme.text())];
        self.lines.push(HealthLine(pieces));
    }

    fn sentence(&mut self, text: &str, style: Style) {
        for line in text::wrap(text, self.width.saturating_sub(5)) {
            self.lines.push(HealthLine(vec![(3, line, style)]));
        }
    }

    /// A count, what it counts, and a sentence about it. The sentence is moved to the next lines if it does not fit.
    fn counted(&mut self, count: &str, name: &str, sentence: &str, style: Style) {
        let right = |text: &str| 3 + (NAMES - 4_usize).saturating_sub(text.chars().count());
        let mut pieces =
            vec![(right(count), count.to_owned(), style), (3 + NAMES - 2, name.to_owned(), self.theme.text())];
        let has_room = SENTENCES + sentence.chars().count() <= self.width;
        if has_room {
            pieces.push((SENTENCES, sentence.to_owned(), self.theme.dim()));
        }
        self.lines.push(HealthLine(pieces));
        if !has_room {
            for line in text::wrap(sentence, self.width.saturating_sub(4 + NAMES)) {
                self.lines.push(HealthLine(vec![(3 + NAMES - 2, line, self.theme.dim())]));
            }
        }
    }

    fn losses(&mut self, losses: &Losses, style: Style) {
        let mut reasons: Vec<_> = losses.iter().collect();
        reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
        for (reason, count) in reasons {
            self.counted(&number::grouped(count), reason.name(), reason.sentence(), style);
        }
    }
}

fn findings(page: &mut HealthPage, ui: &Ui) {
    if ui.board.is_empty() {
        return;
    }
    page.heading("FINDINGS");
    for finding in ui.board.entries().map(|entry| &entry.finding) {
        page.sentence(&format!("{}: {}.", finding.id, finding.summary), severity(page.theme, finding.severity));
        page.sentence(&finding.detail, page.theme.text());
        for (label, line) in advice(finding, page.width.saturating_sub(5 + VALUES)) {
            page.pair(label, &line);
        }
    }
}

fn stacks(page: &mut HealthPage, model: &Model) {
    let stacks = model.cpu().stacks();
    let theme = page.theme;
    page.heading("PYTHON STACKS");
    if stacks.samples == 0 {
        page.sentence("No sample of a Python thread yet.", theme.dim());
        return;
    }
    let share = number::share(stacks.complete, stacks.samples);
    // Rounding would show 99.996 % as 100 %.
    let share = (share * 100.0).floor() / 100.0;
    let style = if share >= 99.5 { theme.good() } else { theme.warning() };
    let samples = number::plural(stacks.samples, "sample of a Python thread", "samples of Python threads");
    let of = format!("{} of {samples}", number::grouped(stacks.complete));
    page.counted(&format!("{share:.2} %"), "complete", &of, style);
    if stacks.truncated > 0 {
        let why = "deeper than the walker goes; the inner frames were kept";
        page.counted(&number::grouped(stacks.truncated), "truncated", why, theme.warning());
    }
    page.losses(&stacks.failed, theme.warning());
    if !stacks.cut.is_empty() {
        let whole = number::share(stacks.complete.saturating_sub(stacks.cut.total()), stacks.samples);
        let why = "of them, with all their native frames; the others:";
        page.counted(&format!("{:.2} %", (whole * 100.0).floor() / 100.0), "whole", why, theme.dim());
        page.losses(&stacks.cut, theme.dim());
    }
}

fn lost(page: &mut HealthPage, model: &Model) {
    page.heading("LOST");
    let theme = page.theme;
    if model.loss().is_empty() {
        page.sentence("Nothing was lost.", theme.good());
    }
    page.losses(model.loss(), theme.warning());
}

fn cost(page: &mut HealthPage, model: &Model) {
    page.heading("WHAT PYOBS COSTS");
    let theme = page.theme;
    let cost = model.cost();
    let span = cost.at.as_secs_f64();
    if span <= 0.0 {
        page.sentence("Not measured yet.", theme.dim());
    } else {
        let (kernel, user) = model.cost_now();
        let told = |now: f64, total: f64| {
            let ((now, of), (mean, _)) = (model.cost_percent(now), model.cost_percent(total / span));
            format!("{now:.2} % {of} now, {mean:.2} % on average, {total:.2} s in all")
        };
        page.pair("kernel", &told(kernel, cost.bpf.as_secs_f64()));
        page.pair("user space", &told(user, cost.cpu.as_secs_f64()));
        if cost.startup.0 > 0 {
            let words = "for what is done once: tables, names, the first look";
            page.pair("start-up", &format!("{:.2} s of that {words}", cost.startup.as_secs_f64()));
        }
        page.pair("memory", &number::size(cost.rss_bytes));
        let shed = model.shed_now();
        if !shed.is_empty() {
            page.pair("shed now", &shed);
        }
    }
    for what in model.shed() {
        page.sentence(what, theme.warning());
    }
    if model.shed().is_empty() && span > 0.0 {
        page.pair("shed", "nothing");
    }
}

fn refused(page: &mut HealthPage, model: &Model) {
    let refusals = model.meta().refusals();
    if refusals.is_empty() {
        return;
    }
    page.heading("FAMILIES THAT ARE OFF");
    let theme = page.theme;
    for refusal in refusals {
        page.sentence(&refusal, theme.warning());
    }
}

fn recording(page: &mut HealthPage, model: &Model) {
    let meta = model.meta();
    page.heading("RECORDING");
    page.pair("host", &meta.host);
    page.pair("kernel", &meta.kernel);
    page.pair("pyobs", &meta.pyobs);
    page.pair("probes", &meta.probes.join(" "));
    page.pair("sampler", &format!("{} at {} Hz on every CPU", meta.sampler, meta.rate_hz));
    if !meta.segment_repair.is_empty() {
        page.pair("segments", &format!("compared with what processes have by {}", meta.segment_repair));
    }
    page.pair("started", &meta.started);
    page.pair("length", &number::seconds(model.now().as_secs_f64()));
    let known =
        format!("{} processes, {} frames", model.process_counts().0, number::grouped(model.frame_count() as u64));
    page.pair("known", &known);
}

fn notes(page: &mut HealthPage, ui: &Ui) {
    if ui.notes.is_empty() {
        return;
    }
    page.heading("NOTES");
    let theme = page.theme;
    for note in ui.notes.iter().rev() {
        page.sentence(note, theme.text());
    }
}
