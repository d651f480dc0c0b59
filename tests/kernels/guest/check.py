"""Runs every check in the guest and writes one JSON line for each to the second serial port.

{"family", "check", "status": "works" | "refused" | "failed", "detail", "seconds"}; a line of doctor carries its whole JSON
as "doctor". The check "record" is that of a family that could not be recorded at all.
"""
import importlib
import json
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from pyobs import Refused, refusals

# These measure no time, so two of them may run at once.
BESIDE = ["arena", "shm", "ucx", "nrt", "eval"]
# These measure time or look at the whole machine. doctor is compared with how the families went, the log is of all, and the last
# leaves the kernel locked down.
ALONE = ["cpu", "offcpu", "gil", "redundancy", "default", "killed", "doctor", "log", "confined"]

port = open("/dev/ttyS1", "w")
lock = threading.Lock()


def say(family, check, status, detail, since, **more):
    row = {"family": family, "check": check, "status": status, "detail": detail}
    row["seconds"] = round(time.monotonic() - since, 1)
    with lock:
        port.write("%s\n" % json.dumps(dict(row, **more)))
        port.flush()


def run(family):
    """What fails twice is broken. What fails once may have been in the way of something else on the host: it is tried again, and
    its detail says what the first try found."""
    since = time.monotonic()
    rows = tried(family)
    failed = {check: detail for check, status, detail, _ in rows if status == "failed"}
    for check, status, detail, more in tried(family) if failed else rows:
        if status == "works" and check in failed:
            detail = "at the second try, at first: %s" % failed[check]
        say(family, check, status, detail, since, **more)
        since = time.monotonic()


def tried(family):
    """A module of checks yields (check, problem); the problem is empty when the check holds."""
    rows = []
    refusals[family] = ""
    try:
        for check, problem, *more in importlib.import_module("checks." + family).checks():
            rows.append((check, "failed" if problem else "works", str(problem or ""), dict(*more)))
    except Refused as refusal:
        refusals[family] = str(refusal)
        rows.append(("record", "refused", str(refusal), {}))
    except AssertionError as error:
        rows.append(("record", "failed", str(error), {}))
    except Exception:
        rows.append(("record", "failed", traceback.format_exc(), {}))
    return rows


def main(wanted):
    is_wanted = lambda family: not wanted or family in wanted
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, filter(is_wanted, BESIDE)))
    for family in filter(is_wanted, ALONE):
        run(family)
    say("all", "end", "works", "", time.monotonic())


main(sys.argv[1:])
