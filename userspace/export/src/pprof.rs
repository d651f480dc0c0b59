//! The gzip-compressed profile of pprof. Every weight that was recorded is a sample type, and the one asked for is the default.
//! Processes and threads are labels.

pub mod proto;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use pyobs_model::{FrameId, FrameKind, Model, Place, ProcessRef, Selection, Tid};

use self::proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use crate::escape::{self, MAX_NAME, element};
use crate::{Error, Options, Weight, names};

/// The most programs that are listed by name. More are only counted.
const PROGRAMS: usize = 3;

/// A sample type: one column of values.
struct Column {
    weight: Weight,
    name: &'static str,
    unit: &'static str,
    /// Counts samples instead of adding up their weights.
    is_count: bool,
}

impl Column {
    /// CPU time has two columns, as pprof's own profiles do: the samples, and the time that they stand for.
    fn of(weight: Weight) -> Vec<Self> {
        let column = |name, unit| Self { weight, name, unit, is_count: false };
        match weight {
            Weight::Cpu => vec![Self { is_count: true, ..column("samples", "count") }, column("cpu", "nanoseconds")],
            Weight::OffCpu | Weight::Gil => vec![column(weight.name(), "nanoseconds")],
            Weight::Redundant => vec![column(weight.name(), "count")],
            Weight::Bytes => vec![column("held", "bytes")],
        }
    }
}

impl Column {
    fn sums(&self, model: &Model, selection: &Selection) -> BTreeMap<Place, u64> {
        if self.is_count {
            return model.cpu().sums(selection).into_iter().map(|(place, sum)| (place, sum.samples)).collect();
        }
        self.weight.sums(model, selection)
    }
}

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let bytes = PprofBuilder::new(model).build(options).encode_to_vec();
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&bytes)?;
    packed.finish()?;
    Ok(())
}

struct PprofBuilder<'a> {
    model: &'a Model,
    profile: Profile,
    strings: HashMap<String, i64>,
    locations: HashMap<FrameId, u64>,
    functions: HashMap<FrameId, u64>,
    mappings: HashMap<i64, u64>,
    labels: HashMap<(ProcessRef, Tid), Vec<Label>>,
}

impl<'a> PprofBuilder<'a> {
    fn new(model: &'a Model) -> Self {
        Self {
            model,
            profile: Profile { string_table: vec![String::new()], ..Profile::default() },
            strings: HashMap::from([(String::new(), 0)]),
            locations: HashMap::new(),
            functions: HashMap::new(),
            mappings: HashMap::new(),
            labels: HashMap::new(),
        }
    }

    fn build(mut self, options: &Options) -> Profile {
        let known = Weight::ALL.into_iter().filter(|weight| weight.is_known(self.model));
        let columns: Vec<Column> = known.flat_map(Column::of).collect();
        let mut rows: BTreeMap<Place, Vec<i64>> = BTreeMap::new();
        for (at, column) in columns.iter().enumerate() {
            for (place, value) in column.sums(self.model, &options.selection) {
                rows.entry(place).or_insert_with(|| vec![0; columns.len()])[at] = signed(value);
            }
        }
        self.mapping(&self.programs(rows.keys().map(|place| place.process).collect()));
        for (place, value) in rows {
            let mut location_id: Vec<u64> =
                options.native.frames(self.model, place.stack).filter_map(|frame| self.location(frame)).collect();
            location_id.reverse();
            let label = self.label(place.process, place.tid);
            self.profile.sample.push(Sample { location_id, value, label });
        }
        let kind = |own: &mut Self, column: &Column| ValueType {
            kind: own.string(column.name),
            unit: own.string(column.unit),
        };
        self.profile.sample_type = columns.iter().map(|column| kind(&mut self, column)).collect();
        let shown = columns.iter().rfind(|column| column.weight == options.weight);
        self.profile.default_sample_type = shown.map_or(0, |column| self.string(column.name));
        if options.weight == Weight::Cpu {
            self.profile.period_type = shown.map(|column| kind(&mut self, column));
            self.profile.period = signed(self.model.meta().period().0);
        }
        let title = names::title(self.model, options, MAX_NAME);
        let by = format!("recorded by pyobs {}", names::metadata(&self.model.meta().pyobs));
        self.profile.comment = vec![self.string(&title), self.string(&by)];
        self.profile.time_nanos = names::started(self.model).map_or(0, |since| signed(since.as_nanos()));
        self.profile.duration_nanos = signed(self.model.now().0);
        self.profile
    }

    /// The programs' names. Readers show the first mapping's file as the profiled program.
    fn programs(&self, processes: BTreeSet<ProcessRef>) -> String {
        let states = processes.into_iter().filter_map(|process| self.model.process(process));
        let programs: BTreeSet<String> = states.map(|state| names::program(&state.process)).collect();
        match programs.len() {
            0..=PROGRAMS => programs.into_iter().collect::<Vec<_>>().join(", "),
            many => format!("{many} programs"),
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(at) = self.strings.get(text) {
            return *at;
        }
        let at = signed(self.profile.string_table.len());
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), at);
        at
    }

    /// The id of a frame's location: a line of a function.
    fn location(&mut self, frame: FrameId) -> Option<u64> {
        if let Some(id) = self.locations.get(&frame) {
            return Some(*id);
        }
        let model = self.model;
        let about = model.frame(frame)?;
        let function_id = self.function(model.function_of(frame))?;
        let mapping_id = match about.kind {
            FrameKind::Python => 0,
            FrameKind::Native => about.module.as_deref().map_or(0, |module| self.mapping(module)),
            FrameKind::Kernel => self.mapping("[kernel]"),
        };
        let id = self.profile.location.len() as u64 + 1;
        let line = vec![Line { function_id, line: about.line.map_or(0, i64::from) }];
        self.profile.location.push(Location { id, mapping_id, line });
        self.locations.insert(frame, id);
        Some(id)
    }

    fn function(&mut self, frame: FrameId) -> Option<u64> {
        if let Some(id) = self.functions.get(&frame) {
            return Some(*id);
        }
        let about = self.model.frame(frame)?;
        let name = names::function(about);
        let file = about.file.as_deref().map(|file| escape::tail(file, MAX_NAME)).unwrap_or_default();
        let (name, filename) = (self.string(&name), self.string(&file));
        let id = self.profile.function.len() as u64 + 1;
        let start_line = about.first_line.map_or(0, i64::from);
        self.profile.function.push(Function { id, name, system_name: name, filename, start_line });
        self.functions.insert(frame, id);
        Some(id)
    }

    fn mapping(&mut self, module: &str) -> u64 {
        let filename = self.string(&escape::tail(module, MAX_NAME));
        let next = self.profile.mapping.len() as u64 + 1;
        let id = *self.mappings.entry(filename).or_insert(next);
        if id == next {
            let (has_functions, has_filenames, has_line_numbers) = (true, true, true);
            self.profile.mapping.push(Mapping { id, filename, has_functions, has_filenames, has_line_numbers });
        }
        id
    }

    fn label(&mut self, process: ProcessRef, tid: Tid) -> Vec<Label> {
        if let Some(label) = self.labels.get(&(process, tid)) {
            return label.clone();
        }
        let Some(state) = self.model.process(process) else { return Vec::new() };
        let thread = names::thread(self.model, process, tid);
        let mut texts = vec![("process", names::process(&state.process)), ("thread", thread)];
        if let Some(container) = &state.placement.container {
            let name = Some(container.short_name());
            let more =
                [("container", name), ("pod", container.pod.as_deref()), ("namespace", container.namespace.as_deref())];
            texts.extend(more.into_iter().filter_map(|(key, text)| Some((key, element(text?).into_owned()))));
        }
        let numbers = [("pid", state.process.pid.0), ("tid", tid.0)];
        let mut label = Vec::new();
        for (key, text) in texts {
            label.push(Label { key: self.string(key), text: self.string(&text), number: 0 });
        }
        for (key, number) in numbers {
            label.push(Label { key: self.string(key), text: 0, number: i64::from(number) });
        }
        self.labels.insert((process, tid), label.clone());
        label
    }
}

/// Saturates, because a recording may hold numbers that do not fit.
fn signed(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
