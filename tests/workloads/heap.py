"""Holds memory of known size at known lines. Prints {line marker: bytes} by the kernel's count of resident memory.

    heap.py MODE [wait]

With `wait`, begins at SIGUSR1. Ends when it is killed, or at once without `wait`.
"""
import ctypes
import json
import mmap
import os
import signal
import sys
import time

try:
    import numpy as np
except ImportError:
    np = None

MIB = 1 << 20
PAGE = 4096
ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
kept = []
known = {}


def rss():
    """smaps is exact, while statm lags behind by some pages per CPU."""
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) << 10 for line in rollup if line.startswith("Rss:"))


class Node:
    __slots__ = ("a", "b", "c")

    def __init__(self, i):
        self.a, self.b, self.c = i, None, None


def tuples():
    return [(i, i + 1, i + 2) for i in range(500_000)]  # LINE tuples


def nodes():
    return [Node(i) for i in range(400_000)]  # LINE nodes


def strings():
    return ["%040d" % i for i in range(500_000)]  # LINE strings


def touch(memory, size):
    for at in range(0, size, PAGE):
        memory[at] = 1


def private(size=50 * MIB):
    memory = mmap.mmap(-1, size, flags=ANONYMOUS)  # LINE private
    touch(memory, size)
    return memory


def shared():
    memory = mmap.mmap(-1, 40 * MIB)  # LINE shared
    touch(memory, 40 * MIB)
    return memory


def block():
    return bytearray(b"x") * (200 * MIB)  # LINE block


def array():
    return np.ones(200 * MIB // 8)  # LINE array


def grown():
    memory = bytearray()
    for _ in range(100):
        memory += b"x" * MIB  # LINE grown
    return memory


def dropped():
    """madvise gives most of the memory back, while the addresses stay mapped."""
    memory = mmap.mmap(-1, 100 * MIB, flags=ANONYMOUS)  # LINE dropped
    touch(memory, 100 * MIB)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    dont_need = 4
    assert ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(70 * MIB), dont_need) == 0
    return memory


def churned():
    """Maps and unmaps far more than it keeps, at the same addresses."""
    for _ in range(40):
        memory = mmap.mmap(-1, 40 * MIB, flags=ANONYMOUS)  # LINE churned
        touch(memory, 40 * MIB)
        memory.close()
    return None


def trimmed():
    """malloc takes memory with brk and gives it back without munmap."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    assert libc.mallopt(-3, 1 << 30) == 1  # M_MMAP_THRESHOLD: never mmap
    assert libc.mallopt(-1, 1 * MIB) == 1  # M_TRIM_THRESHOLD: give back soon
    for _ in range(30):
        at = libc.malloc(ctypes.c_size_t(30 * MIB))
        ctypes.memset(at, 1, 30 * MIB)  # LINE trimmed
        libc.free(at)
    return None


def reserved():
    """Reserves a terabyte of addresses and uses 30 MiB."""
    size, no_reserve = 1 << 40, 0x4000
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    start = libc.mmap(None, size, 3, ANONYMOUS | no_reserve, -1, 0)
    for at in range(0, 30 * MIB, MIB):
        ctypes.memset(start + at * 1000, 1, MIB)  # LINE reserved
    return None


def file_read():
    """The kernel touches the memory, in read(2)."""
    memory = bytearray(1)
    with open("/dev/zero", "rb", buffering=0) as zeros:
        memory = mmap.mmap(-1, 60 * MIB, flags=ANONYMOUS)  # LINE file_read
        view = memoryview(memory)
        for at in range(0, 60 * MIB, MIB):
            zeros.readinto(view[at : at + MIB])
    return view


MODES = {
    "lines": [tuples, nodes, strings, private, shared, block] + ([array] if np else []),
    "malloc": [tuples, nodes, strings, block],
    "returned": [dropped, churned, trimmed, private],
    "odd": [grown, reserved, file_read],
}


def forked():
    """A child begins with a copy of what its parent has."""
    kept.append(private())
    child = os.fork()
    if child == 0:
        kept.append(block())
        print(json.dumps({"pid": os.getpid(), "known": {"private": 50 * MIB, "block": 200 * MIB}}), flush=True)
        signal.pause()
    print(json.dumps({"pid": os.getpid(), "known": {"private": 50 * MIB}}), flush=True)
    signal.pause()


def main():
    waits = "wait" in sys.argv
    if waits:
        signal.signal(signal.SIGUSR1, lambda *_: None)
        print("ready", flush=True)
        signal.pause()
    if sys.argv[1] == "forked":
        forked()
    for make in MODES[sys.argv[1]]:
        before = rss()
        kept.append(make())
        known[make.__name__] = rss() - before
    print(json.dumps({"pid": os.getpid(), "rss": rss(), "known": known}), flush=True)
    time.sleep(1)
    while waits:
        signal.pause()


main()
