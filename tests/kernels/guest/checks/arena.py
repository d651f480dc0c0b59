"""CPython's arenas against its own count, `sys._debugmallocstats`."""
from pyobs import on_each, record


def checks():
    recording = record("arena", on_each("arenas.py", "keep"))
    for program in recording.programs:
        yield program.name + ": arenas", problem(recording.report, program)


def problem(report, program):
    own = [arena for arena in report["arenas"] if arena["pid"] == program.pid]
    freed = sum(arena["cause"] == "freed" for arena in own)
    seen = {"allocated total": len(own), "reclaimed": freed, "allocated current": len(own) - freed}
    known = {name: counted(program.stderr, "# arenas " + name) for name in seen}
    return seen != known and "known %s, seen %s" % (known, seen)


def counted(text, name):
    lines = [line for line in text.splitlines() if line.startswith(name)]
    assert lines, "no line %r: %s" % (name, text)
    return int(lines[0].rpartition("=")[2].replace(",", ""))
