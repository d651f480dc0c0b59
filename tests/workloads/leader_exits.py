"""leader_exits.py SECONDS: the main thread ends alone, while two other threads burn CPU time for SECONDS. Half-way, one of
them imports a module and makes a shared segment.

Prints {"alpha": tid, "beta": tid}, and "ready" when the main thread has ended.
"""
import ctypes
import json
import os
import sys
import threading
import time

from timing import gettid

SYS_EXIT = 60
seconds = float(sys.argv[1])
libc = ctypes.CDLL(None)
tids = {}
started = threading.Barrier(3)


def named(function):
    def run():
        tids[function.__name__] = gettid()
        started.wait()
        function(time.monotonic() + seconds)

    return threading.Thread(target=run)


def alpha(end):
    while time.monotonic() < end:
        sum(range(3000))


def beta(end):
    while time.monotonic() < end - seconds / 2:
        sum(range(3000))
    segment = made_late()
    while time.monotonic() < end:
        late_code()
    segment.close()
    segment.unlink()


def late_code():
    sum(range(3000))


def made_late():
    from multiprocessing import shared_memory

    return shared_memory.SharedMemory(name="pyobs_leader_%d" % os.getpid(), create=True, size=1 << 16)


def last(threads):
    while "State:\tZ" not in open("/proc/self/status").read():
        time.sleep(0.01)
    print("ready", flush=True)
    for thread in threads:
        thread.join()
    os._exit(0)


threads = [named(function) for function in (alpha, beta)]
for thread in threads:
    thread.start()
threading.Thread(target=last, args=(threads,)).start()
started.wait()
print(json.dumps(tids), flush=True)
libc.syscall(SYS_EXIT, 0)
