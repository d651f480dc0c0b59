//! A Perfetto trace decoded again, and what its readers demand of it.

use std::collections::BTreeMap;

use prost::Message;
use pyobs_export::perfetto::proto::{Kind, Trace, TrackDescriptor};
use pyobs_export::{Format, Options, escape, export};
use pyobs_model::Model;

#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Of the track and those that it lies under, the process first.
    pub track: Vec<String>,
    pub tid: Option<i32>,
    pub name: String,
    pub category: String,
    /// Microseconds.
    pub from: f64,
    pub to: Option<f64>,
    pub args: BTreeMap<String, String>,
    pub arrows: Vec<u64>,
    pub ends: Vec<u64>,
}

#[derive(Debug, Default)]
pub struct Timeline {
    pub slices: Vec<Slice>,
    /// Values by the track's name.
    pub counters: BTreeMap<String, Vec<(f64, i64)>>,
}

impl Timeline {
    pub fn of<'a>(&'a self, category: &'a str) -> impl Iterator<Item = &'a Slice> {
        self.slices.iter().filter(move |slice| slice.category == category)
    }
}

fn name(track: &TrackDescriptor) -> String {
    let process = track.process.as_ref().and_then(|process| process.process_name.clone());
    let thread = track.thread.as_ref().and_then(|thread| thread.thread_name.clone());
    process.or(thread).or(track.name.clone()).unwrap()
}

/// Tracks are described before they are used, times of a track go forward, each end has a beginning, and an arrow that ends
/// began before.
#[track_caller]
pub fn timeline(model: &Model, options: &Options) -> Timeline {
    let mut bytes = Vec::new();
    export(model, Format::Perfetto, options, &mut bytes).unwrap();
    let mut tracks: BTreeMap<u64, TrackDescriptor> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let mut all = Timeline::default();
    for packet in Trace::decode(bytes.as_slice()).unwrap().packet {
        assert_ne!(packet.trusted_packet_sequence_id.unwrap(), 0);
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
                all.slices.push(Slice {
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
            let begins = |it: &&Slice| it.arrows.contains(arrow) && it.from <= slice.from;
            assert!(all.slices.iter().any(|it| begins(&it)), "{slice:?}");
        }
    }
    all
}
