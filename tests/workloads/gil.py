"""gil.py MODE SECONDS: threads that want the GIL, or do not, and know how long each of them waited for it.

MODE is `two` (both compute), `single`, `convoy` (one computes, one writes and reads a byte at a time), `asleep` (one sleeps
with the GIL, one does little) or `calm` (one computes without the GIL, one does little). The last line of output is JSON:
{"threads": [{"tid": …, "function": …, "lines": [first, last], "waited_s": [least, most], "cpu_s": …, "wall_s": …}, …]};
`waited_s` is how long the thread did not run, which is its wait for the GIL if it waits for nothing else.
"""
import ctypes
import json
import os
import sys
import threading
import time
import zlib

from timing import Waited, gettid, put_first, until_known

SEEN = []


def spin_a(until):
    x = 0
    while time.perf_counter() < until:
        for k in range(2000):
            x = (x * 31 + k) & 0xFFFF


def spin_b(until):
    x = 0
    while time.perf_counter() < until:
        for k in range(2000):
            x = (x * 31 + k) & 0xFFFF


def byte_by_byte(until):
    reading, writing = os.pipe()
    while time.perf_counter() < until:
        os.write(writing, b"x")
        os.read(reading, 1)


def without_the_gil(until):
    data = os.urandom(1000000)
    while time.perf_counter() < until:
        zlib.compress(data)


def now_and_then(until):
    while time.perf_counter() < until:
        time.sleep(0.01)


def work(function, until):
    code = function.__code__
    row = {"tid": gettid(), "function": code.co_name, "lines": [code.co_firstlineno + 1, code.co_firstlineno + 4]}
    with Waited() as waited:
        function(until)
    row.update(waited_s=waited.bounds(), cpu_s=waited.cpu, wall_s=waited.wall)
    SEEN.append(row)


def asleep_with_it(until):
    # PyDLL calls functions without releasing the GIL.
    keep = ctypes.PyDLL(None)
    while time.perf_counter() < until:
        keep.usleep(40000)


MODES = {
    "asleep": [asleep_with_it, now_and_then],
    "two": [spin_a, spin_b],
    "single": [spin_a],
    "convoy": [spin_a, byte_by_byte],
    "calm": [without_the_gil, now_and_then],
}


def main(mode, seconds):
    until = time.perf_counter() + seconds
    threads = [threading.Thread(target=work, args=(function, until)) for function in MODES[mode]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"threads": SEEN}))


put_first()
# Waits until pyobs knows the interpreter.
until_known(0.5)
main(sys.argv[1], float(sys.argv[2]))
