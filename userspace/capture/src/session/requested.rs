//! The requested families, without those that this machine cannot run.

use pyobs_model::{Family, Refused};

use super::error::StartError;
use super::options::Options;

/// The request, and which parts of it were refused.
pub(crate) struct Requested {
    pub options: Options,
    pub refused: Vec<Refused>,
}

impl Requested {
    pub fn new(options: &Options) -> Self {
        Self { options: options.clone(), refused: Vec::new() }
    }

    pub fn has(&self, family: Family) -> bool {
        self.options.probes.contains(&family)
    }

    /// Turns these families off and records why.
    pub fn refuse(&mut self, families: &[Family], error: &StartError) {
        let (off, on) = self.options.probes.iter().partition(|probe| families.contains(*probe));
        self.options.probes = on;
        let off: Vec<Family> = off;
        let reason = error.to_string();
        self.refused.extend(off.iter().map(|family| Refused { family: family.name().into(), reason: reason.clone() }));
    }

    /// Fails if every requested family was refused.
    pub fn something_is_left(&self) -> Result<(), StartError> {
        match self.refused.first() {
            Some(first) if self.options.probes.is_empty() => Err(StartError::Refused(first.reason.clone())),
            _ => Ok(()),
        }
    }
}
