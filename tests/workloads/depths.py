"""depths.py FRAMES: burns CPU time in a C function below this many Python frames, the first of which is the module's.

The last line of output is JSON: {"cpu_s": …, "lines": {"module": …, "calls": …, "burns": …}}, with the lines of the
module's frame, of frames that call, and of the last frame.
"""
import json
import sys
import time

NUMBERS = range(3000000)


def down(left):
    if left > 1:
        down(left - 1)
    else:
        for _ in range(24): sum(NUMBERS)
    # On its own line, so that returning frames do not look like the one that burns.
    return None


frames = int(sys.argv[1])
sys.setrecursionlimit(frames + 1000)
begin = time.process_time()
if frames == 1:
    module = sys._getframe().f_lineno + 1
    for _ in range(24): sum(NUMBERS)
else:
    module = sys._getframe().f_lineno + 1
    down(frames - 1)
first = down.__code__.co_firstlineno
lines = {"module": module, "calls": first + 2, "burns": first + 4}
print(json.dumps({"cpu_s": time.process_time() - begin, "lines": lines}))
