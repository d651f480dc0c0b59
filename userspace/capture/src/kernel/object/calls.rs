//! The programs at system calls.

use aya::programs::BtfTracePoint;

use super::{Object, ObjectError, program};
use crate::kernel::sparse;

/// They see every call, for all families that have to do with some, and the types of the tracepoints that they are at.
const PROGRAMS: [(&str, &str); 2] = [("calls_begin", TYPES[0]), ("calls_end", TYPES[1])];
pub(super) const TYPES: [&str; 2] = ["btf_trace_sys_enter", "btf_trace_sys_exit"];

impl Object {
    /// Starts to look at system calls, which the families `shm` and `arena` need; to be called once.
    pub fn attach_system_calls(&mut self) -> Result<(), ObjectError> {
        for ((name, of), number) in PROGRAMS.into_iter().zip(self.calls) {
            let number = number.ok_or(ObjectError::NoType(of))?;
            let program: &mut BtfTracePoint = program(&mut self.ebpf, name)?;
            let fail = |error| ObjectError::Program { name, error };
            let types = sparse::typedef(of, number).map_err(|error| fail(error.into()))?;
            program.load(of.trim_start_matches("btf_trace_"), &types).map_err(fail)?;
            program.attach().map_err(fail)?;
        }
        Ok(())
    }
}
