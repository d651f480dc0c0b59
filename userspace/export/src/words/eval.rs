//! The functions with the most calls.

use std::cmp::Reverse;

use pyobs_model::number::{grouped, time};
use pyobs_model::{Nanos, Selection};

use super::ReportText;
use super::waits::PLACE;

impl ReportText<'_> {
    pub(super) fn eval(&mut self) {
        self.section("Most called functions", "times of the calls that were seen to return");
        let mut calls: Vec<_> = self.model.eval().sums(&Selection::default()).into_iter().collect();
        if calls.is_empty() {
            return self.nothing();
        }
        calls.sort_by_key(|(_, sum)| Reverse(sum.times.count));
        let (count, mean, longest) = ("count", "mean", "longest");
        self.line(&format!("{count:>10}  {mean:>9}  {longest:>9}  {:>7}  {:<PLACE$}  function", "pid", "line"));
        for (key, sum) in calls.iter().take(self.limit) {
            let (Some(state), Some(frame)) = (self.model.process(key.process), self.model.frame(key.function)) else {
                continue;
            };
            let mean = sum.times.total.0.checked_div(sum.timed).map_or("-".to_owned(), |mean| time(Nanos(mean)));
            let (count, longest, pid) = (grouped(sum.times.count), time(sum.times.max), state.process.pid);
            let begin = format!("{count:>10}  {mean:>9}  {longest:>9}  {pid:>7}");
            self.row(&begin, Some(frame), &frame.function);
        }
        self.rest(calls.len());
    }
}
