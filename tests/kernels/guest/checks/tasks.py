"""Compares for how long the tasks of each coroutine blocked their event loop with what the program measured itself. An emulated
machine is too slow for their names."""
from pyobs import is_close, on_each, record


def checks():
    recording = record("offcpu,tasks", on_each("tasks.py", "asyncio", "4"), in_turn=True)
    for program in recording.programs:
        yield program.name + ": blocked", problem(recording.report, program)


def problem(report, program):
    wrong, result = [], program.result()
    tasks = [task for task in report["tasks"] if task["pid"] == result["pid"]]
    for function, seconds in result["blocked_s"].items():
        seen = sum(task["blocked"]["total_s"] for task in tasks if task["coroutine"]["function"] == function)
        # The program's own times have what Python does around each call, which is slow in an emulated machine.
        if not is_close((0.9 * seconds, seconds), seen):
            wrong.append("%s: %.3f s, known: %s" % (function, seen, seconds))
    return wrong and "%s; %s" % ("; ".join(wrong), report["loss"])
