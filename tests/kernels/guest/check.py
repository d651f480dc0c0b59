"""Runs every check in the guest, and writes one JSON line for each to the second serial port.

{"family", "check", "status": "works" | "refused" | "failed", "detail", "seconds"}; a line of doctor has its whole JSON as
"doctor". The check "record" is for a family that could not be recorded at all.
"""
import importlib
import json
import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from pyobs import Refused, refusals

# The checks of one family each come first. doctor is compared with their results, log covers all of them, and confined
# leaves the kernel locked down.
LAST = ["default", "killed", "doctor", "log", "confined"]
FILES = os.listdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "checks"))
FAMILIES = sorted({name[:-3] for name in FILES if name.endswith(".py")} - set(LAST))

port = open("/dev/ttyS1", "w")
lock = threading.Lock()


def report(family, check, status, detail, since, **more):
    row = {"family": family, "check": check, "status": status, "detail": detail}
    row["seconds"] = round(time.monotonic() - since, 1)
    with lock:
        port.write("%s\n" % json.dumps(dict(row, **more)))
        port.flush()


def run(family):
    """Retries a family that fails: another program on the host may have interfered. A check that then works has the first
    result in its detail."""
    since = time.monotonic()
    rows = run_once(family)
    failed = {check: detail for check, status, detail, _ in rows if status == "failed"}
    for check, status, detail, more in run_once(family) if failed else rows:
        if status == "works" and check in failed:
            detail = "on the retry; at first: %s" % failed[check]
        report(family, check, status, detail, since, **more)
        since = time.monotonic()


def run_once(family):
    """Runs a module of checks, which yields (check, problem). The problem is empty if the check passes."""
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


def may_run_beside(family):
    """Whether its module says that it measures no time and does not observe the whole machine. Two of these run at once."""
    try:
        return getattr(importlib.import_module("checks." + family), "BESIDE", False)
    except Exception:
        # `run_once` reports the error.
        return False


def main(wanted):
    wanted = [family for family in FAMILIES + LAST if not wanted or family in wanted]
    beside = [family for family in wanted if family in FAMILIES and may_run_beside(family)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, beside))
    for family in wanted:
        if family not in beside:
            run(family)
    report("all", "end", "works", "", time.monotonic())


main(sys.argv[1:])
