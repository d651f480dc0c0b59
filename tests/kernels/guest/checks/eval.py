"""Compares counts of calls with `sys.setprofile` in another run of the same program."""
from pyobs import on_each, record, together

BESIDE = True
FILE = "every_call.py"
ROUNDS = "1"


def checks():
    known = {program.name: program.result() for program in together(on_each(FILE, "count", ROUNDS))}
    recording = record("eval=%s:*" % FILE, on_each(FILE, "wait", ROUNDS), signals=True)
    for program in recording.programs:
        yield program.name + ": counts", problem(recording.report, program, known[program.name])


def problem(report, program, known):
    expected = sums((function, line, calls) for function, file, line, calls in known if file.endswith(FILE))
    rows = [row for row in report["calls"] if row["pid"] == program.pid and (row["file"] or "").endswith(FILE)]
    counted = sums((row["function"], row["line"], row["count"]) for row in rows)
    assert sum(expected.values()) > 1000, expected
    # Calls before the program prints "ready" are watched but not profiled.
    differ = {key for key in expected if expected[key] != counted.get(key, 0)}
    texts = ["%s: %s calls, counted %s" % (key, expected[key], counted.get(key, 0)) for key in sorted(differ)]
    return texts and "%d of %d functions differ: %s" % (len(texts), len(expected), "; ".join(texts[:5]))


def sums(rows):
    counts = {}
    for function, line, calls in rows:
        counts[function, line] = counts.get((function, line), 0) + calls
    return counts
