//! One correlator per probe family: what its events add up to.

pub mod cpu;

/// The probe families, in the order in which they are listed everywhere.
pub const NAMES: &[&str] = &["cpu"];
