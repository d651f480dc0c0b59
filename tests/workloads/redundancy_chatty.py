"""redundancy_chatty.py SECONDS: loops that call libraries of arrays for little work, and calls of the same libraries that are
worth their time.

Prints as JSON, for each of the lines that are marked in the source, its number and, for a loop, the seconds that a turn took.
"""
import inspect
import json
import os
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))

from pandas import DataFrame

rng = np.random.default_rng(0)
names = ["price", "volume", "weight"]
table = DataFrame({name: rng.random(2000) for name in names})
pairs, matrix, large = rng.random((2000, 2)), rng.random((1500, 400)), rng.random((5, 50_000))
numbers = rng.random(50_000)


def rows():
    total = 0.0
    for _, row in table.iterrows():  # <- rows
        total += row["price"]
    return total


def means():
    total = 0.0
    for pair in pairs:
        total += np.mean(pair)  # <- means
    return total


def doubled(number):
    return number * 2.0 + 1.0


each = np.vectorize(doubled, otypes=[float])


def called():
    return each(numbers)  # <- called


def halved(number):
    return number * 0.5 + 1.0


each_natively = np.frompyfunc(halved, 1, 1)


def applied():
    return each_natively(numbers)  # <- applied


def ordered(row):
    return np.sort(row)


def sorts():
    return np.apply_along_axis(ordered, 1, large)  # <- sorts


def whole():
    return sum(float(np.mean(matrix, axis=1).sum()) for _ in range(20))  # <- whole


def long():
    return sum(table.total(names) for _ in range(3))  # <- long


LOOPS = {
    "rows": (rows, 2000), "means": (means, len(pairs)), "called": (called, len(numbers)), "applied": (applied, len(numbers)),
    "sorts": (sorts, len(large)), "whole": (whole, None), "long": (long, None),
}


def main():
    spent = {name: [0.0, 0] for name in LOOPS}
    until = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < until:
        for name, (loop, turns) in LOOPS.items():
            begun = time.perf_counter()
            loop()
            spent[name][0] += time.perf_counter() - begun
            spent[name][1] += turns or 0
    lines = inspect.getsource(sys.modules["__main__"]).splitlines()
    marked = {name: next(n for n, line in enumerate(lines, 1) if line.endswith("# <- " + name)) for name in LOOPS}
    turns = {name: seconds / count if count else None for name, (seconds, count) in spent.items()}
    print(json.dumps({name: {"line": marked[name], "turn_s": turns[name]} for name in LOOPS}))


main()
