"""Burns CPU time for this many seconds of wall-clock time, and prints the CPU time that it got."""
import sys
import time


def late_marker(until):
    while time.monotonic() < until:
        sum(range(1000))


late_marker(time.monotonic() + float(sys.argv[1]))
print("cpu", time.process_time(), flush=True)
