"""Tests the lifecycle of a shared segment: who made it and where, who held it, and when it was removed and freed."""
from pyobs import has_function, on_each, record

BESIDE = True


def checks():
    # From Linux 7.0 on, a system call of a thread that preempts another one inside the same BPF program is missed, and
    # counted.
    recording = record("shm", on_each("segment_life.py"), in_turn=True)
    for program in recording.programs:
        yield program.name + ": life", problem(recording.report, program)


def problem(report, program):
    known = program.result()
    own = [segment for segment in report["segments"] if segment["name"] == known["name"]]
    if len(own) != 1:
        return "%d segments are called %s" % (len(own), known["name"])
    segment = own[0]
    holders = {row["pid"] for row in segment["holders"] + segment["past_holders"]}
    times = [segment[event] for event in ("created_s", "unlinked_s", "evicted_s")]
    wrong = {
        "size": segment["bytes"] != known["bytes"],
        "creator": segment["creator_pid"] != program.pid,
        "holders": holders != set(known["pids"]),
        "still held": bool(segment["holders"]),
        "remover": segment["unlinked_by"] != program.pid,
        "order of its events": None in times or times != sorted(times),
        "verdict": segment["verdict"] != "released",
        # A segment whose open was missed begins with its mapping.
        "stack": not has_function(segment["stack"], "make") and not report["loss"].get("system_call_missed"),
    }
    wrong = [what for what, is_wrong in wrong.items() if is_wrong]
    return wrong and "%s: %s %s" % (", ".join(wrong), segment, report["loss"])
