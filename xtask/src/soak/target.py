"""Computes one value over and over, with threads, generators, exceptions, recursion and native code. SIGTERM ends it; it fails
if a value ever differed from the first one. Runs on every CPython since 3.6.
"""
import ctypes
import hashlib
import json
import random
import signal
import sys
import threading

stopped = threading.Event()
libc = ctypes.CDLL(None)
libc.labs.restype, libc.labs.argtypes = ctypes.c_long, [ctypes.c_long]


def numbers(rng):
    for _ in range(200):
        yield rng.random()


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


def part(seed):
    rng = random.Random(seed)
    values = sorted(numbers(rng))
    words = json.loads(json.dumps({str(value): [value, -value] for value in values}))
    caught = 0
    for key in list(words)[:20]:
        try:
            words[key][2]
        except IndexError:
            caught += libc.labs(-1)
    return repr((values, sorted(words), caught, depth(50)))


def value():
    parts = [None] * 3

    def run(index):
        parts[index] = part(index)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return hashlib.sha256("".join(parts).encode()).hexdigest()


signal.signal(signal.SIGTERM, lambda *_: stopped.set())
first = value()
while not stopped.is_set():
    if value() != first:
        sys.exit("a value differs")
    stopped.wait(0.005)
