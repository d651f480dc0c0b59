//! The way out of the kernel: every record of every family leaves through [`send`].
//!
//! A record that does not fit is counted, under the name that its [`Route`] gives. A family that adds a record adds no
//! counter.

use core::marker::PhantomData;

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE},
    helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns},
    maps::RingBuf,
};
use pyobs_abi::{
    Shared,
    record::{COMM_LEN, Header, Loss},
};

use super::maps::{RECORDS, count_loss};

/// Returns a header for a record of the current thread.
#[inline(always)]
pub fn header(kind: u32) -> Header {
    let both = bpf_get_current_pid_tgid();
    Header {
        // SAFETY: these helpers have no preconditions.
        time: unsafe { bpf_ktime_get_ns() },
        kind,
        // SAFETY: as above.
        cpu: unsafe { bpf_get_smp_processor_id() },
        pid: (both >> 32) as u32,
        tid: both as u32,
        comm: bpf_get_current_comm().unwrap_or([0; COMM_LEN]),
    }
}

/// Whether a record wakes the thread that drains the ring.
#[derive(Clone, Copy)]
pub enum Wake {
    /// The record waits until something else wakes that thread.
    Never,
    /// The record wakes it only once a quarter of the ring is full. A wake-up for each sample would cost more than the
    /// sample.
    WhenFilling,
    Now,
}

impl Wake {
    #[inline(always)]
    fn flags(self, ring: &RingBuf) -> u64 {
        let wakes = match self {
            Self::Never => false,
            Self::WhenFilling => ring.query(BPF_RB_AVAIL_DATA.into()) > ring.query(BPF_RB_RING_SIZE.into()) / 4,
            Self::Now => true,
        };
        if wakes { BPF_RB_FORCE_WAKEUP.into() } else { BPF_RB_NO_WAKEUP.into() }
    }
}

/// Where a record goes, and what is counted if the ring has no room for it.
#[derive(Clone, Copy)]
pub struct Route {
    pub ring: &'static RingBuf,
    pub wake: Wake,
    pub full: Loss,
}

impl Route {
    /// For records that can wait until user space polls again.
    #[inline(always)]
    pub fn lazy() -> Self {
        Self { ring: &RECORDS, wake: Wake::WhenFilling, full: Loss::RingFull }
    }

    /// For records that user space has to act on before the process runs on.
    #[inline(always)]
    pub fn urgent() -> Self {
        Self { wake: Wake::Now, ..Self::lazy() }
    }
}

/// A record in one of the forms that a ring takes: a value, bytes of a length that varies, or one that is built
/// [`InPlace`].
pub trait Payload {
    /// Returns whether a record was written, or `None` if the ring had no room for it.
    fn write(self, route: Route) -> Option<bool>;
}

impl Payload for &[u8] {
    #[inline(always)]
    fn write(self, route: Route) -> Option<bool> {
        let flags = route.wake.flags(route.ring);
        route.ring.output::<[u8]>(self, flags).ok().map(|()| true)
    }
}

impl<T: Shared> Payload for &T {
    #[inline(always)]
    fn write(self, route: Route) -> Option<bool> {
        // SAFETY: a `Shared` type is plain integers without padding.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast::<u8>(), size_of::<T>()) }.write(route)
    }
}

/// A record that is built in the ring's own memory, for those that are too large for the BPF stack.
pub struct InPlace<T, F>(F, PhantomData<T>);

/// `fill` writes all of the record that it gets. It returns false if there is nothing to send after all.
#[inline(always)]
pub fn in_place<T: Shared + 'static, F: FnOnce(*mut T) -> bool>(fill: F) -> InPlace<T, F> {
    InPlace(fill, PhantomData)
}

impl<T: Shared + 'static, F: FnOnce(*mut T) -> bool> Payload for InPlace<T, F> {
    #[inline(always)]
    fn write(self, route: Route) -> Option<bool> {
        let mut entry = route.ring.reserve::<T>(0)?;
        let is_filled = (self.0)(entry.as_mut_ptr());
        if is_filled {
            entry.submit(route.wake.flags(route.ring));
        } else {
            entry.discard(BPF_RB_NO_WAKEUP.into());
        }
        Some(is_filled)
    }
}

/// Sends a record, and counts it as lost if the ring has no room. Returns whether it was sent.
#[inline(always)]
pub fn send(record: impl Payload, route: Route) -> bool {
    record.write(route).unwrap_or_else(|| {
        count_loss(route.full);
        false
    })
}
