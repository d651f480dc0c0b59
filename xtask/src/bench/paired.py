"""The work that a program does while pyobs watches it, against what it does just before and just after.

  paired.py WORKLOAD ROUNDS SECONDS COMMAND...

COMMAND has PID for the program's process id, and FILE for where it records: it watches when that file is there. Prints a
JSON list: for each round how much longer the same work takes, as a share.
"""
import json, os, statistics, subprocess, sys, time

WINDOW = 0.1
WORKLOADS = {
    "pairs": """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def work(mmap=libc.mmap, munmap=libc.munmap):
    for _ in range(200): munmap(mmap(None, 65536, 3, 0x22, -1, 0), 65536)
""",
    "compute": """
def work():
    x = 0
    for number in range(2000): x = (x * 31 + number) & 0xffff
""",
    "objects": """
def work():
    held = [(number, str(number)) for number in range(2000)]
""",
}
LOOP = """
import os, sys, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
while True:
    count, until = 0, time.thread_time() + %f
    since = time.thread_time()
    while time.thread_time() < until:
        work()
        count += 1
    spent = time.thread_time() - since
    os.write(1, b"%%.6f %%.9f\\n" %% (time.monotonic(), spent / count))
""" % WINDOW


def main():
    workload, rounds, seconds, command = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
    program = subprocess.Popen([sys.executable, "-c", WORKLOADS[workload] + LOOP], stdout=subprocess.PIPE)
    file = next(word for word in command if word.endswith(".pyobs"))
    command = [str(program.pid) if word == "PID" else word for word in command]
    spans = []

    def off():
        since = time.monotonic()
        time.sleep(seconds)
        return since, time.monotonic()

    time.sleep(0.5)
    spans.append(off())
    for _ in range(rounds):
        if os.path.exists(file):
            os.remove(file)
        pyobs = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(file):
            time.sleep(0.01)
        # What it makes at its beginning is not what it costs.
        time.sleep(0.5)
        spans.append(off())
        pyobs.send_signal(2)
        pyobs.wait()
        time.sleep(0.1)
        spans.append(off())
    program.kill()
    lines = [tuple(map(float, line.split())) for line in program.stdout.read().decode().split("\n") if line.count(" ") == 1]

    def cost(span):
        costs = [cost for at, cost in lines if span[0] + WINDOW <= at <= span[1]]
        return statistics.median(costs) if costs else None

    costs = [cost(span) for span in spans]
    rounds = [costs[on - 1:on + 2] for on in range(1, len(costs), 2)]
    # A machine that is busy with something else gives the program no time.
    shares = [on / ((before + after) / 2) - 1 for before, on, after in rounds if before and on and after]
    print(json.dumps(shares))


main()
