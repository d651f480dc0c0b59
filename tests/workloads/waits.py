"""waits.py SCENARIO…: each scenario waits in its own thread, and knows for how long.

The last line of output is JSON: {"waits": [{"name": …, "tid": …, "reason": …, "waited_s": [least, most], "innermost": [function,
file, line or null], "inside": function, "waker": tid or null, "count": count or null}, …]}.
"""
import json
import os
import queue
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

from timing import Waited, gettid, until_known

COUNT, LENGTH = 5, 0.2
WAITS = []
FILES = []


class Wait:
    """What a scenario knows about its wait."""

    def __init__(self, name, reason, count=None):
        self.row = {"name": name, "reason": reason, "tid": gettid(), "waker": None, "count": count}
        WAITS.append(self.row)
        self.waited = Waited()

    def at(self, line, function=None, file="waits.py"):
        """Waits `line` lines below its caller."""
        frame = sys._getframe(1)
        self.row["inside"] = frame.f_code.co_name
        self.row["innermost"] = [function or frame.f_code.co_name, file, line and frame.f_lineno + line]

    def woken_by(self, thread):
        self.row["waker"] = thread.tid

    def __enter__(self):
        self.waited.__enter__()

    def __exit__(self, *exception):
        self.waited.__exit__()
        self.row["waited_s"] = self.waited.bounds()


class Other(threading.Thread):
    """A thread that acts `COUNT` times, each some time after it was asked to."""

    def __init__(self, action):
        threading.Thread.__init__(self, daemon=True)
        self.action, self.tid, self.asked = action, None, threading.Semaphore(0)
        self.start()
        while self.tid is None:
            time.sleep(0.001)

    def run(self):
        self.tid = gettid()
        for _ in range(COUNT):
            self.asked.acquire()
            time.sleep(LENGTH)
            self.action()

    def ask(self):
        self.asked.release()


def qualified(name):
    """The name as sampled: before 3.11 code objects do not know their classes."""
    return name if sys.version_info >= (3, 11) else name.rpartition(".")[2]


def sleep():
    wait = Wait("sleep", "sleep", COUNT)
    with wait:
        wait.at(2)
        for _ in range(COUNT):
            time.sleep(LENGTH)


def short_sleeps():
    # From the interrupt that wakes it on, the kernel counts a thread as running, which takes a tenth of such a short
    # sleep. The wait is therefore bounded by the time that the calls took.
    wait, most, now = Wait("short_sleeps", "sleep"), 0, time.perf_counter
    with wait:
        wait.at(3)
        for _ in range(10000):
            most -= now()
            time.sleep(0.00005)
            most += now()
    wait.row["waited_s"][1] = most


def lock():
    wait, contended = Wait("lock", "lock"), threading.Lock()
    contended.acquire()
    other = Other(contended.release)
    wait.woken_by(other)
    with wait:
        wait.at(3)
        for _ in range(COUNT):
            other.ask()
            contended.acquire()


def queue_get():
    wait, things = Wait("queue_get", "lock"), queue.Queue()
    other = Other(lambda: things.put(1))
    wait.woken_by(other)
    with wait:
        wait.at(None, qualified("Condition.wait"), "threading.py")
        for _ in range(COUNT):
            other.ask()
            things.get()


def event_with_timeout():
    wait, event = Wait("event_with_timeout", "lock"), threading.Event()
    with wait:
        wait.at(None, qualified("Condition.wait"), "threading.py")
        for _ in range(COUNT):
            event.wait(LENGTH)


def pipe():
    wait, (reading, writing) = Wait("pipe", "io", COUNT), os.pipe()
    other = Other(lambda: os.write(writing, b"x"))
    wait.woken_by(other)
    with wait:
        wait.at(3)
        for _ in range(COUNT):
            other.ask()
            os.read(reading, 1)


def socket_recv():
    wait, (here, there) = Wait("socket_recv", "io", COUNT), socket.socketpair()
    other = Other(lambda: there.send(b"x"))
    wait.woken_by(other)
    with wait:
        wait.at(3)
        for _ in range(COUNT):
            other.ask()
            here.recv(1)


def socket_with_timeout():
    wait, (here, there) = Wait("socket_with_timeout", "poll", COUNT), socket.socketpair()
    here.settimeout(60)
    other = Other(lambda: there.send(b"x"))
    wait.woken_by(other)
    with wait:
        wait.at(3)
        for _ in range(COUNT):
            other.ask()
            here.recv(1)


def selected():
    wait, (reading, writing) = Wait("selected", "poll", COUNT), os.pipe()
    other = Other(lambda: os.write(writing, b"x"))
    wait.woken_by(other)
    with wait:
        wait.at(3)
        for _ in range(COUNT):
            other.ask()
            select.select([reading], [], [])
            os.read(reading, 1)


def polled():
    wait, (reading, writing), poll = Wait("polled", "poll", COUNT), os.pipe(), select.poll()
    poll.register(reading, select.POLLIN)
    other = Other(lambda: os.write(writing, b"x"))
    wait.woken_by(other)
    with wait:
        wait.at(3)
        for _ in range(COUNT):
            other.ask()
            poll.poll()
            os.read(reading, 1)


def epolled():
    wait, (reading, writing), poll = Wait("epolled", "poll", COUNT), os.pipe(), select.epoll()
    poll.register(reading, select.EPOLLIN)
    other = Other(lambda: os.write(writing, b"x"))
    wait.woken_by(other)
    with wait:
        wait.at(3)
        for _ in range(COUNT):
            other.ask()
            poll.poll(60)
            os.read(reading, 1)


def child():
    children = [subprocess.Popen(["sleep", str(LENGTH * n)]) for n in range(1, COUNT + 1)]
    wait = Wait("child", "other")
    with wait:
        wait.at(2)
        for one in children:
            os.waitpid(one.pid, 0)


def fsync():
    wait = Wait("fsync", "io")
    file = tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(sys.argv[0])))
    # Removing a file can wait for the disk as well, so the main thread does that.
    FILES.append(file)
    with wait:
        wait.at(3)
        for _ in range(10):
            os.write(file.fileno(), b"x" * 1000000)
            os.fsync(file.fileno())


def main():
    # Waits until pyobs knows the interpreter.
    until_known(0.5)
    for name in sys.argv[1:]:
        thread = threading.Thread(target=globals()[name])
        thread.start()
        thread.join()
    for file in FILES:
        file.close()
    print(json.dumps({"waits": WAITS}))


main()
