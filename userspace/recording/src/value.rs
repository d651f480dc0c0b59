//! What a column can hold: how it is declared, how it is written, and how it is checked when it is read.

use std::borrow::Cow;
use std::sync::Arc;

use pyobs_model::{
    ArenaId, FrameId, FrameKind, Library, MemInfoId, Nanos, Operation, PairKind, Pid, ProcessRef, Protocol, Reason,
    Sampler, SegmentId, SegmentKind, StackId, TaskId, TaskKind, TaskState, Tid, TransferId, WaitReason,
};
use rusqlite::types::ValueRef;

/// Longer text is cut. This is 100 times what any real interpreter, linker or shell produces.
pub(crate) const MAX_TEXT: usize = 1 << 20;

/// A text as stored in a recording.
pub(crate) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// SQLite's integers are signed. No real time or size needs the last bit.
pub(crate) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A type that a column can have.
pub(crate) trait Value: Sized {
    /// Its name in SQL.
    const TYPE: &'static str;
    const NULLABLE: bool = false;
    /// The table whose rows it numbers; empty if it numbers none.
    const REFERENCES: &'static str = "";

    fn bind(&self) -> ValueRef<'_>;

    /// `None` if the type or the range is wrong, because a recording may hold anything.
    fn read(value: ValueRef<'_>) -> Option<Self>;
}

/// NULL means that the value is unknown or does not exist.
impl<T: Value> Value for Option<T> {
    const TYPE: &'static str = T::TYPE;
    const NULLABLE: bool = true;
    const REFERENCES: &'static str = T::REFERENCES;

    fn bind(&self) -> ValueRef<'_> {
        self.as_ref().map_or(ValueRef::Null, Value::bind)
    }

    fn read(value: ValueRef<'_>) -> Option<Self> {
        if value == ValueRef::Null { Some(None) } else { T::read(value).map(Some) }
    }
}

/// Types that are stored as an integer, and how to decode them.
macro_rules! integers {
    ($($type:ty $(, of $table:literal)?: $write:expr, $read:expr;)*) => { $(
        impl $crate::value::Value for $type {
            const TYPE: &'static str = "INTEGER";
            const REFERENCES: &'static str = concat!($($table)?);

            fn bind(&self) -> rusqlite::types::ValueRef<'_> {
                let write: fn(Self) -> i64 = $write;
                rusqlite::types::ValueRef::Integer(write(*self))
            }

            fn read(value: rusqlite::types::ValueRef<'_>) -> Option<Self> {
                $crate::value::number(value).map($read)
            }
        }
    )* };
}
pub(crate) use integers;

pub(crate) fn number<T: TryFrom<i64>>(value: ValueRef<'_>) -> Option<T> {
    value.as_i64().ok()?.try_into().ok()
}

integers! {
    u16: i64::from, |it| it;
    u32: i64::from, |it| it;
    u64: integer, |it| it;
    i32: i64::from, |it| it;
    // Tags, hashes and foreign addresses use all 64 bits.
    i64: |it| it, |it| it;
    bool: i64::from, |it: u64| it != 0;
    Nanos: |it| integer(it.0), Self;
    Pid: |it| it.0.into(), Self;
    Tid: |it| it.0.into(), Self;
    TransferId: |it| integer(it.0), Self;
    ProcessRef, of "processes": |it| it.0.into(), Self;
    FrameId, of "frames": |it| it.0.into(), Self;
    StackId, of "stacks": |it| it.0.into(), Self;
    TaskId, of "tasks": |it| it.0.into(), Self;
    SegmentId, of "segments": |it| it.0.into(), Self;
    ArenaId, of "arenas": |it| it.0.into(), Self;
    MemInfoId, of "meminfos": |it| it.0.into(), Self;
}

/// A text that is usually one of a few fixed ones.
pub(crate) type Name = Cow<'static, str>;

/// Types that are stored as a text, and how to decode them.
macro_rules! texts {
    ($($type:ty: $write:expr, $read:expr;)*) => { $(
        impl Value for $type {
            const TYPE: &'static str = "TEXT";

            fn bind(&self) -> ValueRef<'_> {
                let write: fn(&Self) -> &str = $write;
                ValueRef::Text(bounded(write(self)).as_bytes())
            }

            fn read(value: ValueRef<'_>) -> Option<Self> {
                let read: fn(&str) -> Option<Self> = $read;
                match value {
                    ValueRef::Text(bytes) => read(bounded(&String::from_utf8_lossy(bytes))),
                    ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => None,
                }
            }
        }
    )* };
}

texts! {
    Arc<str>: |it| it, |text| Some(text.into());
    Name: |it| it, |text| Some(text.to_owned().into());
    FrameKind: |it| kind_name(*it), kind_of;
    Library: |it| it.name(), Self::from_name;
    Operation: |it| it.name(), Self::from_name;
    PairKind: |it| it.name(), Self::from_name;
    Protocol: |it| it.name(), Self::from_name;
    Sampler: |it| it.name(), Self::from_name;
    SegmentKind: |it| it.name(), Self::from_name;
    // An unknown name may come from a newer pyobs. The loss or the wait still counts.
    Reason: |it| it.name(), |text| Some(Self::from_name(text).unwrap_or(Self::Unrecognized));
    TaskKind: |it| it.name(), |text| Self::ALL.into_iter().find(|kind| kind.name() == text);
    TaskState: |it| it.name(), |text| Self::ALL.into_iter().find(|state| state.name() == text);
    WaitReason: |it| it.name(), |text| Some(Self::from_name(text).unwrap_or(Self::Other));
}

fn kind_name(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Python => "python",
        FrameKind::Native => "native",
        FrameKind::Kernel => "kernel",
    }
}

fn kind_of(name: &str) -> Option<FrameKind> {
    [FrameKind::Python, FrameKind::Native, FrameKind::Kernel].into_iter().find(|kind| kind_name(*kind) == name)
}
