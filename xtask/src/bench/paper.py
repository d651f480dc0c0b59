"""Loops of real programs in which PieProf found waste (Tan et al., ESEC/FSE 2021, listings 1, 3, 4, 5, 8 and 9), rebuilt in
other words, each beside the paper's fix.

  paper.py                           prints the names
  paper.py NAME bad|fixed SECONDS    prints the turns per second, the file and the wasteful lines as JSON

The wasteful lines are marked "# <- waste".
"""
import inspect
import json
import math
import os
import sys
import time

import numpy as np
from scipy.linalg.blas import dswap

rng = np.random.default_rng(0)
hidden_gradients, hidden_weights = rng.random((4, 60)), np.zeros((4, 60))
filters, slopes, image = np.zeros((8, 3, 3)), rng.random((12, 12, 8)), rng.random((14, 14))
point = rng.random(30)
turned, angle = np.eye(3), 0.3
columns, order = np.asfortranarray(rng.random((60, 200))), list(range(200))


def irisdata_bad():
    for i in range(4):
        for j in range(60):
            hidden_weights[i, j] -= 0.01 * hidden_gradients[i, j]  # <- waste


def irisdata_fixed():
    hidden_weights[...] -= 0.01 * hidden_gradients


def regions():
    for i in range(12):
        for j in range(12):
            yield image[i:i + 3, j:j + 3], i, j


def cnn_bad():
    filters.fill(0.0)
    for region, i, j in regions():
        for f in range(8):
            filters[f] += slopes[i, j, f] * region  # <- waste


def cnn_fixed():
    filters.fill(0.0)
    for region, i, j in regions():
        filters[...] += slopes[i, j][:, None, None] * region


def cec_4_bad():
    total = 0.0
    for i in range(len(point) - 1):
        total += np.square(100.0 * (point[i] ** 2 - point[i + 1])) + np.square(point[i] - 1.0)  # <- waste
    return total


def cec_4_fixed():
    return np.sum(np.square(100.0 * (point[:-1] ** 2 - point[1:])) + np.square(point[:-1] - 1.0))


def cec_10_bad():
    product, size = 1.0, len(point)
    for i in range(size):
        term = 1.0
        for j in range(1, 33):
            term += i * np.abs(np.power(2.0, j) * point[i] - round(np.power(2.0, j) * point[i])) / np.power(2.0, j)  # <- waste
        product *= np.power(term, 10.0 / np.power(size, 1.2))
    return product


def cec_10_fixed():
    product, size = 1.0, len(point)
    power = 10.0 / size ** 1.2
    for i in range(size):
        term, at = 1.0, float(point[i])
        for j in range(1, 33):
            scale = 2.0 ** j
            part = math.modf(scale * at)[0]
            term += i * min(part, 1.0 - part) / scale
        product *= term ** power
    return product


def rotate_bad():
    global turned
    a = np.cos(angle)  # <- waste
    b = np.sin(angle)  # <- waste
    turn = np.array([[a, -b, 0.0], [b, a, 0.0], [0.0, 0.0, 1.0]], float)  # <- waste
    turned = np.dot(turn, turned)


TURNS = {}


def turn_by(theta):
    if theta not in TURNS:
        a, b = math.cos(theta), math.sin(theta)
        TURNS[theta] = np.array([[a, -b, 0.0], [b, a, 0.0], [0.0, 0.0, 1.0]], float)
    return TURNS[theta]


def rotate_fixed():
    global turned
    turned = np.dot(turn_by(angle), turned)


def lars_path_bad():
    for i in range(199):
        columns.T[i], columns.T[i + 1] = dswap(columns.T[i], columns.T[i + 1])  # <- waste
        order[i], order[i + 1] = order[i + 1], order[i]


def lars_path_fixed():
    first = columns.T[0].copy()
    columns.T[:-1] = columns.T[1:].copy()
    columns.T[-1] = first
    order.append(order.pop(0))


NAMES = [name[:-4] for name in list(globals()) if name.endswith("_bad")]


def main():
    if len(sys.argv) == 1:
        return print("\n".join(NAMES))
    name, form, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    work, turns, begun = globals()[f"{name}_{form}"], 0, time.monotonic()
    while time.monotonic() < begun + seconds:
        work()
        turns += 1
    source, first = inspect.getsourcelines(globals()[f"{name}_bad"])
    lines = [number for number, line in enumerate(source, first) if line.rstrip().endswith("# <- waste")]
    per_second = turns / (time.monotonic() - begun)
    print(json.dumps({"file": os.path.basename(__file__), "lines": lines, "turns_per_second": per_second}))


if __name__ == "__main__":
    main()
