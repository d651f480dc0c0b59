"""throttled.py: computes in a control group that may use 20 ms of CPU time in each 100 ms.

Prints, as JSON, its tid and the least and the most seconds that it can have waited for the group's next period: what the group's
cpu.stat counts, and the time for which it did not run.
"""
import json
import os
import time

import timing

NEW, OLD = "/sys/fs/cgroup", "/sys/fs/cgroup/cpu"
SECONDS = 3


def write(folder, file, text):
    with open(os.path.join(folder, file), "w") as out:
        out.write(text)


def make():
    """The folder of a group with a limit, and that of the group above it."""
    is_new = os.path.exists(NEW + "/cgroup.controllers")
    root = NEW if is_new else OLD
    folder = "%s/pyobs-throttled-%d" % (root, os.getpid())
    if is_new:
        write(root, "cgroup.subtree_control", "+cpu")
    os.mkdir(folder)
    if is_new:
        write(folder, "cpu.max", "20000 100000")
    else:
        write(folder, "cpu.cfs_period_us", "100000")
        write(folder, "cpu.cfs_quota_us", "20000")
    return folder, root


def throttled_s(folder):
    with open(os.path.join(folder, "cpu.stat")) as file:
        stat = dict(line.split() for line in file)
    if "throttled_usec" in stat:
        return int(stat["throttled_usec"]) / 1e6
    return int(stat["throttled_time"]) / 1e9


def compute(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(3000))


def main():
    folder, above = make()
    timing.until_known(0.5)
    before = throttled_s(folder)
    write(folder, "cgroup.procs", str(os.getpid()))
    with timing.Waited() as waited:
        compute(SECONDS)
    write(above, "cgroup.procs", str(os.getpid()))
    least, most = throttled_s(folder) - before, waited.bounds()[1]
    os.rmdir(folder)
    print(json.dumps({"tid": timing.gettid(), "throttled_s": [min(least, most), most]}))


if __name__ == "__main__":
    main()
