//! What the kernel side knows of a watched process, and of the layout of its interpreter's structures.

use crate::hash::mix;
use crate::record::Header;
use crate::shared;

/// The process is sampled.
pub const SAMPLED: u32 = 1;
/// The process runs CPython, and all fields below are set.
pub const PYTHON: u32 = 1 << 1;
/// The thread-local with the thread state lies at a fixed distance from the thread pointer.
pub const TLS_STATIC: u32 = 1 << 2;
/// The thread-local with the thread state is found through the dynamic thread vector.
pub const TLS_DYNAMIC: u32 = 1 << 3;
/// `key` is the address of a bare `int` (CPython 3.6) instead of a `Py_tss_t {int is_initialized; pthread_key_t key}`.
pub const KEY_BARE: u32 = 1 << 4;

/// The value of the map `PROCESSES`, keyed by tgid.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub flags: u32,
    /// Index into the array `LAYOUTS`.
    pub layout: u32,
    /// The address of the word that holds the thread state of the GIL's owner (up to 3.11); 0 for none.
    pub current: u64,
    /// `TLS_DYNAMIC`: the number of the module in the dynamic thread vector.
    pub tls_module: u64,
    /// The offset from the thread pointer, or from the module's block.
    pub tls_offset: i64,
    /// The address of the pthread key; 0 for none.
    pub key: u64,
    /// In libc's `struct pthread`: the offset of the array of pointers to blocks of thread-specific data.
    pub specific: u32,
    /// The number of elements in such a block.
    pub block_elements: u32,
    /// The size of an element in bytes.
    pub element_size: u32,
    /// The offset of the value in an element.
    pub element_value: u32,
    /// The two largest ranges of the code of the interpreter's loop, each from and to.
    pub loops: [[u64; 2]; 2],
    /// The address of `PyCode_Type`; 0 if unknown.
    pub code_type: u64,
    /// The address of the GIL's state; 0 if the interpreter's state points to it (3.12 and newer), or if it is unknown.
    pub gil: u64,
    /// The executable mappings: the index of the first in `MAPPINGS`, and their number.
    pub mappings: u32,
    pub mapping_count: u32,
    /// Identifies this set of mappings. Numbers begin at 1 and are not reused; 0 stands for no mappings.
    pub mapping_set: u32,
    /// In libc's `struct pthread`: the offset of the kernel's thread id; 0 if unknown.
    pub pthread_tid: u32,
    /// `TLS_DYNAMIC`: how far below the thread pointer the thread-local lies, if the module's block is in the static
    /// block, as it is for libraries loaded at program start. 0 until the kernel side has found out and written it
    /// here.
    pub tls_distance: u32,
    /// How far above that thread-local another one lies (negative: below), which has the state that the thread came
    /// with. Up to 3.14 the slot of `key` has that state. 0 for none.
    pub tls_gilstate: i32,
    pub turn: Turn,
}

shared!(Process, 152);

/// Where an event loop keeps the time at which its present turn began: in a local variable, as a `float` in seconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The address of its function's code object; 0 if unknown.
    pub code: u64,
    /// In the frame: points to the start of the value stack (up to 3.10); else [`NONE`].
    pub values: u32,
    /// The variable, from there, or from the frame.
    pub local: i32,
    /// The offset of the number in a `float`.
    pub value: u32,
    pub padding: u32,
}

shared!(Turn, 24);

/// The value of the array `LAYOUTS`: the offsets of fields in one interpreter's structures, in bytes. The drawings in
/// `ebpf/programs/src/common/frames` show how they connect.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// `PyThreadState.thread_id`.
    pub thread_id: u32,
    /// `PyThreadState.frame`, `.cframe` or `.current_frame`.
    pub thread_frame: u32,
    /// One of [`entry`]: how the frames of one run of the interpreter's loop end.
    pub entry: u32,
    /// `_PyCFrame.current_frame` if the thread state points to a `_PyCFrame`, else [`NONE`].
    pub cframe_frame: u32,
    /// The size of the part of a frame that holds all fields below.
    pub frame_size: u32,
    /// How much memory below a frame is read with it, because the frames of its callers lie there (3.11 and newer). 0
    /// if they do not.
    pub frame_window: u32,
    pub frame_code: u32,
    pub frame_previous: u32,
    /// The instruction: a pointer, or an `int` index if `lasti_unit` is not 0.
    pub frame_instruction: u32,
    /// `_PyInterpreterFrame.owner`, or `.is_entry` for [`entry::FLAG`]; else [`NONE`].
    pub frame_owner: u32,
    /// Up to 3.10, the generator or coroutine that a frame belongs to, or NULL (`f_gen`). From 3.11 on, the byte
    /// `owner`, which is [`OWNED_BY_GENERATOR`] for the frame inside a generator or coroutine.
    pub frame_generator: u32,
    /// Bytes of bytecode that a unit of `f_lasti` stands for (up to 3.10); 0 if the instruction is a pointer.
    pub lasti_unit: u32,
    /// `PyCodeObject.co_code_adaptive`, which the instruction pointer is relative to.
    pub code_start: u32,
    /// The part of a code object that its check word is made of: its offset and size.
    pub check_start: u32,
    pub check_size: u32,
    /// In that part: `ob_type`, and the first and the last word that go into the check word.
    pub check_type: u32,
    pub check_first: u32,
    pub check_last: u32,
    /// `str`: the offset of the text of an ASCII string. 0 if texts do not go into the check word.
    pub check_text: u32,
    /// In that part: `co_version`, which no two code objects of an interpreter share; [`NONE`] before 3.12.
    pub check_version: u32,
    /// `PyCodeObject`: the number of bytes to copy (0 disables copies), and the offsets of `co_qualname` (`co_name`
    /// before 3.11), `co_filename` and the line table.
    pub code_size: u32,
    pub code_name: u32,
    pub code_file: u32,
    pub code_table: u32,
    /// `str`: the offset of its length, and the size of the largest header.
    pub text_length: u32,
    pub text_head: u32,
    /// `bytes`: the offsets of its length and its content.
    pub bytes_length: u32,
    pub bytes_data: u32,
    /// Free-threaded builds: the `int` in a frame that selects one of the code object's copies of the bytecode; else
    /// [`NONE`].
    pub frame_copy: u32,
    /// Free-threaded builds: `PyCodeObject.co_tlbc`, which points to a count followed by that many pointers to copies.
    pub code_copies: u32,
    /// `PyThreadState.interp`.
    pub thread_interpreter: u32,
    /// `PyThreadState.native_thread_id`, else [`NONE`] (up to 3.10).
    pub thread_native: u32,
    /// `PyInterpreterState.ceval.gil`, which points to the GIL's state. [`NONE`] if `Process::gil` is its address, or
    /// if it is unknown.
    pub interpreter_gil: u32,
    /// In the GIL's state: `last_holder`, `locked`, the start of the condition variable that waiters sleep on, and the
    /// size of it together with the other parts for waiting. Offsets can be negative, and are added with wrapping. The
    /// size is 0 if the layout is unknown.
    pub gil_holder: u32,
    pub gil_locked: u32,
    pub gil_condition: u32,
    pub gil_condition_size: u32,
}

/// How the Python frames of one run of the interpreter's loop, which is one C frame, are told from those of the next
/// run.
pub mod entry {
    /// Each run has one frame (up to 3.10).
    pub const EACH: u32 = 0;
    /// The first frame of a run has a flag, and a `_PyCFrame` in the C frame points to the last (3.11).
    pub const FLAG: u32 = 1;
    /// The C frame holds a shim, which the first frame of the run points to, and a `_PyCFrame` (3.12).
    pub const SHIM_AND_CFRAME: u32 = 2;
    /// The C frame holds a shim but no `_PyCFrame` (3.13 and newer).
    pub const SHIM: u32 = 3;
}

/// `FRAME_OWNED_BY_GENERATOR` in
/// <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h>, the same since 3.11.
pub const OWNED_BY_GENERATOR: u64 = 1;

/// The offset of a field that this interpreter does not have.
pub const NONE: u32 = u32::MAX;

/// Bounds `Layout::frame_size`. User space refuses a larger layout.
pub const FRAME_MAX: usize = 144;
/// Bounds `Layout::frame_window`.
pub const WINDOW_MAX: usize = 1904;

shared!(Layout, 148);

/// Bounds `Layout::check_size`, and the number of words that go into a check word. Later words are ignored by both
/// sides.
pub const CHECK_MAX: usize = 256;
pub const CHECK_WORDS: u32 = 16;

/// The check word, which tells a code object from another that takes its place in memory. Both sides add the same words
/// in the same order: those of the object from `Layout::check_first` to `check_last`, then, if `check_text` is set, the
/// texts of the name and the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check(u64);

impl Check {
    #[inline(always)]
    pub const fn add(self, word: u64) -> Self {
        Self(mix(self.0, word))
    }

    /// Returns the 32-bit check word. It is never 0, which means "could not be read".
    #[inline(always)]
    pub const fn fold(self) -> u32 {
        let folded = (self.0 >> 32) as u32;
        if folded == 0 { 1 } else { folded }
    }
}

/// The last bytes of a text. They go into the check word after the text's length, and suffice to tell generated names
/// and files apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The offset from the start of the `str`.
    pub offset: u64,
    pub size: u32,
}

impl Tail {
    pub const MAX: usize = 80;

    /// Returns the tail of a text that starts at offset `data` and has `width` bytes per character.
    #[inline(always)]
    pub const fn of(characters: u64, width: u64, data: u32) -> Self {
        let bytes = characters.wrapping_mul(width);
        let size = if bytes > Self::MAX as u64 { Self::MAX as u64 } else { bytes };
        Self { offset: (data as u64).wrapping_add(bytes).wrapping_sub(size), size: size as u32 }
    }
}

/// `PROCESS_FORK`: the header is the parent's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fork {
    pub header: Header,
    pub child: u32,
    pub padding: u32,
}

shared!(Fork, 48);

/// `EXEC_MAPPED`: the header's process has a new executable mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    pub header: Header,
    /// The inode of the file; 0 for memory without a file.
    pub ino: u64,
    /// The kernel's `dev_t`: 12 bits major, 20 minor.
    pub dev: u32,
    /// 0 if the kernel side could not find out which file it is.
    pub is_known: u32,
}

shared!(Mapped, 56);
