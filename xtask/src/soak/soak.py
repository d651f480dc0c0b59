# Runs pyobs for a long time beside everything that it has to keep up with, then kills it at random moments, and then
# attaches and detaches it over and over. With 0 MINUTES, only the last.
#
# soak.py MINUTES CYCLES PYOBS FOLDER PROGRAM LIBUCP LIBRARY PYTHON...: the busy machine of the bench, a hundred processes a second,
# threads and segments that come and go, transfers (PROGRAM with LIBUCP), and redundant accesses (LIBRARY), all under one
# recording. Prints a line a minute, then what was lost in each. Fails if anything grows after the tenth minute, if a
# recording of a killed pyobs cannot be read or the kernel has something left of it, or if a program of one of the
# interpreters dies of being attached to, or computes something else.
import ctypes
import json
import mmap
import os
import random
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../bench"))
import busy  # noqa: E402

WORKLOADS = os.path.join(HERE, "../../../tests/workloads")
PROCESSES_A_SECOND, THREADS_A_SECOND, SEGMENTS_A_SECOND = 100, 20, 10
WARM_UP, LEAST = 10, 20
# How much the last quarter of the minutes may exceed the first one.
GROWTH = 1.05
KILLS = 20
CYCLES_A_LINE = 50
# Half of a cycle is the kernel waiting for one uprobe after the other to be out of use, which this makes shorter.
EXPEDITED = "/sys/kernel/rcu_expedited"
# Long enough for the start of pyobs on a busy machine.
KILL_AFTER_MAX = 20
FAMILIES = "cpu,offcpu,gil,eval,arena,heap,shm,nrt,ucx,redundancy,tasks"
# Commands of bpf(2): the next program, map and link after a number.
NEXT = (11, 12, 31)
MEASURES = ("rss_kib", "memlock_kib", "descriptors", "threads")
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def at_rate(rate, action):
    due = time.monotonic()
    while True:
        action()
        due = max(due + 1 / rate, time.monotonic() - 1)
        busy.sleep_until(due)


def processes():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    at_rate(PROCESSES_A_SECOND, lambda: os.posix_spawn("/bin/true", ["true"], {}))


def threads():
    def live():
        end = time.monotonic() + random.uniform(0.1, 2)
        while time.monotonic() < end:
            sum(range(10_000))
            time.sleep(0.02)

    at_rate(THREADS_A_SECOND, lambda: threading.Thread(target=live).start())


def segments():
    held = []

    def make():
        name = f"/dev/shm/soak-{os.getpid()}-{random.getrandbits(32):x}"
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(name)
        os.ftruncate(descriptor, 1 << 20)
        memory = mmap.mmap(descriptor, 1 << 20)
        memory[:4096] = bytes(4096)
        os.close(descriptor)
        held.append(memory)
        if len(held) > 50:
            held.pop(random.randrange(len(held))).close()

    at_rate(SEGMENTS_A_SECOND, make)


def transfers(program, library):
    while True:
        subprocess.run([program, library, "paced"], **QUIET)


PARTS = {function.__name__: function for function in (processes, threads, segments, transfers)}


def start(name, *arguments):
    return subprocess.Popen([sys.executable, __file__, name, *arguments], start_new_session=True, **QUIET)


def write(file, text):
    with open(file, "w") as opened:
        opened.write(text)


def remove(file):
    if os.path.exists(file):
        os.remove(file)


def fields(text):
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def measured(pid):
    status = fields(busy.read(f"/proc/{pid}/status"))
    descriptors = os.listdir(f"/proc/{pid}/fdinfo")
    memlock = 0
    for descriptor in descriptors:
        try:
            memlock += int(fields(busy.read(f"/proc/{pid}/fdinfo/{descriptor}")).get("memlock", 0))
        except OSError:
            continue
    return {
        "rss_kib": int(status["VmRSS"].split()[0]),
        "memlock_kib": memlock // 1024,
        "descriptors": len(descriptors),
        "threads": int(status["Threads"]),
        "cpu_s": busy.cpu_seconds(pid),
    }


def kernel_objects():
    found = set()
    for command in NEXT:
        buffer = ctypes.create_string_buffer(128)
        while busy.libc.syscall(busy.BPF, command, buffer, 128) == 0:
            _, number = struct.unpack_from("II", buffer)
            found.add((command, number))
            struct.pack_into("I", buffer, 0, number)
    return found


def watch(minutes, pyobs, file):
    """Records for some minutes, and returns the measures of each."""
    remove(file)
    command = [pyobs, "record", "--probe", "+ucx,+redundancy", "--duration", str(60 * minutes + 30), "-o", file]
    child = subprocess.Popen(command, **QUIET)
    begun, before, rows = time.monotonic(), 0.0, []
    for minute in range(1, minutes + 1):
        busy.sleep_until(begun + 60 * minute)
        if child.poll() is not None:
            sys.exit(f"pyobs ended with {child.returncode} in minute {minute}")
        row = measured(child.pid)
        row["cpu_s"], before = round(row["cpu_s"] - before, 2), row["cpu_s"]
        rows.append(row)
        print(json.dumps({"minute": minute} | row), flush=True)
    if child.wait() != 0:
        sys.exit(f"pyobs ended with {child.returncode}")
    losses = sqlite3.connect(file).execute("SELECT at_ns / 60000000000, reason, sum(count) FROM losses GROUP BY 1, 2")
    for minute, reason, count in losses:
        print(json.dumps({"minute": minute + 1, "lost": reason, "count": count}), flush=True)
    return rows


def growing(rows):
    """The measures that still grow after the tenth minute."""
    rows = rows[WARM_UP:]
    quarter = len(rows) // 4
    mean = lambda rows, name: statistics.mean(row[name] for row in rows)
    return [name for name in MEASURES if mean(rows[-quarter:], name) > GROWTH * mean(rows[:quarter], name)]


def killed(pyobs, file, after):
    """Kills a recording pyobs, and returns what is wrong then."""
    before = kernel_objects()
    remove(file)
    child = subprocess.Popen([pyobs, "record", "--probe", "+ucx,+redundancy", "-o", file], **QUIET)
    time.sleep(after)
    its = kernel_objects() - before
    child.kill()
    child.wait()
    end = time.monotonic() + 30
    while (left := kernel_objects() & its) and time.monotonic() < end:
        time.sleep(0.1)
    if left:
        return f"{len(left)} programs, maps and links are left"
    if not os.path.exists(file):
        return ""
    read = subprocess.run([pyobs, "report", file], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return read.stderr if read.returncode else ""


def attached(pyobs, file, interpreters, cycles):
    """Attaches and detaches all families, and returns what is wrong then."""
    target = os.path.join(HERE, "target.py")
    before = busy.read(EXPEDITED)
    write(EXPEDITED, "1")
    # At the priority of pyobs, nine of them on two CPUs make a cycle take longer than ten seconds.
    programs = {python: subprocess.Popen(["nice", "-n", "19", python, target], **QUIET) for python in interpreters}
    wrong = []
    try:
        time.sleep(1)
        begun = time.monotonic()
        for cycle in range(1, cycles + 1):
            command = [pyobs, "record", "--probe", FAMILIES, "--duration", str(random.uniform(0.05, 0.5)), "-o", file]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            wrong += [f"cycle {cycle} ended with {done.returncode}: {done.stderr}"] if done.returncode else []
            remove(file)
            if cycle % CYCLES_A_LINE == 0 or cycle == cycles:
                print(json.dumps({"cycles": cycle, "seconds": round(time.monotonic() - begun, 1)}), flush=True)
    finally:
        write(EXPEDITED, before)
        for program in programs.values():
            program.terminate()
        ended = {python: program.wait() for python, program in programs.items()}
    return wrong + [f"{python} ended with {status}" for python, status in ended.items() if status]


def busy_for(minutes, pyobs, file, program, libucp, library):
    """Records everything for some minutes and is then killed at random moments. Returns what is wrong."""
    wrong = []
    machine = busy.machine()
    redundancy = [os.path.join(WORKLOADS, "redundancy.py"), library, "loads", "50", str(10**6)]
    parts = [start("processes"), start("threads"), start("segments"), start("transfers", program, libucp)]
    parts.append(subprocess.Popen([sys.executable, *redundancy], start_new_session=True, **QUIET))
    try:
        rows = watch(minutes, pyobs, file)
        if len(rows) < LEAST:
            print(f"fewer than {LEAST} minutes do not tell whether anything grows")
        else:
            wrong += [f"{name} grows" for name in growing(rows)]
        for number in range(KILLS):
            after = random.uniform(0.1, KILL_AFTER_MAX)
            why = killed(pyobs, file, after)
            print(json.dumps({"kill": number + 1, "after_s": round(after, 2), "wrong": why}), flush=True)
            wrong += [why] if why else []
    finally:
        for part in parts:
            os.killpg(part.pid, signal.SIGKILL)
            part.wait()
        busy.end(machine)
    return wrong


def main(minutes, cycles, pyobs, folder, program, libucp, library, *interpreters):
    file = os.path.join(folder, "soak.pyobs")
    wrong = busy_for(int(minutes), pyobs, file, program, libucp, library) if int(minutes) else []
    # Beside the rest of it a cycle takes five times as long.
    wrong += attached(pyobs, file, interpreters, int(cycles))
    # An empty text would be a failure as well.
    sys.exit("; ".join(wrong) or 0)


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    PARTS[first](*rest) if first in PARTS else main(first, *rest)
