//! The probe families and their specifications: the only list of them in the crate.
//!
//! What a family does is in its folder below `families`. `doctor`, `--probe`, the help texts and the tables
//! in docs/cli.md are derived from here.

use std::sync::LazyLock;

use pyobs_model::Family;

use crate::families;
use crate::family::FamilySpec;
use crate::kernel::object::system_calls::{self, Points};
use crate::kernel::object::{Contents, LIFECYCLE, MAPPINGS};
use crate::kernel::program::ProgramSpec;
use crate::pipeline::decode::Kind;

/// In the order of [`Family::ALL`].
pub static SPECS: [FamilySpec; Family::ALL.len()] = [
    families::cpu::SPEC,
    families::offcpu::SPEC,
    families::gil::SPEC,
    families::eval::SPEC,
    families::arena::SPEC,
    families::heap::SPEC,
    families::shm::SPEC,
    families::nrt::SPEC,
    families::ucx::SPEC,
    families::redundancy::SPEC,
    families::tasks::SPEC,
];

/// Programs that run whichever family is on.
const SHARED: [ProgramSpec; 3] = [
    ProgramSpec::new(LIFECYCLE[0].0, &Family::ALL),
    ProgramSpec::new(LIFECYCLE[1].0, &Family::ALL),
    ProgramSpec::new(LIFECYCLE[2].0, &Family::ALL),
];

/// The programs of the families that watch system calls. They also report executable mappings, which can be
/// found in other ways without them.
fn at_system_calls() -> [ProgramSpec; 4] {
    let families = of_system_calls();
    [
        ProgramSpec::new(system_calls::SINGLE[0], families),
        ProgramSpec::new(system_calls::SINGLE[1], families),
        ProgramSpec::new(system_calls::ALL[0], families).optional().typed(system_calls::TYPES[0]),
        ProgramSpec::new(system_calls::ALL[1], families).optional().typed(system_calls::TYPES[1]),
    ]
}

/// The programs that serve the same families at the kernel's tracepoints of mappings, where it has these.
fn at_mappings() -> [ProgramSpec; 2] {
    MAPPINGS.map(|(name, _)| ProgramSpec::new(name, of_system_calls()).optional())
}

pub fn spec(family: Family) -> &'static FamilySpec {
    &SPECS[family as usize]
}

/// Kinds of records are below this.
const KINDS: usize = 64;

/// The kind of a record; `None` if it belongs to no family.
pub fn kind(kind: u32) -> Option<Kind> {
    static TABLE: LazyLock<[Option<Kind>; KINDS]> = LazyLock::new(|| {
        let mut table = [None; KINDS];
        for FamilySpec { family, stacks, records, .. } in &SPECS {
            for (kinds, has_stack) in [(stacks, true), (records, false)] {
                for kind in *kinds {
                    table[*kind as usize] = Some(Kind { family: *family, has_stack });
                }
            }
        }
        table
    });
    *TABLE.get(kind as usize)?
}

/// The contents of the object. Maps of families that are not `wanted` take no memory.
pub fn contents(wanted: impl Fn(Family) -> bool) -> Contents {
    let programs = SPECS.iter().flat_map(|spec| spec.programs);
    let sizes = SPECS.iter().flat_map(|spec| {
        let is_wanted = wanted(spec.family);
        spec.maps.iter().filter_map(move |map| Some((map.name, if is_wanted { map.on? } else { map.off })))
    });
    Contents {
        programs: SHARED.into_iter().chain(at_system_calls()).chain(at_mappings()).chain(programs.copied()).collect(),
        sizes: sizes.collect(),
        offsets: SPECS.iter().filter_map(|spec| spec.offsets).collect(),
    }
}

/// The bits of these families in the kernel side's word.
pub fn control_bits(families: &[Family]) -> u64 {
    families.iter().fold(0, |bits, family| bits | spec(*family).control_bit)
}

/// The families that attach probes to functions, which takes CAP_SYS_ADMIN.
pub fn with_probes() -> &'static [Family] {
    static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| those(|spec| spec.puts_probes));
    &FAMILIES
}

/// The families that watch system calls.
pub fn of_system_calls() -> &'static [Family] {
    static FAMILIES: LazyLock<Vec<Family>> =
        LazyLock::new(|| those(|spec| spec.system_calls.iter().any(|calls| !calls.is_empty())));
    &FAMILIES
}

fn those(belongs: impl Fn(&FamilySpec) -> bool) -> Vec<Family> {
    SPECS.iter().filter(|spec| belongs(spec)).map(|spec| spec.family).collect()
}

/// The system calls that these families need.
pub fn points(families: &[Family]) -> Points {
    let [beginnings, ends] =
        [0, 1].map(|which| families.iter().flat_map(move |family| spec(*family).system_calls[which]).copied());
    Points { beginnings: beginnings.collect(), ends: ends.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_is_in_its_place() {
        for (spec, family) in SPECS.iter().zip(Family::ALL) {
            assert_eq!(spec.family, family);
        }
    }

    #[test]
    fn a_record_is_of_one_family() {
        let mut kinds: Vec<_> = SPECS.iter().flat_map(|spec| spec.stacks.iter().chain(spec.records)).collect();
        let all = kinds.len();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), all);
        let samples = kind(pyobs_abi::record::CPU_SAMPLE);
        assert_eq!(samples, Some(Kind { family: Family::Cpu, has_stack: true }));
        assert_eq!(kind(pyobs_abi::record::PROCESS_FORK), None);
        assert_eq!(kind(u32::MAX), None);
    }

    #[test]
    fn a_program_is_listed_once() {
        let mut names: Vec<_> = contents(|_| true).programs.iter().map(|program| program.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn only_the_system_calls_are_looked_at_that_the_families_need() {
        assert_eq!(points(&[Family::Cpu, Family::Arena]).beginnings, ["munmap"]);
        assert_eq!(points(&[Family::Cpu]).beginnings, [""; 0]);
        assert!(points(&[Family::Shm]).ends.contains(&"memfd_create"));
    }

    #[test]
    fn maps_of_families_that_are_off_take_no_memory() {
        let size = |wanted: bool, name: &str| {
            contents(|_| wanted).sizes.into_iter().find(|(map, _)| *map == name).map(|(_, size)| size)
        };
        assert_eq!(size(false, "EVAL_CALLS"), Some(1));
        assert_eq!(size(true, "EVAL_CALLS"), None, "as the object's file has it");
        assert!(size(true, "REDUNDANCY_WATCHES") > size(false, "REDUNDANCY_WATCHES"));
    }
}
