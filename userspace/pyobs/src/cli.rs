//! The command line. The doc comments here are `--help` and the man page.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use pyobs_export::{Format, Native, Weight};
use pyobs_model::Nanos;
use pyobs_model::families::heap::HeapTime;

use crate::exit::{Failure, output};
use crate::probes::{self, Probes};

pub(crate) const EXAMPLES: &str = "\
EXAMPLES
  sudo pyobs top                              every Python process of this machine, live
  sudo pyobs top --pid 4242                   one process and the children that it starts
  sudo pyobs dump                             what every thread does right now, and who waits for whom
  sudo pyobs record --duration 30             half a minute of the whole machine, into a file
  sudo pyobs record -o run.pyobs -- python train.py
  pyobs report run.pyobs
  pyobs export run.pyobs --format svg -o run.svg
  pyobs replay run.pyobs
  pyobs diff before.pyobs after.pyobs         what increased, decreased, appeared or disappeared

EXIT STATUS
  0  success
  1  failure
  2  wrong arguments
  3  the machine or the user's rights lack something; `pyobs doctor` says what
  `record -- COMMAND` exits with the command's status, with 127 if there is no such
  command, with 126 if it cannot be executed, and with 128 + N if signal N ended it.";

/// See which lines of which Python functions burn the CPU, in every Python process of the machine, without changing,
/// restarting or stopping any of them.
#[derive(Debug, Parser)]
#[command(name = "pyobs", version, after_long_help = EXAMPLES, disable_help_subcommand = true, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Top(Top),
    Record(Record),
    Dump(Dump),
    Replay(Replay),
    Report(Report),
    Export(Export),
    Diff(Diff),
    Doctor(Doctor),
    Completions(Completions),
    Man(Man),
}

/// Show a live dashboard of the running Python processes.
///
/// Needs root, or the capabilities that `pyobs doctor` names. Press `?` in the dashboard for its keys.
#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) watch: Watch,
}

/// Record what `top` shows into a file.
///
/// Without --duration, --pid or a command, the recording ends at Ctrl-C. With --pid it also ends when these processes
/// and the children that they started have ended. A command is started and followed from its first instruction; the
/// recording ends when the command does, and pyobs exits with the command's status. The command keeps its own standard
/// streams, and pyobs writes only to stderr. Ctrl-C then reaches the command itself.
#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Write the recording to FILE, and replace one that exists [default: pyobs-DATE-TIME.pyobs]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Stop after this many seconds, such as 30 or 0.5
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration, allow_negative_numbers = true)]
    pub(crate) duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) watch: Watch,

    /// The command to start and follow, with its arguments
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments, conflicts_with_all = ["pid", "container", "cgroup", "comm", "user"])]
    pub(crate) command: Vec<OsString>,
}

/// Say what every thread of every Python process does right now.
///
/// Prints the stack of each thread with its lines, what the thread waits for and who has it, and threads that wait for
/// each other in a circle. Takes an instant; nothing is stopped. Processes of other users take root.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// Only this process and its descendants; may be given several times [default: every process]
    #[arg(long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x3f_ffff))]
    pub(crate) pids: Vec<u32>,

    /// Only processes in this container: its name, its pod's name, or the beginning of its id; may be given several times
    #[arg(long = "container", value_name = "NAME")]
    pub(crate) containers: Vec<String>,

    /// Native frames to show below and between Python frames of threads that do not run: all of them, all but the
    /// interpreter's own, or none
    #[arg(long, value_name = "WHAT", default_value = Native::None.name(), value_parser = natives())]
    pub(crate) native: Native,

    /// List the asyncio tasks too, as a tree of who awaits whom
    #[arg(long)]
    pub(crate) tasks: bool,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to watch, and how closely.
#[derive(Clone, Debug, Args)]
pub(crate) struct Watch {
    /// Watch only this process and the children that it starts; may be given several times [default: every process]
    #[arg(long = "pid", id = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x3f_ffff))]
    pub(crate) pids: Vec<u32>,

    /// Watch only processes in this container: its name, its pod's name, or the beginning of its id; may be given several
    /// times
    #[arg(long = "container", id = "container", value_name = "NAME", conflicts_with = "pid")]
    pub(crate) containers: Vec<String>,

    /// Watch only processes in this control group or below it; may be given several times
    #[arg(long = "cgroup", id = "cgroup", value_name = "PATH", conflicts_with = "pid")]
    pub(crate) cgroups: Vec<String>,

    /// Watch only processes that the kernel calls this, such as gunicorn; may be given several times
    #[arg(long = "comm", id = "comm", value_name = "NAME", conflicts_with = "pid")]
    pub(crate) comms: Vec<String>,

    /// Watch only processes of this user, by name or number; may be given several times
    #[arg(long = "user", id = "user", value_name = "NAME", conflicts_with = "pid")]
    pub(crate) users: Vec<String>,

    /// Take this many samples per second and CPU, from 1 to 20000 [default: 99]
    ///
    /// The budget lowers a rate that you type only if you type --budget too.
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000), allow_negative_numbers = true)]
    pub(crate) rate: Option<u32>,

    /// Switch families of probes: `cpu,gil` is exactly these, `+redundancy` adds to the default, `-shm` removes from it
    #[arg(long, value_name = "LIST", value_parser = probes::parse, allow_hyphen_values = true, long_help = probes::help())]
    pub(crate) probe: Option<Probes>,

    /// The share of all CPUs together, in percent, that pyobs may use [default: 1]
    ///
    /// With two CPUs, 1 is 2 % of a core. What pyobs sheds to stay inside it is shown and recorded, and comes back once
    /// there is room. Start-up work is counted separately. A budget that you type also binds what --rate and --probe
    /// request; the default one does not.
    #[arg(long, value_name = "PERCENT", value_parser = parse_budget, allow_negative_numbers = true)]
    pub(crate) budget: Option<f64>,
}

/// Show the dashboard over a recording.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A recording made by `pyobs record`
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// Say what happened in a recording, in words or as JSON.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// A recording made by `pyobs record`
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Write JSON: sizes in bytes, times in seconds since the recording began
    #[arg(long)]
    pub(crate) json: bool,

    /// List at most N rows of each list [default: 20 in words, all in JSON]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) limit: Option<usize>,

    #[command(flatten)]
    pub(crate) memory: Memory,
}

/// The moment at which the memory of processes is shown.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Memory {
    /// Show memory as it was at this moment: peak, when each process had most; end, the end of the recording; or a
    /// number of seconds since it began [default: peak for processes that have ended, else end]
    #[arg(long, value_name = "WHEN", value_parser = parse_at, allow_negative_numbers = true)]
    pub(crate) at: Option<At>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum At {
    Peak,
    End,
    Seconds(f64),
}

impl Memory {
    /// The moment, unless it is a time.
    pub(crate) fn moment(self) -> Option<HeapTime> {
        self.at.map(|at| if at == At::Peak { HeapTime::Peak } else { HeapTime::End })
    }

    /// The time after which nothing about memory counts.
    pub(crate) fn until(self) -> Option<Nanos> {
        if let Some(At::Seconds(seconds)) = self.at { Some(Nanos::from_secs_f64(seconds)) } else { None }
    }
}

/// Turn a recording into a flame graph or into another tool's format.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A recording made by `pyobs record`
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// What to write
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub(crate) format: Format,

    /// Write to OUT [default: standard output]
    #[arg(short, long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Only this process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,

    /// Only this thread
    #[arg(long, value_name = "TID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tid: Option<u32>,

    /// Only from this second of the recording on
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) from: Option<f64>,

    /// Only before this second of the recording
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) to: Option<f64>,

    /// What sizes mean: cpu, CPU time; offcpu, time asleep; gil, time waiting for the GIL; redundant, samples in native
    /// code that changed nothing; bytes, memory that was not freed
    ///
    /// `folded` and `svg` have samples for cpu, each standing for one sampling period of CPU time, and microseconds for
    /// offcpu and gil. Times are seconds in `speedscope`, milliseconds in `firefox`, and nanoseconds in `pprof`. The
    /// stacks of `gil` are the waiters'.
    #[arg(long, value_name = "WEIGHT", default_value = "cpu", value_parser = parse_weight)]
    pub(crate) weight: Weight,

    /// Distinguish the lines of a function, not only functions
    #[arg(long)]
    pub(crate) lines: bool,

    /// Native frames to show below and between Python frames: all of them, all but the interpreter's own, or none
    #[arg(long, value_name = "WHAT", default_value_t, value_parser = natives())]
    pub(crate) native: Native,

    #[command(flatten)]
    pub(crate) memory: Memory,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    let known = Format::ALL.iter().map(|format| PossibleValue::new(format.name()).help(format.about()));
    PossibleValuesParser::new(known).try_map(|name| name.parse::<Format>())
}

fn natives() -> impl TypedValueParser<Value = Native> {
    PossibleValuesParser::new(Native::ALL.map(Native::name)).try_map(|name| name.parse::<Native>())
}

/// Say what changed between two recordings: what is more, less, new or gone.
///
/// Compares functions by their shares of the samples, sleeps and waits for the GIL by their time per second, where
/// arenas and segments are born and stay, how long transfers take, and redundant loads and stores. Differences that
/// chance explains are not changes: two recordings of one program have none.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The recording to compare with
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) before: PathBuf,

    /// The recording that may have changed
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) after: PathBuf,

    /// Write JSON
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,

    /// Write a flame graph of both: red for frames with a larger own share than before, blue for those with a smaller one
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<DiffFormat>,

    /// Write to OUT [default: standard output]
    #[arg(short, long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// What the flame graph's widths mean, as in `export` [default: cpu]
    #[arg(long, value_name = "WEIGHT", value_parser = parse_weight, requires = "format")]
    pub(crate) weight: Option<Weight>,

    /// Native frames of the flame graph, as in `export` [default: libraries]
    #[arg(long, value_name = "WHAT", value_parser = natives(), requires = "format")]
    pub(crate) native: Option<Native>,

    /// At most N changes of each kind, in words [default: 20]
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with_all = ["json", "format"])]
    pub(crate) limit: Option<usize>,

    #[command(flatten)]
    pub(crate) memory: Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    Svg,
}

/// Say what works on this machine, what does not, why, and what to do about it.
///
/// Tries every capability for an instant, and leaves nothing behind. Exits with 3 if the default families lack
/// something.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// List every BPF program with the verifier's verdict
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// Write the completions of a shell, such as `pyobs completions bash > /etc/bash_completion.d/pyobs`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    pub(crate) shell: Shell,
}

/// Write the manual page, such as `pyobs man > /usr/local/share/man/man1/pyobs.1`.
#[derive(Debug, Args)]
pub(crate) struct Man {}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "this is not a number of seconds, such as 12.5".to_owned())?;
    if seconds.is_finite() && seconds >= 0.0 { Ok(seconds) } else { Err("seconds are 0 or more".to_owned()) }
}

fn parse_at(text: &str) -> Result<At, String> {
    match text {
        "peak" => Ok(At::Peak),
        "end" => Ok(At::End),
        _ => parse_seconds(text)
            .map(At::Seconds)
            .map_err(|_| "this is neither peak, end nor a number of seconds".to_owned()),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = Duration::try_from_secs_f64(parse_seconds(text)?).map_err(|_| "this is too long".to_owned())?;
    if duration.is_zero() { Err("a recording takes longer than 0 seconds".to_owned()) } else { Ok(duration) }
}

fn parse_budget(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "this is not a percentage, such as 0.5".to_owned())?;
    if percent.is_finite() && percent > 0.0 { Ok(percent) } else { Err("a budget is more than 0 percent".to_owned()) }
}

fn parse_weight(text: &str) -> Result<Weight, String> {
    let weight = Weight::ALL.into_iter().find(|weight| weight.name() == text);
    weight.ok_or_else(|| {
        format!("unknown weight \"{text}\"; expected one of: {}", Weight::ALL.map(Weight::name).join(", "))
    })
}

/// Parses the arguments, or says in one sentence what is wrong with them. Answers `--help` and `--version` itself.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Verb>, Failure> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => match wrong_together(&cli.verb) {
            Some(sentence) => Err(Failure::Usage(sentence)),
            None => Ok(Some(cli.verb)),
        },
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => output(error.print()).map(|()| None),
            _ => Err(Failure::Usage(sentence(&error, &arguments))),
        },
    }
}

/// Errors that only combinations of arguments show.
fn wrong_together(verb: &Verb) -> Option<String> {
    let Verb::Export(export) = verb else { return None };
    let (from, to) = (export.from?, export.to?);
    (from >= to).then(|| format!("--from {from} is not before --to {to}; give a time after it"))
}

/// clap's message is a paragraph. Keeps its first part, on one line, and adds where to read more.
fn sentence(error: &clap::Error, arguments: &[OsString]) -> String {
    let verbs: Vec<_> = Cli::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let typed = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    let verb = typed.into_iter().find(|argument| verbs.iter().any(|verb| verb == argument));
    let help = verb.map_or_else(|| "pyobs --help".to_owned(), |verb| format!("pyobs {verb} --help"));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("say what to do: one of {}; see `{help}`", verbs.join(", "));
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let first: Vec<_> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let near = match error.get(ContextKind::SuggestedSubcommand).or_else(|| error.get(ContextKind::SuggestedArg)) {
        Some(ContextValue::String(near)) => Some(near),
        // clap sorts the nearest suggestion last.
        Some(ContextValue::Strings(near)) => near.last(),
        _ => None,
    };
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!("{}{near}; see `{help}`", first.join(" "))
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
