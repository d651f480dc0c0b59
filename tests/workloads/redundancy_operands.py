"""redundancy_operands.py SECONDS: calls with objects of many types as arguments.

Prints the lines of the calls as JSON, by whether their arguments and results repeat. Two take or set elements of an array.
"""
import inspect
import json
import sys
import time

import numpy as np

rng = np.random.default_rng(0)
matrix, listed = rng.random((12, 12)), [float(number) for number in range(60)]


def inverted():
    for _ in range(300):
        np.linalg.inv(matrix)  # <- same


def from_list():
    for _ in range(1500):
        np.array(listed)  # <- same


def from_tuple():
    for _ in range(6000):
        np.zeros((24, 24))  # <- same


def from_text():
    for _ in range(3000):
        np.fromstring("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22", sep=" ")  # <- same


def from_bytes():
    for _ in range(6000):
        np.frombuffer(b"sixteen bytes of data, two times", dtype=np.uint8).copy()  # <- same


def from_slice():
    for _ in range(8000):
        listed_array[3:50:2].copy()  # <- same


def other_matrix(turn):
    for step in range(200):
        np.linalg.inv(matrix + (turn + step * 1e-6))  # <- fresh


def other_list(turn):
    items = [1.0] * 8
    for step in range(1500):
        items[step % 8] = turn + step * 1e-6
        np.array(items)  # <- fresh


def other_tuple(turn):
    for step in range(1500):
        np.array((1.0, 2.0, turn + step * 1e-6))  # <- fresh


def other_text(turn):
    for step in range(1500):
        np.array(f"{turn}.{step} and more text to make it longer")  # <- fresh


def other_texts(turn):
    for step in range(1500):
        np.array(["one", f"\u00e9 {turn}.{step}"])  # <- fresh


def elements():
    for step in range(8000):
        listed_array.item(step % 60)  # <- elements


def set_elements():
    for step in range(8000):
        set_array[step % 60] = 1.0  # <- elements


listed_array, set_array = np.array(listed), np.zeros(61)
same = inverted, from_list, from_tuple, from_text, from_bytes, from_slice
fresh = other_matrix, other_list, other_tuple, other_text, other_texts
elementwise = elements, set_elements
end, turn = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    turn += 1
    for function in same + elementwise:
        function()
    for function in fresh:
        function(turn)
lines = {"same": {}, "fresh": {}, "elements": {}}
for function in same + fresh + elementwise:
    source, first = inspect.getsourcelines(function)
    index = next(index for index, line in enumerate(source) if "# <-" in line)
    lines[source[index].split()[-1]][function.__name__] = first + index
print(json.dumps(lines))
