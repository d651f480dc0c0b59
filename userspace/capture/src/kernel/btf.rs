//! Offsets of fields in the running kernel's structures, from its BTF
//! (<https://github.com/torvalds/linux/blob/v6.1/Documentation/bpf/btf.rst>).
//!
//! rustc emits no CO-RE relocations, so the offsets are looked up here and passed to the programs as
//! constants.

use std::path::Path;

/// The kernel's own type information.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

pub(super) const MAGIC: u32 = 0xeb9f;
const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
pub(super) const KIND_TYPEDEF: u32 = 8;
pub(super) const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;
/// Anonymous structs and unions nest a few levels; deeper nesting is an error.
const MAX_NESTING: u32 = 16;

#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    #[error(
        "cannot read the kernel's type information at {path}: {error}; pyobs needs a kernel built with CONFIG_DEBUG_INFO_BTF"
    )]
    Unreadable { path: String, error: std::io::Error },
    #[error("the kernel's type information is malformed at byte {0}")]
    Malformed(usize),
    #[error("the running kernel has no field {field} in struct {structure}")]
    NoField { structure: &'static str, field: &'static str },
}

/// Looks up the offsets for some programs, by the names of their constants.
pub type Offsets = fn(&Btf) -> Result<Vec<(&'static str, u32)>, BtfError>;

/// The kernel's types.
pub struct Btf {
    data: Vec<u8>,
    /// Where each type begins, indexed by id minus one.
    types: Vec<u32>,
    strings: usize,
}

struct Member {
    name: u32,
    kind: u32,
    bit_offset: u32,
}

impl Btf {
    pub fn of_running_kernel() -> Result<Self, BtfError> {
        Self::read(Path::new(VMLINUX))
    }

    fn read(path: &Path) -> Result<Self, BtfError> {
        let data =
            std::fs::read(path).map_err(|error| BtfError::Unreadable { path: path.display().to_string(), error })?;
        Self::parse(data)
    }

    fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        let mut btf = Self { data, types: Vec::new(), strings: 0 };
        if btf.word(0)? & 0xffff != MAGIC {
            return Err(BtfError::Malformed(0));
        }
        let header = btf.word(4)? as usize;
        let types = header.saturating_add(btf.word(8)? as usize);
        let end = types.saturating_add(btf.word(12)? as usize);
        btf.strings = header.saturating_add(btf.word(16)? as usize);
        let mut at = types;
        while at < end {
            btf.types.push(at as u32);
            at = at.saturating_add(btf.type_size(at)?);
        }
        Ok(btf)
    }

    /// The byte offset of `field` in `struct structure`, including fields of anonymous members.
    pub fn offset(&self, structure: &'static str, field: &'static str) -> Result<u32, BtfError> {
        for at in &self.types {
            let at = *at as usize;
            if self.kind(at)? == KIND_STRUCT
                && self.name_is(self.word(at)?, structure)
                && let Some(bits) = self.bit_offset(at, field, 0)?
            {
                return Ok(bits / 8);
            }
        }
        Err(BtfError::NoField { structure, field })
    }

    /// The size of a structure in bytes.
    pub fn size(&self, structure: &'static str) -> Result<u32, BtfError> {
        for at in self.types.iter().map(|at| *at as usize) {
            if self.kind(at)? == KIND_STRUCT && self.name_is(self.word(at)?, structure) {
                return self.word(at + 8);
            }
        }
        Err(BtfError::NoField { structure, field: "any" })
    }

    /// The number of a function's type.
    pub fn function(&self, name: &str) -> Option<u32> {
        self.number(KIND_FUNC, name)
    }

    /// The number of a typedef.
    pub fn typedef(&self, name: &str) -> Option<u32> {
        self.number(KIND_TYPEDEF, name)
    }

    fn number(&self, kind: u32, name: &str) -> Option<u32> {
        let is_it = |at: &u32| {
            let at = *at as usize;
            self.kind(at).is_ok_and(|it| it == kind) && self.word(at).is_ok_and(|of| self.name_is(of, name))
        };
        self.types.iter().zip(1_u32..).find(|(at, _)| is_it(at)).map(|(_, number)| number)
    }

    fn bit_offset(&self, at: usize, field: &str, nesting: u32) -> Result<Option<u32>, BtfError> {
        if nesting > MAX_NESTING {
            return Ok(None);
        }
        for index in 0..self.vlen(at)? {
            let member = self.member(at, index)?;
            if self.name_is(member.name, field) {
                return Ok(Some(member.bit_offset));
            }
            let anonymous = self.name_is(member.name, "");
            let Some(inner) = self.types.get((member.kind as usize).wrapping_sub(1)).filter(|_| anonymous) else {
                continue;
            };
            let inner = *inner as usize;
            if matches!(self.kind(inner)?, KIND_STRUCT | KIND_UNION)
                && let Some(bits) = self.bit_offset(inner, field, nesting + 1)?
            {
                return Ok(Some(member.bit_offset + bits));
            }
        }
        Ok(None)
    }

    fn member(&self, at: usize, index: usize) -> Result<Member, BtfError> {
        let at = at + 12 + index * 12;
        let offset = self.word(at + 8)?;
        // In a struct with bit fields (kind_flag), the upper byte is the field's width.
        Ok(Member { name: self.word(at)?, kind: self.word(at + 4)?, bit_offset: offset & 0x00ff_ffff })
    }

    fn type_size(&self, at: usize) -> Result<usize, BtfError> {
        let vlen = self.vlen(at)?;
        Ok(12
            + match self.kind(at)? {
                KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
                KIND_ARRAY => 12,
                KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => 12 * vlen,
                KIND_ENUM | KIND_FUNC_PROTO => 8 * vlen,
                _ => 0,
            })
    }

    fn kind(&self, at: usize) -> Result<u32, BtfError> {
        Ok((self.word(at + 4)? >> 24) & 0x1f)
    }

    fn vlen(&self, at: usize) -> Result<usize, BtfError> {
        Ok((self.word(at + 4)? & 0xffff) as usize)
    }

    fn word(&self, at: usize) -> Result<u32, BtfError> {
        let bytes = self.data.get(at..at.saturating_add(4)).ok_or(BtfError::Malformed(at))?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn name_is(&self, offset: u32, name: &str) -> bool {
        let start = self.strings.saturating_add(offset as usize);
        self.data
            .get(start..start.saturating_add(name.len() + 1))
            .is_some_and(|bytes| bytes.strip_suffix(&[0]) == Some(name.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_an_error() {
        assert!(Btf::parse(Vec::new()).is_err());
        assert!(Btf::parse(vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
