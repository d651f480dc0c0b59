"""redundancy_package.py SECONDS: waste in a library's line, and in a library that the program calls too often.

Prints as JSON the wasteful line of the library, and the lines of the program that call it and NumPy's mean.
"""
import inspect
import json
import os
import sys
import time

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))

import pyobs_trend

rng = np.random.default_rng(0)
prices, pairs, signal = rng.random(400), rng.random((100, 2)), rng.random(20_000)


def trends():
    return pyobs_trend.smoothed(prices, 14)  # <- caller


def means():
    total = 0.0
    for pair in pairs:
        total += np.mean(pair)  # <- small
    return total


def honest():
    return pyobs_trend.centred(signal).sum()


def marked(module, mark):
    lines = inspect.getsource(module).splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith("# <- " + mark))


def main():
    until = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < until:
        trends(), means(), honest()
    own = sys.modules["__main__"]
    lines = {"waste": marked(pyobs_trend.trend, "waste"), "caller": marked(own, "caller"), "small": marked(own, "small")}
    print(json.dumps(lines))


main()
