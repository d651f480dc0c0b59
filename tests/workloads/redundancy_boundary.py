"""redundancy_boundary.py SECONDS: lines that call a function of a package, which repeats, or in which only one thing changes.

Prints as JSON the number of each marked line.
"""
import inspect
import json
import os
import random
import sys
import time

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))

from pyobs_trend.mixed import fitted, mixed, remembered

rng = np.random.default_rng(0)
values = rng.random(4000)
fixed = {"scale": 2.0, "names": ["price", "volume"], "limits": (0, 1, None)}
item = {"scale": 2.0, "names": ["price", "volume"]}
name = {"scale": 2.0, "names": ["price", "volume"]}
moved = rng.random(4000)


class Options(dict):
    pass


class Settings:
    def __init__(self, scale):
        self.scale = scale
        self.names = ["price", "volume"]
        self.limits = Options(low=0, high=1)

    def __getitem__(self, name):
        return getattr(self, name)


class Named:
    __slots__ = ("names", "unset")


class Slotted(Named):
    __slots__ = ("scale", "__dict__")

    def __init__(self, scale):
        self.scale = scale
        self.names = ["price", "volume"]

    def __getitem__(self, name):
        return getattr(self, name)


class Noise(random.Random):
    """Its state is in fields of C code."""

    def __getitem__(self, name):
        return fixed[name]


options = Options(fixed)
settings = Settings(2.0)
changed = Settings(2.0)
slotted = Slotted(2.0)
changed_slot = Slotted(2.0)
noise = Noise(0)


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


def takes_a_dictionary_of_its_own():
    return mixed(options, values)  # <- subclass


def takes_an_instance():
    return mixed(settings, values)  # <- instance


def changes_an_attribute(step):
    changed.limits["high"] = float(step)
    return mixed(changed, values)  # <- attribute


def takes_slots():
    return mixed(slotted, values)  # <- slots


def changes_a_slot(step):
    changed_slot.scale = float(step)
    return mixed(changed_slot, values)  # <- slot


def takes_hidden_state():
    return mixed(noise, values)  # <- hidden


def returns_an_instance():
    return fitted(fixed, values)  # <- model


MARKS = [
    "repeats", "item", "name", "array", "more", "subclass", "instance", "attribute", "slots", "slot", "hidden", "model",
]


def main():
    until, step = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < until:
        step += 1
        repeats(), changes_an_item(step), changes_a_name(step), changes_an_array(step), returns_more()
        takes_a_dictionary_of_its_own(), takes_an_instance(), changes_an_attribute(step)
        takes_slots(), changes_a_slot(step), takes_hidden_state()
        model = returns_an_instance()  # kept until the next one
    lines = inspect.getsource(sys.modules["__main__"]).splitlines()
    print(json.dumps({mark: next(n for n, line in enumerate(lines, 1) if line.endswith("# <- " + mark)) for mark in MARKS}))


main()
