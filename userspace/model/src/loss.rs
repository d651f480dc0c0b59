//! Reasons why something is missing. Users see their names, so a name is never reused for another meaning.

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

            /// The meaning, for the Health screen and the report.
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
    FrameInvalid = "frame_invalid", "a frame's memory did not look like a frame";
    CodeUnreadable = "code_unreadable", "a code object's memory could not be read";
    CodeChanged = "code_changed", "a code object was replaced before its name was read";
    CodeInvalid = "code_invalid", "what should be a code object is not one";
    NameInvalid = "name_invalid", "a function's or file's name is not valid text";
    LineUnknown = "line_unknown", "the line of a frame could not be found in its line table";
    ProcessGone = "process_gone", "the process ended before its frames could be named";
    InterpreterUnknown = "interpreter_unknown", "the interpreter's version or layout is not known to this pyobs";
    InterpreterLeftOut = "interpreter_left_out", "a process runs several CPythons, and the Python frames of only one are read";
    ThreadStateUnknown = "thread_state_unknown", "this interpreter's path to the thread state could not be found";
    TableFull = "table_full", "a table of fixed size was full: more processes, frames or stacks than pyobs keeps";
    TableBusy = "table_busy", "a process or a shared segment was not entered into its table, because another CPU held the lock too long";
    SidebandLost = "sideband_lost", "the kernel dropped notices of new mappings; all processes were scanned again";
    TaskUnreadable = "task_unreadable", "a field of a thread's kernel structure could not be read";
    KernelStackUnreadable = "kernel_stack_unreadable", "the kernel's stack could not be taken";
    RecordMalformed = "record_malformed", "a record from the kernel was malformed";
    UnwindTableMissing = "unwind_table_missing", "a native frame lies in a file that has no unwind table (yet)";
    UnwindRuleMissing = "unwind_rule_missing", "a native frame lies in code that its file's unwind table does not cover";
    UnwindRuleUnsupported = "unwind_rule_unsupported", "a native frame needs an unwind rule that pyobs does not support";
    MappingUnknown = "mapping_unknown", "a native frame lies in no known mapping (yet)";
    NativeStackUnreadable = "native_stack_unreadable", "the memory of a native stack could not be read in the kernel";
    NativeStackInvalid = "native_stack_invalid", "a native stack does not lead to its outermost frame";
    FramesUnjoined = "frames_unjoined", "Python frames could not be placed among the native ones";
    SleepUnseen = "sleep_unseen", "a thread's sleep was not counted, because another sleeping thread had its place in the table";
    CallUnseen = "call_unseen", "a call's return was not seen, so its time is unknown";
    SystemCallMissed = "system_call_missed", "the kernel ran no program at a system call: that CPU was inside another BPF operation";
    SegmentTableFull = "segment_table_full", "more shared segments, or processes that hold them, than pyobs keeps";
    SegmentUnseen = "segment_unseen", "a shared mapping could not be examined when it was made";
    DescriptorsUnseen = "descriptors_unseen", "a message had more parts than pyobs searches for descriptors";
    SegmentHolderMissed = "segment_holder_missed", "a process holds a shared segment whose open or map event was not seen";
    SegmentDescriptorMissed = "segment_descriptor_missed", "examining a process found an unknown descriptor of a shared segment";
    SegmentDescriptorGone = "segment_descriptor_gone", "examining a process found that a descriptor of a shared segment is gone";
    SegmentMappingMissed = "segment_mapping_missed", "examining a process found an unknown mapping of a shared segment";
    SegmentMappingGone = "segment_mapping_gone", "examining a process found that a mapping of a shared segment is gone";
    MappingUntold = "mapping_untold", "too many mappings of shared segments came and went at once, and some are not in the region map";
    ResidentUnreadable = "resident_unreadable", "a process's resident memory could not be read";
    ArenaTableFull = "arena_table_full", "more arenas than pyobs keeps";
    ArenaUnreadable = "arena_unreadable", "an arena's memory could not be read, or did not look like an arena";
    HeapTableFull = "heap_table_full", "more growing processes or sampled pages than pyobs keeps";
    WalkTaken = "walk_taken", "a stack was given up because the walk of another thread that interrupted it used the same state";
    MemInfoUnreadable = "meminfo_unreadable", "a MemInfo's reference count could not be read, or was not one";
    MemInfoTableFull = "meminfo_table_full", "more MemInfos than pyobs keeps";
    TransferTableFull = "transfer_table_full", "more transfers in flight than pyobs keeps";
    TransferHalfSeen = "transfer_half_seen", "a transfer completed whose beginning was not seen";
    AccessUnstacked = "access_unstacked", "a memory access was dropped because its stack was lost";
    PastForgotten = "past_forgotten", "an ended segment, arena or transfer is only in sums, not in lists, because too many came after it";
    RecorderBehind = "recorder_behind", "events were dropped because the recording's disk was too slow";
    MapCutShort = "map_cut_short", "only the first 65,536 mappings of a process were read; segments, arenas and arrays beyond them are unknown";
    MappingsLeftOut = "mappings_left_out", "a process has more executable mappings than pyobs keeps: native frames in the others have no names";
    ReadHeldUp = "read_held_up", "memory of a process, or a file that it maps, could not be read in time";
    CacheEvicted = "cache_evicted", "a full cache evicted an entry, which is read again when needed";
    Unrecognized = "unrecognized", "a reason in the recording that this pyobs does not know";
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
