# Measures what profilers cost on a machine whose CPUs are all busy: eight processes of the folder `busy`.
#
# busy.py FROM TO PYOBS FOLDER PROBES...: makes one recording for each of PROBES (families separated by commas, or
# `default`) and measures what pyobs uses in its seconds FROM to TO, and then py-spy on each of the eight processes.
# Prints one JSON object a line.
import ctypes
import json
import os
import platform
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import time

BESIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "busy")
BIN = os.path.dirname(sys.executable)
TICK = os.sysconf("SC_CLK_TCK")
# py-spy is measured between these seconds.
PY_SPY = (5, 20)
# The number of bpf(2), two of its commands (include/uapi/linux/bpf.h), and offsets in `bpf_prog_info`.
BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD = 13, 15
NAME, INFO_SIZE = slice(64, 80), 232
libc = ctypes.CDLL(None, use_errno=True)


def read(path):
    with open(path) as file:
        return file.read()


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    return libc.syscall(BPF, command, buffer, 128)


def program_name(number):
    fd = bpf(PROG_GET_FD_BY_ID, struct.pack("I", number))
    if fd < 0:
        return f"program {number}"
    info = ctypes.create_string_buffer(INFO_SIZE)
    bpf(OBJ_GET_INFO_BY_FD, struct.pack("IIQ", fd, INFO_SIZE, ctypes.addressof(info)))
    os.close(fd)
    return info.raw[NAME].rstrip(b"\0").decode() or f"program {number}"


def programs(pid):
    """The run time and the number of runs of each BPF program that a process holds, by the kernel's count."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            lines = read(f"/proc/{pid}/fdinfo/{fd}").splitlines()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        if "run_time_ns" in fields and "prog_id" in fields:
            found[int(fields["prog_id"])] = (int(fields["run_time_ns"]), int(fields["run_cnt"]))
    return found


def threads(pid):
    """The CPU time of each thread in ns."""
    found = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            found[tid] = (read(f"/proc/{pid}/task/{tid}/comm").strip(), int(read(f"/proc/{pid}/task/{tid}/schedstat").split()[0]))
        except OSError:
            continue
    return found


def cpu_seconds(pid):
    fields = read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def switches():
    return next(int(line.split()[1]) for line in read("/proc/stat").splitlines() if line.startswith("ctxt "))


def children(pid):
    return [int(child) for tid in os.listdir(f"/proc/{pid}/task") for child in read(f"/proc/{pid}/task/{tid}/children").split()]


def snapshot(pid):
    return {"at": time.monotonic(), "programs": programs(pid), "threads": threads(pid), "switches": switches()}


def sleep_until(at):
    time.sleep(max(0, at - time.monotonic()))


def record(pyobs, folder, number, probes, start, end):
    file = os.path.join(folder, f"busy-{number}-{probes}.pyobs")
    if os.path.exists(file):
        os.remove(file)
    arguments = ["record", "--budget", "100", "--duration", str(end + 3)]
    arguments += [] if probes == "default" else ["--probe", probes]
    begun = time.monotonic()
    child = subprocess.Popen([pyobs, *arguments, "-o", file], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sleep_until(begun + start)
    first = snapshot(child.pid)
    sleep_until(begun + end)
    last = snapshot(child.pid)
    called = {number: program_name(number) for number in last["programs"]}
    if child.wait() != 0:
        sys.exit(f"pyobs {' '.join(arguments)} failed")
    window = (start * 10**9, end * 10**9)
    samples = sqlite3.connect(file).execute("SELECT count(*) FROM samples WHERE at_ns BETWEEN ? AND ?", window).fetchone()[0]
    unseen = (0, 0)
    spent = {}
    for number, (run_time, runs) in last["programs"].items():
        before = first["programs"].get(number, unseen)
        spent[number] = [run_time - before[0], runs - before[1]]
    names, user = {}, {}
    for tid, (name, used) in last["threads"].items():
        user[name] = user.get(name, 0) + used - first["threads"].get(tid, ("", 0))[1]
    for number, (run_time, runs) in spent.items():
        if runs:
            name = called[number]
            names[name] = [a + b for a, b in zip(names.get(name, [0, 0]), (run_time, runs))]
    return {
        "probes": probes,
        "file": file,
        "seconds": last["at"] - first["at"],
        "samples": samples,
        "switches": last["switches"] - first["switches"],
        "programs": names,
        "threads": user,
    }


def py_spy(folder, pids):
    tool = os.path.join(BIN, "py-spy")
    start, end = PY_SPY
    out = os.path.join(folder, "busy-py-spy")
    children = [
        subprocess.Popen(
            [tool, "record", "-r", "100", "-d", str(end + 3), "-f", "raw", "-o", f"{out}-{pid}", "-p", str(pid)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for pid in pids
    ]
    begun = time.monotonic()
    sleep_until(begun + start)
    first, at = [cpu_seconds(child.pid) for child in children], time.monotonic()
    sleep_until(begun + end)
    used = sum(cpu_seconds(child.pid) for child in children) - sum(first)
    seconds = time.monotonic() - at
    for child in children:
        child.wait()
    return {"probes": "py-spy", "processes": len(pids), "seconds": seconds, "cpu_s": used}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def machine():
    port = free_port()
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": BESIDE}
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    start = lambda *words: subprocess.Popen([sys.executable, *words], env=environment, **quiet)
    web = start("-m", "gunicorn", "-w", "2", "-b", f"127.0.0.1:{port}", "app:app")
    time.sleep(2)
    return [web, start("load.py", port), start("frames.py"), start("pool.py")]


def end(parts):
    for part in parts:
        for pid in [*(children(part.pid) if part.poll() is None else []), part.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        part.wait()


if __name__ == "__main__":
    begin, until = float(sys.argv[1]), float(sys.argv[2])
    parts = machine()
    try:
        time.sleep(3)
        web, load, frames, pool = (part.pid for part in parts)
        eight = [*children(web), load, frames, pool, *children(pool)]
        if len(eight) != 8:
            sys.exit(f"the busy machine has {len(eight)} processes instead of 8")
        for number, probes in enumerate(sys.argv[5:]):
            print(json.dumps(record(sys.argv[3], sys.argv[4], number, probes, begin, until)), flush=True)
        print(json.dumps(py_spy(sys.argv[4], eight)), flush=True)
    finally:
        end(parts)
