"""redundancy_hidden.py slice|repeat|algorithm|api|memo|dead|none SECONDS: waste that takes a few percent of the time.

It is hidden among useful work, which uses all its results. Prints the wasteful line, 0 for none.
"""
import inspect
import sys
import time

import numpy as np

from useful_work import drawn, multiplied, plain, rng, scale, streamed

weights, gradients = np.zeros((4, 40)), rng.random((4, 40))
rows, values = np.arange(40 * 64, dtype=float).reshape(40, 64), rng.random(100)
angles, table, drift = rng.random(4000), np.zeros(4000), 0.0
theta, turned = 0.3, np.eye(3)


def slice():
    for i in range(4):
        for j in range(40):
            weights[i, j] -= 0.01 * gradients[i, j]  # <- waste


def repeat():
    global turned
    for _ in range(40):
        a = np.cos(theta); b = np.sin(theta); turn = np.array([[a, -b, 0], [b, a, 0], [0, 0, 1.0]])  # <- waste
        turned = np.dot(turn, turned)


def algorithm():
    for i in range(39):
        first = rows[i].copy(); rows[i] = rows[i + 1]; rows[i + 1] = first  # <- waste


def api():
    total = np.square(values[0])
    for i in range(1, 100):
        total = total + np.square(values[i])  # <- waste


def memo():
    for _ in range(3):
        table = np.cos(angles)  # <- waste
    return table


def dead():
    global drift
    for _ in range(10):
        drift += 1e-3
        np.multiply(angles, scale, out=table)  # <- waste
        np.add(angles, drift, out=table)
        table.sum()


def none():
    pass


kind, seconds = sys.argv[1], float(sys.argv[2])
waste = globals()[kind]
source, first = inspect.getsourcelines(waste)
marked = [first + index for index, line in enumerate(source) if "# <- waste" in line]
spent = total = 0.0
end = time.perf_counter() + seconds
while (begin := time.perf_counter()) < end:
    plain(), drawn(), multiplied(), streamed()
    # Keeps the waste at six percent of the time on any machine.
    while spent < 0.06 * total and kind != "none":
        before = time.perf_counter()
        waste()
        spent += time.perf_counter() - before
    total += time.perf_counter() - begin
print(marked[0] if marked else 0)
