//! Tables and trees computed from a model, for screens, reports and exports.

mod births;
mod cpu_frames;
mod frames;
mod groups;
mod heap;
mod held;
mod library;
mod limits;
mod lines;
mod machine;
mod native;
mod pairs;
mod processes;
mod redundancy;
mod residents;
mod segments;
mod slots;
mod stages;
mod tasks;
mod timeline;
mod transfers;
mod tree;
mod waits;
mod weight;

pub use births::{BirthRow, arenas, birthplace, buffer_region, is_selected, meminfos, region_birth};
pub use cpu_frames::{CpuLineRow, CpuLines, CpuRow, cpu_frames, cpu_lines};
pub use frames::{FrameRow, FramesView, frames};
pub use groups::{Groups, group_name};
pub use heap::{HeapLine, HeapProcess, HeapUse, heap_course, heap_lines, heap_processes, heap_time};
pub use library::{LibraryFunction, LibraryTime};
pub(crate) use limits::label_of_cgroup;
pub use limits::{LimitRow, limits};
pub use lines::{CalledBack, asked_at, called_back, calling_line, library_call, origin, origin_of_call, own_line};
pub use machine::{CpuLine, GilLine, Machine, MemoryLine, TransfersLine, machine};
pub use native::Native;
pub use pairs::{PairNode, pair_tree};
pub use processes::{ProcessRow, processes};
pub use redundancy::{Chatty, LineSum, RedundancyView, lies_in, redundancy, stores};
pub use residents::{ResidentRow, residents};
pub use segments::segments;
pub use slots::{Series, Slots};
pub use stages::{BUCKETS, Spread, Stage, bucket_start, queue, queue_over_time, queues, spread, stages};
pub use tasks::{BlockedRow, StarvedRow, TaskLine, TaskRow, blocked_loops, starved_loops, task_lines, tasks};
pub use timeline::{Cells, Doing, Lane, LaneId, Timeline, timeline};
pub use transfers::{Role, WorkerRow, has_transfer, role, transfers, workers};
pub use tree::{Node, NodeId, Tree, tree};
pub use waits::{GilRow, GilShare, GilThread, SleepRow, gil_shares, gil_waits, sleeps, whole_sleeps};
pub use weight::{Unit, Weight};

use crate::{FrameId, Model, StackId};

/// The criterion by which two frames are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    #[default]
    Line,
    /// Merges all lines of a function, shown at its first line.
    Function,
}

impl By {
    fn frame(self, model: &Model, id: FrameId) -> FrameId {
        match self {
            Self::Line => id,
            Self::Function => model.function_of(id),
        }
    }
}

/// What rows and stacks are grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Group {
    #[default]
    None,
    Process,
    /// The program that a process runs.
    Command,
    Container,
    User,
    /// A stack in which a task runs begins with the task, and leaves out how the event loop got there.
    Task,
}

/// How stacks are grouped, and what they weigh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Look {
    pub by: By,
    pub native: Native,
    pub weight: Weight,
    pub group: Group,
}

impl Look {
    /// The frames of a stack, root first, after grouping.
    pub fn frames(self, model: &Model, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let task = model.tasks().of(stack).filter(|_| self.group == Group::Task);
        let coroutine = task.and_then(|task| model.tasks().get(task)).map(|task| model.function_of(task.coroutine));
        let mut is_outside = coroutine.is_some();
        let frames = self.native.frames(model, stack).filter(move |id| {
            is_outside &= coroutine != Some(model.function_of(*id));
            !is_outside
        });
        task.map(FrameId::of_task).into_iter().chain(frames.map(move |id| self.by.frame(model, id)))
    }
}
