//! The locks of Python: which one a thread waits for, and who has it.
//!
//! The lock object is on the waiter's value stack while it waits: as itself, or as `self` of the bound method that is
//! called. `with lock` keeps the bound method `__exit__` on the value stack of the frame (from 3.14 on, the function
//! and the lock as two values) for as long as the lock is held, which is how its holder is found: a `Lock` does not
//! know its owner. An `RLock` does.
//!
//! - `lockobject` and `rlockobject`: <https://github.com/python/cpython/blob/v3.12.0/Modules/_threadmodule.c>
//! - from 3.14 on, with a `PyMutex`: <https://github.com/python/cpython/blob/v3.14.0/Modules/_threadmodule.c>

use pyobs_model::dump::What;

use super::frames::Frames;
use super::objects::Objects;
use super::values::values;
use crate::memory::Memory;

/// Innermost frames searched for the lock that a thread waits for.
const WAITER_FRAMES: usize = 4;
/// Frames searched for holders.
const HOLDER_FRAMES: usize = 20_000;
/// Where a lock lies behind an object's header: a `PyThread_type_lock` or, from 3.14 on, a `PyMutex`. The owner of an
/// `RLock` follows.
const OWNER: u64 = 8;
/// Without semaphores, a `PyThread_type_lock` is a condition variable with its mutex.
const LOCK_SIZE: u64 = 112;
/// `_Py_LOCKED` and `_Py_HAS_PARKED` (<https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_lock.h>).
const LOCKED_AND_AWAITED: u8 = 3;

/// A lock object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub address: u64,
    pub what: What,
    /// `pthread_self()` of its owner; `None` for a `Lock`.
    pub owner: Option<u64>,
}

/// The types that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock,
    RLock,
    BoundMethod,
    Method,
    Other,
}

pub struct Locks<'a> {
    objects: &'a Objects<'a>,
}

impl<'a> Locks<'a> {
    pub fn new(objects: &'a Objects<'a>) -> Self {
        Self { objects }
    }

    /// The lock that a thread with these frames waits for at the address of a futex.
    pub fn awaited(&self, frames: &Frames, futex: u64) -> Option<Lock> {
        for at in frames.list.iter().take(WAITER_FRAMES) {
            for value in values(self.objects, at).into_iter().rev() {
                let Some((lock, what)) = self.lock(value) else { continue };
                if self.is_awaited(lock, futex) {
                    let owner = (what == What::RLock)
                        .then(|| self.word(self.objects.body(lock)?.checked_add(OWNER)?))
                        .flatten();
                    return Some(Lock { address: lock, what, owner });
                }
            }
        }
        None
    }

    /// The locks that the frames of a thread hold, as far as `with` shows it. The frame of a thread that waits for one
    /// may be about to enter `with`, which has put `__exit__` on the stack already.
    pub fn held(&self, frames: &Frames, awaits: Option<u64>) -> Vec<u64> {
        let mut held = Vec::new();
        for (depth, at) in frames.list.iter().take(HOLDER_FRAMES).enumerate() {
            let values = values(self.objects, at);
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
    fn held_by<'v>(&self, values: &'v [u64]) -> Option<(u64, &'v [u64])> {
        let [first, rest @ ..] = values else { return None };
        let (lock, rest) = match (self.kind(*first)?, rest) {
            (Kind::BoundMethod, rest) => (self.lock(*first)?, rest),
            (Kind::Method, [lock, rest @ ..]) => (self.lock(*lock)?, rest),
            _ => return None,
        };
        (lock.1 == What::Lock && self.method_name(*first)? == "__exit__").then_some((lock.0, rest))
    }

    /// Whether the values above `__exit__` are those of a `with` that has yet to call `__enter__`: none up to 3.13, the
    /// function and the lock from 3.14 on.
    fn is_entering(&self, rest: &[u64], lock: u64) -> bool {
        match rest {
            [] => true,
            [method, of] => *of == lock && self.method_name(*method).is_some_and(|name| name == "__enter__"),
            _ => false,
        }
    }

    /// The lock that a value is, or is a method of.
    fn lock(&self, value: u64) -> Option<(u64, What)> {
        match self.kind(value)? {
            Kind::Lock => Some((value, What::Lock)),
            Kind::RLock => Some((value, What::RLock)),
            Kind::BoundMethod => {
                // `PyCFunctionObject`: the method's definition, then `self`.
                let of = self.word(self.objects.body(value)?.checked_add(8)?)?;
                match self.kind(of)? {
                    Kind::Lock => Some((of, What::Lock)),
                    Kind::RLock => Some((of, What::RLock)),
                    _ => None,
                }
            }
            Kind::Method | Kind::Other => None,
        }
    }

    /// The name of a built-in method, bound or not: `PyCFunctionObject.m_ml` and
    /// `PyMethodDescrObject.d_method` point to a definition, which points to the name.
    fn method_name(&self, method: u64) -> Option<String> {
        let definition = match self.kind(method)? {
            Kind::BoundMethod => self.word(self.objects.body(method)?)?,
            Kind::Method => self.word(self.objects.body(method)?.checked_add(24)?)?,
            _ => return None,
        };
        self.objects.string(self.word(definition)?)
    }

    fn is_awaited(&self, lock: u64, futex: u64) -> bool {
        let Some(body) = self.objects.body(lock) else { return false };
        if self.objects.python.number.since(14) {
            // Its waiters sleep on semaphores of their own.
            return self.objects.memory.read_u8(body).is_ok_and(|bits| bits & LOCKED_AND_AWAITED == LOCKED_AND_AWAITED);
        }
        self.word(body).is_some_and(|semaphore| futex.wrapping_sub(semaphore) < LOCK_SIZE)
    }

    fn kind(&self, object: u64) -> Option<Kind> {
        Some(match &*self.objects.kind(object)? {
            "_thread.lock" => Kind::Lock,
            "_thread.RLock" => Kind::RLock,
            "builtin_function_or_method" | "builtin_method" => Kind::BoundMethod,
            "method_descriptor" => Kind::Method,
            _ => Kind::Other,
        })
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.objects.word(address)
    }
}
