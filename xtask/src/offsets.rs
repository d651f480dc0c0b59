//! `cargo xtask offsets [--check] [PYTHON...]`: writes the offsets of CPython's structures, read from the debug
//! information of real interpreters, to userspace/capture/src/cpython/offsets.toml.
//!
//! No number in the table is typed by hand: [`FIELDS`] lists the fields by their names in C, and DWARF says where they
//! are. The test `capture` includes this file to compare the committed table with the interpreters at hand.

use anyhow::{Context as _, Result, bail, ensure};
use gimli::{EndianSlice, LittleEndian};
use object::{Object as _, ObjectSection as _};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

// By path, because the test includes this file from elsewhere.
#[path = "offsets/dwarf.rs"]
mod dwarf;
use dwarf::{Slice, Types};

/// A table of structures, each a table of fields.
pub type Fields = BTreeMap<String, BTreeMap<String, toml::Value>>;

/// The versions whose layout is generated. Newer ones publish it themselves, except what the last of these supplements.
const MINORS: std::ops::RangeInclusive<u8> = 6..=13;
/// From this version on, an entry is only a supplement.
const SUPPLEMENTED: u8 = 13;

/// Which property of a structure is needed.
enum Ask {
    /// The offset of the first of these members that exists; dots lead through nested structures.
    Offset(&'static [&'static str]),
    /// The same in bits, within the word of the bit field.
    Shift(&'static str),
    /// The size of the structure.
    Size,
    /// The size of this member.
    Width(&'static str),
}
use Ask::{Offset, Shift, Size, Width};

/// One number of the table: the structure and the field, the C types that may have it, the property of the first that
/// exists, and the minor versions that must have it.
type Field = (&'static str, &'static str, &'static [&'static str], Ask, std::ops::RangeInclusive<u8>);

const RUNTIME: &[&str] = &["_PyRuntimeState"];
const INTERPRETER: &[&str] = &["PyInterpreterState"];
const THREAD: &[&str] = &["PyThreadState"];
const CFRAME: &[&str] = &["_PyCFrame"];
/// Since 3.11 a `PyFrameObject` is made only on demand, and the interpreter runs on the other structure. The one that
/// exists is the one to read.
const FRAME: &[&str] = &["_PyInterpreterFrame", "PyFrameObject"];
const CODE: &[&str] = &["PyCodeObject"];
const GIL: &[&str] = &["_gil_runtime_state"];
const OBJECT: &[&str] = &["PyObject"];
const ASCII: &[&str] = &["PyASCIIObject"];
const BYTES: &[&str] = &["PyBytesObject"];

const FIELDS: &[Field] = &[
    ("runtime", "size", RUNTIME, Size, 7..=12),
    ("runtime", "interpreters_head", RUNTIME, Offset(&["interpreters.head"]), 7..=12),
    ("runtime", "auto_tss_key", RUNTIME, Offset(&["gilstate.autoTSSkey", "autoTSSkey"]), 7..=12),
    ("runtime", "tstate_current", RUNTIME, Offset(&["gilstate.tstate_current"]), 7..=11),
    ("runtime", "gil", RUNTIME, Offset(&["ceval.gil"]), 7..=11),
    ("interpreter", "size", INTERPRETER, Size, 6..=12),
    ("interpreter", "next", INTERPRETER, Offset(&["next"]), 6..=12),
    ("interpreter", "id", INTERPRETER, Offset(&["id"]), 7..=12),
    ("interpreter", "threads_head", INTERPRETER, Offset(&["threads.head", "tstate_head"]), 6..=12),
    ("interpreter", "builtins", INTERPRETER, Offset(&["builtins"]), 6..=12),
    ("interpreter", "gil", INTERPRETER, Offset(&["ceval.gil"]), 12..=13),
    ("thread_state", "size", THREAD, Size, 6..=12),
    ("thread_state", "next", THREAD, Offset(&["next"]), 6..=12),
    ("thread_state", "interpreter", THREAD, Offset(&["interp"]), 6..=12),
    // 3.10 has both; there the second is only for tracing.
    ("thread_state", "frame", THREAD, Offset(&["frame", "cframe"]), 6..=12),
    ("thread_state", "thread_id", THREAD, Offset(&["thread_id"]), 6..=12),
    ("thread_state", "native_thread_id", THREAD, Offset(&["native_thread_id"]), 11..=12),
    ("cframe", "current_frame", CFRAME, Offset(&["current_frame"]), 11..=12),
    ("frame", "previous", FRAME, Offset(&["previous", "f_back"]), 6..=12),
    ("frame", "code", FRAME, Offset(&["f_code"]), 6..=12),
    ("frame", "instruction", FRAME, Offset(&["prev_instr", "f_lasti"]), 6..=12),
    ("frame", "owner", FRAME, Offset(&["owner"]), 11..=12),
    ("frame", "is_entry", FRAME, Offset(&["is_entry"]), 11..=11),
    // Not read for every frame.
    ("stack", "pointer", FRAME, Offset(&["f_valuestack"]), 8..=10),
    ("stack", "locals", FRAME, Offset(&["localsplus"]), 11..=12),
    ("stack", "local_count", CODE, Offset(&["co_nlocalsplus"]), 11..=12),
    ("code", "size", CODE, Size, 6..=12),
    ("code", "argcount", CODE, Offset(&["co_argcount"]), 6..=12),
    ("code", "posonlyargcount", CODE, Offset(&["co_posonlyargcount"]), 8..=12),
    ("code", "kwonlyargcount", CODE, Offset(&["co_kwonlyargcount"]), 6..=12),
    ("code", "flags", CODE, Offset(&["co_flags"]), 6..=12),
    ("code", "firstlineno", CODE, Offset(&["co_firstlineno"]), 6..=12),
    ("code", "name", CODE, Offset(&["co_name"]), 6..=12),
    ("code", "qualname", CODE, Offset(&["co_qualname"]), 11..=12),
    ("code", "filename", CODE, Offset(&["co_filename"]), 6..=12),
    ("code", "linetable", CODE, Offset(&["co_linetable", "co_lnotab"]), 6..=12),
    ("code", "bytecode", CODE, Offset(&["co_code"]), 6..=10),
    ("code", "code_adaptive", CODE, Offset(&["co_code_adaptive"]), 11..=12),
    ("object", "size", OBJECT, Size, 6..=12),
    ("object", "type_", OBJECT, Offset(&["ob_type"]), 6..=12),
    ("unicode", "length", ASCII, Offset(&["length"]), 6..=12),
    ("unicode", "state", ASCII, Offset(&["state"]), 6..=12),
    ("unicode", "kind_shift", ASCII, Shift("state.kind"), 6..=12),
    ("unicode", "compact_shift", ASCII, Shift("state.compact"), 6..=12),
    ("unicode", "ascii_shift", ASCII, Shift("state.ascii"), 6..=12),
    ("unicode", "ascii_data", ASCII, Size, 6..=12),
    ("unicode", "compact_data", &["PyCompactUnicodeObject"], Size, 6..=12),
    ("bytes", "length", BYTES, Offset(&["ob_base.ob_size"]), 6..=12),
    ("bytes", "data", BYTES, Offset(&["ob_sval"]), 6..=12),
    ("gil", "size", GIL, Size, 7..=13),
    ("gil", "interval", GIL, Offset(&["interval"]), 7..=11),
    ("gil", "holder", GIL, Offset(&["last_holder"]), 7..=13),
    ("gil", "locked", GIL, Offset(&["locked"]), 7..=13),
    ("gil", "condition", GIL, Offset(&["cond"]), 7..=13),
    ("gil", "condition_size", GIL, Width("cond"), 7..=13),
];

/// The layout of one interpreter, and the build that it was read from.
#[derive(Debug)]
pub struct Generated {
    pub version: String,
    pub minor: u8,
    pub built_from: BTreeMap<&'static str, toml::Value>,
    pub fields: Fields,
}

pub fn run(args: &[String]) -> Result<()> {
    let mut check = false;
    let mut pythons = Vec::new();
    for arg in args {
        match arg.as_str() {
            "--check" => check = true,
            option if option.starts_with('-') => {
                bail!("cargo xtask offsets knows --check and paths of interpreters, not {option}")
            }
            path => pythons.push(PathBuf::from(path)),
        }
    }
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../userspace/capture/src/cpython/offsets.toml");
    let given = !pythons.is_empty();
    let (generated, skipped) = generate(if given { pythons } else { find_interpreters() });
    for (path, why) in &skipped {
        println!("skipped {}: {why:#}", path.display());
    }
    if check {
        let committed = fs::read_to_string(&table).with_context(|| format!("cannot read {}", table.display()))?;
        let compared = compare(&committed, &generated)?;
        ensure!(
            !compared.is_empty(),
            "no CPython 3.6 to 3.13 with debug information was found to compare the table with"
        );
        println!("the table agrees with {}", compared.join(", "));
        return Ok(());
    }
    let missing: Vec<_> =
        MINORS.filter(|minor| !generated.contains_key(minor)).map(|minor| format!("3.{minor}")).collect();
    ensure!(
        missing.is_empty(),
        "no interpreter with debug information for {}: the table was not changed",
        missing.join(", ")
    );
    fs::write(&table, render(&generated)).with_context(|| format!("cannot write {}", table.display()))?;
    println!("wrote the layouts of {} versions", generated.len());
    Ok(())
}

/// Files that may be an interpreter, in pyenv's versions and on the PATH.
pub fn find_interpreters() -> Vec<PathBuf> {
    let home = |variable: &str| env::var_os(variable).map(PathBuf::from);
    let root = home("PYENV_ROOT").or_else(|| Some(home("HOME")?.join(".pyenv")));
    let listed = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    for version in root.into_iter().flat_map(|root| listed(root.join("versions"))) {
        found.extend(
            listed(version.join("lib")).chain(listed(version.join("bin"))).filter(|path| is_interpreter_name(path)),
        );
    }
    for folder in env::var_os("PATH").iter().flat_map(env::split_paths) {
        found.extend(listed(folder).filter(|path| is_interpreter_name(path)));
    }
    // A library has several names, and a launcher beside it has no structures.
    let mut found: Vec<PathBuf> =
        found.into_iter().filter_map(|path| fs::canonicalize(path).ok()).filter(|path| is_elf(path)).collect();
    found.sort();
    found.dedup();
    found
}

fn is_interpreter_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let version = name.strip_prefix("libpython3.").or_else(|| name.strip_prefix("python3.")).unwrap_or_default();
    version.starts_with(|first: char| first.is_ascii_digit())
        && !version.contains("-config")
        && !version.ends_with(".py")
}

fn is_elf(path: &Path) -> bool {
    let mut start = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok_and(|()| start == *b"\x7fELF")
}

/// The layout of each minor version found, from its first build, and the files without one, with the reasons.
pub fn generate(pythons: Vec<PathBuf>) -> (BTreeMap<u8, Generated>, Vec<(PathBuf, anyhow::Error)>) {
    let (mut generated, mut skipped) = (BTreeMap::new(), Vec::new());
    for path in pythons {
        match read(&path) {
            Ok(one) => drop(generated.entry(one.minor).or_insert(one)),
            Err(why) => skipped.push((path, why)),
        }
    }
    (generated, skipped)
}

fn render(generated: &BTreeMap<u8, Generated>) -> String {
    let mut text = String::from(
        "# Generated by `cargo xtask offsets` out of the debug information of the builds named here. Do not edit.\n",
    );
    for one in generated.values() {
        let kind = if one.minor >= SUPPLEMENTED { "supplement" } else { "layout" };
        let what = if one.minor >= SUPPLEMENTED { ", what its own table of offsets leaves out" } else { "" };
        text += &format!("\n# CPython {}{what}\n[[{kind}]]\n\n[{kind}.built_from]\n", one.version);
        for (key, value) in &one.built_from {
            text += &format!("{key} = {value}\n");
        }
        text += &format!("\n[{kind}.fields]\nversion = [3, {}]\n", one.minor);
        for (structure, fields) in &one.fields {
            text += &format!("\n[{kind}.fields.{structure}]\n");
            for (field, value) in fields {
                text += &format!("{field} = {value}\n");
            }
        }
    }
    text
}

/// The versions whose committed layout equals the generated one. The first difference is an error that names the field.
pub fn compare(committed: &str, generated: &BTreeMap<u8, Generated>) -> Result<Vec<String>> {
    let table: toml::Table = toml::from_str(committed).context("the committed table is not TOML")?;
    let array = |kind| table.get(kind).and_then(toml::Value::as_array);
    let layouts = array("layout").context("the committed table has no layouts")?;
    let layouts: Vec<_> = layouts.iter().chain(array("supplement").into_iter().flatten()).collect();
    let mut compared = Vec::new();
    for one in generated.values() {
        let version = toml::Value::from(vec![3, i64::from(one.minor)]);
        let layout = layouts
            .iter()
            .find(|layout| layout.get("fields").and_then(|fields| fields.get("version")) == Some(&version));
        let Some(fields) = layout.and_then(|layout| layout.get("fields")).and_then(toml::Value::as_table) else {
            bail!("the committed table has no layout for CPython {}", one.version);
        };
        let committed_version = layout.and_then(|layout| layout.get("built_from")?.get("version")?.as_str());
        // Within a minor version only the size of the runtime and what lies behind it vary, which find.rs handles.
        let same_release = committed_version == Some(one.version.as_str());
        let mut structures: Vec<&str> = one.fields.keys().map(String::as_str).collect();
        structures.extend(
            fields.keys().map(String::as_str).filter(|key| *key != "version" && !one.fields.contains_key(*key)),
        );
        for structure in structures.into_iter().filter(|structure| same_release || *structure != "runtime") {
            let empty = (toml::Table::new(), BTreeMap::new());
            let ours = fields.get(structure).and_then(toml::Value::as_table).unwrap_or(&empty.0);
            let theirs = one.fields.get(structure).unwrap_or(&empty.1);
            for field in ours.keys().chain(theirs.keys()) {
                let shown = |value: Option<&toml::Value>| value.map_or("nothing".to_owned(), ToString::to_string);
                let (ours, theirs) = (ours.get(field), theirs.get(field));
                // The size of an interpreter state grows with micro releases, but is not used.
                ensure!(
                    ours == theirs || (!same_release && field == "size"),
                    "{structure}.{field} of CPython {}: the table has {}, the interpreter's debug information says {}",
                    one.version,
                    shown(ours),
                    shown(theirs),
                );
            }
        }
        compared.push(one.version.clone());
    }
    Ok(compared)
}

fn read(path: &Path) -> Result<Generated> {
    let data = fs::read(path).context("cannot read it")?;
    let file = object::File::parse(&*data).context("not an ELF file")?;
    let section = |id: gimli::SectionId| -> Result<Slice<'_>> {
        let Some(section) = file.section_by_name(id.name()) else { return Ok(EndianSlice::new(&[], LittleEndian)) };
        Ok(EndianSlice::new(section.data().context("its debug information is compressed or truncated")?, LittleEndian))
    };
    ensure!(file.section_by_name(".debug_info").is_some(), "it has no debug information");
    let (version, minor) = version(&file)?;
    ensure!(MINORS.contains(&minor), "CPython {version} says its layout itself");
    let fields_of_it = FIELDS.iter().filter(|field| field.4.contains(&minor));
    let wanted: Vec<&str> = fields_of_it.flat_map(|field| field.2).copied().collect();
    let (types, producer) = Types::read(&gimli::Dwarf::load(section)?, &wanted)?;
    let object = types.structures.get(OBJECT[0]);
    ensure!(
        object.is_none_or(|object| types.member(object, "_ob_next").is_none()),
        "its objects have the additional fields of Py_TRACE_REFS"
    );
    let mut built_from = BTreeMap::from([
        ("version", toml::Value::from(version.as_str())),
        ("file", path.file_name().and_then(|name| name.to_str()).unwrap_or_default().into()),
        ("file_size", i64::try_from(data.len())?.into()),
        ("producer", producer.into()),
    ]);
    if let Some(id) = file.build_id()? {
        built_from.insert("build_id", id.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into());
    }
    Ok(Generated { fields: fields(&types, minor)?, version, minor, built_from })
}

fn fields(types: &Types, minor: u8) -> Result<Fields> {
    let mut found = Fields::new();
    let mut header_size = 0;
    // The table needs this key even if it is empty.
    if minor < SUPPLEMENTED {
        found.entry("runtime".into()).or_default();
    }
    for (structure, field, names, ask, minors) in FIELDS {
        let answer = names.iter().find_map(|name| types.structures.get(*name)).and_then(|of| match ask {
            Size => Some((of.size, 0)),
            Offset(paths) => paths.iter().find_map(|path| types.member(of, path)).map(|at| (at.bits / 8, at.size)),
            Shift(path) => {
                let (word, _) = path.split_once('.')?;
                Some((types.member(of, path)?.bits - types.member(of, word)?.bits, 0))
            }
            Width(path) => Some((types.member(of, path)?.size, 0)),
        });
        if !minors.contains(&minor) {
            continue;
        }
        let (value, size) =
            answer.with_context(|| format!("its debug information has no {structure}.{field} ({})", names[0]))?;
        if *structure == "frame" {
            header_size = header_size.max(value + size);
        }
        found.entry((*structure).into()).or_default().insert((*field).into(), i64::try_from(value)?.into());
    }
    if minor >= SUPPLEMENTED {
        let gil = types.structures.get(GIL[0]);
        ensure!(gil.is_none_or(|gil| types.member(gil, "enabled").is_none()), "its GIL is one that can be off");
        return Ok(found);
    }
    // The meaning of the numbers is not in the debug information but depends on the version: see
    // Include/cpython/frameobject.h and Objects/codeobject.c until 3.10, Include/internal/pycore_frame.h since.
    let frame = found.entry("frame".into()).or_default();
    frame.insert("header_size".into(), i64::try_from(header_size)?.into());
    let position = match minor {
        ..=9 => "byte-index",
        10 => "unit-index",
        _ => "previous-pointer",
    };
    frame.insert("position".into(), position.into());
    if minor >= 12 {
        frame.insert("shim_owner".into(), 3.into());
    }
    Ok(found)
}

/// The version by the file's own constants: `Py_Version` if it exists, otherwise the only string whose end looks like a
/// version.
fn version(file: &object::File<'_>) -> Result<(String, u8)> {
    use object::ObjectSymbol as _;
    ensure!(
        file.dynamic_symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok("PyCode_Type")),
        "it is not CPython"
    );
    let constants = file.section_by_name(".rodata").context("it has no constants")?;
    if let Some(symbol) = file.dynamic_symbols().find(|symbol| symbol.name() == Ok("Py_Version")) {
        let at = usize::try_from(symbol.address().wrapping_sub(constants.address()))?;
        let word = constants.data()?.get(at..at + 4).context("Py_Version is not among its constants")?;
        let [_, micro, minor, major] = [word[0], word[1], word[2], word[3]];
        return Ok((format!("{major}.{minor}.{micro}"), minor));
    }
    let parse = |text: &[u8]| {
        // The linker may store a string as the end of a longer one, such as a path that ends in the version.
        let start = text.iter().rposition(|byte| !byte.is_ascii_digit() && *byte != b'.').map_or(0, |at| at + 1);
        let text = std::str::from_utf8(&text[start..]).ok()?;
        let numbers: Vec<u8> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        (numbers.len() == 3 && numbers[0] == 3 && MINORS.contains(&numbers[1])).then(|| (text.to_owned(), numbers[1]))
    };
    let mut versions: Vec<_> = constants.data()?.split(|byte| *byte == 0).filter_map(parse).collect();
    versions.sort();
    versions.dedup();
    ensure!(versions.len() == 1, "its constants do not say which CPython it is");
    Ok(versions.remove(0))
}
