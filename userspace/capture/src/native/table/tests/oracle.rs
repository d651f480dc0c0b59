//! Compares tables with gimli's look-up and a full evaluation of the row it finds, expressions included.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gimli::{CfaRule, EvaluationResult, Location, Register, RegisterRule, UnwindContext, UnwindExpression};
use gimli::{UnwindSection, UnwindTableRow, Value, X86_64};
use object::{Object, ObjectSection};

use super::*;
use crate::native::rules::Bytes;

/// Addresses looked up per file. A debug build takes about 20 µs for each.
const ADDRESSES: usize = 3000;
/// How many of those are also found by scanning all functions; the others use gimli's table of
/// `.eh_frame_hdr`.
const SEARCHED: usize = 5;

/// The caller according to DWARF.
struct Oracle<'a> {
    section: &'a EhFrame<Bytes<'a>>,
    encoding: gimli::Encoding,
    registers: Registers,
}

impl Oracle<'_> {
    fn register(&self, register: Register) -> u64 {
        match register {
            X86_64::RSP => self.registers.rsp,
            X86_64::RBP => self.registers.rbp,
            X86_64::RA => self.registers.rip,
            Register(other) => memory(other.into()),
        }
    }

    fn evaluate(&self, expression: &UnwindExpression<usize>, cfa: Option<u64>) -> u64 {
        let mut evaluation = expression.get(self.section).unwrap().evaluation(self.encoding);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register))).unwrap()
                }
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(Value::Generic(memory(address))).unwrap()
                }
                other => panic!("{other:?}"),
            };
        }
        match evaluation.result()[..] {
            [gimli::Piece { location: Location::Address { address }, .. }] => address,
            ref other => panic!("{other:?}"),
        }
    }

    fn restored(&self, rule: &RegisterRule<usize>, cfa: u64) -> Option<u64> {
        Some(match rule {
            RegisterRule::Offset(offset) => memory(cfa.wrapping_add_signed(*offset)),
            RegisterRule::ValOffset(offset) => cfa.wrapping_add_signed(*offset),
            RegisterRule::Register(register) => self.register(*register),
            RegisterRule::Expression(expression) => memory(self.evaluate(expression, Some(cfa))),
            RegisterRule::ValExpression(expression) => self.evaluate(expression, Some(cfa)),
            _ => return None,
        })
    }

    fn step(&self, row: &UnwindTableRow<usize>) -> Step {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => self.register(*register).wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => self.evaluate(expression, None),
        };
        let rip = match row.register(X86_64::RA) {
            None => return Step::Nothing,
            Some(RegisterRule::Undefined) => return Step::End,
            Some(rule) => self.restored(&rule, cfa).unwrap(),
        };
        let rbp = match row.register(X86_64::RBP) {
            None | Some(RegisterRule::SameValue) => Some(self.registers.rbp),
            Some(rule) => self.restored(&rule, cfa),
        };
        Step::Caller { rsp: cfa, rip, rbp }
    }
}

/// Whether a row has a form that nearly all code uses, so that it must fit a rule.
fn plain(row: &UnwindTableRow<usize>) -> bool {
    let small = |offset: i64, limit| offset % 8 == 0 && (0..limit).contains(&(offset / 8));
    let cfa = matches!(row.cfa(), CfaRule::RegisterAndOffset { register: X86_64::RSP | X86_64::RBP, offset } if small(*offset, 1 << 16));
    cfa && row.register(X86_64::RA) == Some(RegisterRule::Offset(-8))
}

fn compare(rule: Rule, row: &UnwindTableRow<usize>, oracle: &Oracle<'_>, at: &str) {
    let (ours, theirs) = (step(rule, oracle.registers), oracle.step(row));
    match (&ours, &theirs) {
        (Step::Nothing, _) => {
            assert_eq!(rule, UNSUPPORTED, "{at}: {row:?}");
            assert!(!plain(row), "{at}: {row:?}");
        }
        (Step::Caller { rsp, rip, rbp: None }, Step::Caller { rsp: their_rsp, rip: their_rip, rbp: Some(_) }) => {
            assert_eq!((rsp, rip), (their_rsp, their_rip), "{at}: {row:?}");
            let saved = row.register(X86_64::RBP);
            assert!(!matches!(saved, None | Some(RegisterRule::SameValue | RegisterRule::Offset(-8000..=0))), "{at}");
        }
        _ => assert_eq!(ours, theirs, "{at}: {row:?}"),
    }
}

/// Compares at pseudo-random addresses and at the ends of their rows. Returns the number of addresses with a
/// row.
fn compare_file(name: &str, data: &[u8], table: &Table) -> usize {
    check(table);
    let elf = object::File::parse(data).unwrap();
    let Some(section) = elf.section_by_name(".eh_frame") else { return 0 };
    let bytes = section.data().unwrap();
    let mut eh_frame = EhFrame::new(bytes, LittleEndian);
    eh_frame.set_address_size(8);
    let header = elf.section_by_name(".eh_frame_hdr");
    let header_address = header.as_ref().map_or(0, ObjectSection::address);
    let header = gimli::EhFrameHdr::new(header.as_ref().map_or(&[][..], |header| header.data().unwrap()), LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address()).set_eh_frame_hdr(header_address);
    let header = header.parse(&bases, 8).ok();
    let sorted = header.as_ref().and_then(gimli::ParsedEhFrameHdr::table);

    let plts: Vec<Range<u64>> = [".plt", ".plt.sec", ".plt.got"]
        .iter()
        .filter_map(|name| elf.section_by_name(name))
        .map(|section| section.address()..section.address() + section.size())
        .collect();
    let code: u64 = table.code.segments.iter().map(|segment| segment.size).sum();
    let mut context = UnwindContext::new();
    let (mut seed, mut found) = (code, 0);
    for number in 0..ADDRESSES {
        seed = memory(seed + 1);
        let mut skip = seed % code;
        let segment = table.code.segments.iter().find(|segment| {
            let inside = skip < segment.size;
            skip -= if inside { 0 } else { segment.size };
            inside
        });
        let segment = segment.unwrap();
        let pc = segment.vaddr + skip;
        let look_up = |pc: u64| {
            let in_file = pc.wrapping_sub(segment.vaddr).wrapping_add(segment.offset);
            look_up(table, in_file.wrapping_sub(table.code.origin()))
        };
        let fde = match &sorted {
            Some(sorted) if number >= SEARCHED => {
                sorted.fde_for_address(&eh_frame, &bases, pc, EhFrame::cie_from_offset)
            }
            _ => eh_frame.fde_for_address(&bases, pc, EhFrame::cie_from_offset),
        };
        let Ok(fde) = fde else {
            // In padding the row before it applies. Elsewhere only stubs have rows that no section states.
            let rule = look_up(pc);
            let before = (1..=u64::from(GAP_MAX)).any(|back| look_up(pc.wrapping_sub(back)) == rule);
            assert!(rule == NONE || before || plts.iter().any(|plt| plt.contains(&pc)), "{name}: {pc:#x} has {rule:?}");
            continue;
        };
        let encoding = fde.cie().encoding();
        let row = fde.unwind_info_for_address(&eh_frame, &bases, &mut context, pc).unwrap();
        for pc in [pc, row.start_address(), row.end_address() - 1] {
            let registers = Registers { rip: pc, rsp: memory(pc) & !7, rbp: memory(!pc) & !7 };
            let oracle = Oracle { section: &eh_frame, encoding, registers };
            compare(look_up(pc), row, &oracle, &format!("{name} at {pc:#x}"));
        }
        found += 1;
    }
    found
}

/// The code files mapped by this process, plus an interpreter and a library with handwritten assembly if they
/// exist.
fn files() -> BTreeSet<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps
        .lines()
        .filter(|line| line.contains(" r-xp "))
        .filter_map(|line| line.split_ascii_whitespace().nth(5).map(PathBuf::from).filter(|path| path.is_absolute()));
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions"));
    let versions = home.and_then(|home| std::fs::read_dir(home).ok()).into_iter().flatten().flatten();
    let libraries = versions.map(|version| version.path().join("lib")).chain(["/usr/lib/x86_64-linux-gnu".into()]);
    let more =
        libraries.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten().map(|file| file.path());
    let wanted = ["libpython3.", "libcrypto.so.", "libstdc++.so."];
    let mut first: BTreeMap<&str, PathBuf> = BTreeMap::new();
    for path in more {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(wanted) = wanted.iter().find(|wanted| name.starts_with(**wanted) && name.contains(".so.")) {
            first.entry(wanted).or_insert(path);
        }
    }
    mapped.chain(first.into_values()).collect()
}

#[test]
fn every_row_steps_to_the_caller_that_full_evaluation_gives() {
    let mut compared = 0;
    for path in files() {
        let file = File::open(&path).unwrap();
        let table = read(&file, file.metadata().unwrap().len()).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let found = compare_file(&path.display().to_string(), &std::fs::read(&path).unwrap(), &table);
        assert!(found > ADDRESSES / 4, "{path:?}: {found} addresses have a row");
        compared += 1;
    }
    assert!(compared >= 2, "{compared} files");
}

/// The image of this process's vDSO.
pub fn vdso() -> Vec<u8> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
    let mut image = vec![0; usize::try_from(end - start).unwrap()];
    File::open("/proc/self/mem").unwrap().read_exact_at(&mut image, start).unwrap();
    image
}

#[test]
fn the_vdso_has_a_table() {
    let image = vdso();
    let table = of_memory(&image).unwrap();
    assert!(compare_file("[vdso]", &image, &table) > 0);
    assert_eq!(table.counts.unsupported_bytes, 0);
}

#[test]
fn the_c_library_returns_from_signals_and_ends_where_threads_begin() {
    let libc = files().into_iter().find(|path| path.to_string_lossy().contains("libc.so")).unwrap();
    let file = File::open(libc).unwrap();
    let table = read(&file, file.metadata().unwrap().len()).unwrap();
    let kinds: BTreeSet<u32> = table.words[table.pages as usize..].iter().map(|row| Rule(*row as u32).cfa()).collect();
    for kind in [cfa::SIGNAL, cfa::END, cfa::PLT, cfa::RBP] {
        assert!(kinds.contains(&kind), "{kind} is not among {kinds:?}");
    }
    assert!(table.counts.covered_bytes > 500_000);
    assert!(table.counts.unsupported_bytes * 1000 < table.counts.covered_bytes);
}
