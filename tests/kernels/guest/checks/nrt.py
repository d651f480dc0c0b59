"""Compares the MemInfos of a stand-in for Numba's runtime (workloads/nrt.c) with what its user counted."""
from pyobs import has_function, on_each, record

BESIDE = True


def checks():
    # A thread that is preempted while its stack is walked makes another one lose its stack.
    recording = record("nrt", on_each("meminfos.py", "/guest/programs/_nrt_python.so"), in_turn=True)
    meminfos = recording.report["meminfos"]
    known = [program.result() for program in recording.programs]
    for key in ("born", "died", "live"):
        total = sum(one[key] for one in known)
        yield key, meminfos[key] != total and "%d, known: %d: %s" % (meminfos[key], total, recording.report["loss"])
    sites = [site for site in meminfos["sites"] if has_function(site["stack"], "leak")]
    left, total = sum(site["live"] for site in sites), sum(one["live"] for one in known)
    yield "what is left is of the line that leaks", left != total and "%d of %d" % (left, total)
