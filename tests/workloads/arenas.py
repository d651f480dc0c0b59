"""Takes arenas at known lines, and says what CPython itself counts of them.

keep     two lines take arenas, one gives its own back
sparse   all but one object in four thousand is given back
fork     a child is forked that has them all, and takes more of its own
other    memory of an arena's size that is none
wait     as keep, at SIGUSR1, with arenas from before
"""
import os
import signal
import sys
import time

from timing import until_known

# Enough for some of either size, and short enough to be born all at one line.
OBJECTS = 400_000


class Node:
    __slots__ = ("value",)


def build(times=1):
    return [Node() for _ in range(times * OBJECTS)]


def churn():
    return [(number, str(number)) for number in range(OBJECTS // 4)]


def stats(looks=1):
    """What lies on stderr is CPython's own count; then time for somebody to look, at some 200 arenas a second,
    or fewer where PYOBS_SLOWNESS says that all is slower."""
    sys.stderr.flush()
    sys._debugmallocstats()
    sys.stderr.flush()
    time.sleep((looks + 0.2) * float(os.environ.get("PYOBS_SLOWNESS", 1)))


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
    # When it is watched, and its interpreter known.
    if mode == "wait":
        before = churn()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        print("ready", flush=True)
        signal.sigwait([signal.SIGUSR1])
    else:
        until_known(0.6)
    # Arenas are smaller and more before 3.10, and these two have many.
    looks = 6 if mode in ("sparse", "fork") and sys.version_info < (3, 10) else 1
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
            # Of its own and of its parent's.
            stats(looks + 1)
            os._exit(0)
        print("child", child, flush=True)
        os.waitpid(child, 0)
    else:
        stats(looks)
    # Without the interpreter's own clearing up.
    os._exit(0)


main(sys.argv[1])
