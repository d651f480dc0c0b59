//! How much of the code that a process runs is new.

use foldhash::HashMap;
use pyobs_model::ProcessRef;

/// Stacks after which a process's counts are halved, so that they follow what it does now.
const WINDOW: u32 = 32;
/// Code is news while at least one in this many stacks of its process has code that was not known. A program that has started
/// still runs functions for the first time, minutes later, and they live on.
const ONE_IN: u32 = 8;
const PROCESSES_MAX: usize = 4096;

#[derive(Debug, Default)]
struct Counts {
    stacks: u32,
    new: u32,
}

/// Tells a process that is loading code, whose code objects may be gone at once, from one that runs a rare function.
#[derive(Debug, Default)]
pub struct Novelty(HashMap<ProcessRef, Counts>);

impl Novelty {
    /// Counts a stack. Returns whether its new code is news.
    pub fn count(&mut self, process: ProcessRef, is_new: bool) -> bool {
        if self.0.len() >= PROCESSES_MAX && !self.0.contains_key(&process) {
            self.0.clear();
        }
        let counts = self.0.entry(process).or_default();
        counts.stacks += 1;
        counts.new += u32::from(is_new);
        let is_news = is_new && counts.new * ONE_IN >= counts.stacks;
        if counts.stacks >= WINDOW {
            counts.stacks /= 2;
            counts.new /= 2;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rare_function_is_no_news_and_loading_is() {
        let mut novelty = Novelty::default();
        let process = ProcessRef(1);
        assert!((0..10).all(|_| novelty.count(process, true)), "it starts");
        assert!((0..1000).all(|_| !novelty.count(process, false)));
        assert!((0..1000).all(|stack| !novelty.count(process, stack % 40 == 0)), "one in forty");
        let first = (0..WINDOW).position(|_| novelty.count(process, true));
        assert!(first.is_some_and(|first| first <= 5), "it loads code again: {first:?}");
        assert!(novelty.count(ProcessRef(2), true), "another process");
    }
}
