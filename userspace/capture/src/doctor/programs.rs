//! The programs of every family, loaded as a capture loads them.

use std::slice;
use std::time::Instant;

use serde::Serialize;

use super::{ALL, Area, Check, Families, Status};
use crate::kernel::features::Features;
use crate::kernel::object::{Object, ObjectError, Verified};
use crate::registry;

/// The verifier's verdict on one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    pub name: &'static str,
    pub families: Families,
    /// Whether its families also work without it, with less data or in another way.
    pub optional: bool,
    pub loads: bool,
    /// Number of instructions processed, of at most a million; `None` if the program was refused, or the
    /// kernel does not report it (before 5.16).
    pub instructions: Option<u32>,
    /// Why it was refused.
    pub why: Option<String>,
    /// The verifier's log for a refused program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub log: String,
}

impl From<Verified> for Program {
    fn from(Verified { name, families, optional, outcome }: Verified) -> Self {
        let log = match &outcome {
            Err(ObjectError::Program(refusal)) => refusal.log().to_owned(),
            _ => String::new(),
        };
        let why = outcome.as_ref().err().map(ToString::to_string);
        Self { name, families, optional, loads: outcome.is_ok(), instructions: outcome.ok().flatten(), why, log }
    }
}

/// Loads and unloads every program; adds a check for each family.
pub(super) fn examine(checks: &mut Vec<Check>) -> Vec<Program> {
    let mut area = Area::new("programs", checks);
    let begun = Instant::now();
    let programs: Vec<Program> = match Object::open(Features::of_running_kernel(), 0, registry::contents(|_| false)) {
        Ok(mut object) => object.verify().into_iter().map(Program::from).collect(),
        Err(error) => {
            let (why, todo) = split(&error.to_string());
            area.lacks("object", ALL, Status::Missing, why, todo);
            return Vec::new();
        }
    };
    area.works("object", ALL, format!("maps and programs made in {} ms", begun.elapsed().as_millis()));
    for family in ALL {
        let (name, alone) = (family.name(), slice::from_ref(family));
        let own: Vec<_> = programs.iter().filter(|program| program.families.contains(family)).collect();
        let refused = own.iter().find(|program| !program.loads && !program.optional);
        let without = own.iter().find(|program| !program.loads);
        match (refused, without) {
            (Some(program), _) => lacks(&mut area, name, alone, Status::Missing, program),
            (None, Some(program)) => lacks(&mut area, name, alone, Status::Degraded, program),
            (None, None) => {
                let most = own.iter().filter_map(|program| program.instructions).max();
                let most = most.map(|most| format!("; the verifier processed {most} instructions of the largest"));
                area.works(name, alone, format!("{} loaded{}", own.len(), most.unwrap_or_default()));
            }
        }
    }
    programs
}

fn lacks(area: &mut Area<'_>, name: &'static str, family: Families, status: Status, program: &Program) {
    let (why, todo) = split(program.why.as_deref().unwrap_or_default());
    area.lacks(name, family, status, why, todo);
}

/// Splits an error into the problem and the next step.
fn split(sentence: &str) -> (String, String) {
    let (why, todo) = sentence.rsplit_once("; ").unwrap_or((sentence, "run a newer kernel"));
    (why.to_owned(), todo.to_owned())
}
