"""Spends each slot of 200 ms in a function of its own, and logs `NAME BEGIN END`, on CLOCK_MONOTONIC.

  fault_slots.py LOG [alike]

The functions are created and freed one after the other, so that one often reuses the memory of the one before. Each starts
on another line, unless `alike` is given. A slot lasts 200 ms and at least until it has used 50 ms of CPU time, so that a
sampler sees every slot even on a starved machine.
"""
import signal
import sys
import time

# A limit, in case this program is not killed.
signal.alarm(300)

log = open(sys.argv[1], "w", buffering=1)
names = {}
number = 0
print("ready", flush=True)
while True:
    name = "slot_%d" % number
    lines = 0 if "alike" in sys.argv else number
    exec(
        "\n" * lines + "def %s(wall, cpu):\n"
        "    while time.monotonic() < wall or time.thread_time() < cpu:\n"
        "        pass\n" % name,
        {"time": time},
        names,
    )
    begin = time.monotonic()
    names.pop(name)(begin + 0.2, time.thread_time() + 0.05)
    log.write("%s %.6f %.6f\n" % (name, begin, time.monotonic()))
    number += 1
