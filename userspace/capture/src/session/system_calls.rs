//! How a session learns of mappings and system calls.
//!
//! A program at any system call makes every system call of the machine slower (by some 60 ns of 230 on the development
//! machine). So families watch mappings at the kernel's own tracepoints as far as that goes, and
//! perf's sideband reports executable mappings.

use pyobs_abi::calls::CODE_END;
use pyobs_model::Family;

use super::error::StartError;
use super::options::{Options, Targets};
use super::requested::Requested;
use crate::family::AtMappings;
use crate::kernel::object::{Object, ObjectError};
use crate::kernel::sideband::Sideband;
use crate::registry;

/// Starts watching what the families need. Returns the sideband, unless programs at system calls report
/// executable mappings.
pub(super) fn choose(
    requested: &mut Requested,
    object: &mut Object,
    cpus: &[u32],
) -> Result<Option<Sideband>, StartError> {
    match attach(wanted(requested), requested, object) {
        Ok(true) => return Ok(None),
        Ok(false) => {}
        Err(error) => requested.refuse(registry::of_system_calls(), &error.into()),
    }
    let refused = match Sideband::open(cpus) {
        Ok(sideband) => return Ok(Some(sideband)),
        Err(error) => error,
    };
    let families = wanted(requested);
    if families.is_empty() || object.forget_mappings().is_err() || attach_calls(&families, requested, object).is_err() {
        return Err(refused.into());
    }
    Ok(None)
}

fn wanted(requested: &Requested) -> Vec<Family> {
    registry::of_system_calls().iter().copied().filter(|family| requested.has(*family)).collect()
}

/// Returns whether programs at system calls report executable mappings.
fn attach(families: Vec<Family>, requested: &Requested, object: &mut Object) -> Result<bool, ObjectError> {
    let (at_mappings, mut at_calls): (Vec<_>, Vec<_>) =
        families.into_iter().partition(|family| starts_at_mappings(*family, requested));
    if !at_mappings.is_empty() && !watch_mappings(&at_mappings, object)? {
        at_calls.extend(at_mappings);
    }
    if at_calls.is_empty() {
        return Ok(false);
    }
    attach_calls(&at_calls, requested, object).map(|()| true)
}

/// Attaches programs to the system calls of these families, and to those that give a process new code.
fn attach_calls(families: &[Family], requested: &Requested, object: &mut Object) -> Result<(), ObjectError> {
    let mut points = registry::points(families);
    points.ends.extend(CODE_END);
    object.attach_system_calls(points)?;
    object.report_mappings(requested.options.targets.is_everybody())
}

/// A family that the user requested by name is exact from the beginning, and so is a command that pyobs launches: it may
/// do all that it does in its first milliseconds.
fn starts_at_mappings(family: Family, requested: &Requested) -> bool {
    let Options { named, targets, .. } = &requested.options;
    match registry::spec(family).at_mappings {
        AtMappings::Nothing => false,
        AtMappings::FirstSign => !named.contains(&family) && !matches!(targets, Targets::Launched { .. }),
        AtMappings::All => true,
    }
}

/// Returns false if this kernel lacks the tracepoints, or those of single system calls for later.
fn watch_mappings(families: &[Family], object: &mut Object) -> Result<bool, ObjectError> {
    let is_first_sign = |family: &Family| registry::spec(*family).at_mappings == AtMappings::FirstSign;
    let later: Vec<Family> = families.iter().copied().filter(is_first_sign).collect();
    if !later.is_empty() && !object.prepare_system_calls(registry::points(&later))? {
        return Ok(false);
    }
    let is_watched = object.attach_mappings(registry::control_bits(families)).is_ok();
    if !is_watched {
        object.forget_mappings()?;
    }
    Ok(is_watched)
}
