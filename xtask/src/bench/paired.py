"""Measures a program's work while pyobs watches it, and just before and just after.

  paired.py WORKLOAD ROUNDS SECONDS COMMAND... [-- COMMAND...]...

WORKLOAD is a JSON list: the name of a workload below, or the words of a command that prints the time and the cost of its work,
forever. COMMAND has PID for the program's process id, and ends with the name of a file that it creates once it watches. `none`
runs nothing, which shows the noise. Prints JSON: for each command a list, with the cost of the work without and with it for each
round. The cost is the lower quartile of its windows of a tenth of a second, because other users of the machine's memory and
caches make work slower for seconds at a time, and never faster.
"""
import fcntl, itertools, json, os, subprocess, sys, time

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


def commands(words, pid):
    parts = [list(part) for is_end, part in itertools.groupby(words, lambda word: word == "--") if not is_end]
    return [[str(pid) if word == "PID" else word for word in part] for part in parts]


def watch(command, seconds, span):
    """Runs the span while the command watches; it starts before the span, and ends after it."""
    if command == ["none"]:
        return span()
    file = command[-1]
    if os.path.exists(file):
        os.remove(file)
    pyobs = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.path.exists(file):
        if pyobs.poll() is not None:
            sys.exit("%s ended with %d" % (command[0], pyobs.returncode))
        time.sleep(0.01)
    # Excludes start-up costs, and the time until pyobs knows the rates.
    time.sleep(max(0.5, 0.4 * seconds))
    watched = span()
    # Not SIGINT, which a process started in the background ignores.
    pyobs.send_signal(15)
    pyobs.wait()
    time.sleep(0.1)
    return watched


def main():
    words, rounds, seconds = json.loads(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    if words[0] in WORKLOADS:
        words = [sys.executable, "-c", WORKLOADS[words[0]] + LOOP]
    program = subprocess.Popen(words, stdout=subprocess.PIPE)
    # The pipe is read only at the end, so it must hold half an hour of output.
    fcntl.fcntl(program.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)

    def span():
        since = time.monotonic()
        time.sleep(seconds)
        return since, time.monotonic()

    # Its first line shows that it works.
    first = program.stdout.readline()
    each = commands(sys.argv[4:], program.pid)
    spans = [span()]
    for command in each * rounds:
        spans.append(watch(command, seconds, span))
        spans.append(span())
    program.kill()
    text = (first + program.stdout.read()).decode()
    lines = [tuple(map(float, line.split())) for line in text.split("\n") if line.count(" ") == 1]

    def cost(span):
        costs = sorted(cost for at, cost in lines if span[0] + WINDOW <= at <= span[1])
        return costs[len(costs) // 4] if costs else None

    costs = [cost(span) for span in spans]
    pairs = [costs[on - 1:on + 2] for on in range(1, len(costs), 2)]
    # A machine that is busy otherwise may leave a window without results.
    pairs = [((before + after) / 2, on) if before and on and after else None for before, on, after in pairs]
    print(json.dumps([[pair for pair in pairs[number::len(each)] if pair] for number in range(len(each))]))


main()
