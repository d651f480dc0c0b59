//! Native calls, and their sums.

use std::sync::Arc;

use super::verdict::{EQUAL, Verdict, least_trials};
use super::{Line, Origin};
use crate::{Compared, Nanos};

/// The least number of bytes that are copied for each byte added if arrays grow by copies.
const COPIED_PER_ADDED: u64 = 8;

/// Which code makes a call that belongs to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// The line itself calls native code.
    Line,
    /// Python code of a package below the line calls native code.
    Below,
    /// The line is one of the program, and calls a package. All code below it works for this call.
    Program,
}

/// Calls of one function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallFrom {
    pub origin: Origin,
    pub callee: Arc<str>,
    pub depth: Depth,
}

/// The same at the line that they belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallOf {
    pub line: Line,
    pub callee: Arc<str>,
    pub depth: Depth,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSum {
    /// Calls whose arguments were compared with the last call seen.
    pub compared: u64,
    /// Those with the same arguments.
    pub same: u64,
    /// A bit for each argument that ever differed, as in [`Compared::Arguments`].
    pub varying: u16,
    /// Results that were compared with the last one seen, and those that were equal.
    pub results: u64,
    pub same_results: u64,
    /// Calls that join arrays, those among them that copy much to add little, and how much these copy and add.
    pub joins: u64,
    pub copies: u64,
    pub copied: u64,
    pub added: u64,
    /// Turns of the program's loop from one result to the next, and how long they took.
    pub turns: u64,
    pub turns_time: Nanos,
    /// Results among these whose size is known, and the sum of their sizes.
    pub sized: u64,
    pub bytes: u64,
}

impl CallSum {
    pub(super) fn of(compared: Compared) -> Self {
        match compared {
            Compared::Arguments { varying } => {
                Self { compared: 1, same: u64::from(varying == 0), varying, ..Self::default() }
            }
            Compared::Result { same } => Self { results: 1, same_results: u64::from(same), ..Self::default() },
            Compared::Copied { copied, added } if copied >= added.saturating_mul(COPIED_PER_ADDED) => {
                Self { joins: 1, copies: 1, copied, added, ..Self::default() }
            }
            Compared::Copied { .. } => Self { joins: 1, ..Self::default() },
            Compared::Turns { count, time, bytes } => Self {
                turns: count.into(),
                turns_time: time,
                sized: bytes.is_some().into(),
                bytes: bytes.unwrap_or(0),
                ..Self::default()
            },
        }
    }

    /// Whether there are enough calls to prove redundancy.
    pub fn is_enough(&self) -> bool {
        self.compared >= least_trials(EQUAL)
    }

    /// How long a turn of the program's loop takes, if it was timed.
    pub fn turn(&self) -> Option<Nanos> {
        self.turns_time.0.checked_div(self.turns).map(Nanos)
    }

    /// The mean size of the results of a loop's calls, if it is known.
    pub fn result_bytes(&self) -> Option<u64> {
        self.bytes.checked_div(self.sized)
    }

    /// The arguments that ever differed, counted from 1; 0 is the callee.
    pub fn varying(&self) -> impl Iterator<Item = u32> + use<> {
        let bits = self.varying;
        (0..u16::BITS).filter(move |bit| bits >> bit & 1 == 1)
    }

    pub fn add(&mut self, other: &Self) {
        self.compared += other.compared;
        self.same += other.same;
        self.varying |= other.varying;
        self.results += other.results;
        self.same_results += other.same_results;
        self.joins += other.joins;
        self.copies += other.copies;
        self.copied = self.copied.saturating_add(other.copied);
        self.added = self.added.saturating_add(other.added);
        self.turns += other.turns;
        self.turns_time = self.turns_time.saturating_add(other.turns_time);
        self.sized += other.sized;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Whether most of the calls copy much to add little.
    pub fn is_copying(&self) -> bool {
        Verdict::of(self.copies, self.joins, EQUAL) == Verdict::Found
    }

    /// Whether most calls repeat: the same arguments and the same result. A function that returns different results for
    /// the same arguments does not qualify, and neither does one whose results were not seen.
    pub fn repetition_verdict(&self) -> Verdict {
        let arguments = Verdict::of(self.same, self.compared, EQUAL);
        arguments.max(Verdict::of(self.same_results, self.results, EQUAL))
    }
}
