//! `Py_AsyncioModuleDebugOffsets`: from CPython 3.14 on, `_asyncio` describes where its tasks are, in a section of its
//! file ([`SECTION`]).
//!
//! The offsets move within a minor version, so they are read from the process. It is untrusted: an offset outside its
//! structure is refused.
//!
//! - <https://github.com/python/cpython/blob/v3.14.0/Modules/_asynciomodule.c>

use crate::memory::Memory;

pub const SECTION: &[u8] = b".AsyncioDebug";

/// Words of the table.
const WORDS: usize = 13;
/// Larger structures are refused.
const SIZE_MAX: u64 = 1 << 20;

/// Offsets of fields, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncioOffsets {
    /// `TaskObj`: its name (a `str` or an `int`), who awaits it (a task, or a set of them), and its coroutine.
    pub name: u64,
    pub awaited_by: u64,
    pub awaited_by_is_set: u64,
    pub coroutine: u64,
    /// Its node in a list of tasks.
    pub node: u64,
    /// `PyInterpreterState`: the list of tasks whose thread has ended.
    pub interpreter_tasks: u64,
    /// `_PyThreadStateImpl`: the loop and the task that run, and the list of the thread's tasks.
    pub running_loop: u64,
    pub running_task: u64,
    pub thread_tasks: u64,
}

impl AsyncioOffsets {
    /// Reads the table at an address. Returns `None` if an offset is misaligned or out of bounds.
    pub fn read(memory: &impl Memory, address: u64) -> Option<Self> {
        let mut bytes = [[0; 8]; WORDS];
        memory.read(address, bytes.as_flattened_mut()).ok()?;
        let words = bytes.map(u64::from_le_bytes);
        let [size, name, awaited_by, is_task, awaited_by_is_set, coroutine, node, ..] = words;
        let [.., interpreter, interpreter_tasks, thread, running_loop, running_task, thread_tasks] = words;
        let fits = |size: u64, offset: u64, width: u64| {
            size <= SIZE_MAX && offset.is_multiple_of(width) && offset.checked_add(width).is_some_and(|end| end <= size)
        };
        let all_fit = [name, awaited_by, coroutine, node].iter().all(|offset| fits(size, *offset, 8))
            && [is_task, awaited_by_is_set].iter().all(|offset| fits(size, *offset, 1))
            && fits(interpreter, interpreter_tasks, 8)
            && [running_loop, running_task, thread_tasks].iter().all(|offset| fits(thread, *offset, 8));
        let found = Self {
            name,
            awaited_by,
            awaited_by_is_set,
            coroutine,
            node,
            interpreter_tasks,
            running_loop,
            running_task,
            thread_tasks,
        };
        all_fit.then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    struct Table([u64; WORDS]);

    impl Memory for Table {
        fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
            let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
            into.copy_from_slice(&bytes[address as usize..][..into.len()]);
            Ok(())
        }
    }

    /// The table in Debian's 3.14.8 (tests/fuzz/corpus/asyncio-debug/python314).
    const PYTHON_3_14: [u64; WORDS] = [168, 136, 96, 108, 109, 128, 152, 225_864, 10_880, 936, 864, 872, 880];

    #[test]
    fn offsets_have_to_lie_in_their_structures() {
        let found = AsyncioOffsets::read(&Table(PYTHON_3_14), 0).unwrap();
        assert_eq!((found.name, found.coroutine, found.node, found.running_task), (136, 128, 152, 872));
        for (index, wrong) in [(1, 168), (1, 137), (6, u64::MAX), (8, 225_864), (11, 936), (0, u64::MAX)] {
            let mut words = PYTHON_3_14;
            words[index] = wrong;
            assert_eq!(AsyncioOffsets::read(&Table(words), 0), None, "{index}");
        }
    }
}
