"""Compares two computing threads' waits for the GIL with the time that each of them did not run."""
from pyobs import is_close, on_each, record


def checks():
    # Two threads already fill both CPUs.
    recording = record("gil", on_each("gil.py", "two", "2"), in_turn=True)
    for program in recording.programs:
        yield program.name + ": waits", problem(recording.report, program)


def problem(report, program):
    wrong = []
    threads = program.result()["threads"]
    assert len(threads) == 2, threads
    for thread in threads:
        seen = sum(row["total_s"] for row in report["gil"] if row["waiter"]["tid"] == thread["tid"])
        if not is_close(thread["waited_s"], seen):
            wrong.append("%s: %.3f s, known: %s" % (thread["function"], seen, thread["waited_s"]))
    return "; ".join(wrong)
