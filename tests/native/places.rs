//! Tests kinds of code, and the ways in which it enters a process.

use std::fs;

use pyobs_abi::stack::{native, native_address};
use pyobs_tests::{Case, Folder, case, command, executable, needs, workload};

use crate::agrees;
use crate::programs::{library, start, start_command, stripped};
use crate::space::Space;
use crate::verdict::Least;
use crate::watch::{Plan, watch};

const PYTHON: &str = "3.12";

pub fn cases() -> Vec<Case> {
    let with_python = |name: &str, body: fn()| case(format!("places/{name}"), body).needs(needs::python(PYTHON));
    vec![
        with_python("the_kernels_code_in_user_space", vdso),
        with_python("generated_code_keeps_frame_pointers", jit),
        with_python("libraries_loaded_while_it_runs", loaded_later),
        with_python("handlers_on_their_own_stack", signal_handlers).needs(needs::compiler(&[])),
        with_python("stubs_of_the_linkage_table", || stubs(&["-Wl,-z,lazy"])).needs(needs::compiler(&[])),
        with_python("stubs_bound_at_once", || stubs(&["-Wl,-z,now"])).needs(needs::compiler(&[])),
        with_python("stubs_with_landing_marks", || stubs(&["-fcf-protection", "-Wl,-z,ibtplt"]))
            .needs(needs::compiler(&["-fcf-protection"])),
        with_python("exceptions_in_flight", exceptions).needs(needs::program("c++")),
        case("places/one_file_without_symbols", one_file).needs(stripped()),
        case("places/an_interpreter_inside_another_program", embedded)
            .needs(needs::embeddable(PYTHON))
            .needs(needs::compiler(&[])),
    ]
}

fn vdso() {
    let workload = start(&needs::python(PYTHON).unwrap(), "clocks");
    let space = Space::of(workload.pid());
    let (mut inside, mut complete) = (0, 0);
    let plan = Plan { rate_hz: 2000, ..Plan::default() };
    let verdict = watch(workload.pid(), plan, |copied| {
        let leaf = copied.native.first().and_then(|word| space.find(native_address(*word)));
        if leaf.is_some_and(|mapping| mapping.name == "[vdso]") {
            inside += 1;
            complete += u32::from(copied.sample.native == native::COMPLETE);
        }
    });
    eprintln!("clocks: {inside} in the vDSO; {}", verdict.summary());
    verdict.holds(&Least::default());
    assert!(inside >= 20, "{inside} samples in the vDSO");
    assert_eq!(inside, complete, "samples in the vDSO, and the complete ones among them");
}

/// Here the oracle uses frame pointers too: this only shows that stacks continue through such code.
fn jit() {
    let workload = start(&needs::python(PYTHON).unwrap(), "jit");
    let mut space = Space::of(workload.pid());
    let (mut through, mut leaves, mut complete) = (0, 0, 0);
    let verdict = watch(workload.pid(), Plan::default(), |copied| {
        space.refresh();
        let mut is_made = copied
            .native
            .iter()
            .map(|word| space.find(native_address(*word)).is_some_and(|mapping| mapping.name.is_empty()));
        let is_leaf = is_made.next() == Some(true);
        if is_leaf || is_made.any(|is_made| is_made) {
            through += 1;
            leaves += u32::from(is_leaf);
            complete += u32::from(copied.sample.native == native::COMPLETE);
        }
    });
    eprintln!("jit: {through} through generated code, {leaves} in it; {}", verdict.summary());
    verdict.holds(&Least::default());
    assert!(through >= 100 && leaves >= 20, "{through} samples through generated code, {leaves} in it");
    assert!(complete * 100 >= through * 98, "{complete} of {through} through generated code are complete");
}

/// Counts from the first sample on: a file that was just mapped has no table for some milliseconds.
fn loaded_later() {
    let workload = start(&needs::python(PYTHON).unwrap(), "later:3");
    let plan = Plan { samples: 2000, seconds: 6, ..Plan::default() };
    let verdict = agrees("later", &workload, plan, &Least::default());
    let of_new =
        |name: &str| verdict.leaves.iter().filter(|(leaf, _)| leaf.contains(name)).map(|(_, count)| count).sum();
    let counts: [u64; 2] = [of_new("liblzma"), of_new("_decimal")];
    assert!(counts.iter().all(|count| *count > 0), "no samples in the loaded libraries: {:?}", verdict.leaves);
}

fn signal_handlers() {
    let folder = Folder::new();
    let library = library("native_signals.c", &[], &folder);
    let workload = start(&needs::python(PYTHON).unwrap(), &format!("library:{library}"));
    // Copies the alternate stack and the thread's own.
    let plan = Plan { rate_hz: 250, pages: 132, ..Plan::default() };
    agrees("handlers", &workload, plan, &Least::default());
}

fn stubs(options: &[&str]) {
    let folder = Folder::new();
    let library = library("native_stubs.c", &[options, &["-fplt"]].concat(), &folder);
    let workload = start(&needs::python(PYTHON).unwrap(), &format!("library:{library}"));
    let plan = Plan { rate_hz: 2000, ..Plan::default() };
    let verdict = agrees(&format!("stubs {options:?}"), &workload, plan, &Least::default());
    assert!(verdict.leaves.get("library.so").is_some_and(|count| *count > 100), "{:?}", verdict.leaves);
}

fn exceptions() {
    let folder = Folder::new();
    let library = library("native_exceptions.cc", &[], &folder);
    let workload = start(&needs::python(PYTHON).unwrap(), &format!("library:{library}"));
    agrees("exceptions", &workload, Plan::default(), &Least::default());
}

fn one_file() {
    let python = stripped().unwrap();
    for work in ["mixed", "sorted"] {
        let workload = start(&python, work);
        agrees(&format!("{work} on {}", python.executable.display()), &workload, Plan::default(), &Least::default());
    }
}

fn embedded() {
    let (python, library) = needs::embeddable(PYTHON).unwrap();
    let folder = Folder::new();
    let program = executable(&workload("embed.c"), &folder);
    let mut embed = command(program);
    embed.arg(fs::canonicalize(library).unwrap()).arg(workload("native_stacks.py")).arg("0.5");
    embed.env("PYTHONHOME", python.executable.parent().unwrap().parent().unwrap());
    let mut workload = start_command(embed, "mixed");
    // The embedding program prints "ready" first, and then the script does.
    workload.wait_for("ready");
    agrees("embedded", &workload, Plan::default(), &Least::default());
}
