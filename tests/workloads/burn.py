"""burn.py FUNCTION SECONDS [gated]: burns this much CPU time in a function of that name, in Python code.

Prints "ready" before and {"cpu_s": …, "pid": …} after it. Gated, it begins only when its standard input ends.
"""
import json
import os
import sys
import time


def spin(count):
    x = 0
    for k in range(count):
        x = (x * 31 + k) & 0xFFFF
    return x


def cpu_time():
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


MADE = """
def {name}(seconds):
    begin = cpu_time()
    while cpu_time() - begin < seconds:
        spin(20000)
    return cpu_time() - begin
"""


def burn(name, seconds):
    """Defines a function of this name, and calls it."""
    exec(compile(MADE.format(name=name), name + ".py", "exec"), globals())
    return globals()[name](seconds)


if __name__ == "__main__":
    print("ready")
    sys.stdout.flush()
    if sys.argv[3:] == ["gated"]:
        sys.stdin.read()
    print(json.dumps({"cpu_s": burn(sys.argv[1], float(sys.argv[2])), "pid": os.getpid()}))
