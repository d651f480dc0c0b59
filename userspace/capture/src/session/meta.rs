//! What a recording says about itself.

use std::time::SystemTime;

use pyobs_model::Meta;

use super::options::Options;
use crate::machine::utc;

/// The sampler is filled in once it is attached.
pub fn meta(options: &Options) -> Meta {
    let uname = rustix::system::uname();
    Meta {
        started: utc(SystemTime::now()),
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        pyobs: env!("CARGO_PKG_VERSION").to_owned(),
        rate_hz: options.rate_hz,
        cpus: aya::util::online_cpus().map_or(0, |cpus| cpus.len() as u32),
        probes: options.probes.iter().map(ToString::to_string).collect(),
        ..Meta::default()
    }
}
