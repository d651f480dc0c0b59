"""What a thread did not run, by the kernel's books: imported by programs that know their own waits."""
import ctypes
import os
import time

SYS_GETTID = 186
libc = ctypes.CDLL(None)


def until_known(seconds):
    """Until pyobs knows the program: for this long, or until the file that PYOBS_READY names is there."""
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
    """Before all others in the queue for a CPU, so that what they do disturbs the truth less; where we may."""
    try:
        # Without a session of its own its niceness would count among its session's processes only.
        os.setsid()
        os.nice(-20)
        with open("/proc/self/autogroup", "w") as file:
            file.write("-20")
    except OSError:
        pass


def run_delay():
    """How long the thread was ready and had no CPU, whether it had just been woken or another was put before it."""
    with open("/proc/self/task/{}/schedstat".format(gettid())) as file:
        return int(file.read().split()[1]) / 1e9


def stolen():
    """How long a hypervisor gave the machine's CPUs to others: the kernel counts it as neither run nor ready."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


class Waited:
    """`with Waited() as waited: …`, then `waited.bounds()`: how long the thread waited, at least and at the most.

    What it did not run, it waited or was ready: after a wait, which counts as waiting until it runs again, or because
    another had the CPU, which does not count. The kernel adds these two up. Or its CPU was stolen.
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
