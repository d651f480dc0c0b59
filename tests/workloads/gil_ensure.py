"""C code creates threads that call Python: each waits for the GIL before its first frame, while the main thread computes.

The last line is JSON: {"waited_s": how long they waited in total, "count": how many there were}.
"""
import ctypes
import json
import sys
import time

from timing import until_known

COUNT = 60
INTERVAL = 0.05

libpthread = ctypes.CDLL("libpthread.so.0")
waited = []
started = 0.0


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def called(_):
    waited.append(time.perf_counter() - started)


def main():
    global started
    until_known(1)
    sys.setswitchinterval(INTERVAL)
    for number in range(COUNT):
        thread = ctypes.c_ulong()
        # PyDLL keeps the GIL during the call, so that the thread cannot take it at once.
        create = ctypes.PyDLL("libpthread.so.0").pthread_create
        started = time.perf_counter()
        assert create(ctypes.byref(thread), None, called, None) == 0
        while len(waited) <= number:
            pass
        libpthread.pthread_join(thread, None)
    print(json.dumps({"waited_s": sum(waited), "count": COUNT}))


main()
