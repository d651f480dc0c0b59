//! The family `heap`: what happened to the private memory of processes.

use pyobs_model::{Event, HeapChange, Nanos, ProcessRef, StackId};
use rusqlite::{Connection, Result};

use super::{Reading, Rows};
use crate::Error;
use crate::merge::Merge;
use crate::table::{Table, tables};
use crate::value::Name;

tables! {
    /// Family `heap`: what happened to the private memory of processes. When a process ends, so does its memory.
    ChangeRow in "heap_changes" {
        at as "at_ns": Nanos = "when",
        process: ProcessRef = "`processes.id`",
        change: Name = "`touched` (the process has grown), `mapped` (a block for one purpose), `freed`, `moved`, \
            `inherited` (a fork begins with a copy) or `counted` (its resident memory was read)",
        #[sparse] {
            address: u64 = "`touched`: of the page that represents the growth; else where the range begins",
            bytes: u64 = "`touched`: how much it has grown; else the length of the range",
            stack: StackId = "`touched`, `mapped`: `stacks.id`",
            anonymous: u64 = "`touched`, `counted`: anonymous memory of the process",
            to as "to_address": u64 = "`moved`: where the range is now",
            parent: ProcessRef = "`inherited`: `processes.id` of the process that forked",
            files: u64 = "`counted`: resident pages of files",
            shared: u64 = "`counted`: resident shared memory",
        }
    }
}

impl ChangeRow {
    fn change(&self) -> Option<HeapChange> {
        let range = || Some((self.address?, self.bytes?));
        Some(match &*self.change {
            "touched" => {
                let (address, bytes) = range()?;
                HeapChange::Touched { address, bytes, anonymous: self.anonymous?, stack: self.stack? }
            }
            "mapped" => {
                let (address, bytes) = range()?;
                HeapChange::Mapped { address, bytes, stack: self.stack? }
            }
            "freed" => {
                let (address, bytes) = range()?;
                HeapChange::Freed { address, bytes }
            }
            "moved" => {
                let (address, bytes) = range()?;
                HeapChange::Moved { address, bytes, to: self.to? }
            }
            "inherited" => HeapChange::Inherited { parent: self.parent? },
            "counted" => HeapChange::Counted { anonymous: self.anonymous?, files: self.files?, shared: self.shared? },
            _ => return None,
        })
    }
}

pub(crate) fn change(connection: &Connection, at: Nanos, process: ProcessRef, change: &HeapChange) -> Result<()> {
    let named = |change: &'static str| ChangeRow::of(at, process, change.into());
    let range = |change: &'static str, address: u64, bytes: u64| ChangeRow {
        address: Some(address),
        bytes: Some(bytes),
        ..named(change)
    };
    let row = match *change {
        HeapChange::Touched { address, bytes, anonymous, stack } => {
            ChangeRow { anonymous: Some(anonymous), stack: Some(stack), ..range("touched", address, bytes) }
        }
        HeapChange::Mapped { address, bytes, stack } => {
            ChangeRow { stack: Some(stack), ..range("mapped", address, bytes) }
        }
        HeapChange::Freed { address, bytes } => range("freed", address, bytes),
        HeapChange::Moved { address, bytes, to } => ChangeRow { to: Some(to), ..range("moved", address, bytes) },
        HeapChange::Inherited { parent } => ChangeRow { parent: Some(parent), ..named("inherited") },
        HeapChange::Counted { anonymous, files, shared } => {
            ChangeRow { anonymous: Some(anonymous), files: Some(files), shared: Some(shared), ..named("counted") }
        }
    };
    row.insert(connection)
}

/// Reads from the beginning of the recording, because what a process holds depends on all changes before.
pub(crate) fn read(reading: &mut Reading<'_>, merge: &mut Merge<'_>) -> Result<(), Error> {
    merge.events(reading, Rows::Until, |row: ChangeRow| {
        Some(Event::Heap { at: row.at, process: row.process, change: row.change()? })
    })
}
