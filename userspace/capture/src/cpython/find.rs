//! Recognizes a CPython interpreter in an ELF file and finds where its state is.
//!
//! A file's name means nothing: `python3.8` can be a launcher without an interpreter, and any program can
//! embed one. What counts is that the file defines the runtime's own symbols, which are exported for
//! extension modules even if everything else is stripped. For any other file a few hash look-ups give the
//! answer, so every mapped file can be checked.

use super::code;
use super::loops;
use super::offsets::{self, Gil, Layout};
use super::thread_local::{TlsAccess, TssKey};
use super::version::Version;
use crate::elf::{Elf, ElfError, Symbol};
use object::elf::{R_X86_64_DTPMOD64, STT_TLS};
use std::collections::HashMap;
use std::ops::Range;

/// What an ELF file says about the interpreter in it. Addresses are link-time virtual addresses in the file:
/// add the load bias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    pub version: Version,
    /// `_PyRuntime` (3.7+).
    pub runtime: Option<Range<u64>>,
    pub thread_state: ThreadState,
    /// The word with the thread state that holds the GIL (until 3.11).
    pub current: Option<u64>,
    /// Set if the process has a single GIL at a fixed address (until 3.11).
    pub gil: Option<FixedGil>,
    /// The word that points to the first interpreter state.
    pub interpreters_head: Option<u64>,
    pub code_type: Option<u64>,
    pub unicode_type: Option<u64>,
    pub bytes_type: Option<u64>,
    /// The object `None`, which the shims of 3.13 have instead of a code object.
    pub none: Option<u64>,
    /// The interpreter's loop, in all the parts that the compiler split it into.
    pub loops: Vec<Range<u64>>,
    pub layout: LayoutSource,
    /// The function that gets arenas from the kernel.
    pub arena_allocator: Option<Range<u64>>,
}

/// Where the layout of the interpreter's structures comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutSource {
    /// The generated table.
    Table(&'static Layout),
    /// The process's own `_Py_DebugOffsets`, at `runtime` (see `debug_offsets::read`).
    DebugOffsets,
}

/// The address and layout of the GIL's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedGil {
    pub address: u64,
    pub layout: Gil,
}

/// How a thread finds its `PyThreadState`. At least one way is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// The thread-specific value, which is the state that `PyGILState_Ensure` would use (until 3.14).
    pub key: Option<TssKey>,
    /// The thread-local `_Py_tss_tstate`: the attached state, null while the thread does not hold the GIL
    /// (3.12+).
    pub tls: Option<TlsAccess>,
    /// The thread-local `_Py_tss_gilstate`, which replaces the key (3.15+).
    pub gilstate: Option<TlsAccess>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("CPython {0} is older than 3.6, the first that pyobs reads")]
    TooOld(Version),
    #[error("a CPython older than 3.6, the first that pyobs reads")]
    Ancient,
    #[error("a CPython, but neither Py_Version nor its version string nor its table of offsets says which")]
    NoVersion,
    #[error("says it is CPython {version}, but {contradiction}")]
    Contradiction { version: Version, contradiction: &'static str },
    #[error("PyPy, whose frames pyobs does not know")]
    PyPy,
    #[error("CPython {0}, whose structures pyobs does not know")]
    NoLayout(Version),
    #[error("CPython {0}, but its code does not show where it keeps its thread states")]
    NoThreadState(Version),
}

/// Since 3.11 the runtime has a section of its own, which is cheap to look up
/// (<https://github.com/python/cpython/blob/v3.11.0/Python/pylifecycle.c>).
const RUNTIME_SECTION: &[u8] = b".PyRuntime";

/// Whether a file may contain an interpreter, judged by its exported symbols and section names.
pub fn may_be_interpreter(elf: &Elf<'_>) -> bool {
    elf.has_section(RUNTIME_SECTION) || is_pypy(elf) || Symbols::of_interpreter(elf).is_some()
}

/// PyPy's shared library exports its `main` under this name (rpython/translator/c/genc.py).
fn is_pypy(elf: &Elf<'_>) -> bool {
    elf.exported("pypy_main_startup").is_some()
}

/// What the file says about the interpreter in it; `None` if there is none.
pub fn inspect(elf: &[u8]) -> Result<Option<Interpreter>, InspectError> {
    let elf = match Elf::parse(elf) {
        // A process with other machine code cannot be walked, whatever is in the file.
        Err(ElfError::OtherMachine { .. }) => return Ok(None),
        elf => elf?,
    };
    let Some(symbols) = Symbols::of_interpreter(&elf) else {
        return if is_pypy(&elf) { Err(InspectError::PyPy) } else { Ok(None) };
    };
    let version = version(&symbols)?;
    let runtime = symbols
        .find("_PyRuntime")
        .and_then(|symbol| Some(symbol.address..symbol.address.checked_add(symbol.size.max(8))?));
    check(&symbols, version, runtime.is_some())?;
    let layout = if version.since(13) {
        LayoutSource::DebugOffsets
    } else {
        // Only such builds have this function (https://github.com/python/cpython/blob/v3.12.0/Objects/object.c).
        let trace_refs = symbols.function("_Py_ForgetReference").is_some();
        LayoutSource::Table(offsets::layout_for(&version, trace_refs).ok_or(InspectError::NoLayout(version))?)
    };
    let table = match layout {
        LayoutSource::Table(layout) => Some(layout),
        LayoutSource::DebugOffsets => None,
    };
    let finder = Finder { symbols: &symbols, version, runtime: runtime.clone(), table };
    let thread_state = ThreadState { key: finder.key(), tls: finder.tls(), gilstate: finder.gilstate() };
    if (thread_state.key, thread_state.tls) == (None, None) {
        return Err(InspectError::NoThreadState(version));
    }
    let address = |name: &str| symbols.find(name).map(|symbol| symbol.address);
    Ok(Some(Interpreter {
        version,
        current: finder.current(thread_state.key),
        gil: finder.gil(),
        interpreters_head: finder.interpreters_head(),
        runtime,
        thread_state,
        code_type: address("PyCode_Type"),
        unicode_type: address("PyUnicode_Type"),
        bytes_type: address("PyBytes_Type"),
        none: address("_Py_NoneStruct"),
        loops: loops::find(&elf),
        layout,
        arena_allocator: arena_allocator(&symbols),
    }))
}

/// `_PyObject_ArenaMmap` up to 3.11, `_PyMem_ArenaAlloc` from 3.12 on
/// (<https://github.com/python/cpython/blob/v3.12.0/Objects/obmalloc.c>). A stripped file has neither name, but
/// exports the function that copies the allocator's address.
fn arena_allocator(symbols: &Symbols<'_, '_>) -> Option<Range<u64>> {
    let elf = symbols.elf;
    let is_one = |name: &[u8]| matches!(name, b"_PyObject_ArenaMmap" | b"_PyMem_ArenaAlloc");
    if let Some((_, symbol)) = elf.symbols().find(|(name, symbol)| is_one(name) && symbol.size > 0) {
        return Some(symbol.address..symbol.address.checked_add(symbol.size)?);
    }
    let accessor = symbols.function("PyObject_GetArenaAllocator")?;
    loops::function(elf, code::copied_allocator(elf, accessor)?)
}

/// The symbols of a file with an interpreter.
struct Symbols<'a, 'data> {
    elf: &'a Elf<'data>,
    /// From .symtab, for a program that embeds an interpreter and exports nothing.
    local: HashMap<&'data [u8], Symbol>,
}

impl<'a, 'data> Symbols<'a, 'data> {
    fn of_interpreter(elf: &'a Elf<'data>) -> Option<Self> {
        let mut symbols = Self { elf, local: HashMap::new() };
        let runtime = |symbols: &Self| {
            // `_PyRuntime` from 3.7 on, the other before.
            let state = ["_PyRuntime", "_PyThreadState_Current"].iter().any(|name| symbols.find(name).is_some());
            state && symbols.find("PyGILState_GetThisThreadState").is_some()
        };
        if runtime(&symbols) {
            return Some(symbols);
        }
        if elf.has_section(RUNTIME_SECTION) {
            let interesting = |name: &[u8]| name.starts_with(b"_Py") || name.starts_with(b"Py");
            symbols.local = elf.symbols().filter(|(name, _)| interesting(name)).collect();
            return runtime(&symbols).then_some(symbols);
        }
        None
    }

    fn find(&self, name: &str) -> Option<Symbol> {
        self.elf.exported(name).or_else(|| self.local.get(name.as_bytes()).copied())
    }

    fn function(&self, name: &str) -> Option<u64> {
        self.find(name).map(|symbol| symbol.address).filter(|address| self.elf.is_code(*address))
    }
}

fn version(symbols: &Symbols<'_, '_>) -> Result<Version, InspectError> {
    // const unsigned long Py_Version = PY_VERSION_HEX
    // (https://github.com/python/cpython/blob/v3.11.0/Python/getversion.c, 3.11+).
    let word = |symbol: Symbol| symbols.elf.u64(symbol.address).and_then(Version::from_hex);
    if let Some(version) = symbols.find("Py_Version").and_then(word) {
        return Ok(version);
    }
    if let Some(runtime) = symbols.find("_PyRuntime")
        && symbols.elf.bytes(runtime.address, 8) == Some(b"xdebugpy")
        && let Some(version) =
            runtime.address.checked_add(8).and_then(|at| symbols.elf.u64(at)).and_then(Version::from_hex)
    {
        return Ok(version);
    }
    // Earlier versions have it only in the string that Py_GetVersion composes (Python/getversion.c).
    let ancient = !symbols.find("_PyEval_EvalFrameDefault").is_some_and(|symbol| symbols.elf.is_code(symbol.address));
    let said = symbols.function("Py_GetVersion").and_then(|function| {
        let strings = code::constants(symbols.elf, function);
        strings.into_iter().find_map(|address| Version::parse(symbols.elf.string(address, 16)?))
    });
    match said.or_else(|| only_version_string(symbols.elf)) {
        Some(version) if version.since(6) => Ok(version),
        Some(version) => Err(InspectError::TooOld(version)),
        None if ancient => Err(InspectError::Ancient),
        None => Err(InspectError::NoVersion),
    }
}

/// The only version from 3.6 to 3.10 that a string constant of the file ends with. Linkers let a string share
/// the end of a longer one. (The constants also contain versions of other software, such as SQLite.)
fn only_version_string(elf: &Elf<'_>) -> Option<Version> {
    let (_, constants) = elf.section(b".rodata")?;
    let mut versions = constants
        .split(|byte| *byte == 0)
        .filter(|text| !text.is_empty())
        .filter_map(|text| {
            let part_of_it = |byte: &u8| byte.is_ascii_digit() || b".abrc+".contains(byte);
            let start = text.iter().rposition(|byte| !part_of_it(byte)).map_or(0, |at| at + 1);
            Version::parse(&text[start..])
        })
        .filter(|version| version.major == 3 && (6..=10).contains(&version.minor));
    let first = versions.next()?;
    versions.all(|other| other == first).then_some(first)
}

/// Functions of the stable ABI and the minor version that introduced each: a claimed version must match the
/// functions present.
const BROUGHT_BY: [(u8, &str); 6] = [
    (7, "PyThread_tss_get"),
    (8, "PyCode_NewWithPosOnlyArgs"),
    (9, "PyThreadState_GetFrame"),
    (10, "PyModule_AddObjectRef"),
    (11, "PyFrame_GetLasti"),
    (12, "PyType_FromMetaclass"),
];

fn check(symbols: &Symbols<'_, '_>, version: Version, has_runtime: bool) -> Result<(), InspectError> {
    let contradicts = |contradiction| Err(InspectError::Contradiction { version, contradiction });
    if version.major != 3 {
        return Err(if version.major < 3 { InspectError::TooOld(version) } else { InspectError::NoLayout(version) });
    }
    if has_runtime != version.since(7) {
        return contradicts("whether there is a _PyRuntime says otherwise");
    }
    // A program may export only some of them, so absence proves nothing.
    let newest = BROUGHT_BY.iter().rev().find(|(_, name)| symbols.function(name).is_some());
    if newest.is_some_and(|(minor, _)| !version.since(*minor)) {
        return contradicts("has functions that came later");
    }
    Ok(())
}

struct Finder<'a, 'data> {
    symbols: &'a Symbols<'a, 'data>,
    version: Version,
    runtime: Option<Range<u64>>,
    table: Option<&'static Layout>,
}

impl Finder<'_, '_> {
    /// The address of a `_PyRuntime` field by the table, if it is within this file's runtime.
    fn by_table(&self, field: impl Fn(&offsets::Runtime) -> Option<u32>) -> Option<u64> {
        let runtime = self.runtime.as_ref()?;
        let address = runtime.start.checked_add(field(&self.table?.runtime)?.into())?;
        runtime.contains(&address).then_some(address)
    }

    /// Prefers the code, which is right for this very build; the table is right for the build it was made
    /// from.
    fn key(&self) -> Option<TssKey> {
        let function = self.symbols.function("PyGILState_GetThisThreadState");
        let Some(runtime) = &self.runtime else {
            return function.and_then(|function| code::plain_key(self.symbols.elf, function)).or_else(|| {
                let key = self.symbols.elf.symbols().find(|(name, _)| *name == b"autoTLSkey")?;
                Some(TssKey { initialized: None, key: key.1.address })
            });
        };
        let accessors = ["PyThread_tss_get", "PyThread_tss_is_created"].map(|name| self.symbols.function(name));
        let accessors: Vec<u64> = accessors.into_iter().flatten().collect();
        function.and_then(|function| code::thread_key(self.symbols.elf, function, runtime, &accessors)).or_else(|| {
            let tss = self.by_table(|runtime| runtime.auto_tss_key)?;
            Some(TssKey { initialized: Some(tss), key: tss.checked_add(4)? })
        })
    }

    fn current(&self, key: Option<TssKey>) -> Option<u64> {
        if self.version.since(12) {
            return None;
        }
        if self.runtime.is_none() {
            return self.symbols.find("_PyThreadState_Current").map(|symbol| symbol.address);
        }
        let by_code = || {
            let function = self.symbols.function("_PyThreadState_UncheckedGet")?;
            let address = code::returned_word(self.symbols.elf, function)?;
            self.runtime.as_ref()?.contains(&address).then_some(address)
        };
        // The distance from the key holds even if an earlier field has another size.
        let by_key = || {
            let runtime = &self.table?.runtime;
            let distance = runtime.auto_tss_key?.checked_sub(runtime.tstate_current?)?;
            key?.initialized?.checked_sub(distance.into())
        };
        by_code().or_else(by_key).or_else(|| self.by_table(|runtime| runtime.tstate_current))
    }

    fn interpreters_head(&self) -> Option<u64> {
        let function = self.symbols.function("PyInterpreterState_Head");
        function
            .and_then(|function| code::returned_word(self.symbols.elf, function))
            .filter(|address| match &self.runtime {
                Some(runtime) => runtime.contains(address),
                None => self.symbols.elf.is_writable(*address),
            })
            .or_else(|| self.by_table(|runtime| runtime.interpreters_head))
    }

    fn gil(&self) -> Option<FixedGil> {
        let Some(runtime) = &self.runtime else { return self.gil_of_variables() };
        let layout = self.table?.gil?;
        // It returns `_PyRuntime.ceval.gil.interval` (3.7 to 3.11,
        // https://github.com/python/cpython/blob/v3.9.0/Python/ceval_gil.h).
        let by_code = || {
            let function = self.symbols.function("_PyEval_GetSwitchInterval")?;
            code::returned_word(self.symbols.elf, function)?.checked_sub(layout.interval?.into())
        };
        let fits = |address: &u64| {
            let end = address.checked_add(layout.size.into());
            *address >= runtime.start && end.is_some_and(|end| end <= runtime.end)
        };
        let by_table = || self.by_table(|runtime| runtime.gil);
        let address = by_code().filter(fits).or_else(|| by_table().filter(fits))?;
        Some(FixedGil { address, layout })
    }

    /// 3.6: static variables, which only local symbols show
    /// (<https://github.com/python/cpython/blob/v3.6.0/Python/ceval_gil.h>).
    fn gil_of_variables(&self) -> Option<FixedGil> {
        let names: [&[u8]; 3] = [b"gil_last_holder", b"gil_locked", b"gil_cond"];
        let mut found = [None; 3];
        for (name, symbol) in self.symbols.elf.symbols() {
            if let Some(index) = names.iter().position(|known| *known == name) {
                found[index] = Some(symbol);
            }
        }
        let [holder, locked, condition] = found;
        let (holder, locked, condition) = (holder?, locked?, condition?);
        let parts = [holder, locked, condition];
        let fits = (holder.size, locked.size) == (8, 4) && (8..=128).contains(&condition.size);
        if !fits || parts.iter().any(|part| !self.symbols.elf.is_writable(part.address)) {
            return None;
        }
        let address = parts.iter().map(|part| part.address).min()?;
        // The kernel side treats offsets as signed.
        let offset = |part: &Symbol| i32::try_from(part.address - address).ok().map(i32::cast_unsigned);
        let ends = [offset(&holder)? + 8, offset(&locked)? + 4, offset(&condition)? + condition.size as u32];
        let layout = Gil {
            size: ends.into_iter().max()?,
            interval: None,
            holder: offset(&holder)?,
            locked: offset(&locked)?,
            condition: offset(&condition)?,
            condition_size: condition.size as u32,
            enabled: None,
        };
        Some(FixedGil { address, layout })
    }

    fn tls(&self) -> Option<TlsAccess> {
        if !self.version.since(12) {
            return None;
        }
        // All of them only return it, except that the last one checks it first (Python/pystate.c).
        let functions = [
            "PyThreadState_GetUnchecked",
            "_PyThreadState_UncheckedGet",
            "_PyThreadState_GetCurrent",
            "PyThreadState_Get",
        ];
        self.thread_local(&functions, b"_Py_tss_tstate")
    }

    fn gilstate(&self) -> Option<TlsAccess> {
        if !self.version.since(15) {
            return None;
        }
        self.thread_local(&["PyGILState_GetThisThreadState"], b"_Py_tss_gilstate")
    }

    /// A thread-local that one of these functions returns, or with this name.
    fn thread_local(&self, functions: &[&str], name: &[u8]) -> Option<TlsAccess> {
        let functions = functions.iter().filter_map(|name| self.symbols.function(name));
        functions
            .filter_map(|function| code::returned_thread_local(self.symbols.elf, function))
            .find(|access| self.is_plausible(access))
            .or_else(|| self.tls_by_symbol(name))
    }

    /// Whether it is inside the file's own thread-local block, as far as the file shows.
    fn is_plausible(&self, access: &TlsAccess) -> bool {
        let Some((_, size, align)) = self.symbols.elf.tls() else { return false };
        match access {
            TlsAccess::Offset(offset) => {
                offset.unsigned_abs() <= size.saturating_add(align) && *offset < 0 && offset % 8 == 0
            }
            TlsAccess::Dynamic { offset, .. } => {
                offset.checked_add(8).is_some_and(|end| end <= size) && offset % 8 == 0
            }
            TlsAccess::GotSlot(slot) | TlsAccess::Descriptor { slot } => self.symbols.elf.is_writable(*slot),
        }
    }

    fn tls_by_symbol(&self, name: &[u8]) -> Option<TlsAccess> {
        let elf = self.symbols.elf;
        let (_, variable) = elf.symbols().find(|(its, symbol)| *its == name && symbol.kind == STT_TLS)?;
        if elf.is_program() {
            // The program's block ends at the thread pointer (ELF handling for thread-local storage, variant
            // II).
            let (address, size, align) = elf.tls()?;
            let end = address.checked_add(size)?.checked_next_multiple_of(align)?.checked_sub(address)?;
            return Some(TlsAccess::Offset(i64::try_from(variable.address).ok()?.checked_sub_unsigned(end)?));
        }
        // A module id relocation without a symbol refers to the file itself.
        let own =
            |relocation: &crate::elf::Relocation| relocation.kind == R_X86_64_DTPMOD64.0 && relocation.symbol == 0;
        let slot = elf.relocations().find(own)?.address;
        Some(TlsAccess::Dynamic { module_id_slot: slot, offset: variable.address })
    }
}
