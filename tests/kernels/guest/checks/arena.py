"""Compares CPython's arenas with its own count, `sys._debugmallocstats`."""
from pyobs import on_each, record

BESIDE = True


def checks():
    # From Linux 7.0 on, a system call of a thread that preempts another one inside the same BPF program is missed, and
    # counted.
    recording = record("arena", on_each("arenas.py", "keep"), in_turn=True)
    for program in recording.programs:
        yield program.name + ": arenas", problem(recording.report, program)


def problem(report, program):
    own = [arena for arena in report["arenas"] if arena["pid"] == program.pid]
    freed = sum(arena["cause"] == "freed" for arena in own)
    seen = {"allocated total": len(own), "reclaimed": freed, "allocated current": len(own) - freed}
    known = {name: counted(program.stderr, "# arenas " + name) for name in seen}
    missed = report["loss"].get("system_call_missed", 0)
    right = all(abs(known[name] - seen[name]) <= missed for name in known)
    return not right and "known %s, seen %s: %s" % (known, seen, report["loss"])


def counted(text, name):
    lines = [line for line in text.splitlines() if line.startswith(name)]
    assert lines, "no line %r: %s" % (name, text)
    return int(lines[0].rpartition("=")[2].replace(",", ""))
