"""Tests pairs of accesses that find the same value again, in a C library with a known share of such loads."""
from pyobs import PYTHONS, WORKLOADS, record

PERCENT = 50
# The minimum number of pairs. The share must be right within SHARE and three standard deviations.
PAIRS, SHARE = 60, 0.05
SECONDS = "12"


def checks():
    version, python = PYTHONS[-1]
    script = [python, "-B", WORKLOADS + "/redundancy.py", "/guest/programs/redundancy.so", "loads", str(PERCENT), SECONDS]
    recording = record("cpu,redundancy", {version: script}, ["--rate", "499"])
    printed = recording.programs[0].stdout.split()
    yield "the program computes the same", printed[1:2] != ["0"] and "it printed %s" % printed
    pairs = [pair for pair in recording.report["redundancy"]["pairs"] if pair["kind"] == "load" and is_own(pair)]
    equal, compared = (sum(pair[key] for pair in pairs) for key in ("equal", "compared"))
    if compared < PAIRS:
        counts = {key: value for key, value in recording.report["redundancy"].items() if not isinstance(value, list)}
        yield "pairs", "%d pairs: %s, %s, %s" % (compared, counts, recording.report["loss"], recording.report["cost"])
        return
    known = PERCENT / 100
    chance = 3 * (known * (1 - known) / compared) ** 0.5
    is_wrong = abs(equal / compared - known) > SHARE + chance
    yield "pairs", is_wrong and "%d of %d are equal, expected %d %%" % (equal, compared, PERCENT)


def is_own(pair):
    stack = pair["second"]["stack"]
    return bool(stack) and stack[-1]["module"] == "redundancy.so"
