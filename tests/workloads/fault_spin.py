"""Burns CPU time in one function, known by name and line, for a number of seconds or for five minutes.

  fault_spin.py [SECONDS]
"""
import sys
import time


def hot_function(until):
    total = 0
    while time.monotonic() < until:
        for number in range(10000):
            total = (total * 31 + number) & 0xFFFF
    return total


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300
    print("ready", flush=True)
    hot_function(time.monotonic() + seconds)
    print("done", flush=True)


main()
