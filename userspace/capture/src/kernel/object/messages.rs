//! Debug messages of the BPF programs. They are off unless a logger wants them; then the verifier removes
//! their code.

use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Level, LevelFilter, Log, log_enabled};

/// The target of every message (ebpf/programs/src/common/messages.rs).
const TARGET: &str = "bpf";
pub(super) const MAP: &str = "AYA_LOGS";
/// Room for about 1000 messages, which aya-log pads to 256 bytes. When it is full, messages are dropped
/// without being counted.
const RING_BYTES: u32 = 256 << 10;

/// The level to load the programs with. It is in a frozen map, so the verifier knows its value.
pub(super) fn level() -> u8 {
    let wanted = log_enabled!(target: TARGET, Level::Debug);
    (if wanted { LevelFilter::Debug } else { LevelFilter::Off }) as u8
}

pub(super) fn ring_bytes(level: u8) -> u32 {
    // The smallest ring buffer that the kernel accepts.
    if level == 0 { rustix::param::page_size() as u32 } else { RING_BYTES }
}

pub(super) struct Messages(Option<EbpfLogger<&'static dyn Log>>);

impl Messages {
    pub fn of(ebpf: &mut Ebpf, level: u8) -> Self {
        if level == 0 {
            return Self(None);
        }
        let logger = EbpfLogger::init(ebpf);
        Self(logger.inspect_err(|error| log::warn!("no messages of the BPF programs: {error}")).ok())
    }

    /// Logs all messages in the ring buffer.
    pub fn log(&mut self) {
        if let Some(logger) = &mut self.0 {
            logger.flush();
        }
    }
}
