//! Coroutines: what each awaits, down to a future.
//!
//! A coroutine that waits has what it awaits on the value stack of its frame.
//!
//! - `PyCoroObject`: <https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_genobject.h>,
//!   until 3.11 <https://github.com/python/cpython/blob/v3.11.0/Include/cpython/genobject.h>

use pyobs_abi::process::Layout;

use super::frames::At;
use super::objects::Objects;
use super::values::values;
use crate::cpython::attached::Attached;
use crate::memory::Memory;

/// Coroutines followed from one to the next.
const CHAIN_MAX: usize = 256;
/// What an awaitable wraps lies behind its header.
const WRAPPED: u64 = 16;

/// Where a coroutine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Created,
    /// It runs or waits.
    Begun,
    Ended,
}

/// A coroutine with those that it awaits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Their frames, the outermost first.
    pub frames: Vec<At>,
    pub is_created: bool,
    /// The future or task that the last one waits for.
    pub future: Option<u64>,
}

impl Chain {
    /// `None` for a coroutine that has ended.
    pub fn of(objects: &Objects<'_>, layout: &Layout, coroutine: u64) -> Option<Self> {
        let mut chain = Self::default();
        let mut coroutine = coroutine;
        for _ in 0..CHAIN_MAX {
            let (frame, state) = frame(objects, coroutine)?;
            if state == State::Ended {
                return (!chain.frames.is_empty()).then_some(chain);
            }
            let at = At::read(objects.memory, layout, frame)?;
            chain.frames.push(at);
            if state == State::Created {
                chain.is_created = true;
                break;
            }
            let awaited = values(objects, &at).into_iter().rev().find_map(|value| awaited(objects, value));
            match awaited {
                Some(Awaited::Coroutine(next)) => coroutine = next,
                Some(Awaited::Future(future)) => {
                    chain.future = Some(future);
                    break;
                }
                None => break,
            }
        }
        Some(chain)
    }
}

enum Awaited {
    Coroutine(u64),
    Future(u64),
}

/// What a value is, if it can be awaited and has begun.
fn awaited(objects: &Objects<'_>, value: u64) -> Option<Awaited> {
    let coroutine = match &*objects.kind(value)? {
        "coroutine" | "generator" | "async_generator" => value,
        "coroutine_wrapper" | "async_generator_asend" | "async_generator_athrow" => {
            objects.word(value.checked_add(WRAPPED)?)?
        }
        "_asyncio.FutureIter" => return objects.word(value.checked_add(WRAPPED)?).map(Awaited::Future),
        _ => return None,
    };
    (frame(objects, coroutine)?.1 == State::Begun).then_some(Awaited::Coroutine(coroutine))
}

/// Whether an object is a coroutine or a generator, which a task can run.
pub fn is_coroutine(objects: &Objects<'_>, object: u64) -> bool {
    objects.kind(object).is_some_and(|kind| matches!(&*kind, "coroutine" | "generator" | "async_generator"))
}

/// How far inside a coroutine its frame lies (3.11 and newer).
fn frame_offset(minor: u8) -> Option<u64> {
    match minor {
        ..=10 => None,
        11 => Some(80),
        _ => Some(72),
    }
}

/// The coroutine or generator of a frame, or of the object that a frame up to 3.10 names.
pub fn of_frame(python: &Attached, frame: u64) -> u64 {
    let header = u64::from(python.layout.object.type_) - 8; // larger in free-threaded builds
    frame.wrapping_sub(frame_offset(python.number.minor).map_or(0, |offset| offset + header))
}

/// A coroutine's frame and state.
fn frame(objects: &Objects<'_>, coroutine: u64) -> Option<(u64, State)> {
    let minor = objects.minor();
    if minor <= 10 {
        // `gi_frame`, which is null once the coroutine has ended; `f_lasti` is -1 before it has begun.
        let frame = objects.word(coroutine.checked_add(16)?)?;
        if frame == 0 {
            return Some((0, State::Ended));
        }
        let at = objects.python.layout.frame.instruction;
        let begun = objects.memory.read_u32(frame.checked_add(at.into())?).ok()? as i32 >= 0;
        return Some((frame, if begun { State::Begun } else { State::Created }));
    }
    // `gi_frame_state`, and the frame itself behind it.
    let frame = frame_offset(minor)?;
    let state = frame - 5;
    let frame = coroutine.checked_add(frame)?;
    let state = objects.memory.read_u8(coroutine.checked_add(state)?).ok()? as i8;
    // `PyFrameState`, which was renumbered twice
    // (<https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_frame.h>).
    let (created, ended) = match minor {
        ..=12 => (-2, 1),
        13 | 14 => (-3, 1),
        _ => (0, 5),
    };
    let state = match state {
        state if state == created => State::Created,
        state if state >= ended => State::Ended,
        _ => State::Begun,
    };
    Some((frame, state))
}
