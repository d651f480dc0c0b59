//! Checks the sources as a reader finds them: no cycle of imports has more than two files, and each file begins with what it
//! is for.
//!
//! Imports between a module and the module it is in do not count: the two are one subject.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pyobs_tests::{Case, case, run};
use syn::visit::{self, Visit};

/// The source folders, each of one crate.
const CRATES: [&str; 9] = [
    "ebpf/abi/src",
    "ebpf/programs/src",
    "userspace/capture/src",
    "userspace/export/src",
    "userspace/model/src",
    "userspace/pyobs/src",
    "userspace/recording/src",
    "userspace/tui/src",
    "xtask/src",
];
const FILES_MAX: usize = 2;

/// The folders of the files that begin with what they are for; and by their extension, how a comment begins.
const SOURCES: [&str; 4] = ["ebpf", "userspace", "tests", "xtask"];
const COMMENTS: [(&str, &[&str]); 6] = [
    ("rs", &["//!"]),
    ("py", &["\"\"\"", "# "]),
    ("sh", &["# "]),
    ("c", &["//", "/*"]),
    ("cc", &["//", "/*"]),
    ("cpp", &["//", "/*"]),
];

/// A module's path in its crate; empty for the crate itself.
type Module = Vec<String>;
type Imports = BTreeMap<Module, BTreeSet<Module>>;

fn main() -> ExitCode {
    let mut cases: Vec<Case> =
        CRATES.iter().map(|folder| case(format!("circles/{folder}"), || check(folder))).collect();
    cases.push(case("circles/a_cycle_of_three_is_found", a_cycle_of_three_is_found));
    cases.extend(SOURCES.map(|folder| case(format!("purpose/{folder}"), || every_file_says_what_it_is_for(folder))));
    run(cases)
}

fn check(folder: &str) {
    let root = repository().join(folder);
    let mut sources = BTreeMap::new();
    let is_source = |path: &PathBuf| extension(path) == "rs" && !path.ends_with("tests.rs");
    for file in files(&root).into_iter().filter(is_source) {
        let inside = file.strip_prefix(&root).expect("it is in the folder");
        let mut module: Module =
            inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        sources.insert(module, fs::read_to_string(&file).expect("it can be read"));
    }
    assert!(sources.len() > 1, "{folder} has no files");
    let circles = circles(&imports(&sources));
    assert!(circles.is_empty(), "files that import each other: {circles:#?}");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(OsStr::to_str).unwrap_or_default()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("it is there").path());
    let mut found = Vec::new();
    for path in entries {
        // The target folder of a crate that was built on its own.
        if path.join("CACHEDIR.TAG").exists() {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn every_file_says_what_it_is_for(folder: &str) {
    let says_it = |path: &PathBuf| {
        let Some((_, comments)) = COMMENTS.iter().find(|(kind, _)| *kind == extension(path)) else { return true };
        let text = fs::read_to_string(path).expect("it can be read");
        let first = text.lines().find(|line| !line.starts_with("#!/"));
        first.is_some_and(|line| comments.iter().any(|comment| line.starts_with(comment)))
    };
    let silent: Vec<PathBuf> = files(&repository().join(folder)).into_iter().filter(|path| !says_it(path)).collect();
    assert!(silent.is_empty(), "files without a comment in the first line: {silent:#?}");
}

fn imports(sources: &BTreeMap<Module, String>) -> Imports {
    let modules: BTreeSet<&Module> = sources.keys().collect();
    let of = |module: &Module, source: &String| {
        let parsed = syn::parse_file(source).unwrap_or_else(|error| panic!("{}: {error}", module.join("::")));
        let mut paths = Paths::default();
        paths.visit_file(&parsed);
        let found = paths.found.iter().filter_map(|path| resolve(module, path, &modules));
        found.filter(|other| !other.starts_with(module) && !module.starts_with(other)).collect()
    };
    sources.iter().map(|(module, source)| (module.clone(), of(module, source))).collect()
}

/// The module of this crate that a path refers to.
fn resolve(own: &Module, path: &[String], modules: &BTreeSet<&Module>) -> Option<Module> {
    let (mut at, mut rest) = (own.clone(), path);
    match rest.first()?.as_str() {
        "crate" => (at, rest) = (Module::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|word| word == "super") {
                at.pop();
                rest = &rest[1..];
            }
        }
        child => {
            at.push(child.to_owned());
            if !modules.contains(&at) {
                return None;
            }
            rest = &rest[1..];
        }
    }
    for word in rest {
        at.push(word.clone());
        if !modules.contains(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

/// The paths that a file mentions, outside its tests.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl Paths {
    fn take(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.take(&path.tree, &with(&path.ident)),
            syn::UseTree::Name(name) => self.found.push(with(&name.ident)),
            syn::UseTree::Rename(rename) => self.found.push(with(&rename.ident)),
            syn::UseTree::Glob(_) => self.found.push(before.to_vec()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.take(item, before)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "test")
        };
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.take(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if words.len() > 1 {
            self.found.push(words);
        }
        visit::visit_path(self, path);
    }
}

/// Sets of files that import each other, directly or not, and are larger than allowed.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reaches = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            let others = imports.get(module).into_iter().flatten();
            next.extend(others.filter(|other| seen.insert((*other).clone())));
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> = imports.keys().map(|module| (module, reaches(module))).collect();
    let mut found = BTreeSet::new();
    for (module, others) in &reached {
        let circle: Vec<String> = others
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(*module)))
            .map(|other| other.join("::"))
            .collect();
        if circle.len() > FILES_MAX {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn a_cycle_of_three_is_found() {
    let sources = |third: &str| {
        let files =
            [("", "mod a; mod b; mod c;"), ("a", "use crate::b::B;"), ("b", "fn f() { super::c::g() }"), ("c", third)];
        let module = |path: &str| path.split_terminator("::").map(str::to_owned).collect::<Module>();
        files.iter().map(|(path, source)| (module(path), (*source).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let of = |third: &str| circles(&imports(&sources(third)));
    assert_eq!(of("use super::a::{A, Other};"), [["a", "b", "c"]]);
    assert_eq!(of("#[cfg(test)] mod tests { use crate::a::A; }"), [[""; 0]; 0]);
    assert_eq!(of("use super::b::B;"), [[""; 0]; 0], "two files may import each other");
}
