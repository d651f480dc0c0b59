"""Code that is compiled, run briefly and dropped, one after the other, mostly at the same address.

Prints the CPU seconds of each function: [[name, file, seconds], ...].
"""

import gc
import json
import sys
import time
import types

COUNT = 24
SECONDS = 0.05

truth = []


def burn():
    end = time.process_time() + SECONDS
    while time.process_time() < end:
        sum(range(5000))


def run(function, name, file):
    start = time.process_time()
    function(burn)
    truth.append([name, file, time.process_time() - start])


def templates():
    """Compiles the same text under another file name each time, as template engines and notebooks do."""
    for number in range(COUNT):
        file = "<template_%02d>" % number
        space = {}
        exec(compile("def root(burn):\n    burn()\n", file, "exec"), space)
        run(space["root"], "root", file)
        del space
        gc.collect()


def call(burn):
    burn()


def copies():
    """Runs functions that share everything but their names."""
    file = call.__code__.co_filename.rsplit("/", 1)[-1]
    for number in range(COUNT):
        name = "copy_%02d" % number
        names = {"co_name": name}
        if sys.version_info >= (3, 11):
            names["co_qualname"] = name
        function = types.FunctionType(call.__code__.replace(**names), globals())
        run(function, name, file)
        del function


templates()
if sys.version_info >= (3, 8):
    copies()
print(json.dumps({"truth": truth}))
