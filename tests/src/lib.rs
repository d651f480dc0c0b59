//! The harness of the tests that need a real machine: they run the real `pyobs`, or `pyobs-capture` itself, on real
//! programs and compare with an independent answer.
//!
//! A test program lists its [`Case`]s and hands them to [`run`]:
//!
//! ```no_run
//! use pyobs_tests::{Record, case, needs};
//!
//! fn main() -> std::process::ExitCode {
//!     pyobs_tests::run(vec![
//!         case("a_program_is_named", || {
//!             let python = needs::python("3.12").unwrap();
//!             let recording = Record::new().command(python.inline("sum(range(10**7))")).run();
//!             assert_eq!(recording.report["processes"][0]["python"], python.version);
//!         })
//!         .needs(needs::root())
//!         .needs(needs::python("3.12")),
//!     ])
//! }
//! ```
//!
//! - A case that cannot run on this machine is listed as *ignored*, with the reason; it never silently passes.
//! - A case runs alone, because it would disturb what others measure, unless it is marked with [`Case::beside`].
//! - Whatever a case starts ([`Workload`], [`Record`]) is killed with its process group when the case ends or panics,
//!   and by the kernel when the test program itself is killed. Programs under `tests/workloads` end by themselves too.
//! - Files live under `target/tmp` ([`Folder`]) and stay there only when the case fails.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

pub mod compare;
mod compiler;
pub mod control_group;
pub mod flaky;
mod folded;
mod folder;
pub mod fuzz;
pub mod json;
pub mod needs;
mod places;
mod python;
mod record;
mod refusing;
pub mod schema;
mod session;
mod trial;
mod workload;

pub use compiler::{
    executable, executable_named, plus_plus_library, python_module, shared_library, shared_library_named,
};
pub use folded::{Frame, Place, Stack, UNREADABLE};
pub use folder::Folder;
pub use places::{pyobs, workload};
pub use python::Python;
pub use record::{Record, Recording, Running};
pub use refusing::{refusing, rule};
pub use session::options;
pub use trial::{Case, case, run};
pub use workload::{Ended, Workload, command};
