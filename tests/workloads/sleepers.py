"""sleepers.py [SECONDS [DOZE]]: a thread sleeps for a minute; the main thread sleeps too, and ends the program after SECONDS.
Before that, both sleep for DOZE seconds in short sleeps.
Prints {"main": tid, "other": tid}, and before it ends {"slept_s": …}, how long the other thread has slept.
"""
import json
import os
import sys
import threading
import time

from timing import gettid

tids = {"main": gettid()}
DOZE = float(sys.argv[2]) if len(sys.argv) > 2 else 0


def sleeps_on():
    tids["other"] = gettid()
    until = time.perf_counter() + DOZE
    while time.perf_counter() < until:
        time.sleep(0.01)
    time.sleep(60)


def main():
    begin = time.perf_counter()
    threading.Thread(target=sleeps_on, daemon=True).start()
    time.sleep(0.1)
    print(json.dumps(tids))
    sys.stdout.flush()
    until = time.perf_counter() + DOZE
    while time.perf_counter() < until:
        time.sleep(0.01)
    time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
    print(json.dumps({"slept_s": time.perf_counter() - begin}))
    sys.stdout.flush()
    os._exit(0)


main()
