//! Gives a recording made under `sudo` to the user who ran sudo.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pyobs_capture::privileges::Keep;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fstat, openat};
use rustix::process::geteuid;

/// The user who ran sudo, from sudo's environment variables.
fn sudo_user() -> Option<(Uid, Gid)> {
    if !geteuid().is_root() {
        return None;
    }
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    Some((Uid::from_raw(number("SUDO_UID")?), Gid::from_raw(number("SUDO_GID")?)))
}

/// Gives the new file to the user behind sudo. Returns which rights are still needed to write it.
pub(crate) fn give_away(file: &Path) -> Keep {
    match sudo_user() {
        Some((user, group)) => {
            // If it stays root's, the recording is still readable.
            let _ = chown(file, user, group);
            Keep::WritingAnywhere
        }
        None if is_ours(file) => Keep::Reading,
        None => Keep::WritingAnywhere,
    }
}

/// Makes new files of this thread belong to the user behind sudo, who also has to be allowed to make them. Returns that
/// user; `None` without sudo.
pub(crate) fn become_sudo_user() -> Option<(Uid, Gid)> {
    let (user, group) = sudo_user()?;
    // SAFETY: these system calls change only identities of this thread, and read no memory: the list of groups is empty.
    unsafe {
        libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>());
        libc::syscall(libc::SYS_setfsgid, group.as_raw());
        libc::syscall(libc::SYS_setfsuid, user.as_raw());
    }
    Some((user, group))
}

/// Works on a descriptor, because in a folder of the user's the name may already mean another file. Uses `O_PATH`,
/// because closing any other descriptor of the file would release SQLite's locks.
fn chown(file: &Path, user: Uid, group: Gid) -> rustix::io::Result<()> {
    let fd = openat(CWD, file, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&fd)?;
    let regular = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
    // A file with a second name or another owner is not the one that we made.
    if regular && found.st_nlink == 1 && found.st_uid == geteuid().as_raw() {
        chownat(&fd, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Whether the folder is writable by its mode bits alone.
fn is_ours(file: &Path) -> bool {
    const OWNER_MAY_WRITE: u32 = 0o300;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::metadata(folder)
        .is_ok_and(|found| found.uid() == geteuid().as_raw() && found.mode() & OWNER_MAY_WRITE == OWNER_MAY_WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("pyobs-ownership-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn only_a_new_file_is_given_away_but_no_link_or_second_name() {
        if !geteuid().is_root() {
            println!("skipped: only root can give files away");
            return;
        }
        let folder = folder("chown");
        let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();

        let file = folder.join("new");
        fs::write(&file, "").unwrap();
        chown(&file, user, group).unwrap();
        assert_eq!(owner(&file), 65534);

        let secret = folder.join("secret");
        fs::write(&secret, "").unwrap();
        let link = folder.join("link");
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        chown(&link, user, group).unwrap();
        assert_eq!((owner(&secret), owner(&link)), (0, 0));

        let second = folder.join("second");
        fs::hard_link(&secret, &second).unwrap();
        chown(&second, user, group).unwrap();
        assert_eq!(owner(&secret), 0);
        fs::remove_dir_all(folder).unwrap();
    }
}
