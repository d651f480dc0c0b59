//! Why something is missing. Every reason has a name that users see, and is never reused for another meaning.

use std::collections::BTreeMap;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $sentence:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($variant,)* }

        impl Reason {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in JSON, recordings and on screens.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it means, for the Health screen and the report.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }

            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

reasons! {
    RingFull = "ring_full", "the kernel's ring buffer was full and the sample was dropped";
    NotAttachedYet = "not_attached_yet", "the process was sampled before its interpreter was known";
    ThreadStateUnreadable = "thread_state_unreadable", "the thread's interpreter state could not be read";
    FrameUnreadable = "frame_unreadable", "a frame's memory could not be read in the kernel";
    FrameInvalid = "frame_invalid", "a frame did not hold what a frame must hold";
    CodeUnreadable = "code_unreadable", "a code object's memory could not be read";
    CodeChanged = "code_changed", "a code object was replaced before its name was read";
    CodeInvalid = "code_invalid", "what should be a code object is none";
    NameInvalid = "name_invalid", "a function's or file's name is not valid text";
    LineUnknown = "line_unknown", "the line of a frame could not be found in its line table";
    ProcessGone = "process_gone", "the process ended before its frames could be named";
    InterpreterUnknown = "interpreter_unknown", "the interpreter's version or layout is not known to this pyobs";
    ThreadStateUnknown = "thread_state_unknown", "the way to the thread state could not be found in this interpreter";
    ProcessUnreadable = "process_unreadable", "the process's memory map could not be read";
    TableFull = "table_full", "a table of fixed size was full: more processes, frames or stacks than pyobs keeps";
    TableBusy = "table_busy", "a process or a shared segment was not taken into its table, which another CPU had locked for long";
    SidebandLost = "sideband_lost", "the kernel dropped notices of new mappings; all processes were scanned again";
    TaskUnreadable = "task_unreadable", "a field of a thread's kernel structure could not be read";
    KernelStackUnreadable = "kernel_stack_unreadable", "the kernel's stack could not be taken";
    RecordMalformed = "record_malformed", "a record from the kernel did not have the form it must have";
    UnwindTableMissing = "unwind_table_missing", "a native frame lies in a file whose unwind table is not there (yet)";
    UnwindRuleMissing = "unwind_rule_missing", "a native frame lies in code that its file's unwind table does not tell about";
    UnwindRuleUnsupported = "unwind_rule_unsupported", "a native frame needs a way of unwinding that pyobs does not have";
    MappingUnknown = "mapping_unknown", "a native frame lies in no mapping that is known (yet)";
    NativeStackUnreadable = "native_stack_unreadable", "the memory of a native stack could not be read in the kernel";
    NativeStackInvalid = "native_stack_invalid", "a native stack does not lead to its outermost frame";
    FramesUnjoined = "frames_unjoined", "Python frames could not be placed among the native ones";
    SleepUnseen = "sleep_unseen", "a thread's sleep was not counted: another thread that sleeps has its place in the table";
    CallUnseen = "call_unseen", "a call's return was not seen, so that its time is not known";
    SystemCallMissed = "system_call_missed", "the kernel ran no program at a system call: it was in the middle of something with BPF on that CPU";
    SegmentTableFull = "segment_table_full", "more shared segments, or processes that hold them, than pyobs keeps";
    SegmentUnseen = "segment_unseen", "a shared mapping could not be looked at when it was made";
    DescriptorsUnseen = "descriptors_unseen", "a message had more parts than pyobs looks through for descriptors";
    SegmentRepaired = "segment_repaired", "what a process holds of a shared segment was corrected by a look at it";
    SegmentHolderMissed = "segment_holder_missed", "a process was found to hold a shared segment without a word of how it got it";
    SegmentDescriptorMissed = "segment_descriptor_missed", "a look at a process showed a descriptor of a shared segment that was not known";
    SegmentDescriptorGone = "segment_descriptor_gone", "a look at a process showed that a descriptor of a shared segment is no more";
    SegmentMappingMissed = "segment_mapping_missed", "a look at a process showed a mapping of a shared segment that was not known";
    SegmentMappingGone = "segment_mapping_gone", "a look at a process showed that a mapping of a shared segment is no more";
    MappingUntold = "mapping_untold", "mappings of shared segments that came and went within a moment are not in the region map: there were too many";
    ResidentUnreadable = "resident_unreadable", "what of a process's memory is there could not be read";
    ArenaTableFull = "arena_table_full", "more arenas than pyobs keeps";
    ArenaUnreadable = "arena_unreadable", "an arena's memory could not be read, or was not what an arena's must be";
    WalkTaken = "walk_taken", "a stack was given up because a thread that came between was walked with the same state";
    MemInfoUnreadable = "meminfo_unreadable", "a MemInfo's reference count could not be read, or was none";
    MemInfoTableFull = "meminfo_table_full", "more MemInfos than pyobs keeps";
    TransferTableFull = "transfer_table_full", "more transfers under way than pyobs keeps";
    TransferHalfSeen = "transfer_half_seen", "a transfer was completed whose beginning was not seen";
    AccessUnstacked = "access_unstacked", "an access of memory was not told because its stack was lost";
    PastForgotten = "past_forgotten", "a segment, arena or transfer that was over is in no list, only in sums: more came after it than are kept";
    RecorderBehind = "recorder_behind", "the recording's disk was too slow for the events, which were dropped";
    MapCutShort = "map_cut_short", "a look at a process's memory map ended after 65,536 mappings: segments, arenas and arrays beyond are not known";
    MappingsLeftOut = "mappings_left_out", "a process has more executable mappings than pyobs keeps: native frames in the others have no names";
    ReadHeldUp = "read_held_up", "memory of a process, or a file that it maps, was not given in time";
    CacheEvicted = "cache_evicted", "a full cache evicted an entry, which is read again when it is needed";
    BudgetShed = "budget_shed", "samples were left out to stay inside --budget";
}

/// Counts by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<Reason, u64>);

impl Losses {
    pub fn add(&mut self, reason: Reason, count: u64) {
        if count > 0 {
            let sum = self.0.entry(reason).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    pub fn get(&self, reason: Reason) -> u64 {
        self.0.get(&reason).copied().unwrap_or(0)
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        self.0.iter().map(|(reason, count)| (*reason, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_round_trip() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_name(reason.name()), Some(*reason));
        }
    }
}
