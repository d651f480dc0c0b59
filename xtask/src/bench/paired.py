"""The work that a program does while pyobs watches it, against what it does just before and just after.

  paired.py WORKLOAD ROUNDS SECONDS COMMAND... [-- COMMAND...]...

WORKLOAD is a JSON list: the name of one of those below, or the words of a command that prints the time and what its work
costs, for ever. COMMAND has PID for the program's process id, and at its end the name of a file that it makes: it watches when
that file is there. `none` is nobody, which shows the noise. Prints JSON: for each command a list, for each round what the work
costs without and with it: of its windows of a tenth of a second, what a quarter cost less than, for others who share the
machine's memory and caches make work slower for seconds at a time, and never faster.
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
    """Whoever watches comes before the span, and leaves behind it."""
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
    # What it makes at its beginning is not what it costs, nor what it does until it knows how much there is.
    time.sleep(max(0.5, 0.4 * seconds))
    watched = span()
    # Not an interrupt, which is ignored by who was started in the background.
    pyobs.send_signal(15)
    pyobs.wait()
    time.sleep(0.1)
    return watched


def main():
    words, rounds, seconds = json.loads(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    if words[0] in WORKLOADS:
        words = [sys.executable, "-c", WORKLOADS[words[0]] + LOOP]
    program = subprocess.Popen(words, stdout=subprocess.PIPE)
    # Nobody reads it before the end: what it says in half an hour.
    fcntl.fcntl(program.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)

    def span():
        since = time.monotonic()
        time.sleep(seconds)
        return since, time.monotonic()

    # It prints at last when it works.
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
    # A machine that is busy with something else gives the program no time.
    pairs = [((before + after) / 2, on) if before and on and after else None for before, on, after in pairs]
    print(json.dumps([[pair for pair in pairs[number::len(each)] if pair] for number in range(len(each))]))


main()
