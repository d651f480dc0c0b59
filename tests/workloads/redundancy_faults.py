"""Fills an array of new pages four times over: with one value (same) or another each time (other).

  redundancy_faults.py same|other SECONDS
"""
import mmap
import sys
import time

import numpy as np

SIZE = 1 << 20


def main(kind, seconds):
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(memory, dtype=np.float64)
    value, until = 1.0, time.monotonic() + seconds
    print("ready", flush=True)
    while time.monotonic() < until:
        memory.madvise(mmap.MADV_DONTNEED)
        for _ in range(4):
            value += kind == "other"
            array.fill(value)


main(sys.argv[1], float(sys.argv[2]))
