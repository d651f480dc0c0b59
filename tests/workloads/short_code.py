"""Code that is compiled, run and dropped, one after the other, mostly at the same address.

Prints the CPU seconds of each function: [[name, file, seconds], ...].
"""

import gc
import json
import sys
import time
import types

COUNT = 24
SECONDS = 0.05
# Long enough that pyobs takes what it knows about the code for settled, but less than a quarter of a second longer.
SETTLED_SECONDS = 1.1, 1.15, 1.2

truth = []
length = SECONDS


def burn():
    end = time.process_time() + length
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


def run_copy(name):
    names = {"co_name": name}
    if sys.version_info >= (3, 11):
        names["co_qualname"] = name
    run(types.FunctionType(call.__code__.replace(**names), globals()), name, call.__code__.co_filename.rsplit("/", 1)[-1])


def copies():
    """Runs functions that share everything but their names."""
    for number in range(COUNT):
        run_copy("copy_%02d" % number)


def replaced():
    """Runs such functions for long, each followed by one that runs briefly."""
    global length
    for number, seconds in enumerate(SETTLED_SECONDS):
        for name, length in ("settled", seconds), ("successor", 2 * SECONDS):
            run_copy("%s_%d" % (name, number))


templates()
if sys.version_info >= (3, 8):
    copies()
    replaced()
print(json.dumps({"truth": truth}))
