"""redundancy_calls.py SECONDS: calls with known arguments and results. Prints the calls' lines as JSON."""
import inspect
import json
import sys
import time

import numpy as np

rng = np.random.default_rng(0)
angles, others = rng.random(400), rng.random(400)
state = np.random.RandomState(0)


def again():
    for _ in range(200):
        np.cos(angles)  # <- again


def alternating(ones):
    for one in ones:
        np.sin(one)  # <- alternating


def fresh(start):
    for step in range(200):
        np.exp(start + step)  # <- fresh


def impure():
    for _ in range(200):
        state.random_sample()  # <- impure


end, turn = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    turn += 1
    again()
    # At random, because samples have a rhythm of their own, and for each call, because a stored value is followed to
    # the next call.
    alternating([angles if draw < 0.5 else others for draw in rng.random(200)])
    fresh(turn / 1e6)
    impure()
lines = {}
for function in again, alternating, fresh, impure:
    source, first = inspect.getsourcelines(function)
    lines[function.__name__] = next(first + index for index, line in enumerate(source) if "# <-" in line)
print(json.dumps(lines))
