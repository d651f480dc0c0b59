//! The families that were asked for, less those that this machine cannot have.

use pyobs_model::Refused;

use super::{Options, StartError};

/// What is asked for, and what was refused of it.
pub(super) struct Asked {
    pub options: Options,
    pub refused: Vec<Refused>,
}

impl Asked {
    pub fn new(options: &Options) -> Self {
        Self { options: options.clone(), refused: Vec::new() }
    }

    pub fn has(&self, family: &str) -> bool {
        self.options.probes.contains(&family)
    }

    /// Returns what was made for these families. If making it failed, turns them off and remembers why.
    pub fn keep<T, E: Into<StartError>>(&mut self, families: &[&str], made: Result<T, E>) -> Option<T> {
        match made {
            Ok(made) => Some(made),
            Err(error) => {
                self.refuse(families, &error.into());
                None
            }
        }
    }

    fn refuse(&mut self, families: &[&str], error: &StartError) {
        let (off, on) = self.options.probes.iter().partition(|probe| families.contains(*probe));
        self.options.probes = on;
        let off: Vec<&str> = off;
        let reason = error.to_string();
        self.refused.extend(off.iter().map(|family| Refused { family: (*family).into(), reason: reason.clone() }));
    }

    /// Fails if every family that was asked for was refused.
    pub fn something_is_left(&self) -> Result<(), StartError> {
        match self.refused.first() {
            Some(first) if self.options.probes.is_empty() => Err(StartError::Refused(first.reason.clone())),
            _ => Ok(()),
        }
    }
}
