//! What a recording says, in the shape of `pyobs report --json` (CONTRACT.md).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::views::{self, Look};
use crate::{Frame, FrameKind, Model, Nanos, Pid, Selection, Tid};

/// The version of the JSON shape.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub version: u32,
    pub recording: Recording,
    /// Every record, sample or lookup that was lost, by reason.
    pub loss: BTreeMap<&'static str, u64>,
    pub cost: Cost,
    pub processes: Vec<Process>,
    /// `None` when the family `cpu` was off.
    pub frames: Option<Vec<FrameCount>>,
    pub stacks: Option<Stacks>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    pub started: String,
    pub duration_s: f64,
    pub host: String,
    pub kernel: String,
    pub pyobs: String,
    pub rate_hz: u32,
    pub probes: Vec<String>,
    /// What drove the CPU samples: `cycles` or `cpu-clock`.
    pub sampler: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    pub bpf_s: f64,
    pub cpu_s: f64,
    pub rss_bytes: u64,
    pub shed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    pub pid: Pid,
    pub ppid: Pid,
    pub command: String,
    pub python: Option<String>,
    pub started_s: Option<f64>,
    pub ended_s: Option<f64>,
    pub samples: u64,
    pub threads: Vec<Thread>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Thread {
    pub tid: Tid,
    pub name: Option<String>,
    pub role: Option<String>,
    pub samples: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrameCount {
    pub pid: Pid,
    pub frame: FrameOut,
    /// Samples in which it is the leaf of the whole stack.
    #[serde(rename = "self")]
    pub own: u64,
    pub total: u64,
}

/// A frame as JSON has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrameOut {
    pub kind: FrameKind,
    pub function: String,
    pub module: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stacks {
    pub samples: u64,
    pub complete: u64,
    pub truncated: u64,
    pub failed: BTreeMap<&'static str, u64>,
}

impl From<&Frame> for FrameOut {
    fn from(frame: &Frame) -> Self {
        Self {
            kind: frame.kind,
            function: frame.function.to_string(),
            module: frame.module.as_deref().map(str::to_owned),
            file: frame.file.as_deref().map(str::to_owned),
            line: frame.line,
        }
    }
}

impl Report {
    /// `limit` bounds the lists that grow with the program: `frames`.
    pub fn new(model: &Model, selection: &Selection, limit: Option<usize>) -> Self {
        let meta = model.meta();
        let cost = model.cost();
        let has_cpu = meta.probes.iter().any(|probe| probe == "cpu");
        Self {
            version: VERSION,
            recording: Recording {
                started: meta.started.clone(),
                duration_s: model.now().as_secs_f64(),
                host: meta.host.clone(),
                kernel: meta.kernel.clone(),
                pyobs: meta.pyobs.clone(),
                rate_hz: meta.rate_hz,
                probes: meta.probes.clone(),
                sampler: meta.sampler.clone(),
            },
            loss: model.loss().iter().map(|(reason, count)| (reason.name(), count)).collect(),
            cost: Cost {
                bpf_s: cost.bpf.as_secs_f64(),
                cpu_s: cost.cpu.as_secs_f64(),
                rss_bytes: cost.rss_bytes,
                shed: model.shed().iter().map(ToString::to_string).collect(),
            },
            processes: processes(model, selection),
            frames: has_cpu.then(|| frames(model, selection, limit)),
            stacks: has_cpu.then(|| stacks(model)),
        }
    }
}

fn processes(model: &Model, selection: &Selection) -> Vec<Process> {
    let rows = views::processes(model, selection);
    rows.iter()
        .filter_map(|row| Some((row, model.process(row.process)?)))
        .map(|(row, state)| Process {
            pid: state.process.pid,
            ppid: state.process.ppid,
            command: state.process.command.to_string(),
            python: state.process.python.as_deref().map(str::to_owned),
            started_s: state.process.started.map(Nanos::as_secs_f64),
            ended_s: state.ended.map(Nanos::as_secs_f64),
            samples: row.samples,
            threads: state
                .threads
                .iter()
                .map(|(tid, thread)| Thread {
                    tid: *tid,
                    name: thread.name.as_deref().map(str::to_owned),
                    role: None,
                    samples: row.threads.get(tid).copied().unwrap_or(0),
                })
                .collect(),
        })
        .collect()
}

fn frames(model: &Model, selection: &Selection, limit: Option<usize>) -> Vec<FrameCount> {
    let view = views::frames(model, selection, Look::default(), true);
    view.rows
        .iter()
        .take(limit.unwrap_or(usize::MAX))
        .filter_map(|row| {
            let process = model.process(row.process?)?;
            let frame = model.frame(row.frame)?;
            Some(FrameCount { pid: process.process.pid, frame: frame.into(), own: row.own, total: row.total })
        })
        .collect()
}

fn stacks(model: &Model) -> Stacks {
    let stacks = model.cpu().stacks();
    Stacks {
        samples: stacks.samples,
        complete: stacks.complete,
        truncated: stacks.truncated,
        failed: stacks.failed.iter().map(|(reason, count)| (reason.name(), count)).collect(),
    }
}
