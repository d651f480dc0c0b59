"""Calls a library so that a known share of its accesses is redundant, and says what came out.

redundancy.py LIBRARY loads|stores|dead PERCENT SECONDS [THREADS]

loads: of so many percent of the calls that read all values, the values are those that the call before read.
stores: so many percent of the calls store what is there already.
dead: so many percent of the calls store over what nobody has read.
"""
import ctypes
import sys
import threading
import time

COUNT = 4096
path, kind, percent, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
library = ctypes.CDLL(path)
library.load_all.restype = ctypes.c_double
library.load_all.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_long]
library.store_all.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_long, ctypes.c_double]


def work(results):
    values = (ctypes.c_double * COUNT)()
    pointer = ctypes.cast(values, ctypes.POINTER(ctypes.c_double))
    step, value, total, wanted = 0, 1.5, 0.0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step += 1
        # Of a hundred steps as many are redundant, spread evenly.
        is_redundant = step * percent // 100 != (step - 1) * percent // 100
        if kind == "loads":
            if not is_redundant:
                value += 0.75
                library.store_all(pointer, COUNT, value)
            got = library.load_all(pointer, COUNT)
            total, wanted = total + got, wanted + (got != value * COUNT)
        elif kind == "stores":
            if not is_redundant:
                value += 0.75
            library.store_all(pointer, COUNT, value)
        else:
            value += 0.75
            library.store_all(pointer, COUNT, value)
            if not is_redundant:
                got = library.load_all(pointer, COUNT)
                total, wanted = total + got, wanted + (got != value * COUNT)
    wanted += any(one != value for one in values)
    results.append((step, wanted))


results = []
count = int(sys.argv[5]) if len(sys.argv) > 5 else 1
threads = [threading.Thread(target=work, args=(results,)) for _ in range(count - 1)]
for thread in threads:
    thread.start()
work(results)
for thread in threads:
    thread.join()
print(sum(step for step, _ in results), sum(wrong for _, wrong in results), flush=True)
