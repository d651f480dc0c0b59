"""Measures how long a thread did not run, by the kernel's account. For programs that know their own waits."""
import ctypes
import os
import time

SYS_GETTID = 186
libc = ctypes.CDLL(None)


def until_known(seconds):
    """Waits until pyobs knows the program: for this long, or until the file that PYOBS_READY names exists."""
    path = os.environ.get("PYOBS_READY")
    if path is None:
        time.sleep(seconds)
    while path is not None and not os.path.exists(path):
        time.sleep(0.1)


def gettid():
    return libc.syscall(SYS_GETTID)


def cpu_time():
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def put_first():
    """Gives the process the highest priority, if allowed, so that other programs disturb its measurements less."""
    try:
        # In its own session, because a niceness counts only among the processes of a session.
        os.setsid()
        os.nice(-20)
        with open("/proc/self/autogroup", "w") as file:
            file.write("-20")
    except OSError:
        pass


def run_delay():
    """How long the thread was ready without a CPU, whether just woken or preempted."""
    with open("/proc/self/task/{}/schedstat".format(gettid())) as file:
        return int(file.read().split()[1]) / 1e9


def stolen():
    """How long a hypervisor gave the CPUs to other machines: the kernel counts this as neither running nor ready."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


class Waited:
    """`with Waited() as waited: …`, then `waited.bounds()`: the least and the most that the thread waited.

    While it did not run, it waited, was ready, or its CPU was stolen. Being ready after a wait counts as waiting until it runs
    again; being preempted does not. The kernel reports only the sum of these two.
    """

    def __enter__(self):
        self.delay, self.stolen = -run_delay(), -stolen()
        self.cpu, self.wall = -cpu_time(), -time.perf_counter()
        return self

    def __exit__(self, *exception):
        self.wall += time.perf_counter()
        self.cpu += cpu_time()
        self.delay += run_delay()
        self.stolen += stolen()

    def bounds(self):
        most = max(self.wall - self.cpu, 0)
        return [max(most - self.delay - self.stolen, 0), most]
