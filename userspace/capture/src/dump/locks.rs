//! The locks of Python: which one a thread waits for, and who has it.
//!
//! The lock object is on the waiter's value stack while it waits: as itself, or as `self` of the bound method that is
//! called. `with lock` keeps the bound method `__exit__` on the value stack of the frame (from 3.14 on, the function
//! and the lock as two values) for as long as the lock is held, which is how its holder is found: a `Lock` does not
//! know its owner. An `RLock` does.
//!
//! - `lockobject` and `rlockobject`: <https://github.com/python/cpython/blob/v3.12.0/Modules/_threadmodule.c>
//! - from 3.14 on, with a `PyMutex`: <https://github.com/python/cpython/blob/v3.14.0/Modules/_threadmodule.c>

use foldhash::HashMap;
use pyobs_model::dump::What;

use super::frames::{At, Frames};
use crate::cpython::attached::Attached;
use crate::cpython::operands;
use crate::memory::Memory;

/// Innermost frames searched for the lock that a thread waits for.
const WAITER_FRAMES: usize = 4;
/// Values of a frame that are looked at.
const VALUES_MAX: u32 = 256;
/// Frames searched for holders.
const HOLDER_FRAMES: usize = 20_000;
/// Where a lock lies behind an object's header: a `PyThread_type_lock` or, from 3.14 on, a `PyMutex`. The owner of an
/// `RLock` follows.
const OWNER: u64 = 8;
/// Without semaphores, a `PyThread_type_lock` is a condition variable with its mutex.
const LOCK_SIZE: u64 = 112;
/// `_Py_LOCKED` and `_Py_HAS_PARKED` (<https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_lock.h>).
const LOCKED_AND_AWAITED: u8 = 3;
/// The low bits that mark a `_PyStackRef`.
const TAG_BITS: u64 = 7;
const LOWEST_OBJECT: u64 = 4096;

/// A lock object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub address: u64,
    pub what: What,
    /// `pthread_self()` of its owner; `None` for a `Lock`.
    pub owner: Option<u64>,
}

/// The types that matter, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock,
    RLock,
    BoundMethod,
    Method,
    Other,
}

pub struct Locks<'a, M> {
    memory: &'a M,
    python: &'a Attached,
    kinds: HashMap<u64, Kind>,
}

impl<'a, M: Memory> Locks<'a, M> {
    pub fn new(memory: &'a M, python: &'a Attached) -> Self {
        Self { memory, python, kinds: HashMap::default() }
    }

    /// The lock that a thread with these frames waits for at the address of a futex.
    pub fn awaited(&mut self, frames: &Frames, futex: u64) -> Option<Lock> {
        for at in frames.list.iter().take(WAITER_FRAMES) {
            for value in self.values(at).into_iter().rev() {
                let Some((lock, what)) = self.lock(value) else { continue };
                if self.is_awaited(lock, futex) {
                    let owner =
                        (what == What::RLock).then(|| self.word(self.body(lock)?.checked_add(OWNER)?)).flatten();
                    return Some(Lock { address: lock, what, owner });
                }
            }
        }
        None
    }

    /// The locks that the frames of a thread hold, as far as `with` shows it. The frame of a thread that waits for one
    /// may be about to enter `with`, which has put `__exit__` on the stack already.
    pub fn held(&mut self, frames: &Frames, awaits: Option<u64>) -> Vec<u64> {
        let mut held = Vec::new();
        for (depth, at) in frames.list.iter().take(HOLDER_FRAMES).enumerate() {
            let values = self.values(at);
            for number in 0..values.len() {
                let Some((lock, rest)) = self.held_by(&values[number..]) else { continue };
                let is_entered = |rest: &[u64]| depth > 0 || awaits != Some(lock) || !self.is_entering(rest, lock);
                if is_entered(rest) {
                    held.push(lock);
                }
            }
        }
        held
    }

    /// The lock that `with` holds by the first of these values, and the values above.
    fn held_by<'v>(&mut self, values: &'v [u64]) -> Option<(u64, &'v [u64])> {
        let [first, rest @ ..] = values else { return None };
        let (lock, rest) = match (self.kind(*first)?, rest) {
            (Kind::BoundMethod, rest) => (self.lock(*first)?, rest),
            (Kind::Method, [lock, rest @ ..]) => (self.lock(*lock)?, rest),
            _ => return None,
        };
        (lock.1 == What::Lock && self.method_name(*first)? == *b"__exit__\0\0").then_some((lock.0, rest))
    }

    /// Whether the values above `__exit__` are those of a `with` that has yet to call `__enter__`: none up to 3.13, the
    /// function and the lock from 3.14 on.
    fn is_entering(&self, rest: &[u64], lock: u64) -> bool {
        match rest {
            [] => true,
            [method, of] => *of == lock && self.method_name(*method).is_some_and(|name| name == *b"__enter__\0"),
            _ => false,
        }
    }

    /// The values that a frame has on its stack while it runs its present instruction, the lowest first.
    fn values(&self, at: &At) -> Vec<u64> {
        let Attached { layout, number, .. } = self.python;
        let Some(offset) = at.frame.offset().and_then(|offset| u32::try_from(offset).ok()) else { return Vec::new() };
        let Some((value, height)) = operands::stack(self.memory, *number, layout, at.frame.address, offset) else {
            return Vec::new();
        };
        let base = match value.pointer {
            Some(pointer) => self.word(at.address.wrapping_add(pointer.into())),
            None => Some(at.address),
        };
        let Some(base) = base else { return Vec::new() };
        let read = |number: u32| self.word(base.wrapping_add(value.start.into()).wrapping_add(8 * u64::from(number)));
        (0..height.min(VALUES_MAX)).map_while(read).map(|value| value & !TAG_BITS).collect()
    }

    /// The lock that a value is, or is a method of.
    fn lock(&mut self, value: u64) -> Option<(u64, What)> {
        match self.kind(value)? {
            Kind::Lock => Some((value, What::Lock)),
            Kind::RLock => Some((value, What::RLock)),
            Kind::BoundMethod => {
                // `PyCFunctionObject`: the method's definition, then `self`.
                let of = self.word(self.body(value)?.checked_add(8)?)?;
                match self.kind(of)? {
                    Kind::Lock => Some((of, What::Lock)),
                    Kind::RLock => Some((of, What::RLock)),
                    _ => None,
                }
            }
            Kind::Method | Kind::Other => None,
        }
    }

    /// The start of the name of a built-in method, bound or not: `PyCFunctionObject.m_ml` and
    /// `PyMethodDescrObject.d_method` point to a definition, which points to the name.
    fn method_name(&self, method: u64) -> Option<[u8; 10]> {
        let definition = match self.kind_of(method)? {
            Kind::BoundMethod => self.word(self.body(method)?)?,
            Kind::Method => self.word(self.body(method)?.checked_add(24)?)?,
            _ => return None,
        };
        let mut name = [0; 10];
        self.memory.read(self.word(definition)?, &mut name).ok()?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name[end..].fill(0);
        }
        Some(name)
    }

    fn is_awaited(&self, lock: u64, futex: u64) -> bool {
        let Some(body) = self.body(lock) else { return false };
        if self.python.number.since(14) {
            // Its waiters sleep on semaphores of their own.
            return self.memory.read_u8(body).is_ok_and(|bits| bits & LOCKED_AND_AWAITED == LOCKED_AND_AWAITED);
        }
        self.word(body).is_some_and(|semaphore| futex.wrapping_sub(semaphore) < LOCK_SIZE)
    }

    /// Behind the header of an object.
    fn body(&self, object: u64) -> Option<u64> {
        object.checked_add(u64::from(self.python.layout.object.type_) + 8)
    }

    fn kind(&mut self, object: u64) -> Option<Kind> {
        let kind = self.type_of(object)?;
        if let Some(known) = self.kinds.get(&kind) {
            return Some(*known);
        }
        let found = self.named(kind);
        self.kinds.insert(kind, found);
        Some(found)
    }

    /// Like [`Self::kind`], without keeping what is found.
    fn kind_of(&self, object: u64) -> Option<Kind> {
        let kind = self.type_of(object)?;
        Some(self.kinds.get(&kind).copied().unwrap_or_else(|| self.named(kind)))
    }

    fn type_of(&self, object: u64) -> Option<u64> {
        if object < LOWEST_OBJECT {
            return None;
        }
        self.word(object.checked_add(self.python.layout.object.type_.into())?)
    }

    /// What the name of a type says: `tp_name` follows the size of a variable-sized object.
    fn named(&self, kind: u64) -> Kind {
        let name = || {
            let name = self.word(self.body(kind)?.checked_add(8)?)?;
            let mut text = [0; 32];
            // The text may end right before a page that cannot be read.
            let is_read = self.memory.read(name, &mut text).is_ok() || self.memory.read(name, &mut text[..16]).is_ok();
            is_read.then_some(text)
        };
        let name = name().unwrap_or_default();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        match name {
            b"_thread.lock" => Kind::Lock,
            b"_thread.RLock" => Kind::RLock,
            b"builtin_function_or_method" | b"builtin_method" => Kind::BoundMethod,
            b"method_descriptor" => Kind::Method,
            _ => Kind::Other,
        }
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.memory.read_u64(address).ok()
    }
}
