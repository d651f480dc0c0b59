//! `_Py_DebugOffsets`: CPython 3.13 and newer describe their own layout in this table at the start of
//! `_PyRuntime`.
//!
//! It makes debug builds, free-threaded builds and later versions readable without guessing. The table's own
//! layout differs between minor versions
//! (<https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h>, since 3.14
//! <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h>), so each has its
//! list of words here. The table comes from the watched process, so every offset must be aligned and inside
//! its structure, and must agree with facts that hold for every build. Otherwise the table is refused.

use super::debug_words::Words;
use super::offsets::{
    Bytes, Code, Frame, Gil, InterpreterState, Layout, Object, Position, Runtime, Stack, ThreadState, Unicode,
    gil_of_newer,
};
use super::version::Version;
use crate::memory::Memory;

/// Why the table was refused.
#[derive(Debug, thiserror::Error)]
pub enum DebugOffsetsError {
    #[error("_PyRuntime at {address:#x} of CPython {version}: {error}")]
    Read { address: u64, version: Version, error: std::io::Error },
    #[error("_PyRuntime at {address:#x} of CPython {version} does not start with its table of offsets")]
    Cookie { address: u64, version: Version },
    #[error("CPython {version} has no table of offsets: 3.13 is the first that has")]
    TooOld { version: Version },
    #[error("the file says CPython {version}, its table of offsets in memory says {hex:#010x}")]
    OtherVersion { version: Version, hex: u64 },
    #[error("CPython {version}: its table of offsets says {value} for {structure}.{field}, which cannot be")]
    Field { version: Version, structure: &'static str, field: &'static str, value: u64 },
}

pub const COOKIE: [u8; 8] = *b"xdebugpy";

/// Larger than any structure of CPython; `_PyRuntimeState` has 350 kB. Larger sizes are refused.
const MAX_SIZE: u64 = 1 << 24;

struct Reader<'a> {
    version: Version,
    names: &'static Words,
    words: &'a [u64],
}

impl Reader<'_> {
    fn word(&self, structure: &str, field: &str) -> Option<u64> {
        self.words.get(self.names.index(structure, field)?).copied()
    }

    fn bad(&self, structure: &'static str, field: &'static str) -> DebugOffsetsError {
        let value = self.word(structure, field).unwrap_or(0);
        DebugOffsetsError::Field { version: self.version, structure, field, value }
    }

    fn size(&self, structure: &'static str, field: &'static str) -> Result<u32, DebugOffsetsError> {
        self.word(structure, field)
            .filter(|size| (8..MAX_SIZE).contains(size))
            .and_then(|size| u32::try_from(size).ok())
            .ok_or_else(|| self.bad(structure, field))
    }

    /// An aligned offset at which the structure has `width` bytes.
    fn offset(&self, structure: &'static str, field: &'static str, width: u32) -> Result<u32, DebugOffsetsError> {
        let size = self.size(structure, "size")?;
        self.word(structure, field)
            .and_then(|offset| u32::try_from(offset).ok())
            .filter(|offset| offset.is_multiple_of(width) && offset.checked_add(width).is_some_and(|end| end <= size))
            .ok_or_else(|| self.bad(structure, field))
    }

    /// The same for a field that only some builds have: 0 in the others.
    fn optional(
        &self,
        structure: &'static str,
        field: &'static str,
        width: u32,
    ) -> Result<Option<u32>, DebugOffsetsError> {
        match self.word(structure, field) {
            None | Some(0) => Ok(None),
            Some(_) => self.offset(structure, field, width).map(Some),
        }
    }

    fn exactly(&self, structure: &'static str, field: &'static str, expected: u32) -> Result<u32, DebugOffsetsError> {
        if self.word(structure, field) == Some(expected.into()) {
            Ok(expected)
        } else {
            Err(self.bad(structure, field))
        }
    }

    fn layout(&self) -> Result<Layout, DebugOffsetsError> {
        let free_threaded = match self.word("header", "free_threaded") {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(self.bad("header", "free_threaded")),
        };
        // The free-threaded header has an id, flags, a mutex and two counts where the other has one count
        // (https://github.com/python/cpython/blob/v3.13.0/Include/object.h). These facts detect a table whose
        // words are not where this version's are expected.
        let (object_size, object_type) = if free_threaded { (32, 24) } else { (16, 8) };
        let object = Object {
            size: self.exactly("pyobject", "size", object_size)?,
            type_: self.exactly("pyobject", "ob_type", object_type)?,
        };
        let bytes = Bytes {
            length: self.exactly("bytes_object", "ob_size", object.size)?,
            data: self.offset("bytes_object", "ob_sval", 1)?,
        };
        Ok(Layout {
            version: [self.version.major, self.version.minor],
            free_threaded,
            runtime: Runtime {
                size: Some(self.size("runtime_state", "size")?),
                interpreters_head: Some(self.offset("runtime_state", "interpreters_head", 8)?),
                auto_tss_key: None,
                tstate_current: None,
                gil: None,
            },
            interpreter: InterpreterState {
                size: self.size("interpreter_state", "size")?,
                next: self.offset("interpreter_state", "next", 8)?,
                id: Some(self.offset("interpreter_state", "id", 8)?),
                threads_head: self.offset("interpreter_state", "threads_head", 8)?,
                builtins: self.offset("interpreter_state", "builtins", 8)?,
                gil: self.optional("interpreter_state", "ceval_gil", 8)?,
                code_object_generation: self.optional("interpreter_state", "code_object_generation", 8)?,
                tlbc_generation: self.optional("interpreter_state", "tlbc_generation", 4)?,
            },
            thread_state: ThreadState {
                size: self.size("thread_state", "size")?,
                next: self.offset("thread_state", "next", 8)?,
                interpreter: self.offset("thread_state", "interp", 8)?,
                frame: self.offset("thread_state", "current_frame", 8)?,
                thread_id: self.offset("thread_state", "thread_id", 8)?,
                native_thread_id: Some(self.offset("thread_state", "native_thread_id", 8)?),
            },
            cframe: None,
            frame: self.frame(free_threaded)?,
            stack: Stack {
                pointer: None,
                locals: Some(self.offset("interpreter_frame", "localsplus", 8)?),
                local_count: None,
                local_names: Some(self.offset("code_object", "localsplusnames", 8)?),
                end: self.optional("interpreter_frame", "stackpointer", 8)?,
            },
            code: self.code(free_threaded)?,
            unicode: self.unicode(&object, free_threaded)?,
            object,
            bytes,
            gil: self.gil(free_threaded)?,
        })
    }

    /// The table gives these offsets from the start of the interpreter state, which contains the
    /// interpreter's own GIL. It does not give the condition variable.
    fn gil(&self, free_threaded: bool) -> Result<Option<Gil>, DebugOffsetsError> {
        const NAME: &str = "interpreter_state";
        const LOCKED: &str = "gil_runtime_state_locked";
        const HOLDER: &str = "gil_runtime_state_holder";
        const ENABLED: &str = "gil_runtime_state_enabled";
        let known = gil_of_newer();
        let Some(start) = self.optional(NAME, "gil_runtime_state", 8)? else { return Ok(None) };
        // `enabled` comes before the rest, in a word of its own, and is relative to the GIL's start.
        let ahead = if free_threaded { 8 } else { 0 };
        let size = known.size + ahead;
        let within = |field, width| {
            let offset = self.offset(NAME, field, width)?.checked_sub(start);
            offset.filter(|offset| offset + width <= size).ok_or_else(|| self.bad(NAME, field))
        };
        let (locked, holder) = (within(LOCKED, 4)?, within(HOLDER, 8)?);
        let enabled = self.word(NAME, ENABLED).and_then(|offset| u32::try_from(offset).ok());
        let enabled =
            enabled.filter(|offset| offset.is_multiple_of(4) && offset.checked_add(4).is_some_and(|end| end <= size));
        // Relative to `locked`, so that the fields before it do not matter.
        let condition = locked + (known.condition - known.locked);
        if condition + known.condition_size > size {
            return Err(self.bad(NAME, LOCKED));
        }
        Ok(Some(Gil {
            size,
            interval: None,
            holder,
            locked,
            condition,
            condition_size: known.condition_size,
            enabled: if free_threaded { Some(enabled.ok_or_else(|| self.bad(NAME, ENABLED))?) } else { None },
        }))
    }

    fn frame(&self, free_threaded: bool) -> Result<Frame, DebugOffsetsError> {
        const NAME: &str = "interpreter_frame";
        let previous = self.offset(NAME, "previous", 8)?;
        let code = self.offset(NAME, "executable", 8)?;
        let instruction = self.offset(NAME, "instr_ptr", 8)?;
        let owner = self.offset(NAME, "owner", 1)?;
        let tlbc_index = if free_threaded { self.optional(NAME, "tlbc_index", 4)? } else { None };
        let header_size =
            (previous.max(code).max(instruction) + 8).max(owner + 1).max(tlbc_index.map_or(0, |at| at + 4));
        // The kernel side reads this much of every frame.
        if header_size > 256 {
            return Err(self.bad(NAME, "size"));
        }
        Ok(Frame {
            header_size,
            previous,
            code,
            // f_executable is a _PyStackRef since 3.14, with tags in the low two bits
            // (https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_stackref.h). Objects
            // are at least 8-aligned, so clearing both bits is also right for builds that use one bit or
            // none.
            code_tags: if self.version.since(14) { 3 } else { 0 },
            instruction,
            position: Position::CurrentPointer,
            owner: Some(owner),
            // FRAME_OWNED_BY_CSTACK in 3.13; FRAME_OWNED_BY_INTERPRETER and above since.
            shim_owner: Some(3),
            is_entry: None,
            tlbc_index,
        })
    }

    fn code(&self, free_threaded: bool) -> Result<Code, DebugOffsetsError> {
        const NAME: &str = "code_object";
        let pointer = |field| self.offset(NAME, field, 8);
        let argcount = self.offset(NAME, "argcount", 4)?;
        Ok(Code {
            size: self.size(NAME, "size")?,
            argcount,
            posonlyargcount: None,
            kwonlyargcount: None,
            // It precedes `co_argcount` (`_PyCode_DEF` in
            // https://github.com/python/cpython/blob/v3.14.0/Include/cpython/code.h).
            flags: argcount.checked_sub(4),
            firstlineno: self.offset(NAME, "firstlineno", 4)?,
            name: pointer("name")?,
            qualname: Some(pointer("qualname")?),
            filename: pointer("filename")?,
            linetable: pointer("linetable")?,
            bytecode: None,
            code_adaptive: Some(self.offset(NAME, "co_code_adaptive", 2)?),
            tlbc: if free_threaded { self.optional(NAME, "co_tlbc", 8)? } else { None },
        })
    }

    fn unicode(&self, object: &Object, free_threaded: bool) -> Result<Unicode, DebugOffsetsError> {
        const NAME: &str = "unicode_object";
        let ascii_data = self.size(NAME, "asciiobject_size")?;
        let size = self.size(NAME, "size")?;
        // PyUnicodeObject is PyCompactUnicodeObject plus one pointer
        // (https://github.com/python/cpython/blob/v3.13.0/Include/cpython/unicodeobject.h).
        let compact_data = size - 8;
        if ascii_data < object.size + 8 || ascii_data >= compact_data {
            return Err(self.bad(NAME, "asciiobject_size"));
        }
        if self.word(NAME, "compactunicodeobject_size").is_some_and(|said| said != u64::from(compact_data)) {
            return Err(self.bad(NAME, "compactunicodeobject_size"));
        }
        // `interned` is two bits, or a whole byte in a free-threaded build since 3.14; kind, compact and
        // ascii follow.
        let kind_shift = if free_threaded && self.version.since(14) { 8 } else { 2 };
        Ok(Unicode {
            length: self.exactly(NAME, "length", object.size)?,
            state: self.offset(NAME, "state", 4)?,
            kind_shift,
            compact_shift: kind_shift + 3,
            ascii_shift: kind_shift + 4,
            ascii_data,
            compact_data,
        })
    }
}

/// Reads the layout of 3.13 or newer from a process. `runtime_address` is the address of `_PyRuntime` there.
pub fn read(memory: &impl Memory, runtime_address: u64, version: Version) -> Result<Layout, DebugOffsetsError> {
    let names = Words::of(version).ok_or(DebugOffsetsError::TooOld { version })?;
    let mut bytes = vec![0; names.count() * 8];
    memory.read(runtime_address, &mut bytes).map_err(|error| DebugOffsetsError::Read {
        address: runtime_address,
        version,
        error,
    })?;
    if !bytes.starts_with(&COOKIE) {
        return Err(DebugOffsetsError::Cookie { address: runtime_address, version });
    }
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight"))).collect();
    if Version::from_hex(words[1]) != Some(version) {
        return Err(DebugOffsetsError::OtherVersion { version, hex: words[1] });
    }
    Reader { version, names, words: &words }.layout()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose memory is these bytes, from address 0.
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, address: u64, into: &mut [u8]) -> std::io::Result<()> {
            let start = usize::try_from(address).unwrap();
            let from = self.0.get(start..start.saturating_add(into.len())).ok_or(std::io::ErrorKind::InvalidInput)?;
            into.copy_from_slice(from);
            Ok(())
        }
    }

    fn versions() -> [Version; 4] {
        [Version::new(3, 13, 0), Version::new(3, 14, 10), Version::new(3, 15, 2), Version::new(3, 16, 0)]
    }

    fn hex(version: Version) -> u64 {
        u64::from(u32::from_be_bytes([version.major, version.minor, version.micro, 0xf0]))
    }

    /// A valid table, with values like those of a real build.
    fn table(version: Version, free_threaded: bool) -> Vec<u64> {
        let names = Words::of(version).unwrap();
        let mut words = vec![0; names.count()];
        let mut set = |structure, field, value| {
            if let Some(index) = names.index(structure, field) {
                words[index] = value;
            }
        };
        let object = if free_threaded { 32 } else { 16 };
        let gil = if free_threaded { 7608 } else { 7600 };
        set("header", "cookie", u64::from_le_bytes(COOKIE));
        set("header", "version", hex(version));
        set("header", "free_threaded", free_threaded.into());
        for (structure, fields) in [
            ("runtime_state", &[("size", 350_000), ("interpreters_head", 840)][..]),
            ("interpreter_state", &[("size", 110_000), ("id", 7200), ("next", 7192), ("threads_head", 7344)]),
            ("interpreter_state", &[("builtins", 7504)]),
            ("interpreter_state", &[("ceval_gil", 16), ("gil_runtime_state", 7600)]),
            ("interpreter_state", &[("gil_runtime_state_locked", gil + 16), ("gil_runtime_state_holder", gil + 8)]),
            ("thread_state", &[("size", 800), ("next", 8), ("interp", 16), ("current_frame", 72)]),
            ("thread_state", &[("thread_id", 152), ("native_thread_id", 160)]),
            (
                "interpreter_frame",
                &[("size", 88), ("previous", 8), ("instr_ptr", 56), ("owner", 74), ("tlbc_index", 68)],
            ),
            ("code_object", &[("size", 232), ("filename", 112), ("name", 120), ("qualname", 128), ("linetable", 136)]),
            ("code_object", &[("firstlineno", 68), ("argcount", 52), ("co_code_adaptive", 208), ("co_tlbc", 192)]),
            ("pyobject", &[("size", object), ("ob_type", object - 8)]),
            ("bytes_object", &[("size", object + 24), ("ob_size", object), ("ob_sval", object + 16)]),
            ("unicode_object", &[("size", object + 48), ("state", object + 16), ("length", object)]),
            ("unicode_object", &[("asciiobject_size", object + 24), ("compactunicodeobject_size", object + 40)]),
        ] {
            for (field, value) in fields {
                set(structure, field, *value);
            }
        }
        words
    }

    fn read_words(words: &[u64], version: Version) -> Result<Layout, DebugOffsetsError> {
        read(&Bytes(words.iter().flat_map(|word| word.to_le_bytes()).collect()), 0, version)
    }

    #[test]
    fn each_version_is_read_by_its_own_list() {
        for version in versions() {
            for free_threaded in [false, true] {
                let layout = read_words(&table(version, free_threaded), version).unwrap();
                assert_eq!(layout.free_threaded, free_threaded);
                assert_eq!((layout.thread_state.frame, layout.code.qualname), (72, Some(128)), "{version}");
                assert_eq!(layout.frame.header_size, 75, "{version}");
                assert_eq!(layout.frame.code_tags, if version.since(14) { 3 } else { 0 }, "{version}");
                let copies = free_threaded && version.since(14);
                assert_eq!(layout.frame.tlbc_index, copies.then_some(68), "{version}");
                assert_eq!(layout.code.tlbc, copies.then_some(192), "{version}");
                assert_eq!(layout.unicode.kind_shift, if copies { 8 } else { 2 }, "{version}");
                assert_eq!(layout.unicode.compact_data, if free_threaded { 72 } else { 56 }, "{version}");
                let (gil, ahead) = (layout.gil.unwrap(), if free_threaded { 8 } else { 0 });
                assert_eq!((layout.interpreter.gil, gil.holder, gil.locked), (Some(16), 8 + ahead, 16 + ahead));
                assert_eq!((gil.condition, gil.condition_size), (32 + ahead, 48), "{version}");
                assert_eq!(gil.enabled, free_threaded.then_some(0), "{version}");
            }
        }
    }

    #[test]
    fn what_does_not_check_out_is_refused_with_the_field() {
        let version = Version::new(3, 14, 0);
        let names = Words::of(version).unwrap();
        for (structure, field, value) in [
            ("header", "free_threaded", 2),
            ("runtime_state", "interpreters_head", 350_000),
            ("interpreter_state", "ceval_gil", 20),
            ("interpreter_state", "gil_runtime_state", 110_000),
            ("interpreter_state", "gil_runtime_state_locked", 7592),
            ("interpreter_state", "gil_runtime_state_locked", 7600 + 168),
            ("interpreter_state", "gil_runtime_state_holder", 7600 + 208),
            ("thread_state", "current_frame", 73),
            ("thread_state", "next", u64::MAX),
            ("interpreter_frame", "owner", 88),
            ("interpreter_frame", "previous", 0xffff_fff8),
            ("code_object", "size", 1 << 40),
            ("code_object", "firstlineno", 230),
            ("pyobject", "ob_type", 0),
            ("unicode_object", "length", 8),
            ("unicode_object", "asciiobject_size", 8),
            ("bytes_object", "ob_sval", 1 << 33),
        ] {
            let mut words = table(version, false);
            words[names.index(structure, field).unwrap()] = value;
            let error = read_words(&words, version).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{structure}.")) && error.contains("3.14.0"),
                "{structure}.{field}: {error}"
            );
        }
        // A build without any GIL would show a 0 here.
        let mut words = table(version, false);
        words[names.index("interpreter_state", "gil_runtime_state").unwrap()] = 0;
        assert_eq!(read_words(&words, version).unwrap().gil, None);
        let mut words = table(version, true);
        words[names.index("interpreter_state", "gil_runtime_state_enabled").unwrap()] = u64::from(u32::MAX);
        assert!(matches!(read_words(&words, version), Err(DebugOffsetsError::Field { .. })));
        let words = table(version, false);
        assert!(matches!(read_words(&words, Version::new(3, 14, 1)), Err(DebugOffsetsError::OtherVersion { .. })));
        assert!(matches!(read_words(&words, Version::new(3, 12, 1)), Err(DebugOffsetsError::TooOld { .. })));
        assert!(matches!(read_words(&words[..40], version), Err(DebugOffsetsError::Read { .. })));
        assert!(matches!(read_words(&[0; 200], version), Err(DebugOffsetsError::Cookie { .. })));
        // Another minor version's table under this version's number.
        let mut shifted = table(Version::new(3, 13, 0), false);
        shifted.resize(200, 0);
        shifted[1] = hex(version);
        assert!(matches!(read_words(&shifted, version), Err(DebugOffsetsError::Field { .. })));
    }

    #[test]
    fn garbage_never_panics_and_what_passes_is_bounded() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..20_000 {
            let version = versions()[round % 4];
            let mut words = table(version, round % 3 == 0);
            for _ in 0..1 + round % 5 {
                let index = 2 + usize::try_from(random()).unwrap() % (words.len() - 2);
                words[index] = random() >> (random() % 64);
            }
            if let Ok(layout) = read_words(&words, version) {
                assert!(layout.frame.header_size <= 256);
                if let Some(gil) = layout.gil {
                    let parts = [gil.holder + 8, gil.locked + 4, gil.condition + gil.condition_size];
                    assert!(parts.iter().all(|end| *end <= gil.size) && gil.size <= 216, "{gil:?}");
                }
                assert!(u64::from(layout.code.size) < MAX_SIZE && u64::from(layout.thread_state.frame) < MAX_SIZE);
            }
        }
    }
}
