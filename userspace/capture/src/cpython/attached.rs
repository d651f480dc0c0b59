//! An interpreter in a live process: combines its file's facts with what only the process knows.

use std::ops::Range;
use std::sync::Arc;

use pyobs_abi::process::{self, KEY_BARE, NONE, PYTHON, SAMPLED, TLS_DYNAMIC, TLS_STATIC, entry};
use pyobs_model::Reason;

use super::debug_offsets;
use super::find::{Interpreter, LayoutSource};
use super::names;
use super::offsets::{Gil, Layout, Position};
use super::thread_local::TlsAccess;
use super::version::Version;
use crate::files::{ElfInterpreter, FileId};
use crate::libc_layout::LibcLayout;
use crate::memory::{Memory, ProcessMemory};
use crate::process_maps::Mapping;

/// What is needed to name an interpreter's frames.
#[derive(Debug)]
pub struct Attached {
    pub version: Arc<str>,
    pub layout: Layout,
    /// Address of `PyCode_Type` in the process.
    pub code_type: Option<u64>,
    /// The file with the interpreter.
    pub file: FileId,
    pub number: Version,
    /// The function that gets arenas from the kernel, in the process.
    pub arena_allocator: Option<Range<u64>>,
    /// Address of the word that points to the newest interpreter state.
    pub interpreters: Option<u64>,
}

/// Why an interpreter cannot be watched now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAttached {
    /// The dynamic loader has not finished with it: try again.
    NotYet,
    Never(Reason),
}

/// How far an interpreter's start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// It has no interpreter state.
    Loaded,
    /// It has not run any Python code.
    Initializing,
    MayHaveRun,
}

/// The result of attaching, for naming and for the kernel side. The caller fills in `Process::layout`.
pub struct Attachment {
    pub attached: Attached,
    pub process: process::Process,
    pub layout: process::Layout,
    /// How far its start has come.
    pub progress: Progress,
}

/// Combines what the files say with what only the process knows.
pub fn attach(
    pid: u32,
    file: FileId,
    interpreter: &ElfInterpreter,
    mapping: &Mapping,
    libc: Option<&LibcLayout>,
) -> Result<Attachment, NotAttached> {
    let memory = ProcessMemory::new(pid);
    let bias = interpreter.bias(mapping);
    let facts = &interpreter.facts;
    let layout = match facts.layout {
        LayoutSource::Table(layout) => layout.clone(),
        LayoutSource::DebugOffsets => {
            let runtime = facts.runtime.as_ref().ok_or(NotAttached::Never(Reason::InterpreterUnknown))?;
            let address = runtime.start.wrapping_add(bias);
            debug_offsets::read(&memory, address, facts.version).map_err(|error| match error {
                // The data segment is mapped after the code.
                debug_offsets::DebugOffsetsError::Read { .. } | debug_offsets::DebugOffsetsError::Cookie { .. } => {
                    NotAttached::NotYet
                }
                _ => NotAttached::Never(Reason::InterpreterUnknown),
            })?
        }
    };
    let gil = layout_of_gil(&memory, facts, bias, &layout);
    let mut process = process::Process {
        flags: SAMPLED | PYTHON,
        current: facts.current.map_or(0, |address| address.wrapping_add(bias)),
        loops: loops(&facts.loops, bias),
        code_type: facts.code_type.map_or(0, |address| address.wrapping_add(bias)),
        gil: facts.gil.map_or(0, |gil| gil.address.wrapping_add(bias)),
        pthread_tid: libc.and_then(|libc| libc.tid_offset).unwrap_or(0),
        ..process::Process::default()
    };
    if let Some(libc) = libc {
        process.specific = libc.specific_offset;
        process.block_elements = libc.level2_size;
        process.element_size = libc.element_size;
        process.element_value = libc.elements_offset + libc.data_offset;
        if let Some(key) = facts.thread_state.key {
            match key.initialized {
                // The kernel side reads both words of a Py_tss_t at once.
                Some(initialized) if initialized + 4 == key.key => process.key = initialized.wrapping_add(bias),
                Some(_) => return Err(NotAttached::Never(Reason::ThreadStateUnknown)),
                None => {
                    process.key = key.key.wrapping_add(bias);
                    process.flags |= KEY_BARE;
                }
            }
        }
    }
    if let Some(tls) = facts.thread_state.tls
        && let Some(place) = resolve_tls(&memory, tls, bias, libc)?
    {
        process.flags |= if place.module.is_some() { TLS_DYNAMIC } else { TLS_STATIC };
        process.tls_module = place.module.unwrap_or(0);
        process.tls_offset = place.offset;
        if let Some(gilstate) = facts.thread_state.gilstate
            && let Some(other) =
                resolve_tls(&memory, gilstate, bias, libc)?.filter(|other| other.module == place.module)
        {
            process.tls_gilstate = i32::try_from(other.offset.wrapping_sub(place.offset)).unwrap_or(0);
        }
    }
    if process.key == 0 && process.flags & (TLS_STATIC | TLS_DYNAMIC) == 0 {
        return Err(if libc.is_none() { NotAttached::NotYet } else { NotAttached::Never(Reason::ThreadStateUnknown) });
    }
    let code_type = facts.code_type.map(|address| address.wrapping_add(bias));
    let kernel_layout = kernel_layout(&layout, gil).ok_or(NotAttached::Never(Reason::InterpreterUnknown))?;
    let interpreters = interpreters_head(facts, &layout).map(|head| head.wrapping_add(bias));
    let attached = Attached {
        version: Arc::from(facts.version.to_string()),
        layout,
        code_type,
        file,
        number: facts.version,
        arena_allocator: facts
            .arena_allocator
            .as_ref()
            .map(|range| range.start.wrapping_add(bias)..range.end.wrapping_add(bias)),
        interpreters,
    };
    let progress = progress(&memory, &attached);
    Ok(Attachment { attached, process, layout: kernel_layout, progress })
}

/// `pycore_interp_init` in CPython's Python/pylifecycle.c makes the builtins, and then runs the first code, the frozen
/// `importlib._bootstrap`.
fn progress(memory: &ProcessMemory, attached: &Attached) -> Progress {
    let Some(head) = attached.interpreters else { return Progress::MayHaveRun };
    let Ok(newest) = memory.read_u64(head) else { return Progress::Loaded };
    let layout = &attached.layout;
    if newest == 0 {
        return Progress::Loaded;
    }
    let is_null = |offset: u32| memory.read_u64(newest.wrapping_add(offset.into())).is_ok_and(|word| word == 0);
    // Another interpreter than the first is made by code that runs.
    if is_null(layout.interpreter.next) && is_null(layout.interpreter.builtins) {
        Progress::Initializing
    } else {
        Progress::MayHaveRun
    }
}

/// Link-time address of the pointer to the first interpreter state.
fn interpreters_head(facts: &Interpreter, layout: &Layout) -> Option<u64> {
    let by_table = || Some(facts.runtime.as_ref()?.start.wrapping_add(layout.runtime.interpreters_head?.into()));
    facts.interpreters_head.or_else(by_table)
}

/// The two largest ranges of the interpreter's loop in the process.
fn loops(ranges: &[Range<u64>], bias: u64) -> [[u64; 2]; 2] {
    let mut ranges: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|range| std::cmp::Reverse(range.end - range.start));
    let at = |index: usize| {
        ranges.get(index).map_or([0, 0], |range| [range.start.wrapping_add(bias), range.end.wrapping_add(bias)])
    };
    [at(0), at(1)]
}

/// The place of a thread-local.
struct ThreadLocal {
    /// The module whose block contains it; `None` for the static block.
    module: Option<u64>,
    /// From the beginning of the block, or from the thread pointer.
    offset: i64,
}

/// `None` if the C library stores modules' blocks in a way that the kernel side does not know.
fn resolve_tls(
    memory: &ProcessMemory,
    tls: TlsAccess,
    bias: u64,
    libc: Option<&LibcLayout>,
) -> Result<Option<ThreadLocal>, NotAttached> {
    // A zero means that the loader has not filled it in yet.
    let loaded = |address: u64| match memory.read_u64(address) {
        Ok(0) | Err(_) => Err(NotAttached::NotYet),
        Ok(word) => Ok(word),
    };
    let fixed = |offset| ThreadLocal { module: None, offset };
    let dynamic = |module, offset: u64| ThreadLocal { module: Some(module), offset: offset.cast_signed() };
    let place = match tls {
        TlsAccess::Offset(offset) => fixed(offset),
        TlsAccess::GotSlot(slot) => fixed(loaded(slot.wrapping_add(bias))?.cast_signed()),
        TlsAccess::Dynamic { module_id_slot, offset } => dynamic(loaded(module_id_slot.wrapping_add(bias))?, offset),
        TlsAccess::Descriptor { slot } => {
            let argument = loaded(slot.wrapping_add(bias).wrapping_add(8))?;
            // A static descriptor's argument is the (negative) offset itself; any other points to module and
            // offset (glibc, sysdeps/x86_64/dl-tlsdesc.S).
            if argument.cast_signed() < 0 {
                fixed(argument.cast_signed())
            } else {
                let offset = memory.read_u64(argument + 8).map_err(|_| NotAttached::NotYet)?;
                dynamic(loaded(argument)?, offset)
            }
        }
    };
    // The psABI's vector, which the kernel side walks; another C library may have its own.
    let usual = libc.is_some_and(|libc| (libc.dtv_offset, libc.dtv_entry_size, libc.dtv_pointer_offset) == (8, 16, 0));
    Ok((place.module.is_none() || usual).then_some(place))
}

/// The layout of the GIL's state; `None` if it is not known, or if threads run without the GIL.
fn layout_of_gil(memory: &ProcessMemory, facts: &Interpreter, bias: u64, layout: &Layout) -> Option<Gil> {
    if let Some(fixed) = facts.gil {
        return Some(fixed.layout);
    }
    let (gil, pointer) = (layout.gil?, layout.interpreter.gil?);
    let Some(enabled) = gil.enabled else { return Some(gil) };
    // A free-threaded build, in its present state: an extension module may enable the GIL later.
    let word = |address: u64| memory.read_u64(address).ok().filter(|word| *word != 0);
    let interpreter = word(facts.interpreters_head?.wrapping_add(bias))?;
    let state = word(interpreter.wrapping_add(pointer.into()))?;
    let enabled = memory.read_u32(state.wrapping_add(enabled.into())).ok()?;
    (enabled != 0).then_some(gil)
}

/// The part of a layout that the walker needs; `None` if a frame does not fit into its buffer.
pub fn kernel_layout(layout: &Layout, gil: Option<Gil>) -> Option<process::Layout> {
    let frame = &layout.frame;
    if frame.header_size as usize > process::FRAME_MAX || layout.frame.code_tags > 7 {
        return None;
    }
    let (code, type_) = (&layout.code, layout.object.type_);
    let (first, last) = names::check_words(layout).into_inner();
    let check_start = first.min(type_);
    let check_size = last.checked_add(8)? - check_start;
    let words = [type_, first, last, code.name, names::qualified(layout), code.filename];
    let is_long = check_size > process::CHECK_MAX as u32 || (last - first) / 8 >= process::CHECK_WORDS;
    if is_long || words.iter().any(|offset| offset % 8 != 0) {
        return None;
    }
    // The kernel side assumes the `str` of CPython up to 3.11.
    let unicode = &layout.unicode;
    let checks_texts = names::checks_texts(layout);
    if checks_texts && (unicode.state != unicode.length + 16 || (unicode.kind_shift, unicode.ascii_shift) != (2, 6)) {
        return None;
    }
    let lasti_unit = match frame.position {
        Position::ByteIndex => 1,
        Position::UnitIndex => 2,
        Position::PreviousPointer | Position::CurrentPointer => 0,
    };
    Some(process::Layout {
        thread_id: layout.thread_state.thread_id,
        thread_frame: layout.thread_state.frame,
        entry: match (&layout.cframe, frame.shim_owner, frame.is_entry) {
            (Some(_), Some(_), _) => entry::SHIM_AND_CFRAME,
            (None, Some(_), _) => entry::SHIM,
            (Some(_), None, Some(_)) => entry::FLAG,
            _ => entry::EACH,
        },
        cframe_frame: layout.cframe.as_ref().map_or(NONE, |cframe| cframe.current_frame),
        frame_size: frame.header_size,
        // From 3.11 on, frames are on a stack of chunks (`push_chunk` in
        // https://github.com/python/cpython/blob/v3.11.0/Python/pystate.c) instead of being allocated one by
        // one.
        frame_window: if frame.owner.is_some() { process::WINDOW_MAX as u32 } else { 0 },
        frame_code: frame.code,
        frame_previous: frame.previous,
        frame_instruction: frame.instruction,
        // Only if the owner can mark a shim.
        frame_owner: frame.shim_owner.and(frame.owner).or(frame.is_entry).unwrap_or(NONE),
        // `f_gen` precedes `f_lasti` (https://github.com/python/cpython/blob/v3.8.0/Include/frameobject.h).
        frame_generator: frame.owner.or(frame.instruction.checked_sub(8)).unwrap_or(NONE),
        lasti_unit,
        code_start: layout.code.code_adaptive.unwrap_or(0),
        check_start,
        check_size,
        check_type: type_ - check_start,
        check_first: first - check_start,
        check_last: last - check_start,
        check_text: if checks_texts { unicode.ascii_data } else { 0 },
        check_version: names::version(layout).map_or(NONE, |version| version - check_start),
        code_size: names::object_size(layout).unwrap_or(0),
        code_name: names::qualified(layout),
        code_file: layout.code.filename,
        code_table: layout.code.linetable,
        text_length: layout.unicode.length,
        text_head: layout.unicode.compact_data,
        bytes_length: layout.bytes.length,
        bytes_data: layout.bytes.data,
        frame_copy: layout.code.tlbc.and(frame.tlbc_index).unwrap_or(NONE),
        code_copies: layout.code.tlbc.unwrap_or(0),
        thread_interpreter: layout.thread_state.interpreter,
        thread_native: layout.thread_state.native_thread_id.unwrap_or(NONE),
        interpreter_gil: gil.and(layout.interpreter.gil).unwrap_or(NONE),
        gil_holder: gil.map_or(0, |gil| gil.holder),
        gil_locked: gil.map_or(0, |gil| gil.locked),
        gil_condition: gil.map_or(0, |gil| gil.condition),
        // The condition variable is followed by its mutex, and by the pair with which a thread that released
        // the GIL waits for another to take it.
        gil_condition_size: gil.map_or(0, |gil| gil.size.saturating_sub(gil.condition)),
    })
}
