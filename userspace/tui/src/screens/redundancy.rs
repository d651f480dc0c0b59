//! Work between Python and native code that changes nothing: the findings, then the lines whose native code accesses memory,
//! the most expensive ones first.

mod detail;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use pyobs_model::families::redundancy::{Accesses, CallSum, DISPATCH, Line, PairSum, Verdict, least_trials};
use pyobs_model::findings::{self, Finding, Target};
use pyobs_model::views::{self, By, LineSum, Weight};
use pyobs_model::{Family, FrameId, Model, Nanos};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use self::detail::RedundancyDetail;
use crate::binding::{Action, FOLLOW, Keys, SORT_NEXT, SORT_PREVIOUS, bind};
use crate::filter::Filter;
use crate::input::Key;
use crate::jump::{Destination, Jump};
use crate::number;
use crate::paint::{HeadingPainter, RowPainter};
use crate::scope::Reach;
use crate::screen::{About, Screen};
use crate::screens::finding::{mark, summary};
use crate::screens::names::{place, process_label};
use crate::screens::stacks;
use crate::table::{AnyList, List, Sorted, Table};
use crate::ui::Ui;

static ABOUT: About = About {
    key: '8',
    title: "Redundancy",
    short_title: "Redund",
    filter: Some("redundancy"),
    keys: &[
        Keys {
            title: "Redundancy",
            bindings: &[
                bind(&[Key::Enter], Action::Open, "detail", "the calls and pairs of accesses of the line"),
                SORT_NEXT,
                SORT_PREVIOUS,
            ],
        },
        Keys { title: "A line's accesses", bindings: &[FOLLOW] },
    ],
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RedundancySort {
    #[default]
    Objects,
    Samples,
    Arrays,
    Again,
    Equal,
}

/// The most findings above the lines, and the lines that must fit below them.
const FINDINGS_MAX: usize = 4;
const LINES_MIN: u16 = 6;
/// The widths from which all columns of what was measured, the process and the verdict, the lines' source, and how long calls in
/// a loop take, are shown.
const ALL_NEED: u16 = 76;
const VERDICT_NEEDS: u16 = 110;
const SOURCE_NEEDS: u16 = 140;
const TURN_NEEDS: u16 = 160;

struct RedundancyRow {
    line: Line,
    caller: FrameId,
    sum: Accesses,
    pairs: PairSum,
    calls: CallSum,
    verdict: Verdict,
    /// Of a line that calls a library for little work: the calls a second, and how long one takes.
    turns: Option<(f64, Nanos)>,
}

#[derive(Default)]
struct RedundancyTable {
    findings: Vec<Finding>,
    lines: usize,
    /// The number of lines with too few addresses to prove anything.
    few: usize,
    /// What can be gained, in words.
    gain: Option<String>,
}

impl Table for RedundancyTable {
    type Row = RedundancyRow;
    type Key = Line;
    type Sort = RedundancySort;
    type Detail = RedundancyDetail;

    const SORTS: &'static [RedundancySort] = &[
        RedundancySort::Objects,
        RedundancySort::Samples,
        RedundancySort::Arrays,
        RedundancySort::Again,
        RedundancySort::Equal,
    ];

    fn compute(&mut self, model: &Model, ui: &Ui, detail: Option<&mut RedundancyDetail>) -> Option<Vec<RedundancyRow>> {
        let selection = ui.scope(model).selection;
        let view = views::redundancy(model, &selection);
        let mut pairs: BTreeMap<Line, PairSum> = BTreeMap::new();
        for (pair, sum) in &view.pairs {
            if let Some(line) = view.line(model, pair.process, pair.second) {
                pairs.entry(line).or_default().add(sum);
            }
        }
        let mut calls: BTreeMap<Line, CallSum> = BTreeMap::new();
        for (call, sum) in &view.calls {
            calls.entry(call.line).or_default().add(sum);
        }
        self.findings = findings::find(model, &selection);
        self.findings.retain(|finding| finding.id.starts_with("redundancy/"));
        self.gain = findings::redundancy_gain(&self.findings).map(|(process, gain)| {
            let (process, share) = (process_label(model, Some(process)), number::percent(100.0 * gain));
            format!("Work that changes nothing takes about {share} % of the time of {process}.")
        });
        let (verdicts, rate_hz) = (view.verdicts(model), model.meta().rate_hz);
        let entry = |(line, sum): (&Line, &LineSum)| RedundancyRow {
            line: *line,
            caller: view.caller(*line).0,
            sum: sum.accesses.clone(),
            pairs: pairs.get(line).copied().unwrap_or_default(),
            calls: calls.get(line).copied().unwrap_or_default(),
            verdict: verdicts.get(line).copied().unwrap_or(Verdict::Undecided),
            turns: view
                .chatty
                .get(line)
                .map(|chatty| (chatty.per_second(view.share_of_library(*line, rate_hz)), chatty.turn)),
        };
        self.lines = view.lines.len();
        let is_few = |sum: &&LineSum| sum.accesses.known() > 0 && !sum.accesses.is_enough();
        self.few = view.lines.values().filter(is_few).count();
        let rows = view.lines.iter().map(entry).collect();
        if let Some(detail) = detail {
            let source = ui.sources.read(model, detail.key.process, detail.key.frame);
            detail.compute(model, &view, source.as_deref(), &self.findings, ui.size.0.into());
        }
        Some(rows)
    }

    fn key(row: &RedundancyRow) -> Line {
        row.line
    }

    fn matches(&self, row: &RedundancyRow, filter: &Filter, model: &Model) -> bool {
        filter.matches(&place_of(model, row.line, row.caller))
            || filter.matches(&process_label(model, Some(row.line.process)))
    }

    fn sort(&self, shown: &mut [usize], rows: &[RedundancyRow], sort: RedundancySort, _model: &Model) {
        let key = |index: usize| {
            let RedundancyRow { sum, pairs, calls, .. } = &rows[index];
            let part = |of: f64| (sum.weight as f64 * 1000.0 * of) as u64;
            match sort {
                RedundancySort::Objects => part(sum.objects_share()),
                RedundancySort::Samples => sum.weight,
                RedundancySort::Arrays => part(sum.array_share()),
                RedundancySort::Again => calls.same,
                RedundancySort::Equal => pairs.equal,
            }
        };
        shown.sort_by_key(|index| Reverse(key(*index)));
    }

    /// Reads the source of the lines in sight.
    fn arranged(&mut self, rows: &[RedundancyRow], shown: &[usize], in_sight: Range<usize>, model: &Model, ui: &Ui) {
        if ui.body().width >= SOURCE_NEEDS {
            for RedundancyRow { line, .. } in shown[in_sight].iter().filter_map(|index| rows.get(*index)) {
                ui.sources.read(model, line.process, line.frame);
            }
        }
    }

    /// The area below the findings.
    fn place(&self, area: Rect, _ui: &Ui) -> Rect {
        let has_room = area.height > LINES_MIN + 1;
        let above =
            if has_room { self.findings_in(area).max(1) as u16 + u16::from(self.gain.is_some()) + 1 } else { 0 };
        Rect { y: area.y + above, height: area.height - above, ..area }
    }

    fn draw_heading(&self, head: &mut HeadingPainter<'_>, width: u16, sorted: Sorted<RedundancySort>, _ui: &Ui) {
        let widths = RedundancyWidths::of(width, sorted.0);
        head.right(widths.column(RedundancySort::Samples, 8), "SAMPLES", sorted.descending(RedundancySort::Samples));
        head.right(widths.column(RedundancySort::Objects, 8), "OBJECTS", sorted.descending(RedundancySort::Objects));
        head.right(widths.column(RedundancySort::Arrays, 7), "ARRAYS", sorted.descending(RedundancySort::Arrays));
        head.right(widths.column(RedundancySort::Again, 12), "SAME CALLS", sorted.descending(RedundancySort::Again));
        head.right(widths.column(RedundancySort::Equal, 12), "EQUAL PAIRS", sorted.descending(RedundancySort::Equal));
        head.right(widths.turns, "CALLS/S", None);
        head.right(widths.turns, "A CALL", None);
        head.left(widths.verdict, "VERDICT", None);
        head.left(widths.process, "PROCESS", None);
        head.left(widths.place, "NATIVE CODE CALLED AT", None);
        head.left(usize::MAX, if widths.place == usize::MAX { "" } else { "SOURCE" }, None);
    }

    fn draw_row(
        &self,
        row: &mut RowPainter<'_>,
        entry: &RedundancyRow,
        width: u16,
        sort: RedundancySort,
        model: &Model,
        ui: &Ui,
    ) {
        let (widths, theme) = (RedundancyWidths::of(width, sort), ui.theme);
        let RedundancyRow { line, caller, sum, pairs, calls, verdict, turns } = entry;
        let of = |share: f64| match sum.known() {
            0 => "–".to_owned(),
            _ if !sum.is_enough() => "few".to_owned(),
            _ => number::percent(100.0 * share),
        };
        let part = |of: u64, all: u64| match all {
            0 => "–".to_owned(),
            all => format!("{}/{}", number::grouped(of), number::grouped(all)),
        };
        let style = |is_enough| if is_enough { theme.text() } else { theme.dim() };
        row.right(widths.column(RedundancySort::Samples, 8), &number::grouped(sum.samples), theme.strong());
        row.right(widths.column(RedundancySort::Objects, 8), &of(sum.objects_share()), style(sum.is_enough()));
        row.right(widths.column(RedundancySort::Arrays, 7), &of(sum.array_share()), style(sum.is_enough()));
        row.right(
            widths.column(RedundancySort::Again, 12),
            &part(calls.same, calls.compared),
            style(calls.is_enough()),
        );
        row.right(
            widths.column(RedundancySort::Equal, 12),
            &part(pairs.equal, pairs.compared),
            style(pairs.is_enough()),
        );
        let [per_second, turn] = turns.map_or_else(
            || ["–", "–"].map(str::to_owned),
            |(per_second, turn)| [number::short(per_second.round() as u64), number::time(turn)],
        );
        row.right(widths.turns, &per_second, theme.text());
        row.right(widths.turns, &turn, theme.text());
        let (word, style) = match verdict {
            Verdict::Found => ("found", theme.strong()),
            Verdict::Clear => ("clear", theme.text()),
            Verdict::Undecided => ("undecided", theme.dim()),
        };
        row.left(widths.verdict, word, style);
        row.left(widths.process, &process_label(model, Some(line.process)), theme.dim());
        row.left_path(widths.place, &place_of(model, *line, *caller), theme.text());
        row.rest(&ui.sources.cached(line.process, line.frame).unwrap_or_default(), theme.dim());
    }

    fn draw_around(&self, area: Rect, _last: Rect, _model: &Model, ui: &Ui, buf: &mut Buffer) {
        let theme = ui.theme;
        let has_room = area.height > LINES_MIN + 1;
        if let Some(gain) = self.gain.as_deref().filter(|_| has_room) {
            RowPainter::new(buf, Rect { height: 1, ..area }).rest(&format!(" {gain}"), theme.strong());
        }
        let first = area.y + u16::from(self.gain.is_some());
        for (finding, y) in self.findings.iter().take(self.findings_in(area)).zip(first..) {
            let (mark, style) = mark(theme, finding.severity);
            let mut row = RowPainter::new(buf, Rect { y, height: 1, ..area });
            row.left(2, mark, style);
            row.rest(&summary(finding, usize::from(area.width).saturating_sub(3)), theme.text());
        }
        if self.findings.is_empty() && has_room {
            RowPainter::new(buf, Rect { height: 1, ..area }).rest(&format!(" {}", self.note()), theme.dim());
        }
    }
}

impl RedundancyTable {
    /// The sentence to show if there are no findings.
    fn note(&self) -> String {
        let (few, lines, least) = (self.few, self.lines, least_trials(DISPATCH));
        match few {
            0 => "No finding.".to_owned(),
            few => format!("No finding. Too little data for {few} of {lines} lines: fewer than {least} addresses."),
        }
    }

    /// The number of findings that are shown.
    fn findings_in(&self, area: Rect) -> usize {
        let room = area.height.saturating_sub(LINES_MIN + 1 + u16::from(self.gain.is_some()));
        self.findings.len().min(FINDINGS_MAX).min(room.into())
    }
}

struct RedundancyWidths {
    /// The only column besides the samples, if there is little room.
    only: Option<RedundancySort>,
    turns: usize,
    verdict: usize,
    process: usize,
    place: usize,
}

impl RedundancyWidths {
    fn of(width: u16, sort: RedundancySort) -> Self {
        let from = |least, size| if width >= least { size } else { 0 };
        Self {
            only: (width < ALL_NEED).then_some(sort),
            turns: from(TURN_NEEDS, 9),
            verdict: from(VERDICT_NEEDS, 9),
            process: from(VERDICT_NEEDS, 16),
            place: if width >= SOURCE_NEEDS { usize::from(width) / 4 } else { usize::MAX },
        }
    }

    fn column(&self, column: RedundancySort, width: usize) -> usize {
        let is_shown = column == RedundancySort::Samples || self.only.is_none_or(|only| only == column);
        if is_shown { width } else { 0 }
    }
}

#[derive(Default)]
pub(super) struct RedundancyScreen {
    list: List<RedundancyTable>,
}

impl Screen for RedundancyScreen {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn family(&self, _ui: &Ui) -> Option<Family> {
        Some(Family::Redundancy)
    }

    /// A window is too short to prove redundancy.
    fn reach(&self) -> Reach {
        Reach::Span
    }

    fn list(&self) -> Option<&dyn AnyList> {
        Some(&self.list)
    }

    fn list_mut(&mut self) -> Option<&mut dyn AnyList> {
        Some(&mut self.list)
    }

    fn empty(&self, _ui: &Ui) -> Option<(&'static str, &'static str)> {
        stacks::empty(Weight::Redundant)
    }

    fn shows(&self, destination: Destination) -> bool {
        matches!(destination.target(), Some(Target::Line(_)))
    }

    fn jump(&mut self, jump: Jump) {
        self.list.close();
        if let (Some(process), Some(Target::Line(frame))) = (jump.process, jump.destination.target()) {
            self.list.go(Line { process, frame }, jump.is_into_detail());
        }
    }
}

/// A line and, if it is a library's, the line of the program that led there.
fn place_of(model: &Model, line: Line, caller: FrameId) -> String {
    let of = |frame| model.frame(frame).map_or_else(|| "–".to_owned(), |frame| place(frame, By::Line));
    if caller == line.frame {
        return of(caller);
    }
    let caller = of(caller);
    format!("{}, from {}", of(line.frame), caller.rsplit('/').next().unwrap_or_default())
}
