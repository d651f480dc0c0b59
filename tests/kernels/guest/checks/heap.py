"""Compares the memory of lines with what the program itself counts as resident."""
from pyobs import on_each, record


def checks():
    recording = record("heap", on_each("heap.py", "malloc"), in_turn=True)
    for program in recording.programs:
        yield program.name + ": memory by line", problem(recording.report, program)


def problem(report, program):
    known = program.result()
    rows = [row for row in report["heap"] if row["pid"] == program.pid]
    if not rows:
        return "the process is missing: %s" % report["loss"]
    lines = [(line["frame"], line["bytes"]) for line in rows[0]["lines"] if line["frame"]]
    seen = {
        "all": sum(size for frame, size in lines if frame["file"].endswith("heap.py")),
        "block": sum(size for frame, size in lines if frame["function"] == "block"),
    }
    right = {"all": sum(known["known"].values()), "block": known["known"]["block"]}
    is_right = all(abs(seen[name] - right[name]) <= 0.1 * right[name] for name in right)
    return not is_right and "known %s, seen %s" % (right, seen)
