"""redundancy_copies.py SECONDS: arrays that grow by copies, and arrays that are joined once.

Prints the lines of both as JSON, with the mean size in bytes of the array that grows.
"""
import inspect
import json
import sys
import time

import numpy as np

parts, SIZE = np.random.default_rng(0).random((4, 4000)), 3000


def grown():
    made = np.zeros(SIZE)
    for value in range(500):
        made = np.append(made, value)  # <- grown
    return made


def joined():
    for _ in range(200):
        np.concatenate([parts[0], parts[1], parts[2], parts[3]])  # <- joined


until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    grown(), joined()
lines = {}
for function in grown, joined:
    source, first = inspect.getsourcelines(function)
    lines[function.__name__] = next(first + index for index, line in enumerate(source) if "# <-" in line)
print(json.dumps(dict(lines, bytes=8 * (SIZE + 250))))
