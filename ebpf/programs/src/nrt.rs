//! The family `nrt`: MemInfos of Numba's runtime, at the ends of the functions that make them and at the beginning of
//! the one that frees them. Layout: <https://github.com/numba/numba/blob/0.60.0/numba/core/runtime/nrt.cpp>.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use pyobs_abi::{
    nrt::{DATA, Death, extent},
    record,
};

use crate::common::{
    maps::watched,
    memory::user,
    probe,
    ring::{self, Route},
};

/// A function returns a new MemInfo.
#[uprobe]
pub fn nrt_birth(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    let Some(process) = watched() else { return 0 };
    let address = probe::result(&context);
    if address == 0 {
        return 0;
    }
    let [data, size] = user::<[u64; 2]>(address.wrapping_add(DATA)).unwrap_or([0; 2]);
    let detail = [address, extent(address, data, size)];
    probe::send_stack(&context, process, record::NRT_BIRTH, detail);
    0
}

/// A MemInfo, the first argument, is about to be freed.
#[uprobe]
pub fn nrt_death(context: ProbeContext) -> u32 {
    probe::stay_on_the_threads_stack(&context);
    if watched().is_none() {
        return 0;
    }
    let [address, ..] = probe::arguments(&context);
    ring::send(&Death { header: ring::header(record::NRT_DEATH), address }, Route::lazy());
    0
}
