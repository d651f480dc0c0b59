"""Compares off-CPU time with the threads' own clocks, the scheduler's account (workloads/timing.py), and a control group's count
of the time for which it was throttled."""
from pyobs import has_function, is_close, on_each, record

SCENARIOS = ["sleep", "lock", "queue_get", "pipe"]


def checks():
    recording = record("offcpu", on_each("waits.py", *SCENARIOS))
    for program in recording.programs:
        yield program.name + ": waits", problem(recording.report, program)
    newest = dict([on_each("throttled.py").popitem()])
    recording = record("offcpu", newest)
    for program in recording.programs:
        yield program.name + ": throttled", problem_of_limit(recording.report, program)


def problem(report, program):
    wrong = []
    for wait in program.result()["waits"]:
        rows = [row for row in report["offcpu"] if row["tid"] == wait["tid"] and has_function(row["stack"], wait["inside"])]
        seen = sum(row["total_s"] for row in rows if row["reason"] == wait["reason"])
        if not is_close(wait["waited_s"], seen):
            wrong.append("%s: %.3f s of %s, known: %s" % (wait["name"], seen, wait["reason"], wait["waited_s"]))
            wrong.append("all of its thread: %s" % [row for row in report["offcpu"] if row["tid"] == wait["tid"]])
    return wrong and "%s; %s" % ("; ".join(wrong), report["loss"])


def problem_of_limit(report, program):
    truth = program.result()
    rows = [row for row in report["offcpu"] if row["tid"] == truth["tid"] and row["reason"] == "throttled"]
    seen = sum(row["total_s"] for row in rows if has_function(row["stack"], "compute"))
    return "" if is_close(truth["throttled_s"], seen) else "%.3f s, known: %s" % (seen, truth["throttled_s"])
