//! What the kernel side knows of a watched process.

use crate::record::Header;
use crate::shared;

/// Its samples are wanted.
pub const SAMPLED: u32 = 1;
/// It runs CPython, and all fields below are set.
pub const PYTHON: u32 = 1 << 1;
/// The thread state's thread-local lies at a fixed distance from the thread pointer.
pub const TLS_STATIC: u32 = 1 << 2;
/// The thread state's thread-local is found through the dynamic thread vector.
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
    /// Address of the word that holds the thread state of the GIL's owner (up to 3.11); 0 for none.
    pub current: u64,
    /// `TLS_DYNAMIC`: the module's number in the dynamic thread vector.
    pub tls_module: u64,
    /// From the thread pointer, or from the module's block.
    pub tls_offset: i64,
    /// Address of the pthread key; 0 for none.
    pub key: u64,
    /// In libc's `struct pthread`: offset of the array of pointers to blocks of thread-specific data.
    pub specific: u32,
    /// Elements in such a block.
    pub block_elements: u32,
    /// Bytes of an element.
    pub element_size: u32,
    /// Offset of the value in an element.
    pub element_value: u32,
    /// The interpreter's loop: the largest two ranges of its code, each from and to.
    pub loops: [[u64; 2]; 2],
    /// Address of `PyCode_Type`; 0 where it is not known.
    pub code_type: u64,
    /// Address of the GIL's state; 0 where the interpreter's state points to it (3.12 and newer), or nothing is known.
    pub gil: u64,
    /// The executable mappings: the first one's index in `MAPPINGS`, and how many there are.
    pub mappings: u32,
    pub mapping_count: u32,
    /// Names this set of mappings: no other has or had it. From 1 on; 0 where there is none.
    pub mapping_set: u32,
    /// In libc's `struct pthread`: the offset of the kernel's thread id; 0 where it is not known.
    pub pthread_tid: u32,
    /// `TLS_DYNAMIC`: how far below the thread pointer the thread-local lies, where the module's block is a part of the
    /// static one, as it is of what was mapped at the program's start. 0 until the kernel side knows, which writes it.
    pub tls_distance: u32,
    /// How far above that thread-local (or below, where it is negative) another one lies that has the state that the thread
    /// came with, as the slot of `key` had it up to 3.14; 0 for none.
    pub tls_gilstate: i32,
}

shared!(Process, 128);

/// The value of the array `LAYOUTS`: where things are in one interpreter's structures, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// `PyThreadState.thread_id`.
    pub thread_id: u32,
    /// `PyThreadState.frame`, `.cframe` or `.current_frame`.
    pub thread_frame: u32,
    /// One of [`entry`]: how the frames of one run of the interpreter's loop end.
    pub entry: u32,
    /// `_PyCFrame.current_frame` where the thread state points to one, else [`NONE`].
    pub cframe_frame: u32,
    /// How much of a frame is read: it holds all fields below.
    pub frame_size: u32,
    /// How much memory below a frame is read with it: callers' frames lie there where frames are pushed on a stack of
    /// their own (3.11 and newer). 0 where they do not.
    pub frame_window: u32,
    pub frame_code: u32,
    pub frame_previous: u32,
    /// The instruction: a pointer, or an `int` index where `lasti_unit` is not 0.
    pub frame_instruction: u32,
    /// `_PyInterpreterFrame.owner`, or `.is_entry` for [`entry::FLAG`]; else [`NONE`].
    pub frame_owner: u32,
    /// Bytes of code a unit of `f_lasti` stands for (up to 3.10); 0 where the instruction is a pointer.
    pub lasti_unit: u32,
    /// `PyCodeObject.co_code_adaptive`: what the instruction pointer is relative to.
    pub code_start: u32,
    /// The part of a code object that its check needs: where it begins, and its size.
    pub check_start: u32,
    pub check_size: u32,
    /// In that part: `ob_type`, and the first and the last of the words that go into the check.
    pub check_type: u32,
    pub check_first: u32,
    pub check_last: u32,
    /// `str`: the offset of the text of an ASCII one. 0 where the check does not need the texts.
    pub check_text: u32,
    /// `PyCodeObject`: the number of bytes to copy (0 disables copies), and the offsets of `co_qualname` (`co_name` before 3.11),
    /// `co_filename` and the line table.
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
    /// Free-threaded builds: an `int` in the frame says which of the code object's copies of the bytecode runs; else
    /// [`NONE`].
    pub frame_copy: u32,
    /// Free-threaded builds: `PyCodeObject.co_tlbc`, which points to a count and that many pointers to copies.
    pub code_copies: u32,
    /// `PyThreadState.interp`.
    pub thread_interpreter: u32,
    /// `PyThreadState.native_thread_id`, else [`NONE`] (up to 3.10).
    pub thread_native: u32,
    /// `PyInterpreterState.ceval.gil`, which points to the GIL's state; [`NONE`] where `Process::gil` is its address, or
    /// where nothing is known of it.
    pub interpreter_gil: u32,
    /// In the GIL's state, by which these four count (wrapping): `last_holder`, `locked`, and where the condition
    /// variable begins that its waiters sleep on, with the size of it and of the other parts that are for waiting. The size
    /// is 0 where nothing is known.
    pub gil_holder: u32,
    pub gil_locked: u32,
    pub gil_condition: u32,
    pub gil_condition_size: u32,
}

/// How the Python frames that one C frame of the interpreter's loop runs are told from those of the next.
pub mod entry {
    /// Each run has one frame (up to 3.10).
    pub const EACH: u32 = 0;
    /// The first frame of a run has a flag; a `_PyCFrame` in the C frame points to the last (3.11).
    pub const FLAG: u32 = 1;
    /// Below the first frame of a run lies a shim, which is in the C frame; so is a `_PyCFrame` (3.12).
    pub const SHIM_AND_CFRAME: u32 = 2;
    /// As before, without the `_PyCFrame` (3.13 and newer).
    pub const SHIM: u32 = 3;
}

/// "This interpreter has no such field."
pub const NONE: u32 = u32::MAX;

/// The most bytes of a frame that are read.
pub const FRAME_MAX: usize = 128;
/// The most bytes below it.
pub const WINDOW_MAX: usize = 1920;

shared!(Layout, 140);

/// The most bytes of a code object that are read for its check, and the most words of them that go into it.
pub const CHECK_MAX: usize = 256;
pub const CHECK_WORDS: u32 = 16;

/// Tells a code object from another that takes its place in memory. The two sides add the same words in the same order: those
/// of the object from `Layout::check_first` to `check_last`, and where `check_text` is set, the name's text and the file's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check(u64);

impl Check {
    #[inline(always)]
    pub const fn add(self, word: u64) -> Self {
        // 2^64 by the golden ratio, as multiplicative hashing has it.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        Self((self.0.rotate_left(23) ^ word).wrapping_mul(SPREAD))
    }

    /// Returns the 32-bit check word. It is never 0, which means "could not be read".
    #[inline(always)]
    pub const fn fold(self) -> u32 {
        let folded = (self.0 >> 32) as u32;
        if folded == 0 { 1 } else { folded }
    }
}

/// The end of a text, which goes into a check after the number of characters: as much as tells generated names and files
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// From the `str`.
    pub offset: u64,
    pub size: u32,
}

impl Tail {
    pub const MAX: usize = 80;

    /// Returns the tail of a text that starts at offset `data` and has `width` bytes a character.
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

/// `EXEC_MAPPED`: the header's process has something new in its memory that it may run.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    pub header: Header,
    /// The file's inode; 0 for memory without a file.
    pub ino: u64,
    /// The kernel's `dev_t`: 12 bits major, 20 minor.
    pub dev: u32,
    /// 0 where the kernel side could not look which file it is.
    pub is_known: u32,
}

shared!(Mapped, 56);
