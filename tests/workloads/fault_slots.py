"""Spends each slot of 200 ms in a function of its own and writes down when: `NAME BEGIN END`, on CLOCK_MONOTONIC.

  fault_slots.py LOG [alike]

The functions are made and freed one after the other, so that one often has the memory of the one before. Each begins at
another line, unless they are to be alike. A slot lasts 200 ms and until it has used 50 ms of CPU, so that every slot of
a starved machine is seen by a sampler too.
"""
import signal
import sys
import time

# Nobody waits longer.
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
