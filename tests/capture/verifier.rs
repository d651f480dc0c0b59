//! Tests what the running kernel's verifier says about the programs, in both of their forms.

use pyobs_capture::kernel::features::Features;
use pyobs_capture::kernel::object::Object;
use pyobs_capture::registry;
use pyobs_tests::{Case, case, needs};

/// The verifier gives up after a million instructions (BPF_COMPLEXITY_LIMIT_INSNS). Other kernels need more for the
/// same program.
const LIMIT: u32 = 1_000_000;
const BUDGET_PERCENT: u32 = 60;

pub fn cases() -> Vec<Case> {
    let all = Features { loops: true, find_vma: true };
    let old = Features { loops: false, find_vma: false };
    let here = Features::of_running_kernel();
    let lacks = if here == all { Ok(()) } else { Err(format!("this kernel lacks something of {all:?}")) };
    let check = |name: &'static str, features| case(format!("verifier/{name}"), move || check(features));
    vec![
        check("every_program_loads_within_the_budget", here).needs(needs::root()),
        // If the running kernel lacks both features, the first case has tested this already.
        check("every_program_loads_within_the_budget_as_before_linux_5_17", old).needs(needs::root()).needs(lacks),
    ]
}

fn check(features: Features) {
    let mut object = Object::open(features, 0, registry::contents(|_| false)).unwrap();
    for program in object.verify() {
        let instructions = program.outcome.unwrap_or_else(|error| panic!("{features:?}: {error}")).unwrap_or(0);
        let most = LIMIT / 100 * BUDGET_PERCENT;
        assert!(instructions <= most, "{}: {instructions} instructions, the budget is {most}", program.name);
    }
}
