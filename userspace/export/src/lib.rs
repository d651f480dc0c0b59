//! Writes a model in the formats of other tools, and as text for people: one file per format.
//!
//! All text in a model comes from watched processes, or from a recording that anyone may have written. Every format passes it
//! through [`escape`].

pub mod diff;
pub mod dump;
pub mod escape;
mod firefox;
mod folded;
mod html;
mod json;
mod left_out;
mod names;
pub mod perfetto;
pub mod pprof;
mod speedscope;
mod svg;
mod words;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

pub use left_out::left_out;
pub use pyobs_model::views::{Native, Weight};
use pyobs_model::{Model, Selection};
pub use words::redundancy::undecided;
pub use words::words;

/// Defines the formats. The name of each is that of its module, and the text is what `pyobs export --help` says of it.
macro_rules! formats {
    ($($format:ident = $module:ident: $about:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Format {
            $($format,)*
        }

        impl Format {
            pub const ALL: &'static [Self] = &[$(Self::$format),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$format => stringify!($module),)*
                }
            }

            /// What it is, and for which program.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$format => $about,)*
                }
            }

            fn write(self, model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
                match self {
                    $(Self::$format => $module::write(model, options, out),)*
                }
            }
        }
    };
}

formats! {
    Folded = folded: "one line a stack, root first, for flamegraph.pl and others",
    Svg = svg: "a flame graph for any browser",
    Speedscope = speedscope: "a file for https://www.speedscope.app",
    Pprof = pprof: "a profile for `go tool pprof`, with every weight that was recorded",
    Firefox = firefox: "threads with samples, waits and transfers, for https://profiler.firefox.com",
    Perfetto = perfetto: "waits, transfers, arenas and segments on a timeline, for https://ui.perfetto.dev",
    Html = html: "one page for any browser, without a network: findings, flame graphs, timeline, tables",
    Json = json: "what `report --json` writes, of the part that is selected",
}

impl Format {
    /// Whether the output is not text.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Pprof | Self::Perfetto)
    }

    /// Whether it shows single events, not only sums.
    pub fn shows_events(self) -> bool {
        matches!(self, Self::Speedscope | Self::Firefox | Self::Perfetto | Self::Html)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown {what} \"{name}\"; expected one of: {known}")]
pub struct UnknownName {
    name: String,
    what: &'static str,
    known: String,
}

macro_rules! named {
    ($kind:ty, $what:literal) => {
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $kind {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                let known = || Self::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
                let found = Self::ALL.iter().find(|kind| kind.name() == name).copied();
                found.ok_or_else(|| UnknownName { name: name.to_owned(), what: $what, known: known() })
            }
        }
    };
}

named!(Format, "format");

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub selection: Selection,
    pub weight: Weight,
    /// Whether the lines of a function stay apart.
    pub lines: bool,
    /// Ignored by `json`, which always has all frames.
    pub native: Native,
    /// The heading of a picture. The default says what the picture shows.
    pub title: Option<String>,
    /// The maximum length of the lists in `json`, and of the tables in `html`.
    pub limit: Option<usize>,
}

fn probes_of(weight: Weight) -> String {
    match weight.families() {
        [family] => format!("its probe `{family}` was"),
        families => {
            let names: Vec<_> = families.iter().map(|family| family.name()).collect();
            format!("its probes `{}` were", names.join("`, `"))
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the recording has no `{0}` data, because {probes} off; record with it on, or leave --weight out",
        probes = probes_of(*.0)
    )]
    NoData(Weight),
    #[error(
        "the recording has no samples, waits, transfers or memory, for {} were off; leave --probe out",
        perfetto::families()
    )]
    NoTimeline,
    #[error("the output could not be written: {0}")]
    Write(#[from] io::Error),
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Write(error.into())
    }
}

/// Writes the part of a model that `options` select.
pub fn export(model: &Model, format: Format, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    // JSON and HTML say which families were off, and a timeline has no weights. A weight other than the default was requested,
    // so there its absence is an error.
    let optional =
        matches!(format, Format::Json | Format::Html | Format::Perfetto) && options.weight == Weight::default();
    if !optional && !options.weight.is_known(model) {
        return Err(Error::NoData(options.weight));
    }
    format.write(model, options, out)
}
