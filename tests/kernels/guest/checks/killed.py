"""Tests `kill -9` of a recording pyobs: the kernel must remove everything it had, and the watched program must run on."""
import ctypes
import os
import platform
import signal
import subprocess
import tempfile
import time

from pyobs import PYOBS, PYTHONS, refuse_or_fail, state

BPF = 321  # the system call of x86-64
NEXT = {"programs": 11, "maps": 12, "links": 31}  # enum bpf_cmd
ATTACHED_S, GONE_S = 40, 30
libc = ctypes.CDLL(None, use_errno=True)


def objects():
    return {(kind, number) for kind, command in NEXT.items() for number in numbers(command)}


def numbers(command):
    number = 0
    while True:
        attribute = (ctypes.c_uint32 * 16)(number)
        if libc.syscall(BPF, command, attribute, ctypes.sizeof(attribute)) != 0:
            return
        number = attribute[1]
        yield number


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def checks():
    assert platform.machine() == "x86_64"
    before = objects()
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "stderr"), "w+") as stderr:
        file = os.path.join(folder, "recording.pyobs")
        pid_file = os.path.join(folder, "pid")
        spin = "import os\nopen(%r, 'w').write(str(os.getpid()))\nwhile True: sum(range(9000))" % pid_file
        # The command runs until it is killed below.
        pyobs = subprocess.Popen([PYOBS, "record", "-o", file, "--", PYTHONS[-1][1], "-c", spin], stderr=stderr)
        is_over = lambda: pyobs.poll() is not None
        wait_until(lambda: is_over() or os.path.exists(pid_file) and os.path.getsize(pid_file), ATTACHED_S)
        if is_over():
            stderr.seek(0)
            refuse_or_fail(pyobs.returncode, stderr.read())
        time.sleep(1.5)
        its = objects() - before
        had = {kind for kind, _ in its}
        yield "it had programs, maps and links", had != set(NEXT) and "pyobs had %s" % had
        pyobs.kill()
        pyobs.wait()
        wait_until(lambda: not objects() & its, GONE_S)
        left = objects() - before
        yield "nothing is left", left and "these remain: %s" % sorted(left)
        with open(pid_file) as text:
            program = int(text.read())
        yield "the program goes on", state(program) not in "RS" and "its state is %s" % state(program)
        os.kill(program, signal.SIGKILL)
        opened = subprocess.run([PYOBS, "report", file], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        yield "the recording opens", opened.returncode and opened.stderr.decode()
