//! How a session learns of system calls and executable mappings.

use super::error::StartError;
use super::options::Targets;
use super::requested::Requested;
use crate::kernel::object::Object;
use crate::kernel::sideband::Sideband;
use crate::registry;

/// Starts watching system calls if a family needs them, and lets them report executable mappings. Returns the
/// sideband that reports these otherwise.
pub(super) fn choose(
    requested: &mut Requested,
    object: &mut Object,
    cpus: &[u32],
) -> Result<Option<Sideband>, StartError> {
    let families = registry::of_system_calls();
    if families.iter().any(|family| requested.has(*family)) {
        match object.attach_system_calls(registry::points(&requested.options.probes)) {
            Ok(()) => {
                object.report_mappings(requested.options.targets == Targets::All)?;
                return Ok(None);
            }
            Err(error) => requested.refuse(families, &error.into()),
        }
    }
    Ok(Some(Sideband::open(cpus)?))
}
