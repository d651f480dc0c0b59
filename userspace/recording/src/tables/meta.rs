//! Facts about the recording.

use std::sync::Arc;

use pyobs_model::{Meta, Nanos, Refused};
use rusqlite::{Connection, Result};

use super::{Reading, Rows};
use crate::Error;
use crate::table::{Table, tables};
use crate::value::integer;

tables! {
    /// Facts about the recording.
    ///
    /// Keys: `started` (RFC 3339, UTC), `host`, `kernel` (release), `pyobs` (version), `rate_hz` (samples per second
    /// and CPU), `cpus` (CPUs that were online; not in recordings of older versions), `probes` (families that were on,
    /// with commas), `sampler` (`cpu-clock`; `cycles` in recordings before 2026-11-25), `segment_repair` (`iterators`
    /// or `proc`: how the account of segments was compared with what processes have; empty without the family `shm`),
    /// `refused:FAMILY` (why that family is unavailable; only for families that were requested and are off),
    /// `finished_ns` (time of the last event; missing when the recording was cut off).
    #[insert(OR REPLACE)]
    #[unique(key)]
    MetaRow in "meta" {
        key: Arc<str> = "see above",
        value: Arc<str> = "text",
    }
}

/// Longer than any host name or reason.
const MAX: usize = 1024;
/// A character takes up to four bytes.
const REASON_MAX: usize = MAX / 4;
/// The prefix of a key that names an unavailable family. The value is the reason.
const REFUSED: &str = "refused:";

fn set(connection: &Connection, key: &str, value: &str) -> Result<()> {
    MetaRow { key: key.into(), value: value.into() }.insert(connection)
}

pub(crate) fn write(connection: &Connection, meta: &Meta) -> Result<()> {
    set(connection, "started", &meta.started)?;
    set(connection, "host", &meta.host)?;
    set(connection, "kernel", &meta.kernel)?;
    set(connection, "pyobs", &meta.pyobs)?;
    set(connection, "rate_hz", &meta.rate_hz.to_string())?;
    set(connection, "cpus", &meta.cpus.to_string())?;
    set(connection, "probes", &meta.probes.join(","))?;
    set(connection, "sampler", &meta.sampler)?;
    set(connection, "segment_repair", &meta.segment_repair)?;
    let reason = |reason: &str| reason.chars().take(REASON_MAX).collect::<String>();
    meta.refused.iter().try_for_each(|it| set(connection, &format!("{REFUSED}{}", it.family), &reason(&it.reason)))
}

/// Marks a recording as complete.
pub(crate) fn finish(connection: &Connection, latest: Nanos) -> Result<()> {
    set(connection, "finished_ns", &integer(latest.0).to_string())
}

/// The metadata, and whether the recording is complete.
pub(crate) fn read(reading: &mut Reading<'_>) -> Result<(Meta, bool), Error> {
    let mut meta = Meta::default();
    let mut finished = false;
    let mut rows = 0;
    reading.scan(Rows::All, |row: MetaRow| {
        let MetaRow { key, value } = row;
        if value.len() > MAX {
            return None;
        }
        rows += 1;
        match &*key {
            "started" => meta.started = value.to_string(),
            "host" => meta.host = value.to_string(),
            "kernel" => meta.kernel = value.to_string(),
            "pyobs" => meta.pyobs = value.to_string(),
            "rate_hz" => meta.rate_hz = value.parse().ok()?,
            "cpus" => meta.cpus = value.parse().ok()?,
            "probes" => meta.probes = value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            "sampler" => meta.sampler = value.to_string(),
            "segment_repair" => meta.segment_repair = value.to_string(),
            "finished_ns" => finished = true,
            key => {
                if let Some(family) = key.strip_prefix(REFUSED) {
                    meta.refused.push(Refused { family: family.to_owned(), reason: value.to_string() });
                }
            }
        }
        Some(())
    })?;
    if rows == 0 {
        return Err(Error::corrupt(reading.source.path(), "it does not say when and where it was recorded"));
    }
    Ok((meta, finished))
}
