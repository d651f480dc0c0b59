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
use crate::kernel::cost::Meter;
use crate::privileges::{self, Keep};
use crate::process_maps::Mapping;

/// Files that are held open.
const SOURCES_MAX: usize = 64;

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
    source: Option<Arc<Source>>,
    keys: Vec<Key>,
}

type Answer = (Key, Arc<str>, Vec<Name>);

pub struct Namer {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    meter: Meter,
    /// What [`Self::flush`] will ask.
    collected: HashMap<(Image, u32), Question>,
    /// Files that questions came up about lately: they come up again, place by place.
    sources: HashMap<Image, Arc<Source>>,
    /// What has an answer already: none.
    given_up: Vec<Answer>,
}

impl Namer {
    pub fn start() -> std::io::Result<Self> {
        let (questions, receiver) = channel::<Question>();
        let (sender, answers) = channel();
        let meter = Meter::default();
        let own = meter.clone();
        thread::Builder::new().name("pyobs-names".to_owned()).spawn(move || {
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
        Ok(Self { questions, answers, meter, collected: HashMap::new(), sources: HashMap::new(), given_up: Vec::new() })
    }

    /// Collects a place that a process has in this mapping.
    pub fn ask(&mut self, key: Key, pid: u32, mapping: &Mapping) {
        if let Some(question) = self.collected.get_mut(&(key.image, key.pid)) {
            return question.keys.push(key);
        }
        let module = Arc::clone(&mapping.name);
        let source = self.source(key.image, pid, mapping);
        self.collected
            .insert((key.image, key.pid), Question { image: key.image, pid, module, source, keys: vec![key] });
    }

    fn source(&mut self, image: Image, pid: u32, mapping: &Mapping) -> Option<Arc<Source>> {
        let Image::File(id) = image else { return None };
        if let Some(source) = self.sources.get(&image) {
            return Some(Arc::clone(source));
        }
        let (file, _) = files::open(pid, mapping).ok()??;
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let source = Arc::new(Source { id, file, path: mapping.path().to_owned(), root });
        if self.sources.len() >= SOURCES_MAX {
            self.sources.clear();
        }
        self.sources.insert(image, Arc::clone(&source));
        Some(source)
    }

    /// What it has cost so far.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
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
