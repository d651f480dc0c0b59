//! What a guest checks: `cargo xtask kernels`, which boots it, and the tests, which judge it, share this list. Each check
//! is a file in guest/checks.

use pyobs_model::Family;

/// What is compared after the recordings. It must work even under a kernel that is too old.
pub(crate) const AFTERWARDS: [&str; 3] = ["doctor", "log", "confined"];

const FAMILIES: usize = Family::ALL.len();

/// What is recorded, which is the defaults, each family alone, and a recording that is killed; then [`AFTERWARDS`].
pub(crate) const ALL: [&str; FAMILIES + 5] = {
    let mut names = ["default"; FAMILIES + 5];
    let mut at = 0;
    while at < FAMILIES {
        names[1 + at] = Family::ALL[at].name();
        at += 1;
    }
    [names[1 + at], names[2 + at], names[3 + at], names[4 + at]] =
        ["killed", AFTERWARDS[0], AFTERWARDS[1], AFTERWARDS[2]];
    names
};
