//! The report's `limits`.

use serde::{Serialize, Serializer};

use crate::views;
use crate::{Container, CpuLimit, MemoryLimit, Model, Pid, Selection};

/// A control group with a limit, and what it used of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitOut {
    /// From the root of the hierarchy.
    pub cgroup: String,
    /// The container whose group it is.
    pub container: Option<Container>,
    /// Its watched processes.
    pub pids: Vec<Pid>,
    /// `None` without a limit of CPU time.
    pub cpu: Option<CpuLimit>,
    /// `None` without a limit of memory.
    pub memory: Option<MemoryLimit>,
    /// How long its threads were kept waiting, each by itself. `None` if the family `offcpu` was off.
    pub waited_s: Option<f64>,
}

impl Serialize for CpuLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Out {
            cpus: f64,
            periods: u64,
            throttled_periods: u64,
            throttled_s: f64,
        }
        let Self { periods, throttled_periods, throttled, .. } = *self;
        Out { cpus: self.cpus(), periods, throttled_periods, throttled_s: throttled.as_secs_f64() }
            .serialize(serializer)
    }
}

pub(super) fn limits(model: &Model, selection: &Selection) -> Vec<LimitOut> {
    let rows = views::limits(model, selection);
    let row = |row: &views::LimitRow<'_>| {
        let pid = |process| model.process(process).map(|state| state.process.pid);
        let waited = || row.waited(model, selection).as_secs_f64();
        LimitOut {
            cgroup: row.cgroup.to_string(),
            container: row.container.as_deref().cloned(),
            pids: row.processes.iter().filter_map(|process| pid(*process)).collect(),
            cpu: row.used.cpu,
            memory: row.used.memory,
            waited_s: model.is_on(crate::Family::OffCpu).then(waited),
        }
    };
    rows.iter().map(row).collect()
}
