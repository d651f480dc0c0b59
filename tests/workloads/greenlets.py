"""greenlets.py SECONDS: greenlets burn CPU time in functions of their own, with C frames between, and switch there.

They start below frames of the main greenlet, whose C frames therefore lie below theirs. Prints as JSON the stacks that
sys._getframe() gives for them, outermost first, and the CPU time that they used by the thread's clock.
"""
import json
import sys
import time

import greenlet

from timing import until_known

COUNT = 20
DEPTH = 20
SOURCE = """
def inner_{0}(_):
    burn()
    give()
    burn()
    return 0


def middle_{0}():
    # The other greenlets run while sorted() waits on this one's part of the C stack.
    sorted([1], key=inner_{0})


def work_{0}():
    while time.monotonic() < end[0]:
        middle_{0}()
        give()
"""
chains, spent, end = set(), [0.0], [0.0]


def note():
    chain, frame = [], sys._getframe()
    while frame is not None:
        chain.insert(0, frame.f_code.co_name)
        frame = frame.f_back
    chains.add(tuple(chain))


def burn():
    note()
    begun = time.thread_time()
    while time.thread_time() - begun < 0.002:
        sum(range(200))
    spent[0] += time.thread_time() - begun


def give():
    note()
    main.switch()


def run():
    end[0] = time.monotonic() + float(sys.argv[1])
    all_of_them = [greenlet.greenlet(space["work_%d" % number]) for number in range(COUNT)]
    while any(not one.dead for one in all_of_them):
        for one in all_of_them:
            if not one.dead:
                one.switch()
    return 0


def down(left):
    if left == 0:
        return run()
    return sorted([left - 1], key=down)[0]


space = {"burn": burn, "give": give, "time": time, "end": end}
for number in range(COUNT):
    exec(compile(SOURCE.format(number), "work_%d.py" % number, "exec"), space)
main = greenlet.getcurrent()
until_known(0.5)
down(DEPTH)
print(json.dumps({"chains": sorted(chains), "cpu_s": spent[0]}), flush=True)
