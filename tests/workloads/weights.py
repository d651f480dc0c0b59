"""weights.py KIND SECONDS: burns CPU time in functions that it measures itself, and prints their times as JSON.

phases    two functions, one after the other, each for half of the time, at a third of a core
turns HZ  two functions that take turns at this frequency, each for half of a turn
bursts HZ one function, for 10 ms of each turn
fresh     one function after the other, each compiled just before it runs
"""
import json
import sys
import time

from timing import until_known


def first_marker(until):
    while time.monotonic() < until:
        pass


def second_marker(until):
    while time.monotonic() < until:
        pass


def timed(spent, function, until):
    begun = time.thread_time()
    function(until)
    spent[function.__name__] += time.thread_time() - begun


def phases(spent, seconds, _):
    for function in (first_marker, second_marker):
        end = time.monotonic() + seconds / 2
        while time.monotonic() < end:
            timed(spent, function, time.monotonic() + 0.01)
            time.sleep(0.02)


def turns(spent, seconds, hz):
    begun = time.monotonic()
    for turn in range(int(seconds * hz)):
        timed(spent, first_marker, begun + (turn + 0.5) / hz)
        timed(spent, second_marker, begun + (turn + 1) / hz)


def bursts(spent, seconds, hz):
    begun = time.monotonic()
    for turn in range(int(seconds * hz)):
        time.sleep(max(0, begun + turn / hz - time.monotonic()))
        timed(spent, first_marker, time.monotonic() + 0.01)


def fresh(spent, seconds, _):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        made = {"time": time}
        exec("def made(until):\n    while time.monotonic() < until:\n        pass\n", made)
        made["made"](time.monotonic() + 0.004)
    spent["all"] = time.process_time()


until_known(1)
spent = {"first_marker": 0.0, "second_marker": 0.0}
kind, seconds = globals()[sys.argv[1]], float(sys.argv[2])
kind(spent, seconds, float(sys.argv[3]) if len(sys.argv) > 3 else 0)
print(json.dumps(spent), flush=True)
