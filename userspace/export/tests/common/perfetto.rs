//! Decodes a Perfetto trace and checks the rules of its format.

use std::collections::BTreeMap;

use prost::Message;
use pyobs_export::perfetto::proto::{
    CLEARED, Callstack, Frame, InternedData, InternedString, Kind, Mapping, NEEDS, Trace, TrackDescriptor,
};
use pyobs_export::{Format, Options, escape, export};
use pyobs_model::Model;

#[derive(Clone, Debug, Default)]
pub struct DecodedSlice {
    /// Names of the track and its parents, the process first.
    pub track: Vec<String>,
    pub tid: Option<i32>,
    pub name: String,
    pub category: String,
    /// In microseconds.
    pub from: f64,
    pub to: Option<f64>,
    pub args: BTreeMap<String, String>,
    pub arrows: Vec<u64>,
    pub ends: Vec<u64>,
}

/// A sample of a thread's CPU time.
#[derive(Clone, Debug)]
pub struct Computed {
    pub at: u64,
    pub pid: u32,
    pub tid: u32,
    /// Names, outermost first.
    pub frames: Vec<String>,
}

#[derive(Debug, Default)]
pub struct DecodedTimeline {
    pub slices: Vec<DecodedSlice>,
    pub samples: Vec<Computed>,
    /// Times in microseconds and values, by the name of the track.
    pub counters: BTreeMap<String, Vec<(f64, i64)>>,
}

impl DecodedTimeline {
    pub fn of<'a>(&'a self, category: &'a str) -> impl Iterator<Item = &'a DecodedSlice> {
        self.slices.iter().filter(move |slice| slice.category == category)
    }
}

fn name(track: &TrackDescriptor) -> String {
    let process = track.process.as_ref().and_then(|process| process.process_name.clone());
    let thread = track.thread.as_ref().and_then(|thread| thread.thread_name.clone());
    process.or(thread).or(track.name.clone()).unwrap()
}

/// DecodedStrings data so far.
#[derive(Default)]
struct DecodedStrings {
    strings: [BTreeMap<u64, String>; 3],
    files: BTreeMap<u64, Mapping>,
    frames: BTreeMap<u64, Frame>,
    stacks: BTreeMap<u64, Callstack>,
}

impl DecodedStrings {
    fn take(&mut self, data: InternedData) {
        let texts = [data.function_names, data.mapping_paths, data.source_paths];
        for (known, texts) in self.strings.iter_mut().zip(texts) {
            for InternedString { iid, str } in texts {
                let text = String::from_utf8(str.unwrap()).unwrap();
                assert!(!text.chars().any(escape::is_unsafe), "{text:?}");
                assert!(known.insert(iid.unwrap(), text).is_none());
            }
        }
        self.files.extend(data.mappings.into_iter().map(|file| (file.iid.unwrap(), file)));
        self.frames.extend(data.frames.into_iter().map(|frame| (frame.iid.unwrap(), frame)));
        self.stacks.extend(data.callstacks.into_iter().map(|stack| (stack.iid.unwrap(), stack)));
    }

    #[track_caller]
    fn names(&self, stack: u64) -> Vec<String> {
        let [functions, paths, sources] = &self.strings;
        let name = |frame: &u64| {
            let frame = &self.frames[frame];
            assert!(self.files[&frame.mapping_id.unwrap()].path_string_ids.iter().all(|path| paths.contains_key(path)));
            assert!(frame.source_path_iid.is_none_or(|source| sources.contains_key(&source)));
            functions[&frame.function_name_id.unwrap()].clone()
        };
        self.stacks[&stack].frame_ids.iter().map(name).collect()
    }
}

/// Checks that tracks and interned ids are defined before use, that the times of a track ascend, that each end has a beginning,
/// and that each arrow begins before it ends.
#[track_caller]
pub fn timeline(model: &Model, options: &Options) -> DecodedTimeline {
    let mut bytes = Vec::new();
    export(model, Format::Perfetto, options, &mut bytes).unwrap();
    let mut tracks: BTreeMap<u64, TrackDescriptor> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut all, mut interned) = (DecodedTimeline::default(), DecodedStrings::default());
    for (number, packet) in Trace::decode(bytes.as_slice()).unwrap().packet.into_iter().enumerate() {
        assert_ne!(packet.trusted_packet_sequence_id.unwrap(), 0);
        let flags = packet.sequence_flags.unwrap_or(0);
        assert_eq!(flags & CLEARED != 0, number == 0);
        interned.take(packet.interned_data.unwrap_or_default());
        if let Some(sample) = packet.perf_sample {
            assert!(flags & NEEDS != 0, "{sample:?}");
            let (at, frames) = (packet.timestamp.unwrap(), interned.names(sample.callstack_iid.unwrap()));
            let (pid, tid) = (sample.pid.unwrap(), sample.tid.unwrap());
            let is_known = tracks
                .values()
                .filter_map(|track| track.thread.as_ref())
                .any(|thread| (thread.pid, thread.tid) == (i32::try_from(pid).ok(), i32::try_from(tid).ok()));
            assert!(is_known, "{sample:?}");
            all.samples.push(Computed { at, pid, tid, frames });
            continue;
        }
        if let Some(track) = packet.track_descriptor {
            assert!(track.parent_uuid.is_none_or(|parent| tracks.contains_key(&parent)), "{track:?}");
            assert!(!name(&track).chars().any(escape::is_unsafe));
            assert!(tracks.insert(track.uuid.unwrap(), track).is_none());
            continue;
        }
        let (event, at) = (packet.track_event.unwrap(), packet.timestamp.unwrap());
        let uuid = event.track_uuid.unwrap();
        let before = last.insert(uuid, at).unwrap_or(0);
        assert!(before <= at, "{event:?}: {at} after {before}");
        let micros = at as f64 / 1e3;
        match Kind::try_from(event.r#type.unwrap()).unwrap() {
            Kind::SliceBegin => {
                let mut path = Vec::new();
                let mut above = Some(uuid);
                let mut tid = None;
                while let Some(track) = above.map(|uuid| &tracks[&uuid]) {
                    path.insert(0, name(track));
                    tid = tid.or(track.thread.as_ref().and_then(|thread| thread.tid));
                    above = track.parent_uuid;
                }
                let args = event.debug_annotations.into_iter();
                open.entry(uuid).or_default().push(all.slices.len());
                all.slices.push(DecodedSlice {
                    track: path,
                    tid,
                    name: event.name.unwrap(),
                    category: event.categories.concat(),
                    from: micros,
                    to: None,
                    args: args.map(|it| (it.name.unwrap(), it.string_value.unwrap())).collect(),
                    arrows: event.flow_ids,
                    ends: event.terminating_flow_ids,
                });
            }
            Kind::SliceEnd => {
                let begun = open.get_mut(&uuid).and_then(Vec::pop).unwrap();
                all.slices[begun].to = Some(micros);
            }
            Kind::Counter => {
                let values = all.counters.entry(name(&tracks[&uuid])).or_default();
                values.push((micros, event.counter_value.unwrap()));
            }
            Kind::Unspecified => panic!("{event:?}"),
        }
    }
    for slice in &all.slices {
        let text = slice.args.values().chain([&slice.name]);
        assert!(text.flat_map(|text| text.chars()).all(|c| !escape::is_unsafe(c)), "{slice:?}");
        for arrow in &slice.ends {
            let begins = |it: &&DecodedSlice| it.arrows.contains(arrow) && it.from <= slice.from;
            assert!(all.slices.iter().any(|it| begins(&it)), "{slice:?}");
        }
    }
    all
}
