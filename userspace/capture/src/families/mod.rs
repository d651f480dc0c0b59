//! One probe family a file: what its records mean.

pub mod cpu;
