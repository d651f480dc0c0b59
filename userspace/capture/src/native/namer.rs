//! Looks native functions up in a thread of its own: the debug information of a library takes a second to read.

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
use crate::process_maps::Mapping;

/// A file stays open for this long, for the next places in it. No longer: its file system could not be unmounted.
const OPEN_FOR: Duration = Duration::from_secs(1);
/// Files that are open at once.
const OPEN_MAX: usize = 64;

/// A place in native code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub image: Image,
    /// Of anonymous memory, else 0.
    pub pid: u32,
    /// An offset in the file; in anonymous memory an address.
    pub address: u64,
}

/// Places in one image, all of one process if that is anonymous memory.
struct Question {
    image: Image,
    pid: u32,
    module: Arc<str>,
    /// Of a file.
    source: Option<Source>,
    keys: Vec<Key>,
}

type Answer = (Key, Arc<str>, Vec<Name>);

impl Question {
    fn answers(self, names: &mut Names) -> impl Iterator<Item = Answer> + use<> {
        let addresses: Vec<u64> = self.keys.iter().map(|key| key.address).collect();
        let found = match (self.image, self.source) {
            (Image::Anonymous, _) => names.look_up_jit(self.pid, &addresses),
            (_, Some(source)) => names.look_up_offsets(&source, &addresses),
            (_, None) => Vec::new(),
        };
        let found = found.into_iter().chain(std::iter::repeat_with(Vec::new));
        self.keys.into_iter().zip(found).map(move |(key, names)| (key, Arc::clone(&self.module), names))
    }
}

/// What a thread passes on to the one that replaces it.
struct Work {
    /// Those of one look together, for each message wakes the thread.
    questions: Mutex<Receiver<Vec<Question>>>,
    /// Of the last message, those that are left.
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
    /// Images whose files do not answer.
    held_up: HashSet<Image>,
    /// What [`Self::flush`] will ask.
    collected: HashMap<(Image, u32), Question>,
    open: HashMap<FileId, (Arc<File>, Instant)>,
    /// What has an answer already: none.
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

    /// Collects a place that a process has in this mapping.
    pub fn ask(&mut self, key: Key, pid: u32, mapping: &Mapping) {
        if self.held_up.contains(&key.image) {
            return self.give_up(key, Arc::clone(&mapping.name));
        }
        let open = &mut self.open;
        let question = self.collected.entry((key.image, key.pid)).or_insert_with(|| Question {
            image: key.image,
            pid,
            module: Arc::clone(&mapping.name),
            source: source(open, key.image, pid, mapping),
            keys: Vec::new(),
        });
        question.keys.push(key);
    }

    /// What it has cost so far.
    pub fn thread_time(&self) -> ThreadTime {
        self.work.time.clone()
    }

    /// The recording has ended, and waits for the names that are missing.
    pub fn hurry(&self) {
        self.work.awaited.store(true, Ordering::Relaxed);
    }

    /// Opens a file again that is another now.
    pub fn forget(&mut self, file: FileId) {
        self.open.remove(&file);
    }

    /// Answers that a place has no name.
    pub fn give_up(&mut self, key: Key, module: Arc<str>) {
        self.given_up.push((key, module, Vec::new()));
    }

    /// Asks what was collected.
    pub fn flush(&mut self) {
        self.open.retain(|_, (_, since)| since.elapsed() < OPEN_FOR);
        if !self.collected.is_empty() {
            // The thread ends only when we do.
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
    /// Starts a thread: the first one, or one that replaces another.
    fn go_on(work: &Arc<Self>) -> std::io::Result<Watch<Image>> {
        let (seat, watch) = seat::pair();
        let work = Arc::clone(work);
        thread::Builder::new().name("pyobs-names".to_owned()).spawn(move || work.answer(&seat))?;
        Ok(watch)
    }

    fn answer(&self, seat: &Seat<Image>) {
        self.time.begin();
        let mut duty = Duty::begin();
        // It reads what strangers wrote.
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
