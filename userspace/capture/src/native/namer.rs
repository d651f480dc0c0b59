//! Looks native functions up in a thread of its own: the debug information of a library takes a second to read.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::images::Image;
use super::names::{Name, Names, Source};
use crate::doctor::kernel_version;
use crate::files;
use crate::kernel::cost::ThreadTime;
use crate::privileges::{self, Keep};
use crate::process_maps::Mapping;

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

pub struct Namer {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    time: ThreadTime,
    /// What [`Self::flush`] will ask.
    collected: HashMap<(Image, u32), Question>,
    /// What has an answer already: none.
    given_up: Vec<Answer>,
}

impl Namer {
    pub fn start() -> std::io::Result<Self> {
        let (questions, receiver) = channel::<Question>();
        let (sender, answers) = channel();
        let time = ThreadTime::default();
        let own = time.clone();
        thread::Builder::new().name("pyobs-names".to_owned()).spawn(move || {
            own.begin();
            // It reads what strangers wrote.
            let _ = privileges::drop_after_attach(kernel_version(), Keep::Reading);
            let mut names = Names::default();
            for question in receiver {
                let Question { image, pid, module, source, keys } = question;
                let addresses: Vec<u64> = keys.iter().map(|key| key.address).collect();
                let found = match (image, source) {
                    (Image::Anonymous, _) => names.look_up_jit(pid, &addresses),
                    (_, Some(source)) => names.look_up_offsets(&source, &addresses),
                    (_, None) => Vec::new(),
                };
                own.note();
                let found = found.into_iter().chain(std::iter::repeat_with(Vec::new));
                for (key, names) in keys.into_iter().zip(found) {
                    if sender.send((key, Arc::clone(&module), names)).is_err() {
                        return;
                    }
                }
            }
        })?;
        Ok(Self { questions, answers, time, collected: HashMap::new(), given_up: Vec::new() })
    }

    /// Collects a place that a process has in this mapping.
    pub fn ask(&mut self, key: Key, pid: u32, mapping: &Mapping) {
        let question = self.collected.entry((key.image, key.pid)).or_insert_with(|| Question {
            image: key.image,
            pid,
            module: Arc::clone(&mapping.name),
            source: source(key.image, pid, mapping),
            keys: Vec::new(),
        });
        question.keys.push(key);
    }

    /// What it has cost so far.
    pub fn thread_time(&self) -> ThreadTime {
        self.time.clone()
    }

    /// Answers that a place has no name.
    pub fn give_up(&mut self, key: Key, module: Arc<str>) {
        self.given_up.push((key, module, Vec::new()));
    }

    /// Asks what was collected.
    pub fn flush(&mut self) {
        for (_, question) in self.collected.drain() {
            // The thread ends only when we do.
            let _ = self.questions.send(question);
        }
    }

    pub fn answers(&mut self) -> Vec<Answer> {
        self.given_up.drain(..).chain(self.answers.try_iter()).collect()
    }
}

fn source(image: Image, pid: u32, mapping: &Mapping) -> Option<Source> {
    let Image::File(id) = image else { return None };
    let (file, _) = files::open(pid, mapping).ok()??;
    Some(Source { id, file, path: mapping.path().to_owned(), root: PathBuf::from(format!("/proc/{pid}/root")) })
}
