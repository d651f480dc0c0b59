"""Allocates arenas at known lines, and prints CPython's own count of them.

keep     two lines allocate arenas, one frees its own
sparse   all but one object in four thousand is freed
fork     forks a child that has all of them, and allocates more
other    maps memory of an arena's size that is not an arena
wait     like keep, at SIGUSR1, with earlier arenas
"""
import os
import signal
import sys
import time

from timing import until_known

# Enough for some arenas of either size, and quick enough that all come from one line.
OBJECTS = 400_000


class Node:
    __slots__ = ("value",)


def build(times=1):
    return [Node() for _ in range(times * OBJECTS)]


def churn():
    return [(number, str(number)) for number in range(OBJECTS // 4)]


def stats(snapshots=1):
    """Writes CPython's own count to stderr. Then leaves time for snapshots, which pyobs takes every second, or up to half a
    second later if nothing else wakes it: at about 200 arenas a second, or fewer if PYOBS_SLOWNESS says that the machine is
    slower."""
    sys.stderr.flush()
    sys._debugmallocstats()
    sys.stderr.flush()
    time.sleep((snapshots + 0.7) * float(os.environ.get("PYOBS_SLOWNESS", 1)))


def other():
    import ctypes

    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    size = 1 << 20 if sys.version_info >= (3, 10) else 1 << 18
    for number in range(5):
        address = libc.mmap(None, size, 3, 0x22, -1, 0)
        ctypes.memset(address, 0x41 if number else 0, size)
    print("made 5", flush=True)


def main(mode):
    # pyobs must be watching, and must know the interpreter.
    if mode == "wait":
        before = churn()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        print("ready", flush=True)
        signal.sigwait([signal.SIGUSR1])
    else:
        until_known(0.6)
    # Before 3.10 arenas are smaller and more numerous, and these two modes have many.
    snapshots = 6 if mode in ("sparse", "fork") and sys.version_info < (3, 10) else 1
    kept = build(3 if mode == "sparse" else 1)
    gone = churn()
    if mode == "sparse":
        kept = kept[::4000]
    if mode == "other":
        other()
    del gone
    if mode == "fork":
        child = os.fork()
        if child == 0:
            more = build()
            # The child has its own arenas and its parent's.
            stats(snapshots + 1)
            os._exit(0)
        print("child", child, flush=True)
        os.waitpid(child, 0)
    else:
        stats(snapshots)
    # Skips the interpreter's own clean-up.
    os._exit(0)


main(sys.argv[1])
