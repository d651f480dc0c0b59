//! Looks up native functions in a thread of its own, because a library's debug information takes a second to
//! read.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashSet};

use super::images::Image;
use super::names::{Name, Names, Source};
use super::seat::{self, Seat, Watch};
use crate::files::{self, FileId};
use crate::kernel::cost::{Duty, ThreadTime};
use crate::kernel::release;
use crate::machine::living_thread;
use crate::privileges::{self, Keep};
use crate::process_maps::{Mapping, Module};

/// A file stays open this long for further look-ups, and no longer, because an open file keeps its file
/// system from being unmounted.
const OPEN_FOR: Duration = Duration::from_secs(1);
/// Files open at once.
const OPEN_MAX: usize = 64;

/// A place in native code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub image: Image,
    /// For anonymous memory, else 0.
    pub pid: u32,
    /// Offset in the file; for anonymous memory, an address.
    pub address: u64,
}

/// Places in one image, and for anonymous memory in one process.
struct Question {
    image: Image,
    pid: u32,
    module: Module,
    /// Set for a file.
    source: Option<Source>,
    keys: Vec<Key>,
}

type Answer = (Key, Module, Vec<Name>);

impl Question {
    fn answers(self, names: &mut Names) -> impl Iterator<Item = Answer> + use<> {
        let addresses: Vec<u64> = self.keys.iter().map(|key| key.address).collect();
        let found = match (self.image, self.source) {
            (Image::Anonymous, _) => names.look_up_jit(self.pid, &addresses),
            (_, Some(source)) => names.look_up_offsets(&source, &addresses),
            (_, None) => Vec::new(),
        };
        let found = found.into_iter().chain(std::iter::repeat_with(Vec::new));
        self.keys.into_iter().zip(found).map(move |(key, names)| (key, self.module.clone(), names))
    }
}

/// State that a thread passes on to the one that replaces it.
struct Work {
    /// Batches, because each message wakes the thread.
    questions: Mutex<Receiver<Vec<Question>>>,
    /// The rest of the last batch.
    rest: Mutex<VecDeque<Question>>,
    answers: Sender<Vec<Answer>>,
    time: ThreadTime,
    awaited: AtomicBool,
}

pub struct Namer {
    questions: Sender<Vec<Question>>,
    answers: Receiver<Vec<Answer>>,
    work: Arc<Work>,
    watch: Watch<Image>,
    /// Images whose files do not respond.
    held_up: HashSet<Image>,
    /// Collected for the next [`Self::flush`].
    collected: HashMap<(Image, u32), Question>,
    open: HashMap<FileId, (Arc<File>, Instant)>,
    /// Answers without a name, known at once.
    given_up: Vec<Answer>,
}

impl Namer {
    pub fn start() -> std::io::Result<Self> {
        let (questions, receiver) = channel::<Vec<Question>>();
        let (sender, answers) = channel();
        let work = Arc::new(Work {
            questions: Mutex::new(receiver),
            rest: Mutex::default(),
            answers: sender,
            time: ThreadTime::default(),
            awaited: AtomicBool::new(false),
        });
        let watch = Work::go_on(&work)?;
        Ok(Self {
            questions,
            answers,
            work,
            watch,
            held_up: HashSet::default(),
            collected: HashMap::default(),
            open: HashMap::default(),
            given_up: Vec::new(),
        })
    }

    /// Collects a place in a mapping of this process.
    pub fn ask(&mut self, key: Key, pid: u32, mapping: &Mapping) {
        if self.held_up.contains(&key.image) {
            return self.give_up(key, Module::of(mapping));
        }
        let open = &mut self.open;
        let question = self.collected.entry((key.image, key.pid)).or_insert_with(|| Question {
            image: key.image,
            pid,
            module: Module::of(mapping),
            source: source(open, key.image, pid, mapping),
            keys: Vec::new(),
        });
        question.keys.push(key);
    }

    /// CPU time used so far.
    pub fn thread_time(&self) -> ThreadTime {
        self.work.time.clone()
    }

    /// Announces that the recording has ended and waits for the missing names.
    pub fn hurry(&self) {
        self.work.awaited.store(true, Ordering::Relaxed);
    }

    /// Reopens a file that was replaced.
    pub fn forget(&mut self, file: FileId) {
        self.open.remove(&file);
    }

    /// Answers that a place has no name.
    pub fn give_up(&mut self, key: Key, module: Module) {
        self.given_up.push((key, module, Vec::new()));
    }

    /// Sends the collected questions.
    pub fn flush(&mut self) {
        self.open.retain(|_, (_, since)| since.elapsed() < OPEN_FOR);
        if !self.collected.is_empty() {
            // Cannot fail: the thread ends only with us.
            let _ = self.questions.send(self.collected.drain().map(|(_, question)| question).collect());
        }
    }

    pub fn answers(&mut self) -> Vec<Answer> {
        if let Some(image) = self.watch.held_up() {
            self.held_up.insert(image);
            if let Ok(watch) = Work::go_on(&self.work) {
                self.watch = watch;
            }
        }
        self.given_up.drain(..).chain(self.answers.try_iter().flatten()).collect()
    }
}

impl Work {
    /// Starts a thread: the first one, or a replacement.
    fn go_on(work: &Arc<Self>) -> std::io::Result<Watch<Image>> {
        let (seat, watch) = seat::pair();
        let work = Arc::clone(work);
        thread::Builder::new().name("pyobs-names".to_owned()).spawn(move || work.answer(&seat))?;
        Ok(watch)
    }

    fn answer(&self, seat: &Seat<Image>) {
        self.time.begin();
        let mut duty = Duty::begin();
        // It parses untrusted input.
        let _ = privileges::drop_after_attach(release::version(), Keep::Reading);
        let mut names = Names::default();
        while let Some(question) = self.next() {
            seat.begin(question.image);
            let answers = question.answers(&mut names).collect();
            self.time.note();
            if !seat.end() || self.answers.send(answers).is_err() {
                return;
            }
            duty.rest(&self.awaited);
        }
    }

    fn next(&self) -> Option<Question> {
        loop {
            let next = self.rest.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if next.is_some() {
                return next;
            }
            let asked = self.questions.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()?;
            self.rest.lock().unwrap_or_else(PoisonError::into_inner).extend(asked);
        }
    }
}

fn source(
    open: &mut HashMap<FileId, (Arc<File>, Instant)>,
    image: Image,
    pid: u32,
    mapping: &Mapping,
) -> Option<Source> {
    let Image::File(id) = image else { return None };
    let file = match open.get(&id) {
        Some((file, _)) => Arc::clone(file),
        None => {
            let file = Arc::new(files::open(pid, mapping).ok()??.0);
            if open.len() < OPEN_MAX {
                open.insert(id, (Arc::clone(&file), Instant::now()));
            }
            file
        }
    };
    Some(Source {
        id,
        file,
        path: mapping.path().to_owned(),
        root: PathBuf::from(format!("/proc/{}/root", living_thread(pid))),
    })
}
