//! The Python frames of a sample, and whose code they run.

use std::sync::Arc;

use pyobs_abi::redundancy::{Caller, Registers, SpotKey};
use pyobs_abi::stack::Frame;
use pyobs_model::package;

use super::place::Place;
use crate::cache::Cache;
use crate::cpython::names::{LongTables, read_code};

/// Code objects whose names are cached.
const CODES_MAX: usize = 4096;

/// A function of a process.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: Arc<str>,
    pub package: Option<Arc<str>>,
    /// Whether somebody wrote its code. Libraries also generate code.
    is_written: bool,
}

/// A frame of a sample.
#[derive(Clone, Debug)]
pub struct At {
    pub function: Function,
    pub key: SpotKey,
    pub frame: u64,
    /// As in [`Caller`]; `None` for the innermost frame.
    pub instruction: Option<u64>,
    /// Whether its caller is native code of a library that applies functions element by element.
    pub is_applied: bool,
}

impl At {
    /// Whether the program's own code runs in it.
    pub fn is_own(&self) -> bool {
        self.function.package.is_none()
    }
}

pub struct Functions {
    by_code: Cache<(u32, u64, u32), Option<Function>>,
}

impl Default for Functions {
    fn default() -> Self {
        Self { by_code: Cache::new(CODES_MAX) }
    }
}

impl Functions {
    /// The frames of a sample, innermost first, up to the first whose code is unknown. Generated code, through which a
    /// library may call, is left out.
    pub fn frames(&mut self, place: &mut Place, sample: &Registers) -> Vec<At> {
        let applied = place.applied(sample);
        let (place, pid) = (&*place, sample.header.pid);
        let innermost = (sample.code, sample.detail, sample.frame, None);
        let callers = sample.callers.iter().take_while(|caller| caller.frame != 0);
        let callers =
            callers.map(|Caller { frame, instruction, code, detail }| (*code, *detail, *frame, Some(*instruction)));
        let at = |((code, detail, frame, instruction), number)| {
            let function = self.function(place, pid, Frame { address: code, detail })?;
            let (key, is_applied) = (SpotKey { pid, padding: 0, code, detail }, applied.contains(&number));
            Some(At { function, key, frame, instruction, is_applied })
        };
        let all = std::iter::once(innermost).chain(callers).zip(0..).map_while(at);
        all.filter(|at| at.function.is_written).collect()
    }

    fn function(&mut self, place: &Place, pid: u32, frame: Frame) -> Option<Function> {
        let key = (pid, frame.address, frame.check());
        if let Some(known) = self.by_code.get(&key) {
            return known.clone();
        }
        let layout = &place.interpreter().layout;
        let code = read_code(place.memory(), frame.address, frame.check(), layout, None, LongTables::LeaveOut);
        let function = code.ok().map(|code| Function {
            package: package::of_file(&code.file),
            is_written: !package::is_generated(&code.file) && !code.is_interpreters(),
            name: code.function,
        });
        self.by_code.insert(key, function.clone());
        function
    }

    pub fn forget(&mut self, pid: u32) {
        self.by_code.retain(|(of, ..)| *of != pid);
    }
}
