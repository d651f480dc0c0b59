"""perfetto_trace.py FILE: prints a trace, decoded with Perfetto's own descriptors, as JSON.

{"slices": [{"track": [names, the process first], "tid", "name", "category", "from_ns", "to_ns", "args": {}, "arrows": [],
"ends": []}], "counters": {name: [[ns, value]]}, "samples": [{"tid", "frames": [names, the outermost first]}]}. Fails on fields
that these descriptors do not know, and on an end without a beginning."""
import json
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

data = open(sys.argv[1], "rb").read()
trace = Trace.FromString(data)
trace.DiscardUnknownFields()
assert trace.ByteSize() == len(data), "unknown fields"

tracks, slices, opened, counters, samples = {}, [], {}, {}, []
functions, frames, stacks = {}, {}, {}


def name(track):
    return track.process.process_name or track.thread.thread_name or track.name


def path(uuid):
    track = tracks[uuid]
    return (path(track.parent_uuid) if track.HasField("parent_uuid") else []) + [name(track)]


def tid(uuid):
    track = tracks[uuid]
    if track.HasField("thread"):
        return track.thread.tid
    return tid(track.parent_uuid) if track.HasField("parent_uuid") else None


for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        continue
    interned = packet.interned_data
    functions.update((one.iid, one.str.decode()) for one in interned.function_names)
    frames.update((one.iid, functions[one.function_name_id]) for one in interned.frames)
    stacks.update((one.iid, [frames[frame] for frame in one.frame_ids]) for one in interned.callstacks)
    if packet.HasField("perf_sample"):
        samples.append({"tid": packet.perf_sample.tid, "frames": stacks[packet.perf_sample.callstack_iid]})
        continue
    event, at = packet.track_event, packet.timestamp
    uuid = event.track_uuid
    if event.type == TrackEvent.TYPE_SLICE_BEGIN:
        opened.setdefault(uuid, []).append(len(slices))
        slices.append({
            "track": path(uuid), "tid": tid(uuid), "name": event.name, "category": "".join(event.categories),
            "from_ns": at, "to_ns": None, "args": {one.name: one.string_value for one in event.debug_annotations},
            "arrows": list(event.flow_ids), "ends": list(event.terminating_flow_ids),
        })
    elif event.type == TrackEvent.TYPE_SLICE_END:
        slices[opened[uuid].pop()]["to_ns"] = at
    else:
        assert event.type == TrackEvent.TYPE_COUNTER
        counters.setdefault(name(tracks[uuid]), []).append([at, event.counter_value])
print(json.dumps({"slices": slices, "counters": counters, "samples": samples}))
