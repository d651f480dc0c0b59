//! BTF for aya that contains a single kernel type, at its own number.
//!
//! aya looks up a program's attach type by name, for which it parses the whole kernel's BTF, using tens of
//! megabytes. [`super::btf::Btf`] already knows the number, so this BTF has that many placeholder types,
//! followed by the real one.

use aya::{Btf, BtfError};

use super::btf::{KIND_FUNC, KIND_TYPEDEF, MAGIC};

/// `struct btf_header` (<https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/btf.h>).
const HEADER: usize = 24;
const VERSION: u32 = 1;
/// A forward declaration, without a name.
const KIND_FORWARD: u32 = 7;

pub fn function(name: &str, number: u32) -> Result<Btf, BtfError> {
    with(number, KIND_FUNC, name)
}

pub fn typedef(name: &str, number: u32) -> Result<Btf, BtfError> {
    with(number, KIND_TYPEDEF, name)
}

fn with(number: u32, kind: u32, name: &str) -> Result<Btf, BtfError> {
    let nothing = [0, KIND_FORWARD << 24, 0];
    let mut words = vec![MAGIC | VERSION << 16, HEADER as u32, 0, 12 * number, 12 * number, name.len() as u32 + 2];
    words.extend((1..number).flat_map(|_| nothing));
    words.extend([1, kind << 24, 0]);
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    bytes.push(0);
    bytes.extend(name.bytes());
    bytes.push(0);
    Btf::parse(&bytes, Default::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_has_its_number() {
        let types = typedef("btf_trace_it", 1000).unwrap();
        assert_eq!(types.id_by_type_name_kind("btf_trace_it", aya_obj::btf::BtfKind::Typedef).unwrap(), 1000);
        assert!(typedef("btf_trace_it", 1000).unwrap().id_by_type_name_kind("", aya_obj::btf::BtfKind::Func).is_err());
    }
}
