//! Tests the running kernel's own type information.

use pyobs_capture::kernel::btf::{Btf, BtfError};
use pyobs_tests::{Case, case, needs};

pub fn cases() -> Vec<Case> {
    vec![case("btf/known_offsets_are_right", offsets).needs(needs::btf())]
}

fn offsets() {
    let btf = Btf::of_running_kernel().unwrap();
    // struct list_head { next, prev } is the same in every kernel.
    assert_eq!(btf.offset("list_head", "prev").unwrap(), 8);
    // Since 4.16 it is in an anonymous union of struct page.
    assert!(btf.offset("page", "mapping").unwrap() >= 8);
    assert!(matches!(btf.offset("list_head", "sideways"), Err(BtfError::NoField { .. })));
}
