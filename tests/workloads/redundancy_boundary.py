"""redundancy_boundary.py SECONDS: lines that call a function of a package, which repeats, or in which only one thing changes.

Prints as JSON the number of each marked line.
"""
import inspect
import json
import os
import sys
import time

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))

from pyobs_trend.mixed import mixed, remembered

rng = np.random.default_rng(0)
values = rng.random(4000)
fixed = {"scale": 2.0, "names": ["price", "volume"], "limits": (0, 1, None)}
item = {"scale": 2.0, "names": ["price", "volume"]}
name = {"scale": 2.0, "names": ["price", "volume"]}
moved = rng.random(4000)


class Options(dict):
    pass


instance = Options(fixed)


def repeats():
    return mixed(fixed, values)  # <- repeats


def changes_an_item(step):
    item["scale"] = float(step)
    return mixed(item, values)  # <- item


def changes_a_name(step):
    name["names"][1] = "volume%d" % step
    return mixed(name, values)  # <- name


def changes_an_array(step):
    moved[:] = moved + 1e-6
    return mixed(fixed, moved)  # <- array


def returns_more():
    return remembered(fixed, values)  # <- more


def takes_an_instance():
    return mixed(instance, values)  # <- instance


MARKS = ["repeats", "item", "name", "array", "more", "instance"]


def main():
    until, step = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < until:
        step += 1
        repeats(), changes_an_item(step), changes_a_name(step), changes_an_array(step), returns_more(), takes_an_instance()
    lines = inspect.getsource(sys.modules["__main__"]).splitlines()
    print(json.dumps({mark: next(n for n, line in enumerate(lines, 1) if line.endswith("# <- " + mark)) for mark in MARKS}))


main()
