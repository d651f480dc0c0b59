"""Runs pyobs in the guest, on programs that report what they did."""
import json
import os
import shlex
import signal
import subprocess
import tempfile
import time

PYOBS = "/guest/pyobs"
WORKLOADS = "/guest/workloads"
# An emulated guest is about ten times slower. Workloads that give pyobs much to read run longer there.
PATIENCE_S = 120
os.environ["PYOBS_SLOWNESS"] = "2"
# A process that uses less than this share of a CPU for a second has finished what it was doing.
REST_SHARE = 0.15
# Two measurements of a time may differ by this share plus this many seconds.
SHARE, LEAST_S = 0.07, 0.01

with open("/guest/pythons.json") as file:
    # [["3.8.18", "/…/python3.8"], …], oldest first.
    PYTHONS = json.load(file)

# Why families that were tried could not be recorded alone; empty if they could.
refusals = {}


class Refused(Exception):
    """pyobs ended with exit code 3 and gave the reason in one sentence."""


class Program:
    """The output of a program that has ended."""

    def __init__(self, folder, name):
        self.name, self.pid = name, int(read(folder, name, "pid"))
        self.stdout, self.stderr = read(folder, name, "out"), read(folder, name, "err")

    def result(self):
        """The JSON on the last line of its output."""
        lines = self.stdout.splitlines()
        assert lines, "%s printed nothing: %s" % (self.name, self.stderr)
        return json.loads(lines[-1])


class Recording:
    def __init__(self, file, folder, names):
        text = subprocess.run([PYOBS, "report", file, "--json"], timeout=PATIENCE_S, check=True, stdout=subprocess.PIPE)
        self.report = json.loads(text.stdout.decode())
        self.programs = [Program(folder, name) for name in names]


def on_each(script, *arguments):
    """A command for each interpreter, by its version."""
    return {version: [python, "-B", os.path.join(WORKLOADS, script)] + list(arguments) for version, python in PYTHONS}


def shell(folder, commands):
    """A command for `pyobs record`: one shell that runs all of them. Each leaves its pid and its output in the folder, and waits
    for a file there (workloads/timing.py, until_known)."""
    start = 'echo $$ >"$0.pid"; export PYOBS_READY="$0.ready"; exec "$@" >"$0.out" 2>"$0.err"'
    line = lambda name, argv: ["sh", "-c", start, os.path.join(folder, name)] + argv
    lines = [" ".join(map(shlex.quote, line(name, argv))) + " &" for name, argv in commands.items()]
    return ["sh", "-c", "\n".join(lines + ["wait"])]


def read(folder, name, kind):
    with open(os.path.join(folder, "%s.%s" % (name, kind))) as file:
        return file.read()


def together(commands):
    """Runs the commands unwatched."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(shell(folder, commands), timeout=PATIENCE_S, check=True)
        return [Program(folder, name) for name in commands]


def record(probe, commands, options=(), in_turn=False, signals=False):
    """Records commands from their first instruction on, with this list of families or, for None, the defaults. They continue once
    pyobs knows them: one after the other if in_turn is set, and by SIGUSR1 if signals is set."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = start(folder, probe, list(options) + ["--"] + shell(folder, commands))
        pids = wait_for_pids(folder, commands, recorder)
        until_rest([recorder.pid] + list(pids.values()))
        for name, pid in pids.items():
            release(folder, name)
            if signals:
                os.kill(pid, signal.SIGUSR1)
            while in_turn and state(pid) not in "Z-":
                time.sleep(0.1)
        return finish(recorder, folder, commands)


def attach(probe, commands, options=()):
    """Records programs that are already running, so that the start of an interpreter is not in the recording."""
    with tempfile.TemporaryDirectory() as folder:
        running = subprocess.Popen(shell(folder, commands))
        try:
            pids = wait_for_pids(folder, commands, running)
            until_rest(pids.values())
            recorder = start(folder, probe, list(options) + [word for pid in pids.values() for word in ("--pid", str(pid))])
            until_rest([recorder.pid])
        finally:
            for name in commands:
                release(folder, name)
            running.wait(PATIENCE_S)
        return finish(recorder, folder, commands)


def start(folder, probe, arguments):
    families = [] if probe is None else ["--probe", probe]
    command = [PYOBS, "record", "-o", os.path.join(folder, "recording.pyobs")] + families + arguments
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def finish(recorder, folder, names):
    _, stderr = recorder.communicate(timeout=PATIENCE_S)
    refuse_or_fail(recorder.returncode, stderr.decode())
    return Recording(os.path.join(folder, "recording.pyobs"), folder, names)


def release(folder, name):
    with open(os.path.join(folder, name + ".ready"), "w"):
        pass


def wait_for_pids(folder, names, parent):
    """The programs' pids; if their parent ends early, only those that exist by then."""
    end = time.monotonic() + PATIENCE_S
    pids = {}
    while len(pids) < len(names) and parent.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
        for name in names:
            text = read(folder, name, "pid").strip() if os.path.exists(os.path.join(folder, name + ".pid")) else ""
            pids.update({name: int(text)} if text else {})
    return pids


def until_rest(pids):
    end = time.monotonic() + PATIENCE_S / 3
    before = float("-inf")
    while time.monotonic() < end:
        used = sum(map(cpu_s, pids))
        if used - before < REST_SHARE:
            return
        before = used
        time.sleep(1)


def fields(pid):
    """The fields of /proc/PID/stat from the state on; none for a process that is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def state(pid):
    return (fields(pid) or ["-"])[0]


def cpu_s(pid):
    return sum(map(int, fields(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def refuse_or_fail(code, stderr):
    stderr = stderr.strip()
    if code == 3 and stderr.startswith("pyobs: ") and len(stderr.splitlines()) == 1:
        raise Refused(stderr[len("pyobs: "):])
    assert code == 0, "exit code %d: %s" % (code, stderr)


def is_close(known, seen, share=SHARE):
    """Whether a number of seconds agrees with the bounds that a program measured."""
    least, most = known
    return least * (1 - share) - LEAST_S <= seen <= most * (1 + share) + LEAST_S


def has_function(stack, function):
    return any(frame["kind"] == "python" and frame["function"] == function for frame in stack)
