//! Writes packets, and describes the tracks that they refer to.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use pyobs_model::{Family, Model, Nanos, Operation, ProcessRef, Tid, TransferId};

use super::execs::ExecChains;
use super::proto::{
    CLEARED, CounterDescriptor, DebugAnnotation, InternedData, Kind, NEEDS, PerfSample, ProcessDescriptor,
    ThreadDescriptor, TracePacket, TrackDescriptor, TrackEvent, Unit,
};
use crate::escape::{self, MAX_NAME};
use crate::{Error, names};

/// The writer's id, the same in all packets.
const SEQUENCE: u32 = 1;
/// The field `packet` of the message `Trace`.
const PACKET: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Track {
    /// What pyobs gave up to stay inside its budget.
    Shed(Family),
    /// What is not shown.
    LeftOut,
    Process(ProcessRef),
    /// A thread's samples and waits.
    Thread(ProcessRef, Tid),
    /// A thread's steps in transfers.
    Steps(ProcessRef, Tid),
    /// Transfers overlap, so each has a track. Perfetto merges tracks of one name in its view.
    Transfer(ProcessRef, Operation, TransferId),
    Counter(ProcessRef, &'static str, Unit),
}

/// A period on a track.
#[derive(Default)]
pub(super) struct Slice {
    pub(super) name: String,
    pub(super) category: &'static str,
    pub(super) from: Nanos,
    /// `None` leaves it open.
    pub(super) to: Option<Nanos>,
    pub(super) args: BTreeMap<&'static str, String>,
    /// The id of an arrow that passes here, and whether it ends here.
    pub(super) arrow: Option<(u64, bool)>,
}

pub(super) struct TraceWriter<'a> {
    model: &'a Model,
    out: &'a mut dyn Write,
    execs: ExecChains,
    tracks: BTreeMap<Track, u64>,
    has_begun: bool,
}

impl<'a> TraceWriter<'a> {
    pub(super) fn new(model: &'a Model, out: &'a mut dyn Write) -> Self {
        Self { model, out, execs: ExecChains::of(model), tracks: BTreeMap::new(), has_begun: false }
    }

    /// The process whose tracks show this one. Callers collect a track's events under it, to write them in the order of time.
    pub(super) fn process(&self, process: ProcessRef) -> ProcessRef {
        self.execs.last(process)
    }

    /// The uuid of a track. The first call writes its descriptor, after its parent's.
    fn track(&mut self, track: Track) -> Result<u64, Error> {
        if let Some(uuid) = self.tracks.get(&track) {
            return Ok(*uuid);
        }
        let text = |text: &str| Some(escape::line(text, MAX_NAME).into_owned());
        let number = |number: u32| Some(i32::try_from(number).unwrap_or(i32::MAX));
        let mut descriptor = TrackDescriptor::default();
        match track {
            Track::Shed(family) => descriptor.name = text(&format!("pyobs sheds: {family}")),
            Track::LeftOut => descriptor.name = text("left out"),
            Track::Process(process) => {
                let state = self.model.process(process);
                let pid = state.and_then(|state| number(state.process.pid.0));
                let process_name = state.map(names::program_in_container);
                descriptor.process = Some(ProcessDescriptor { pid, process_name });
            }
            Track::Thread(process, tid) => {
                descriptor.parent_uuid = Some(self.track(Track::Process(process))?);
                let state = self.model.process(process);
                let pid = state.and_then(|state| number(state.process.pid.0));
                let thread_name = text(&names::thread_name(self.model, process, tid));
                descriptor.thread = Some(ThreadDescriptor { pid, tid: number(tid.0), thread_name });
            }
            Track::Steps(process, tid) => {
                descriptor.parent_uuid = Some(self.track(Track::Thread(process, tid))?);
                descriptor.name = text("transfers");
            }
            Track::Transfer(process, operation, _) => {
                descriptor.parent_uuid = Some(self.track(Track::Process(process))?);
                descriptor.name = text(operation.name());
            }
            Track::Counter(process, name, unit) => {
                descriptor.parent_uuid = Some(self.track(Track::Process(process))?);
                descriptor.name = text(name);
                descriptor.counter = Some(CounterDescriptor { unit: Some(unit.into()) });
            }
        }
        let uuid = self.tracks.len() as u64 + 1;
        self.tracks.insert(track, uuid);
        descriptor.uuid = Some(uuid);
        self.put(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() })?;
        Ok(uuid)
    }

    /// Writes a track's descriptor, unless it has been written.
    pub(super) fn describe(&mut self, track: Track) -> Result<(), Error> {
        self.track(track).map(drop)
    }

    /// Writes a sample, with interned entries that no packet has defined yet.
    pub(super) fn sample(&mut self, at: Nanos, fresh: InternedData, sample: PerfSample) -> Result<(), Error> {
        let interned_data = (fresh != InternedData::default()).then_some(fresh);
        let (timestamp, perf_sample) = (Some(at.0), Some(sample));
        let sequence_flags = Some(NEEDS);
        self.put(TracePacket { timestamp, interned_data, sequence_flags, perf_sample, ..TracePacket::default() })
    }

    /// Writes all slices of a track. The format demands that they nest, so a slice that would outlast its parent ends with it.
    pub(super) fn slices(&mut self, track: Track, mut slices: Vec<Slice>) -> Result<(), Error> {
        let end = |slice: &Slice| slice.to.map_or(Nanos(u64::MAX), |to| to.max(slice.from));
        // Stable: of slices with equal times, the earlier one contains the later ones.
        slices.sort_by_key(|slice| (slice.from, Reverse(end(slice))));
        let uuid = self.track(track)?;
        let mut open: Vec<Nanos> = Vec::new();
        for slice in slices {
            while let Some(over) = open.pop_if(|over| *over <= slice.from) {
                self.end(uuid, over)?;
            }
            let within = open.last().copied().unwrap_or(Nanos(u64::MAX));
            open.push(end(&slice).min(within));
            self.begin(uuid, &slice)?;
        }
        while let Some(over) = open.pop() {
            if over < Nanos(u64::MAX) {
                self.end(uuid, over)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, uuid: u64, slice: &Slice) -> Result<(), Error> {
        let text = |text: &str| Some(escape::line(text, MAX_NAME).into_owned());
        let args = slice.args.iter();
        let args = args.map(|(name, value)| DebugAnnotation { name: text(name), string_value: text(value) });
        let (goes_on, ends) = match slice.arrow {
            Some((arrow, false)) => (vec![arrow], Vec::new()),
            Some((arrow, true)) => (Vec::new(), vec![arrow]),
            None => (Vec::new(), Vec::new()),
        };
        let event = TrackEvent {
            name: text(&slice.name),
            categories: vec![slice.category.to_owned()],
            debug_annotations: args.collect(),
            flow_ids: goes_on,
            terminating_flow_ids: ends,
            ..TrackEvent::default()
        };
        self.event(uuid, Kind::SliceBegin, slice.from, event)
    }

    fn end(&mut self, uuid: u64, at: Nanos) -> Result<(), Error> {
        self.event(uuid, Kind::SliceEnd, at, TrackEvent::default())
    }

    pub(super) fn count(&mut self, track: Track, at: Nanos, value: u64) -> Result<(), Error> {
        let uuid = self.track(track)?;
        let counter_value = Some(i64::try_from(value).unwrap_or(i64::MAX));
        self.event(uuid, Kind::Counter, at, TrackEvent { counter_value, ..TrackEvent::default() })
    }

    fn event(&mut self, uuid: u64, kind: Kind, at: Nanos, event: TrackEvent) -> Result<(), Error> {
        let event = TrackEvent { r#type: Some(kind.into()), track_uuid: Some(uuid), ..event };
        self.put(TracePacket { timestamp: Some(at.0), track_event: Some(event), ..TracePacket::default() })
    }

    fn put(&mut self, mut packet: TracePacket) -> Result<(), Error> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        if !std::mem::replace(&mut self.has_begun, true) {
            packet.sequence_flags = Some(packet.sequence_flags.unwrap_or(0) | CLEARED);
        }
        let mut bytes = Vec::new();
        encode_key(PACKET, WireType::LengthDelimited, &mut bytes);
        encode_varint(packet.encoded_len() as u64, &mut bytes);
        bytes.extend(packet.encode_to_vec());
        Ok(self.out.write_all(&bytes)?)
    }
}
