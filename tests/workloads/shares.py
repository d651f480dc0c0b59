"""shares.py SECONDS: three functions take turns; the last line of output has the CPU time of each."""
import json
import sys
import time

from timing import until_known


def spin(seconds):
    """Returns the CPU time that it used."""
    begin = time.thread_time()
    while time.thread_time() < begin + seconds:
        x = 0
        for k in range(1000):
            x = (x * 31 + k) & 0xFFFF
    return time.thread_time() - begin


# Long enough for a dozen samples each, so that chance hardly matters.
def half():
    return spin(0.05)


def third():
    return spin(0.03)


def fifth():
    return spin(0.02)


def main(seconds):
    # Waits until pyobs knows the interpreter.
    until_known(1)
    functions = (half, third, fifth)
    spent = {function.__name__: 0.0 for function in functions}
    while sum(spent.values()) < seconds:
        for function in functions:
            spent[function.__name__] += function()
    # Names can be read only while the process lives.
    time.sleep(0.5)
    print(json.dumps(spent))


main(float(sys.argv[1]))
