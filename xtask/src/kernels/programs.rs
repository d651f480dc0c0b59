//! Installs the programs that boot a kernel.

use anyhow::Result;

use crate::debian;

/// QEMU, and the programs that make the guest's disk.
pub(crate) fn ensure() -> Result<()> {
    debian::ensure(&[
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("mke2fs", "e2fsprogs"),
        ("cc", "gcc"),
        ("dpkg-deb", "dpkg"),
        ("xz", "xz-utils"),
    ])
}
