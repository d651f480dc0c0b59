//! The arguments of the calls that submit transfers. The probe's cookie says which argument is which.

use core::hint::black_box;

use aya_ebpf::programs::ProbeContext;
use pyobs_abi::ucx::{ON_STACK, Submission, Transfer, flags};

use crate::common::{
    memory::user,
    probe::{arguments, call, cookie},
};

/// Bits of `ucp_request_param_t.op_attr_mask`.
const HAS_CALLBACK: u64 = 2;
const HAS_USER_DATA: u64 = 4;
const HAS_DATATYPE: u64 = 8;
/// Kinds of `ucp_datatype_t`: its three lowest bits.
pub const CONTIGUOUS: u64 = 0;
const VECTOR: u64 = 2;
/// Bounds the parts of a vector whose lengths are added up. Later parts are left out of the transfer's size.
const PARTS: u64 = 8;

/// The arguments of a call that submits a transfer.
pub struct Submitted {
    pub submission: Submission,
    pub words: [u64; 6],
    /// A `ucp_datatype_t`.
    pub kind: u64,
    pub buffer: u64,
    pub bytes: u64,
    /// 0 for none.
    pub callback: u64,
    /// The caller's word.
    pub data: Option<u64>,
}

impl Submitted {
    #[inline(always)]
    pub fn of(context: &ProbeContext) -> Option<Self> {
        let submission = Submission(cookie(context));
        let words = arguments(context);
        let at = match submission.parameters() {
            ON_STACK => user(call(context).stack.wrapping_add(8))?,
            number => word(&words, number),
        };
        // The mask and the flags, the request, the callback, the datatype, the caller's word.
        let [mask, _, callback, datatype, data]: [u64; 5] = user(at)?;
        let callback = if mask & HAS_CALLBACK == 0 { 0 } else { callback };
        let (buffer, count) = (word(&words, submission.buffer()), word(&words, submission.count()));
        let kind = if mask & HAS_DATATYPE == 0 { 1 << 3 } else { datatype };
        let bytes = match kind & 7 {
            CONTIGUOUS => count.wrapping_mul(kind >> 3),
            VECTOR => vector(buffer, count),
            _ => 0,
        };
        let data = (mask & HAS_USER_DATA != 0).then_some(data);
        Some(Self { submission, words, kind, buffer, bytes, callback, data })
    }
}

#[inline(always)]
pub fn word(words: &[u64; 6], number: u64) -> u64 {
    match number {
        0 => words[0],
        1 => words[1],
        2 => words[2],
        3 => words[3],
        4 => words[4],
        _ => words[5],
    }
}

/// Returns the length of all parts of a vector: address and length each (`ucp_dt_iov_t`).
#[inline(always)]
fn vector(buffer: u64, count: u64) -> u64 {
    let (mut part, mut bytes) = (0, 0_u64);
    let count = black_box(count);
    while part < PARTS {
        if part >= count {
            break;
        }
        let length = user::<u64>(buffer.wrapping_add(part * 16 + 8)).unwrap_or(0);
        bytes = bytes.wrapping_add(length);
        part += 1;
    }
    bytes
}

/// Hashes a part of what is sent: four pieces of 32 bytes.
#[inline(always)]
pub fn hash(transfer: &mut Transfer) {
    const PIECE: u64 = 32;
    const PIECES: u64 = 4;
    if transfer.bytes < PIECE {
        return;
    }
    let step = (transfer.bytes - PIECE) / (PIECES - 1);
    // FNV-1a, by words.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut piece = 0;
    while piece < PIECES {
        let Some(words) = user::<[u64; 4]>(transfer.buffer.wrapping_add(piece * step)) else { return };
        for word in words {
            hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
        }
        piece += 1;
    }
    transfer.hash = hash;
    transfer.flags |= flags::HAS_HASH;
}
