"""Counts the signals that it gets while it burns CPU time, until a file is removed.

  fault_signals.py FILE        prints `ready`, then `{"signals": {NUMBER: COUNT}}`

Catches every signal that can be caught. A stop cannot, but the continuation after one is a signal (SIGCONT) that can.
"""
import json
import os
import signal
import sys
import threading
import time

counts = {}


def count(number, frame):
    counts[number] = counts.get(number, 0) + 1


until = time.monotonic() + 300


def hot_function():
    while os.path.exists(sys.argv[1]) and time.monotonic() < until:
        for number in range(100000):
            pass


for number in range(1, signal.NSIG):
    try:
        signal.signal(number, count)
    except (OSError, ValueError):
        pass

thread = threading.Thread(target=hot_function)
thread.start()
print("ready", flush=True)
while thread.is_alive():
    time.sleep(0.05)
print(json.dumps({"signals": counts}), flush=True)
