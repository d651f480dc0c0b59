"""Two threads on one CPU that hand over to each other through pipes.

  switches.py           runs forever: prints the time and the seconds per hand-over for each tenth of a second
  switches.py SECONDS   prints at the end how often the threads slept, by the kernel's count, and the seconds
"""
import os, resource, sys, threading, time

WINDOW = 0.1
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
(asked, ask), (answered, answer) = os.pipe(), os.pipe()


def answers():
    while True:
        os.write(answer, os.read(asked, 1))


def round_trips(count):
    for _ in range(count):
        os.write(ask, b"x")
        os.read(answered, 1)


def slept():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


threading.Thread(target=answers, daemon=True).start()
if len(sys.argv) > 1:
    since, before = time.monotonic(), slept()
    while time.monotonic() < since + float(sys.argv[1]):
        round_trips(100)
    print(slept() - before, time.monotonic() - since, flush=True)
else:
    while True:
        count, since = 0, time.monotonic()
        while time.monotonic() < since + WINDOW:
            round_trips(100)
            count += 200
        now = time.monotonic()
        os.write(1, b"%.6f %.9f\n" % (now, (now - since) / count))
os._exit(0)
