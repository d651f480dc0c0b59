//! The results of one kernel, as written to the file that the tests read.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Kernel, boot::Ran, checks};

#[derive(Serialize)]
pub(crate) struct Outcome {
    /// The kernel as requested: "6.1".
    pub(crate) kernel: String,
    pub(crate) supported: bool,
    /// The package with the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) package: Option<String>,
    /// Why it was not booted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
    /// Why its checks did not finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broken: Option<String>,
    pub(crate) accelerator: &'static str,
    pub(crate) seconds: f64,
    pub(crate) checks: Vec<Check>,
    /// The output of `pyobs doctor --json` in the guest.
    pub(crate) doctor: Value,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Check {
    pub(crate) family: String,
    pub(crate) check: String,
    pub(crate) status: Status,
    pub(crate) detail: String,
    pub(crate) seconds: f64,
}

/// From best to worst; the worst of a family's checks counts for the family.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Skipped,
    Works,
    Refused,
    Failed,
}

impl Outcome {
    fn empty(kernel: &Kernel) -> Self {
        Self {
            kernel: kernel.name().to_owned(),
            supported: kernel.supported,
            package: None,
            skipped: None,
            broken: None,
            accelerator: "",
            seconds: 0.0,
            checks: Vec::new(),
            doctor: Value::Null,
        }
    }

    pub(super) fn skipped(kernel: &Kernel, why: String) -> Self {
        Self { skipped: Some(why), ..Self::empty(kernel) }
    }

    pub(super) fn broken(kernel: &Kernel, package: &str, why: String) -> Self {
        Self { package: Some(package.to_owned()), broken: Some(why), ..Self::empty(kernel) }
    }

    pub(super) fn of(kernel: &Kernel, package: &str, ran: Ran) -> Self {
        let mut outcome = Self { package: Some(package.to_owned()), ..Self::empty(kernel) };
        (outcome.accelerator, outcome.seconds) = (ran.accelerator.name(), ran.seconds);
        for mut check in ran.checks {
            if let Some(doctor) = check.get_mut("doctor").map(Value::take) {
                outcome.doctor = doctor;
            }
            match serde_json::from_value(check) {
                Ok(check) => outcome.checks.push(check),
                Err(error) => outcome.broken = Some(format!("a line of the guest is malformed: {error}")),
            }
        }
        outcome
    }

    /// The status of a family, and the checks that failed or were refused.
    pub(crate) fn status(&self, family: &str) -> (Status, Vec<&Check>) {
        let own: Vec<&Check> = self.checks.iter().filter(|check| check.family == family).collect();
        let worst = own.iter().map(|check| check.status).max().unwrap_or(Status::Skipped);
        (worst, own.into_iter().filter(|check| check.status > Status::Works).collect())
    }

    /// Whether each family works, or is refused under a kernel that is too old. Kernels that were not booted always
    /// pass.
    pub(crate) fn is_as_expected(&self) -> bool {
        let wanted = |family: &&str| {
            let is_refused = !self.supported && !checks::AFTERWARDS.contains(family);
            self.status(family).0 == if is_refused { Status::Refused } else { Status::Works }
        };
        self.skipped.is_some() || self.broken.is_none() && checks::ALL.iter().all(wanted)
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(format!("{}.json", self.kernel));
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }
}
