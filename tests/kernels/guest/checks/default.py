"""Records with the defaults, and programs that each know a different part of the truth."""
from checks import arena, cpu, offcpu, shm
from pyobs import on_each, record

PARTS = [
    ("shares", cpu.problem, ["shares.py", "2"]),
    ("waits", offcpu.problem, ["waits.py", "sleep", "pipe"]),
    ("arenas", arena.problem, ["arenas.py", "keep"]),
    ("life of a segment", shm.problem, ["segment_life.py"]),
]


def checks():
    # Each interpreter runs one part.
    commands = {}
    for index, (_, _, arguments) in enumerate(PARTS):
        each = on_each(*arguments)
        version = list(each)[index % len(each)]
        commands["%s-%d" % (version, index)] = each[version]
    recording = record(None, commands, ["--rate", "499"])
    refused = recording.report.get("refused", [])
    yield "families", refused and "; ".join("%(family)s: %(reason)s" % one for one in refused)
    for (what, problem, _), program in zip(PARTS, recording.programs):
        yield what, problem(recording.report, program)
