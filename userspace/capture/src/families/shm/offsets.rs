//! Offsets of the kernel structures' fields that the programs read.

use crate::kernel::btf::{Btf, BtfError};

/// The programs' constants, with the structure and field that each is the offset of.
const FIELDS: [(&str, &str, &str); 26] = [
    ("TASK_FILES", "task_struct", "files"),
    ("FILES_TABLE", "files_struct", "fdt"),
    ("TABLE_SIZE", "fdtable", "max_fds"),
    ("TABLE_FILES", "fdtable", "fd"),
    ("TABLE_CLOSE_ON_EXEC", "fdtable", "close_on_exec"),
    ("FILE_INODE", "file", "f_inode"),
    ("FILE_MODE", "file", "f_mode"),
    ("INODE_NUMBER", "inode", "i_ino"),
    ("INODE_SUPER", "inode", "i_sb"),
    ("INODE_GENERATION", "inode", "i_generation"),
    ("INODE_SIZE", "inode", "i_size"),
    ("INODE_LINKS", "inode", "i_nlink"),
    ("INODE_COUNT", "inode", "i_count"),
    ("INODE_MODE", "inode", "i_mode"),
    ("SUPER_DEVICE", "super_block", "s_dev"),
    ("SUPER_MAGIC", "super_block", "s_magic"),
    ("VMA_FILE", "vm_area_struct", "vm_file"),
    ("VMA_START", "vm_area_struct", "vm_start"),
    ("VMA_END", "vm_area_struct", "vm_end"),
    ("VMA_OFFSET", "vm_area_struct", "vm_pgoff"),
    ("VMA_FLAGS", "vm_area_struct", "vm_flags"),
    ("FOLIO_MAPPING", "folio", "mapping"),
    ("MAPPING_INODE", "address_space", "host"),
    ("BPRM_FILE", "linux_binprm", "file"),
    ("FILE_DENTRY", "file", "f_path"),
    ("DENTRY_NAME", "dentry", "d_name"),
];

/// The constants for this family's programs.
pub fn of(btf: &Btf) -> Result<Vec<(&'static str, u32)>, BtfError> {
    FIELDS
        .iter()
        .map(|(name, structure, field)| {
            let inside = match *field {
                "f_path" => btf.offset("path", "dentry")?,
                "d_name" => btf.offset("qstr", "name")?,
                _ => 0,
            };
            let offset = match *structure {
                // Before 5.16 the tracepoint's argument is a page.
                "folio" => btf.offset("folio", field).or_else(|_| btf.offset("page", field))?,
                structure => btf.offset(structure, field)?,
            };
            Ok((*name, offset + inside))
        })
        .collect()
}
