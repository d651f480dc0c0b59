"""Calls a library so that a known share of its accesses is redundant, and prints the results.

redundancy.py LIBRARY loads|stores|dead|KIND PERCENT[,PERCENT]... SECONDS [THREADS]

loads: in PERCENT of the calls that read all values, the values are those that the previous call read.
stores: PERCENT of the calls store what is already there.
dead: PERCENT of the calls overwrite values that were never read.
storm: one address is accessed all the time.
compute: no memory is accessed.
stack, own: only the thread's stack, or only its own data, is accessed.
counts: only an object's reference count is accessed.
stream: each address is accessed once in half a second or less often, twice as long as a watchpoint stays.
remap: memory is mapped at one address, filled, read and unmapped, over and over.
dying, forks, execs: threads that live for some milliseconds, such children, and the process itself, which executes itself again.

With several percentages, each thread has one. Prints its steps, how many went wrong, and the threads' ids and percentages.
SIGTERM ends it early; it still prints its results.
"""
import ctypes
import os
import signal
import sys
import threading
import time

COUNT = 4096
path, kind, seconds = sys.argv[1], sys.argv[2], float(sys.argv[4])
percents = [int(percent) for percent in sys.argv[3].split(",")]
deadline = time.monotonic() + seconds


def stop(*_):
    global deadline
    deadline = 0.0


signal.signal(signal.SIGTERM, stop)
library = ctypes.CDLL(path)
library.load_all.restype = ctypes.c_double
library.load_all.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_long]
library.store_all.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_long, ctypes.c_double]
library.hammer.restype = None
library.hammer.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_long]
library.compute.restype = ctypes.c_ulong
library.compute.argtypes = [ctypes.c_long]
library.own_stack.restype = library.own_data.restype = ctypes.c_double
library.own_stack.argtypes = library.own_data.argtypes = [ctypes.c_long]
library.counts.restype = None
library.counts.argtypes = [ctypes.c_void_p, ctypes.c_long]
library.stream.restype = None
library.stream.argtypes = [ctypes.POINTER(ctypes.c_double), ctypes.c_long, ctypes.c_double]
library.remap.restype = ctypes.c_double
library.remap.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_double]


def storm(step):
    value = ctypes.c_double(step)
    library.hammer(ctypes.byref(value), 100_000)
    return value.value != step + 100_000


def compute(step):
    return library.compute(10_000) != pow(31, 640_000, 2**64)


def stack(step):
    return library.own_stack(100_000) != 100_000


def own(step):
    return library.own_data(100_000) != 100_000


counted = object()


def counts(step):
    before = sys.getrefcount(counted)
    library.counts(id(counted), 100_000)
    return sys.getrefcount(counted) != before


def stream(step):
    global streamed
    if step == 1:
        streamed = (ctypes.c_double * (1 << 25))()
    library.stream(ctypes.cast(streamed, ctypes.POINTER(ctypes.c_double)), len(streamed), step)
    return streamed[0] != step or streamed[len(streamed) - 1] != step


def remap(step):
    return library.remap(0x2000_0000_0000, COUNT, step) != step * COUNT


def some(step):
    """A few milliseconds of stores and loads. Returns whether they went wrong."""
    values = (ctypes.c_double * COUNT)()
    pointer = ctypes.cast(values, ctypes.POINTER(ctypes.c_double))
    for turn in range(200):
        library.store_all(pointer, COUNT, step + turn // 2)
        if library.load_all(pointer, COUNT) != (step + turn // 2) * COUNT:
            return True
    return False


def dying(step):
    wrong = []
    thread = threading.Thread(target=lambda: wrong.append(some(step)))
    thread.start()
    thread.join()
    return wrong != [False]


def forks(step):
    child = os.fork()
    if child == 0:
        os._exit(some(step))
    return os.waitpid(child, 0)[1] != 0 or some(step)


def execs(step):
    if some(step):
        return True
    left = float(os.environ.setdefault("UNTIL", str(time.time() + seconds))) - time.time()
    if left > 0:
        os.execv(sys.executable, [sys.executable] + sys.argv)
    return False


def repeat(one):
    step, wrong = 0, 0
    while time.monotonic() < deadline:
        step += 1
        wrong += one(step)
    return step, wrong


def work(results, percent):
    values = (ctypes.c_double * COUNT)()
    pointer = ctypes.cast(values, ctypes.POINTER(ctypes.c_double))
    step, value, total, wanted = 0, 1.5, 0.0, 0
    library.store_all(pointer, COUNT, value)
    while time.monotonic() < deadline:
        step += 1
        # PERCENT of every hundred steps are redundant, spread evenly.
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
    results.append((step, wanted, threading.get_native_id(), percent))


if kind not in ("loads", "stores", "dead"):
    print(*repeat(globals()[kind]), flush=True)
    sys.exit()
results = []
count = int(sys.argv[5]) if len(sys.argv) > 5 else 1
threads = [threading.Thread(target=work, args=(results, percents[n % len(percents)])) for n in range(1, count)]
for thread in threads:
    thread.start()
work(results, percents[0])
for thread in threads:
    thread.join()
print(sum(row[0] for row in results), sum(row[1] for row in results), *(word for row in results for word in row[2:]), flush=True)
