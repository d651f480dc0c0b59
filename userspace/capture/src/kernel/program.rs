//! What is known about a BPF program before it is loaded.

use pyobs_model::Family;

/// What a program attaches to, which determines how it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// A tracepoint with typed arguments; this is the tracepoint's type in the kernel's BTF.
    Typed(&'static str),
    /// An iterator over objects of this kind.
    Iterator(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct ProgramSpec {
    pub name: &'static str,
    /// The families that need it.
    pub families: &'static [Family],
    pub kind: Kind,
    /// Whether its families also work without it, with less data or in another way.
    pub optional: bool,
}

impl ProgramSpec {
    pub const fn new(name: &'static str, families: &'static [Family]) -> Self {
        Self { name, families, kind: Kind::Plain, optional: false }
    }

    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub const fn typed(self, tracepoint: &'static str) -> Self {
        Self { kind: Kind::Typed(tracepoint), ..self }
    }

    pub const fn iterator(self, objects: &'static str) -> Self {
        Self { kind: Kind::Iterator(objects), ..self }
    }
}
