//! Files with uprobes, whose probes are removed when the file is written to.
//!
//! The kernel identifies a uprobe by file and offset, and puts it into every process that maps the file, without
//! looking at what the file contains by then (`uprobe_mmap` in
//! <https://github.com/torvalds/linux/blob/v6.1/kernel/events/uprobes.c>). If the file is rewritten in place, the offset
//! can lie in the middle of an instruction, and the breakpoint there kills the process. So inotify watches each file
//! from before its code is read, and a thread removes its probes at the first write. Before the kernel removes one, it
//! waits for the programs that run on any CPU: 0.1 s for each probe under Linux 6.18, one probe after the other. A process
//! that maps the file meanwhile can still be hit. A file that another one replaces, as packaging tools do, keeps its
//! probes, because they are on the old inode.
//!
//! The kernel keeps a copy of the instruction that a probe replaces, and a new probe at the same offset shares it as
//! long as the old probe exists. So a file gets new probes only once all its old ones are gone.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::uprobes::close_at_once;
use crate::files::FileId;

/// A probe. Closing its descriptor removes it; `None` once that is done.
type Shared = Arc<Mutex<Option<OwnedFd>>>;

/// A probe, which is removed when this is dropped, or when its file is written to.
#[derive(Debug)]
pub struct Probe(Shared);

impl Probe {
    /// A probe on a file that nobody writes to.
    pub fn unguarded(event: OwnedFd) -> Self {
        Self(Arc::new(Mutex::new(Some(event))))
    }
}

/// An open file that may get probes.
#[derive(Debug)]
pub struct ProbedFile {
    file: File,
    /// inotify's number for the file; `None` if it cannot be watched. Such a file gets probes nevertheless: this is
    /// the case if the machine's limit of watches is reached.
    watch: Option<i32>,
}

/// A file that was written to, so that its probes are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    pub id: FileId,
    pub path: String,
}

struct Watched {
    of: Rewritten,
    probes: Vec<Weak<Mutex<Option<OwnedFd>>>>,
}

#[derive(Default)]
struct State {
    /// By inotify's number, which is not used again.
    files: HashMap<i32, Watched>,
    rewritten: Vec<Rewritten>,
    /// The files whose probes are being closed.
    closing: Vec<FileId>,
}

struct Watches {
    inotify: OwnedFd,
    state: Mutex<State>,
    /// Notified when the probes of a file are closed.
    closed: Condvar,
}

/// A file whose probes are being closed. Dropped after the last of them.
struct Closing {
    watches: &'static Watches,
    of: Rewritten,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut state = self.watches.state();
        state.closing.retain(|id| *id != self.of.id);
        state.rewritten.push(self.of.clone());
        drop(state);
        self.watches.closed.notify_all();
    }
}

/// `None` if the machine allows no more instances of inotify.
static WATCHES: LazyLock<Option<&'static Watches>> = LazyLock::new(|| Watches::start().ok());

impl Watches {
    fn start() -> io::Result<&'static Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC)?;
        let watches: &'static Self =
            Box::leak(Box::new(Self { inotify, state: Mutex::default(), closed: Condvar::new() }));
        std::thread::Builder::new().name("pyobs-written".to_owned()).spawn(|| watches.run())?;
        Ok(watches)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, path: &CString, id: FileId) -> io::Result<i32> {
        let path_now = |path: &CString| fs::read_link(path.to_string_lossy().as_ref());
        let shown = path_now(path).map(|path| path.display().to_string()).unwrap_or_default();
        let mut state = self.state();
        while state.closing.contains(&id) {
            state = self.closed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let watch = inotify::add_watch(&self.inotify, path, WatchFlags::MODIFY)?;
        let of = Rewritten { id, path: shown };
        state.files.entry(watch).or_insert(Watched { of, probes: Vec::new() });
        Ok(watch)
    }

    /// Waits for writes, as long as the process lives.
    fn run(&'static self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        loop {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => self.written(None),
                Ok(event) if event.events().contains(ReadFlags::MODIFY) => self.written(Some(event.wd())),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Removes the probes of a file that is written to, or of all files if it is not known which one is.
    fn written(&'static self, watch: Option<i32>) {
        let mut state = self.state();
        let watches: Vec<i32> = watch.map_or_else(|| state.files.keys().copied().collect(), |watch| vec![watch]);
        // Dropped after the lock is released, which `Closing` takes.
        let mut closings = Vec::new();
        let mut events = Vec::new();
        for watch in watches {
            let Some(Watched { of, probes }) = state.files.remove(&watch) else { continue };
            // It fails if the file is gone, and its watch with it.
            let _ = inotify::remove_watch(&self.inotify, watch);
            state.closing.push(of.id);
            let closing = Arc::new(Closing { watches: self, of });
            let probes = probes.iter().filter_map(Weak::upgrade);
            let probes = probes.filter_map(|probe| probe.lock().unwrap_or_else(PoisonError::into_inner).take());
            // A tuple is dropped from left to right.
            events.extend(probes.map(|event| (event, Arc::clone(&closing))));
            closings.push(closing);
        }
        drop(state);
        close_at_once(events);
    }
}

impl ProbedFile {
    /// Call this before reading the file's code.
    pub fn new(file: File, id: FileId) -> Self {
        let watch = WATCHES.and_then(|watches| watches.add(&path(&file), id).ok());
        Self { file, watch }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, watch: self.watch })
    }

    pub fn path(&self) -> CString {
        path(&self.file)
    }

    /// Makes a probe of this file one that is removed when the file is written to. An error if that has happened
    /// since the file was opened.
    pub fn guard(&self, event: OwnedFd) -> io::Result<Probe> {
        let probe = Probe::unguarded(event);
        if let Some((watches, watch)) = WATCHES.zip(self.watch) {
            let mut state = watches.state();
            let Some(watched) = state.files.get_mut(&watch) else {
                return Err(io::Error::other("it is being written to"));
            };
            watched.probes.retain(|probe| probe.strong_count() > 0);
            watched.probes.push(Arc::downgrade(&probe.0));
        }
        Ok(probe)
    }
}

/// Safe from races with other processes: the kernel resolves this path in our own process.
fn path(file: &File) -> CString {
    CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default()
}

/// Returns the files that were written to since the last call.
pub fn take_rewritten() -> Vec<Rewritten> {
    WATCHES.map(|watches| std::mem::take(&mut watches.state().rewritten)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_write_closes_the_probes_of_its_file_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, inode| {
            let path = folder.path().join(name);
            fs::write(&path, "code").unwrap();
            ProbedFile::new(File::open(&path).unwrap(), FileId { device: (0, 0), inode })
        };
        let (written, other) = (open("written", 1), open("other", 2));
        let (end, event) = rustix::pipe::pipe().unwrap();
        let probe = written.guard(event).unwrap();
        let kept = other.guard(rustix::pipe::pipe().unwrap().1).unwrap();

        let mut writer = File::options().write(true).open(folder.path().join("written")).unwrap();
        writer.write_all(b"other").unwrap();
        // The end of the pipe is read once the thread has closed the other one.
        assert_eq!(rustix::io::read(&end, &mut [0; 1]).unwrap(), 0);
        assert!(probe.0.lock().unwrap().is_none());
        assert!(kept.0.lock().unwrap().is_some());
        assert!(written.guard(rustix::pipe::pipe().unwrap().1).is_err(), "its code was read before it was written");

        let again =
            ProbedFile::new(File::open(folder.path().join("written")).unwrap(), FileId { device: (0, 0), inode: 1 });
        assert!(again.guard(rustix::pipe::pipe().unwrap().1).is_ok());
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut rewritten = Vec::new();
        while rewritten.is_empty() && Instant::now() < deadline {
            rewritten = take_rewritten();
        }
        assert_eq!(rewritten[0].id.inode, 1);
        assert!(rewritten[0].path.ends_with("/written"), "{rewritten:?}");
    }
}
