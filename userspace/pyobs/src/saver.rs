//! Writes what the user of a dashboard wants to keep: rows as CSV, and the last minutes as a recording.
//!
//! Files go to the current folder. Under sudo it usually belongs to the user who ran sudo, and so should the files. A
//! thread of its own writes them, as that user: it takes the user's identity for files and drops all rights, so it can do
//! no more than the user could.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::SystemTime;

use pyobs_capture::{privileges, utc};
use pyobs_model::Meta;
use pyobs_model::number::{grouped, time};
use pyobs_recording::Writer;
use pyobs_tui::{FlightRecording, Saved};

use crate::exit::Failure;
use crate::{names, ownership};

const STOPPED: &str = "the thread that writes files ended because of a bug in pyobs";
/// Everyone may read the files, as those of `pyobs record`.
const MODE: u32 = 0o644;

/// What is to be written, and where to say what became of it.
type Request = (Saved, Sender<String>);

/// Sends what is to be written to the thread that writes.
pub(crate) struct Saver(Sender<Request>);

impl Saver {
    /// Starts the thread. Call it before rights are dropped.
    pub(crate) fn start(meta: Meta) -> Result<Self, Failure> {
        let (sender, requests) = mpsc::channel::<Request>();
        let (ready, is_ready) = mpsc::channel();
        let write = move || {
            let user = ownership::become_sudo_user();
            let dropped = privileges::drop_all(user.is_none());
            let has_failed = dropped.is_err();
            // The main thread waits for it.
            let _ = ready.send(dropped);
            if !has_failed {
                requests.into_iter().for_each(|(saved, told)| _ = told.send(save(saved, &meta)));
            }
        };
        let no_thread = |error| Failure::Failed(format!("a thread could not be started: {error}; try again"));
        thread::Builder::new().name("saver".to_owned()).spawn(write).map_err(no_thread)?;
        is_ready.recv().map_err(|_| Failure::Failed(STOPPED.to_owned()))?.map_err(Failure::failed)?;
        Ok(Self(sender))
    }

    /// Waits for the file. The capture goes on meanwhile.
    pub(crate) fn save(&self, saved: Saved) -> String {
        let (told, said) = mpsc::channel();
        let sent = self.0.send((saved, told)).is_ok();
        if !sent {
            return STOPPED.to_owned();
        }
        said.recv().unwrap_or_else(|_| STOPPED.to_owned())
    }
}

/// Writes a file, and says so.
pub(crate) fn save(saved: Saved, meta: &Meta) -> String {
    match saved {
        Saved::Rows { of, csv } => match write_new(&of.to_lowercase(), &csv) {
            Ok(path) => {
                let rows = grouped(csv.lines().count().saturating_sub(1) as u64);
                format!("wrote {rows} rows to {}", path.display())
            }
            Err(error) => format!("the rows could not be written: {error}"),
        },
        Saved::Flight(flight) => {
            let length = time(flight.length);
            match write_recording(&flight, meta) {
                Ok(path) => format!("wrote the last {length} to {0}; see `pyobs replay {0}`", path.display()),
                Err(error) => format!("the last minutes could not be written: {error}"),
            }
        }
    }
}

/// Writes a new file. Never replaces one, nor follows a link.
fn write_new(of: &str, text: &str) -> io::Result<PathBuf> {
    let path = names::unused(&format!("-{of}"), "csv");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path)?;
    file.write_all(text.as_bytes())?;
    Ok(path)
}

fn write_recording(flight: &FlightRecording, meta: &Meta) -> Result<PathBuf, pyobs_recording::Error> {
    let started = SystemTime::now() - std::time::Duration::from_nanos(flight.length.0);
    let meta = Meta { started: utc(started), ..meta.clone() };
    let path = names::unused("", "pyobs");
    let mut writer = Writer::create(&path, &meta)?;
    writer.append(&flight.events)?;
    writer.finish()?;
    Ok(path)
}
