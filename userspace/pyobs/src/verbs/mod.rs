//! One file per verb.

mod completions;
mod diff;
mod doctor;
mod dump;
mod export;
mod man;
mod record;
mod replay;
mod report;
mod top;

use std::io;
use std::path::Path;
use std::time::Duration;

use pyobs_capture::doctor::kernel_version;
use pyobs_capture::privileges::{self, Keep};
use pyobs_capture::session::{Matching, Options, Session, Targets, Walk};
use pyobs_model::{Family, History, Model, Nanos};
use pyobs_recording::Reader;

use crate::advice;
use crate::cli::{Memory, Verb, Watch};
use crate::exit::{self, Failure};
use crate::progress::Progress;
use pyobs_model::number::grouped;

const DEFAULT_RATE_HZ: u32 = 99;
const DEFAULT_BUDGET_PERCENT: f64 = 1.0;

pub(crate) fn run(verb: Option<Verb>) -> Result<u8, Failure> {
    const DONE: u8 = 0;
    match verb {
        Some(Verb::Record(arguments)) => return record::run(&arguments),
        Some(Verb::Top(arguments)) => top::run(&arguments)?,
        Some(Verb::Replay(arguments)) => replay::run(&arguments)?,
        Some(Verb::Report(arguments)) => report::run(&arguments)?,
        Some(Verb::Export(arguments)) => export::run(&arguments)?,
        Some(Verb::Diff(arguments)) => diff::run(&arguments)?,
        Some(Verb::Dump(arguments)) => dump::run(&arguments)?,
        Some(Verb::Doctor(arguments)) => doctor::run(&arguments)?,
        Some(Verb::Completions(arguments)) => completions::run(&arguments)?,
        Some(Verb::Man(_)) => man::run()?,
        None => {}
    }
    Ok(DONE)
}

fn start(watch: &Watch, targets: Targets) -> Result<Session, Failure> {
    Session::start(&options(watch, targets)).map_err(|error| {
        let sentence = error.to_string();
        if error.needs() { Failure::Lacking(sentence) } else { Failure::Failed(sentence) }
    })
}

/// The budget does not bind a typed rate or families requested by name, unless a budget was typed too.
fn options(watch: &Watch, targets: Targets) -> Options {
    let probes = watch.probe.clone().unwrap_or_default();
    let asks_for_sleeps = probes.asked.iter().any(|family| [Family::OffCpu, Family::Gil].contains(family));
    Options {
        targets,
        rate_hz: watch.rate.unwrap_or(DEFAULT_RATE_HZ),
        probes: probes.families,
        named: probes.asked,
        functions: probes.functions,
        libraries: probes.libraries,
        budget_binds_calls: watch.budget.is_some(),
        budget: watch.budget.unwrap_or(DEFAULT_BUDGET_PERCENT),
        budget_binds_rate: watch.rate.is_none() || watch.budget.is_some(),
        budget_binds_sleeps: !asks_for_sleeps || watch.budget.is_some(),
        walk: Walk::Best,
        iterators: true,
    }
}

fn targets(watch: &Watch) -> Targets {
    let matching = Matching {
        containers: watch.containers.clone(),
        cgroups: watch.cgroups.clone(),
        comms: watch.comms.clone(),
        users: watch.users.clone(),
    };
    match (watch.pids.is_empty(), matching.is_empty()) {
        (false, _) => Targets::Pids(watch.pids.clone()),
        (true, false) => Targets::Matching(matching),
        (true, true) => Targets::All,
    }
}

/// Call it on each existing thread once everything is attached.
fn drop_privileges(keep: Keep) -> Result<(), Failure> {
    privileges::drop_after_attach(kernel_version(), keep).map(drop).map_err(Failure::failed)
}

/// The same for the thread that polls a session, which may attach more probes.
fn drop_privileges_for(session: &Session, keep: Keep) -> Result<(), Failure> {
    privileges::go_first();
    if !session.goes_on_probing() {
        return drop_privileges(keep);
    }
    privileges::drop_but_probing(kernel_version(), keep).map(drop).map_err(Failure::failed)
}

/// Reads a recording into a model that keeps as much as `history`, and memory as it was at the moment that the user wants.
fn load_at(file: &Path, history: History, memory: Memory) -> Result<Model, Failure> {
    Ok(read_until(file, history, memory.until())?.0)
}

/// Reads a recording. Also returns the reader to read it again.
fn read(file: &Path, history: History) -> Result<(Model, Reader), Failure> {
    read_until(file, history, None)
}

fn read_until(file: &Path, history: History, memory_until: Option<Nanos>) -> Result<(Model, Reader), Failure> {
    let mut reader = Reader::open(file).map_err(Failure::failed)?;
    advice::load();
    let mut model = Model::new(reader.meta().clone(), history);
    model.keep_memory_of(memory_until);
    if !reader.is_finished() {
        model.set_unfinished();
    }
    let mut progress = Progress::new(true, Duration::from_secs(1));
    let mut count = 0;
    let read = reader.replay(|event| {
        model.apply(&event);
        count += 1;
        progress.show(|| format!("reading {}: {} events", file.display(), grouped(count)));
    });
    progress.clear();
    read.map_err(Failure::failed)?;
    if let Some(damage) = reader.damage() {
        exit::say(&damage);
    }
    Ok((model, reader))
}

/// Writes all or nothing: a failure halfway must not leave a file that looks like a result.
fn in_memory(write: impl FnOnce(&mut dyn io::Write) -> Result<(), pyobs_export::Error>) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    write(&mut text).map_err(Failure::failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(rate: Option<u32>, budget: Option<f64>) -> Watch {
        Watch {
            pids: Vec::new(),
            containers: Vec::new(),
            cgroups: Vec::new(),
            comms: Vec::new(),
            users: Vec::new(),
            rate,
            probe: None,
            budget,
        }
    }

    #[test]
    fn a_typed_rate_is_bound_only_by_a_typed_budget() {
        let binds = |rate, budget| options(&watch(rate, budget), Targets::All).budget_binds_rate;
        assert!(binds(None, None));
        assert!(!binds(Some(999), None));
        assert!(binds(Some(999), Some(2.0)));
        assert!(binds(None, Some(2.0)));
    }

    #[test]
    fn families_requested_by_name_are_bound_only_by_a_typed_budget() {
        let binds = |probe: &str, budget| {
            let probe = (!probe.is_empty()).then(|| crate::probes::parse(probe).unwrap());
            options(&Watch { probe, ..watch(Some(99), budget) }, Targets::All).budget_binds_sleeps
        };
        assert!(binds("", None));
        assert!(binds("+ucx", None));
        assert!(!binds("cpu,gil", None));
        assert!(!binds("+offcpu", None));
        assert!(binds("cpu,gil", Some(2.0)));
    }

    #[test]
    fn the_defaults_match_the_documentation() {
        let options = options(&watch(None, None), Targets::All);
        assert_eq!((options.rate_hz, options.budget), (99, 1.0));
        assert_eq!(
            options.probes,
            [Family::Cpu, Family::OffCpu, Family::Gil, Family::Arena, Family::Heap, Family::Shm, Family::Tasks]
        );
    }
}
