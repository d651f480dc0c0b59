//! Descriptors, open files, mappings and inodes, at offsets from the running kernel's BTF. How the structures connect:
//!
//! ```text
//! task_struct        files_struct      fdtable                 file            inode           super_block
//!   files ─────────▶   fdt ──────────▶   fd[n] ──────────────▶   f_inode ────▶   i_sb ───────▶   s_dev
//!                                        close_on_exec           f_path.dentry   i_ino           s_magic
//!                                                             ┌▶ f_mode
//! vm_area_struct                                              │
//!   vm_file ──────────────────────────────────────────────────┘
//! ```
//!
//! - `fdtable`: <https://github.com/torvalds/linux/blob/v6.1/include/linux/fdtable.h>
//! - `file`, `inode`, `super_block`: <https://github.com/torvalds/linux/blob/v6.1/include/linux/fs.h>
//! - `vm_area_struct`, `folio`: <https://github.com/torvalds/linux/blob/v6.1/include/linux/mm_types.h>
//! - `linux_binprm`: <https://github.com/torvalds/linux/blob/v6.1/include/linux/binfmts.h>

use core::ffi::c_void;

use aya_ebpf::{
    Global,
    helpers::{bpf_get_current_task_btf, generated::bpf_find_vma},
};
use pyobs_abi::shm::{Facts, Inode as Key};

use super::{maps::HAS_FIND_VMA, memory::kernel, task::Task, typed::TypedTask};

macro_rules! offsets {
    ($($name:ident)*) => { $(#[unsafe(no_mangle)] static $name: Global<u32> = Global::new(0);)* };
}

offsets! {
    TASK_FILES FILES_TABLE TABLE_SIZE TABLE_FILES TABLE_CLOSE_ON_EXEC
    FILE_INODE FILE_MODE FILE_DENTRY DENTRY_NAME
    INODE_NUMBER INODE_SUPER INODE_GENERATION INODE_SIZE INODE_LINKS INODE_COUNT INODE_MODE
    SUPER_DEVICE SUPER_MAGIC VMA_FILE VMA_START VMA_END VMA_OFFSET VMA_FLAGS FOLIO_MAPPING MAPPING_INODE BPRM_FILE
}

/// `TMPFS_MAGIC`: <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/magic.h>
pub const TMPFS: u32 = 0x0102_1994;
/// `FMODE_WRITE` and `FMODE_CREATED`, bits of `f_mode`.
const WRITABLE: u32 = 1 << 1;
const CREATED: u32 = 1 << 20;

#[inline(always)]
fn at<T>(structure: u64, offset: &Global<u32>) -> Option<T> {
    kernel(structure.wrapping_add(offset.load().into()))
}

/// The fields of a `struct fdtable`.
#[derive(Clone, Copy)]
pub struct Table {
    size: u32,
    files: u64,
    close_on_exec: u64,
}

impl Table {
    /// The table of the current process.
    #[inline(always)]
    pub fn current() -> Self {
        let table = TypedTask::current().0.follow(&TASK_FILES).follow(&FILES_TABLE);
        Self {
            size: table.field(&TABLE_SIZE),
            files: table.field(&TABLE_FILES),
            close_on_exec: table.field(&TABLE_CLOSE_ON_EXEC),
        }
    }

    /// The table of another task.
    #[inline(always)]
    pub fn of(task: Task) -> Option<Self> {
        let table: u64 = at(at(task.0, &TASK_FILES)?, &FILES_TABLE)?;
        Some(Self {
            size: at(table, &TABLE_SIZE)?,
            files: at(table, &TABLE_FILES)?,
            close_on_exec: at(table, &TABLE_CLOSE_ON_EXEC)?,
        })
    }

    #[inline(always)]
    pub fn file(self, fd: u32) -> Option<File> {
        if fd >= self.size {
            return None;
        }
        let file: u64 = kernel(self.files.wrapping_add(8 * u64::from(fd)))?;
        (file != 0).then_some(File(file))
    }

    /// Only for a descriptor that has a file.
    #[inline(always)]
    pub fn is_closed_on_exec(self, fd: u32) -> bool {
        let word: u64 = kernel(self.close_on_exec.wrapping_add(8 * u64::from(fd / 64))).unwrap_or(0);
        word >> (fd % 64) & 1 != 0
    }
}

/// A `struct file *`.
#[derive(Clone, Copy)]
pub struct File(pub u64);

impl File {
    /// The program of a `struct linux_binprm *`.
    #[inline(always)]
    pub fn of_program(bprm: u64) -> Option<Self> {
        let file = at(bprm, &BPRM_FILE)?;
        (file != 0).then_some(Self(file))
    }

    #[inline(always)]
    pub fn of_mapping(vma: u64) -> Option<Self> {
        let file = at(vma, &VMA_FILE)?;
        (file != 0).then_some(Self(file))
    }

    #[inline(always)]
    pub fn inode(self) -> Option<Inode> {
        let inode = at(self.0, &FILE_INODE)?;
        (inode != 0).then_some(Inode(inode))
    }

    #[inline(always)]
    fn mode(self) -> u32 {
        at(self.0, &FILE_MODE).unwrap_or(0)
    }

    #[inline(always)]
    pub fn is_writable(self) -> bool {
        self.mode() & WRITABLE != 0
    }

    /// Whether the file was created by the open that made this `struct file`.
    #[inline(always)]
    pub fn is_created(self) -> bool {
        self.mode() & CREATED != 0
    }

    /// Returns the address of the last component of its name, in the kernel.
    #[inline(always)]
    pub fn name(self) -> Option<u64> {
        let dentry: u64 = at(self.0, &FILE_DENTRY)?;
        at(dentry, &DENTRY_NAME)
    }
}

/// The fields of a `struct vm_area_struct`.
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// The offset in the file, in bytes.
    pub offset: u64,
    flags: u64,
}

/// `VM_SHARED`: <https://github.com/torvalds/linux/blob/v6.1/include/linux/mm.h>
const SHARED: u64 = 8;
const PAGE_SHIFT: u32 = 12;

impl Mapping {
    /// Returns the `struct vm_area_struct *` at an address of the current process, or `None` if the kernel cannot look
    /// now.
    #[inline(always)]
    pub fn find(address: u64) -> Option<u64> {
        if HAS_FIND_VMA.load() == 0 {
            return None;
        }
        let mut vma: u64 = 0;
        // SAFETY: the callback has the signature that the helper calls, and `vma` lives through the call.
        let status = unsafe {
            bpf_find_vma(bpf_get_current_task_btf().cast(), address, found as *mut c_void, (&raw mut vma).cast(), 0)
        };
        (status == 0).then_some(vma)
    }

    #[inline(always)]
    pub fn of(vma: u64) -> Option<Self> {
        let (start, end) = (at(vma, &VMA_START)?, at(vma, &VMA_END)?);
        let offset: u64 = at(vma, &VMA_OFFSET)?;
        Some(Self { start, end, offset: offset << PAGE_SHIFT, flags: at(vma, &VMA_FLAGS)? })
    }

    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.flags & SHARED != 0
    }
}

unsafe extern "C" fn found(_task: *mut c_void, vma: *mut c_void, to: *mut c_void) -> i64 {
    // SAFETY: `Mapping::find` passes a pointer to its own number.
    unsafe { *to.cast::<u64>() = vma as u64 };
    0
}

/// `S_IFMT` and `S_IFREG`: <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/stat.h>
const FILE_TYPE: u16 = 0o170_000;
const REGULAR: u16 = 0o100_000;

/// A `struct inode *`.
#[derive(Clone, Copy)]
pub struct Inode(u64);

impl Inode {
    /// The inode of a `struct folio *`.
    #[inline(always)]
    pub fn of_page(folio: u64) -> Option<Self> {
        let mapping: u64 = at(folio, &FOLIO_MAPPING)?;
        let inode = at(mapping, &MAPPING_INODE)?;
        (inode != 0).then_some(Self(inode))
    }

    #[inline(always)]
    pub fn key(self) -> Option<Key> {
        let device = at(at(self.0, &INODE_SUPER)?, &SUPER_DEVICE)?;
        Some(Key { ino: at(self.0, &INODE_NUMBER)?, dev: device, padding: 0 })
    }

    #[inline(always)]
    pub fn generation(self) -> u32 {
        at(self.0, &INODE_GENERATION).unwrap_or(0)
    }

    #[inline(always)]
    pub fn magic(self) -> u32 {
        let Some(block) = at(self.0, &INODE_SUPER) else { return 0 };
        at::<u64>(block, &SUPER_MAGIC).unwrap_or(0) as u32
    }

    #[inline(always)]
    pub fn links(self) -> u32 {
        at(self.0, &INODE_LINKS).unwrap_or(0)
    }

    /// Whether it is a file with contents of its own. Devices, folders, sockets, and what has no file (perf events, BPF
    /// maps, rings of io_uring) are not. The last kind has one inode for all of them.
    #[inline(always)]
    pub fn is_regular(self) -> bool {
        at::<u16>(self.0, &INODE_MODE).is_some_and(|mode| mode & FILE_TYPE == REGULAR)
    }

    /// Whether nothing refers to it any more, so that its memory is being freed.
    #[inline(always)]
    pub fn is_dying(self) -> bool {
        self.links() == 0 && at::<u32>(self.0, &INODE_COUNT) == Some(0)
    }

    #[inline(always)]
    pub fn facts(self, key: Key) -> Facts {
        Facts {
            inode: key,
            size: at(self.0, &INODE_SIZE).unwrap_or(0),
            generation: self.generation(),
            links: self.links(),
        }
    }
}
