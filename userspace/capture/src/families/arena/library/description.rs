//! Descriptions of libraries: which functions create and end arenas and objects, and where these functions
//! keep the relevant values.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use pyobs_abi::arena::library::{RESULT, STACK, Site, flags, value};
use serde::Deserialize;
use toml::Spanned;

use super::expression;

/// The descriptions built into pyobs.
const OWN: &[(&str, &str)] = &[
    ("cudf", include_str!("../../../../libraries/cudf.toml")),
    ("numpy", include_str!("../../../../libraries/numpy.toml")),
    ("pyarrow", include_str!("../../../../libraries/pyarrow.toml")),
    ("quelling_blade", include_str!("../../../../libraries/quelling_blade.toml")),
];
/// Upper limit on a user's description, in bytes.
const SIZE_MAX: u64 = 64 << 10;
const NAME_MAX: usize = 32;
/// The key for a slab's address.
const MEMORY: &str = "memory";

/// A library that the user asked for, by name or by file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named(String);

impl Named {
    /// On failure, returns one sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_file = text.contains('/') || Path::new(text).extension().is_some_and(|ending| ending == "toml");
        if is_file || OWN.iter().any(|(name, _)| *name == text) {
            return Ok(Self(text.to_owned()));
        }
        let names: Vec<&str> = OWN.iter().map(|(name, _)| *name).collect();
        Err(format!("there is no library `{text}`; there are {}, and files that end in .toml", names.join(" ")))
    }

    /// On failure, returns one sentence that names the file and the line.
    pub fn load(&self) -> Result<Description, String> {
        if let Some((name, text)) = OWN.iter().find(|(name, _)| *name == self.0) {
            return Description::parse(&format!("{name}.toml"), text);
        }
        let wrong = |why: String| format!("{}: {why}", self.0);
        let text = read(Path::new(&self.0)).map_err(|error| wrong(format!("it cannot be read: {error}")))?;
        if text.len() as u64 > SIZE_MAX {
            return Err(wrong(format!("it has more than {SIZE_MAX} bytes")));
        }
        Description::parse(&self.0, &text)
    }
}

/// Reads one byte more than the limit, so that a longer file is detected. Regular files only: a pipe or a
/// device could block or never end.
fn read(path: &Path) -> io::Result<String> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut text = String::new();
    file.take(SIZE_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

impl fmt::Display for Named {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    pub name: Arc<str>,
    pub file: String,
    pub probes: Vec<Probe>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Pattern for the base name of the mapped file; `*` matches any characters.
    pub module: String,
    /// Pattern for the symbol; `*` matches any characters.
    pub symbol: String,
    /// The symbol's line in the description.
    pub line: usize,
    pub role: Role,
    pub at: At,
    pub optional: bool,
    pub site: Site,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Opened,
    Closed,
    SlabAdded,
    ObjectBorn,
    ObjectDied,
    Destroyed,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum At {
    #[default]
    Entry,
    Return,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: Spanned<String>,
    module: Spanned<String>,
    #[serde(default)]
    probe: Vec<Spanned<ProbeText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeText {
    symbol: Spanned<String>,
    module: Option<String>,
    role: Role,
    #[serde(default)]
    at: At,
    #[serde(default)]
    optional: bool,
    arena: Option<Spanned<String>>,
    object: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
    bytes: Option<Spanned<String>>,
    uses: Option<Spanned<String>>,
    context: Option<Spanned<String>>,
    popped: Option<Spanned<String>>,
}

/// The error and its byte range in the text.
type Wrong = (Range<usize>, String);

impl Description {
    pub fn parse(file: &str, text: &str) -> Result<Self, String> {
        let say = |(span, why): Wrong| {
            let line = line(text, span.start);
            format!("{file}:{line}: {}; the library is not followed", why.trim().replace('\n', " "))
        };
        let parsed: Text = toml::from_str(text)
            .map_err(|error| say((error.span().unwrap_or_default(), error.message().to_owned())))?;
        Self::of(file, text, &parsed).map_err(say)
    }

    fn of(file: &str, text: &str, parsed: &Text) -> Result<Self, Wrong> {
        let name = parsed.name.get_ref();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        if name.is_empty()
            || name.len() > NAME_MAX
            || !name.chars().all(is_plain)
            || super::super::allocator::OWN.contains(&name.as_str())
        {
            let why = format!("a name has up to {NAME_MAX} letters, digits, `_`, `-` and `.`, and is not `pymalloc`");
            return Err((parsed.name.span(), why));
        }
        if parsed.module.get_ref().is_empty() {
            return Err((parsed.module.span(), "the name of the module's file is missing".to_owned()));
        }
        if parsed.probe.is_empty() {
            return Err((parsed.module.span(), "there is no [[probe]]".to_owned()));
        }
        let module = parsed.module.get_ref();
        let probes = parsed.probe.iter().map(|probe| Probe::of(text, module, &probe.span(), probe.get_ref()));
        Ok(Self { name: Arc::from(name.as_str()), file: file.to_owned(), probes: probes.collect::<Result<_, _>>()? })
    }
}

impl Probe {
    fn of(text: &str, module: &str, span: &Range<usize>, probe: &ProbeText) -> Result<Self, Wrong> {
        let mut site = Site::default();
        let values = [
            (value::ARENA, "arena", &probe.arena),
            (value::OBJECT, "object", &probe.object),
            (value::OBJECT, MEMORY, &probe.memory),
            (value::BYTES, "bytes", &probe.bytes),
            (value::USES, "uses", &probe.uses),
            (value::CONTEXT, "context", &probe.context),
            (value::POPPED, "popped", &probe.popped),
        ];
        for (index, key, text) in values {
            let Some(text) = text else { continue };
            let wrong = |why: String| (text.span(), why);
            let value = expression::parse(text.get_ref()).map_err(|why| wrong(format!("`{key}`: {why}")))?;
            if !probe.role.has(index, key) {
                return Err(wrong(format!("the role {} has no `{key}`", probe.role.name())));
            }
            match (probe.at, value.register) {
                (At::Entry, RESULT) => {
                    return Err(wrong(format!("`{key}`: there is a result only at = \"return\"")));
                }
                (At::Return, STACK) => {
                    return Err(wrong(format!("`{key}`: what is on the stack is not there any more at = \"return\"")));
                }
                (At::Return, register) if register < RESULT => site.flags |= flags::ARGUMENTS,
                _ => {}
            }
            site.values[index] = value;
            site.has |= 1 << index;
        }
        let has = |index: usize| site.has & (1 << index) != 0;
        let needed = match probe.role {
            Role::Opened | Role::Closed => (has(value::ARENA) || has(value::CONTEXT), "`arena` or `context`"),
            Role::ObjectBorn | Role::ObjectDied => (has(value::OBJECT), "`object`"),
            Role::Destroyed => (has(value::ARENA), "`arena`"),
            Role::SlabAdded => (true, ""),
        };
        if !needed.0 {
            return Err((span.clone(), format!("the role {} needs {}", probe.role.name(), needed.1)));
        }
        if matches!(probe.role, Role::Opened | Role::Closed) {
            site.flags |= flags::STACK;
        }
        if probe.role == Role::ObjectBorn && has(value::ARENA) {
            site.flags |= flags::IN_ARENA;
        }
        let (symbol, line) = (probe.symbol.get_ref().clone(), line(text, probe.symbol.span().start));
        let module = probe.module.as_deref().unwrap_or(module).to_owned();
        Ok(Self { module, symbol, line, role: probe.role, at: probe.at, optional: probe.optional, site })
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Closed => "closed",
            Self::SlabAdded => "slab_added",
            Self::ObjectBorn => "object_born",
            Self::ObjectDied => "object_died",
            Self::Destroyed => "destroyed",
        }
    }

    fn has(self, index: usize, key: &str) -> bool {
        match index {
            value::ARENA => true,
            // The object's slot holds a slab's address.
            value::OBJECT if key == MEMORY => matches!(self, Self::Opened | Self::SlabAdded),
            value::OBJECT => matches!(self, Self::ObjectBorn | Self::ObjectDied),
            value::BYTES => matches!(self, Self::Opened | Self::SlabAdded | Self::ObjectBorn),
            value::USES => self == Self::ObjectDied,
            value::CONTEXT => matches!(self, Self::Opened | Self::Closed),
            _ => self == Self::Closed,
        }
    }
}

/// The line number, from 1.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_pyobs_has_can_be_read() {
        for (name, _) in OWN {
            let description = Named::parse(name).unwrap().load().unwrap();
            assert_eq!(&*description.name, *name);
            assert!(description.probes.iter().any(|probe| probe.role == Role::ObjectBorn), "{name}");
        }
        assert!(Named::parse("qelling_blade").unwrap_err().contains("quelling_blade"));
        for path in ["/dev/zero", "/dev/"] {
            assert!(Named::parse(path).unwrap().load().unwrap_err().ends_with("it is no file"), "{path}");
        }
        assert!(Named::parse("./nowhere.toml").unwrap().load().unwrap_err().starts_with("./nowhere.toml: "));
    }

    const PROBE: &str = "name = \"lib\"\nmodule = \"lib*.so\"\n[[probe]]\nsymbol = \"made\"\nrole = \"object_born\"\n";

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, start, words) in [
            (format!("{PROBE}at = \"return\"\nobject = \"result\"\nsize = \"arg1\"\n"), "x.toml:8: ", "size"),
            (format!("{PROBE}at = \"return\"\nobject = \"rax\"\n"), "x.toml:7: ", "`object`: `rax` is no register"),
            (format!("{PROBE}object = \"result\"\n"), "x.toml:6: ", "only at = \"return\""),
            (format!("{PROBE}object = \"arg1\"\nuses = \"arg2\"\n"), "x.toml:7: ", "object_born has no `uses`"),
            (format!("{PROBE}object = \"arg1\"\nmemory = \"arg2\"\n"), "x.toml:7: ", "object_born has no `memory`"),
            (PROBE.to_owned(), "x.toml:3: ", "object_born needs `object`"),
            (PROBE.replace("object_born", "eaten"), "x.toml:5: ", "eaten"),
            (PROBE.replace("\"lib\"", "\"\\u001b[31m\""), "x.toml:1: ", "a name has"),
            ("name = \"lib\"\nmodule = \"lib*.so\"\n".to_owned(), "x.toml:2: ", "[[probe]]"),
            ("name = \"lib\"\nmodule = ".to_owned(), "x.toml:2: ", ""),
            ("name = \"lib\"\n\u{1}".to_owned(), "x.toml:2: ", ""),
        ] {
            let error = Description::parse("x.toml", &text).unwrap_err();
            assert!(error.starts_with(start) && error.contains(words) && !error.contains('\n'), "{error}");
        }
    }
}
