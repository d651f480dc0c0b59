//! What the kernel side's loss counters mean.

use pyobs_abi::record::Loss;
use pyobs_model::Reason;

/// The reason that reports give for a loss.
pub fn reason(loss: Loss) -> Reason {
    match loss {
        Loss::RingFull => Reason::RingFull,
        Loss::KernelStack => Reason::KernelStackUnreadable,
        Loss::ProcessTable => Reason::TableFull,
        Loss::Task => Reason::TaskUnreadable,
        Loss::Shed => Reason::BudgetShed,
        Loss::Sleeper => Reason::SleepUnseen,
        Loss::SegmentTable => Reason::SegmentTableFull,
        Loss::Message => Reason::DescriptorsUnseen,
        Loss::WalkTaken => Reason::WalkTaken,
        Loss::TransferTable => Reason::TransferTableFull,
        Loss::Mapping => Reason::SidebandLost,
        Loss::TableBusy => Reason::TableBusy,
        Loss::TransferHalfSeen => Reason::TransferHalfSeen,
        Loss::HeapTable => Reason::HeapTableFull,
    }
}
