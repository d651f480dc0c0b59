//! Runs `pyobs record` and reads the recording.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::folded::{self, Stack};
use crate::workload::{Ended, Workload, command};
use crate::{Folder, json, needs, places, refusing, schema};

/// A recording to be made. Without a pid or a command it covers the whole machine.
#[derive(Debug, Default)]
pub struct Record {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    rules: Option<String>,
    command: Option<Command>,
}

impl Record {
    pub fn new() -> Self {
        Self::default()
    }

    /// In Hz. Tests that count samples must set it: they cannot rely on the default.
    #[must_use]
    pub fn rate(self, hz: u32) -> Self {
        self.argument("--rate").argument(hz.to_string())
    }

    #[must_use]
    pub fn pid(self, pid: u32) -> Self {
        self.argument("--pid").argument(pid.to_string())
    }

    #[must_use]
    pub fn seconds(self, seconds: f64) -> Self {
        self.argument("--duration").argument(seconds.to_string())
    }

    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs pyobs under the rules that [`rule`](crate::rule) makes.
    #[must_use]
    pub fn refusing(mut self, rules: &str) -> Self {
        self.rules = Some(rules.to_owned());
        self
    }

    /// The command that pyobs starts: its program, arguments, environment and folder are taken over.
    #[must_use]
    pub fn command(mut self, command: Command) -> Self {
        self.command = Some(command);
        self
    }

    /// Starts pyobs, and returns once it watches.
    #[track_caller]
    pub fn start(self) -> Running {
        let folder = Folder::new();
        let file = folder.join("recording.pyobs");
        let mut pyobs = command(places::pyobs());
        pyobs.arg("record").arg("-o").arg(&file).args(&self.arguments);
        pyobs.envs(self.environment);
        if let Some(command) = &self.command {
            pyobs.arg("--").arg(command.get_program()).args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => pyobs.env(name, value),
                    None => pyobs.env_remove(name),
                };
            }
            pyobs.current_dir(command.get_current_dir().unwrap_or(Path::new(".")));
        }
        if let Some(rules) = &self.rules {
            pyobs = refusing(rules, &pyobs);
        }
        let mut running = Running { workload: Workload::start(pyobs), file, folder };
        running.wait_until_it_watches();
        running
    }

    /// Records until the command ends or the duration is over.
    #[track_caller]
    pub fn run(self) -> Recording {
        self.start().wait()
    }
}

/// A `pyobs record` that is running.
#[derive(Debug)]
pub struct Running {
    workload: Workload,
    file: PathBuf,
    folder: Folder,
}

impl Running {
    /// pyobs creates the file once everything is attached.
    #[track_caller]
    fn wait_until_it_watches(&mut self) {
        let since = Instant::now();
        while !self.file.exists() && self.workload.is_alive() {
            assert!(since.elapsed() < Duration::from_secs(60), "pyobs did not start to record");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn pid(&self) -> u32 {
        self.workload.pid()
    }

    /// The recording that pyobs is writing.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The number of perf events that pyobs holds without a program attached, as /proc lists its descriptors.
    pub fn perf_events(&self) -> usize {
        let files = self.entries("fd").filter_map(|path| std::fs::read_link(path).ok());
        files.filter(|file| file.to_str() == Some("anon_inode:[perf_event]")).count()
    }

    /// The number of perf events with a program attached: samplers and probes.
    pub fn perf_links(&self) -> usize {
        let texts = self.entries("fdinfo").filter_map(|path| std::fs::read_to_string(path).ok());
        texts.filter(|text| text.contains("link_type:\tperf\n")).count()
    }

    /// Whether pyobs is waiting for the kernel to remove probes.
    pub fn is_detaching(&self) -> bool {
        let mut names = self.entries("task").filter_map(|path| std::fs::read_to_string(path.join("comm")).ok());
        names.any(|name| name == "detach\n")
    }

    /// How often the kernel has run one of its programs so far.
    pub fn runs(&self, program: &str) -> u64 {
        let texts: Vec<String> = self.entries("fdinfo").filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        let ids = texts.iter().filter_map(|text| text.lines().find_map(|line| line.strip_prefix("prog_id:")));
        let ids: BTreeSet<u32> = ids.filter_map(|id| id.trim().parse().ok()).collect();
        let own = |info: &aya::programs::ProgramInfo| ids.contains(&info.id()) && info.name_as_str() == Some(program);
        aya::programs::loaded_programs().flatten().filter(own).map(|info| info.run_count()).sum()
    }

    fn entries(&self, folder: &str) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(format!("/proc/{}/{folder}", self.pid())).into_iter().flatten();
        entries.flatten().map(|entry| entry.path())
    }

    pub fn signal(&self, signal: libc::c_int) {
        self.workload.signal(signal);
    }

    /// Signals the command as well, as a terminal does at Ctrl-C.
    pub fn signal_group(&self, signal: libc::c_int) {
        self.workload.signal_group(signal);
    }

    /// Sends Ctrl-C, and returns the recording.
    #[track_caller]
    pub fn stop(self) -> Recording {
        self.signal(libc::SIGINT);
        self.wait()
    }

    #[track_caller]
    pub fn wait(self) -> Recording {
        let Self { workload, file, folder } = self;
        let ended = workload.wait();
        assert!(file.exists(), "pyobs made no recording: {ended:?}");
        let report = json::parse(&pyobs([OsStr::new("report"), file.as_os_str(), OsStr::new("--json")]));
        schema::check(&report);
        let Ended { status, stdout, stderr } = ended;
        Recording { file, report, status, stdout, stderr, _folder: folder }
    }
}

/// A finished recording.
#[derive(Debug)]
pub struct Recording {
    pub file: PathBuf,
    /// The parsed output of `pyobs report --json`.
    pub report: Value,
    /// The exit status of `pyobs record`.
    pub status: ExitStatus,
    /// The output of the command: pyobs itself writes nothing there.
    pub stdout: String,
    pub stderr: String,
    _folder: Folder,
}

impl Recording {
    /// The output of `pyobs report`.
    #[track_caller]
    pub fn words(&self) -> String {
        pyobs([OsStr::new("report"), self.file.as_os_str()])
    }

    /// The output of `pyobs export --format FORMAT` with more arguments.
    #[track_caller]
    pub fn export(&self, format: &str, arguments: &[&str]) -> String {
        let verb = [OsStr::new("export"), self.file.as_os_str(), OsStr::new("--format"), OsStr::new(format)];
        pyobs(verb.into_iter().chain(arguments.iter().map(OsStr::new)))
    }

    /// The export in the format `perfetto`, decoded with Perfetto's own descriptors (workloads/perfetto_trace.py).
    #[track_caller]
    pub fn perfetto(&self) -> Value {
        let file = self.file.with_extension("perfetto-trace");
        let verb = [OsStr::new("export"), self.file.as_os_str(), OsStr::new("--format"), OsStr::new("perfetto")];
        pyobs(verb.into_iter().chain([OsStr::new("-o"), file.as_os_str()]));
        let mut reader = command(needs::perfetto().unwrap());
        reader.arg(places::workload("perfetto_trace.py")).arg(file);
        let ended = Workload::start(reader).wait();
        assert!(ended.status.success(), "{ended:?}");
        json::parse(&ended.stdout)
    }

    /// The sum of the weights in `export --weight`, in seconds.
    #[track_caller]
    pub fn exported_s(&self, weight: &str) -> f64 {
        let folded = self.export("folded", &["--weight", weight]);
        let counts = folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        counts.sum::<f64>() / 1e6
    }

    /// Every stack, with lines for its Python frames.
    #[track_caller]
    pub fn stacks(&self) -> Vec<Stack> {
        self.stacks_selected(&[])
    }

    /// The stacks that arguments such as `--tid 17` select.
    #[track_caller]
    pub fn stacks_selected(&self, selection: &[&str]) -> Vec<Stack> {
        folded::parse(&self.export("folded", &[&["--lines", "--native", "full"], selection].concat()))
    }

    /// The stacks of one process.
    #[track_caller]
    pub fn stacks_of(&self, pid: u32) -> Vec<Stack> {
        self.stacks().into_iter().filter(|stack| stack.pid == pid).collect()
    }

    /// Asserts that the only losses are due to code, threads and processes that started or ended at that moment, and that
    /// at most `share` of the samples have such frames. While modules are imported, code objects die within milliseconds,
    /// before their names are read.
    #[track_caller]
    pub fn lost_only_what_died(&self, share: f64) {
        let died = self.share_of_what_died();
        assert!(
            died <= share,
            "{died:.3} of the stacks have frames whose code, thread or process died: {}",
            self.report["stacks"]["failed"]
        );
    }

    /// The share of the samples with frames whose code, thread or process died. Panics if anything else was lost.
    #[track_caller]
    pub fn share_of_what_died(&self) -> f64 {
        const DEAD: [&str; 8] = [
            "code_changed",
            "code_invalid",
            "code_unreadable",
            "name_invalid",
            // A program that was just started has no interpreter yet.
            "not_attached_yet",
            "process_gone",
            // Here the kernel leaves out one thread switch in a thousand (docs/families/offcpu.md).
            "sleep_unseen",
            "thread_state_unreadable",
        ];
        let counts =
            |pointer: &str| self.report.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default();
        let (lost, failed) = (counts("/loss"), counts("/stacks/failed"));
        let other: Vec<_> =
            lost.keys().chain(failed.keys()).filter(|reason| !DEAD.contains(&reason.as_str())).collect();
        assert!(other.is_empty(), "{other:?}: lost {lost:?}, failed {failed:?}");
        let failed: u64 = failed.values().filter_map(Value::as_u64).sum();
        failed as f64 / (json::count(&self.report, "/stacks/samples") as f64).max(1.0)
    }

    /// The report's row of a process.
    #[track_caller]
    pub fn process(&self, pid: u32) -> &Value {
        let mut rows = self.report["processes"].as_array().into_iter().flatten();
        rows.find(|row| row["pid"] == pid).unwrap_or_else(|| {
            panic!("process {pid} is not in the report: {:#}\n{}", self.report["processes"], self.stderr)
        })
    }
}

/// Runs a verb that must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn pyobs<'a>(arguments: impl IntoIterator<Item = &'a OsStr>) -> String {
    let mut verb = command(places::pyobs());
    verb.args(arguments);
    let shown = format!("{verb:?}");
    let ended = Workload::start(verb).wait();
    assert!(ended.status.success(), "{shown}: {}\n{}", ended.status, ended.stderr);
    ended.stdout
}
