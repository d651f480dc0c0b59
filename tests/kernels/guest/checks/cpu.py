"""Compares CPU shares with a program that measures its own, and counts how many stacks reach the outermost frame."""
from pyobs import attach, on_each

FUNCTIONS = ["half", "third", "fifth"]
POINTS = 3.0
WHOLE = 99.0


def checks():
    recording = attach("cpu", on_each("shares.py", "3"), ["--rate", "499"])
    yield from shares(recording, recording.programs)
    stacks = recording.report["stacks"]
    whole = 100.0 * stacks["whole"] / max(stacks["samples"], 1)
    yield "stacks", whole < WHOLE and "%.1f %% of the stacks are complete: %s, %s" % (whole, stacks, recording.report["loss"])


def shares(recording, programs):
    for program in programs:
        yield program.name + ": shares", problem(recording.report, program)


def problem(report, program):
    known = program.result()
    rows = [row for row in report["frames"] if row["pid"] == program.pid]
    seen = {name: sum(row.get("total_s", row["total"]) for row in rows if row["frame"]["function"] == name) for name in FUNCTIONS}
    if not sum(seen.values()):
        return "no sample of %s" % known
    percent = lambda seconds: {name: 100.0 * seconds[name] / sum(seconds.values()) for name in FUNCTIONS}
    known, seen = percent(known), percent(seen)
    worst = max(abs(known[name] - seen[name]) for name in FUNCTIONS)
    return worst > POINTS and "%.1f points: known %s, sampled %s" % (worst, known, seen)
