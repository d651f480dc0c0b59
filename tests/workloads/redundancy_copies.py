"""redundancy_copies.py SECONDS: arrays, tables and texts that grow by copies, and those that are joined once or extended in place.

Prints their lines as JSON, with the mean sizes in bytes of what grows, and the size of what each copy adds.
"""
import inspect
import json
import os
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))

import pandas

parts, SIZE = np.random.default_rng(0).random((4, 4000)), 3000


def grown():
    made = np.zeros(SIZE)
    for value in range(500):
        made = np.append(made, value)  # <- grown
    return made


def joined():
    for _ in range(200):
        np.concatenate([parts[0], parts[1], parts[2], parts[3]])  # <- joined


def table(rows):
    return pandas.DataFrame({"price": np.zeros(rows), "volume": np.ones(rows)})


# A call takes a millisecond: what a shorter one was given is often gone when pyobs looks at it.
ROWS = 200_000
row, tables = table(1), [table(ROWS), table(ROWS)]


def grown_table():
    made = table(ROWS)
    for _ in range(100):
        made = pandas.concat([made, row])  # <- grown_table
    return made


def joined_table():
    for _ in range(20):
        pandas.concat(tables)  # <- joined_table


# A character takes two bytes.
CHARACTERS, MORE = 200_000, "a line\n"


class Page:
    text = ""


def grown_text():
    page = Page()
    page.text = "\u20ac" * CHARACTERS
    for _ in range(1000):
        page.text += MORE  # <- grown_text


def extended_text():
    made = "\u20ac" * CHARACTERS
    for _ in range(20_000):
        made += MORE  # <- extended_text


def joined_text():
    for _ in range(50):
        "".join([MORE] * 20_000)  # <- joined_text


until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    [grown() for _ in range(8)], joined(), grown_table(), joined_table(), grown_text(), extended_text(), joined_text()
lines = {}
for function in grown, joined, grown_table, joined_table, grown_text, extended_text, joined_text:
    source, first = inspect.getsourcelines(function)
    lines[function.__name__] = next(first + index for index, line in enumerate(source) if "# <-" in line)
text_bytes = 2 * (CHARACTERS + 500 * len(MORE))
print(json.dumps(dict(lines, bytes=8 * (SIZE + 250), table_bytes=16 * (ROWS + 50), text_bytes=text_bytes)))
