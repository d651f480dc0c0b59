"""What does it cost a program to be watched? Two twins of it take short turns, so that a changing machine speed affects both
alike. Each of them is watched in turn, so that it does not matter if one is faster. Twins with one thread share a CPU, because
two CPUs of a machine are seldom equally fast.

  twins.py SCRIPT WORKLOAD TURN_MS TURNS ROUNDS COMMAND...

WORKLOAD is a name that the code in SCRIPT's WORKLOAD accepts, or else a function of SCRIPT. COMMAND has {pid} for the watched
program's process id. A turn should have ten units of work or more. Prints JSON: for each command its largest resident set, and
for each round how many times as long the work took.
"""
import ast, json, math, mmap, os, re, shlex, signal, statistics, struct, subprocess, sys, tempfile, time

SETTLE_S = 3
# A turn that differs from the median turn by more than this (e^x) was disturbed, and counts as this much.
FAR = 0.2
SLOTS = struct.Struct("<8Q")


COUNTED = """
import mmap, struct, sys
file = open(sys.argv[2], "r+b")
page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
count, work = 0, globals()[sys.argv[1]]
while True:
    work()
    count += 1
    struct.pack_into("<Q", page, 0, count)
"""


def code(script):
    tree = ast.parse(open(script).read())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "WORKLOAD":
            return ast.literal_eval(node.value)
    # Everything but the call of its main().
    return ast.unparse(tree.body[:-1]) + COUNTED


class Twin:
    def __init__(self, code, workload):
        self.file = tempfile.NamedTemporaryFile()
        self.file.write(bytes(mmap.PAGESIZE))
        self.file.flush()
        self.page = mmap.mmap(self.file.fileno(), mmap.PAGESIZE)
        # With two threads, the twins' loads could not be told apart.
        alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self.program = subprocess.Popen([sys.executable, "-c", code, workload, self.file.name], env=alone)
        self.rate(SETTLE_S)

    def done(self):
        return sum(SLOTS.unpack(self.page[:SLOTS.size]))

    def rate(self, seconds):
        """Units of work per second."""
        self.program.send_signal(signal.SIGCONT)
        since, before = time.perf_counter(), self.done()
        time.sleep(seconds)
        until, after = time.perf_counter(), self.done()
        self.program.send_signal(signal.SIGSTOP)
        return (after - before) / (until - since)


def peak_rss_bytes(pid):
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", open("/proc/%d/status" % pid).read())[1])


def slower(watched, other, command, turn_s, turns):
    """The logarithm of how many times as long the watched twin takes, and the watcher's memory."""
    words = shlex.split(command.replace("{pid}", str(watched.program.pid)))
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    watcher = subprocess.Popen(words, **quiet)
    watched.rate(SETTLE_S)
    if watcher.poll() is not None:
        sys.exit("%s ended with %d" % (words[0], watcher.returncode))
    ratios = []
    for turn in range(turns):
        both = [watched, other] if turn % 2 else [other, watched]
        rates = {twin: twin.rate(turn_s) for twin in both}
        # A machine that is busy otherwise may leave one of them without time.
        if min(rates.values()) > 0:
            ratios.append(math.log(rates[other] / rates[watched]))
    peak = peak_rss_bytes(watcher.pid)
    # Not SIGINT, which a process started in the background ignores.
    watcher.terminate()
    watcher.wait()
    middle = statistics.median(ratios)
    return middle + statistics.mean(max(-FAR, min(FAR, ratio - middle)) for ratio in ratios), peak


def share_a_cpu(twins):
    if any(len(os.listdir("/proc/%d/task" % twin.program.pid)) > 1 for twin in twins):
        return
    last = max(os.sched_getaffinity(0))
    for twin in twins:
        os.sched_setaffinity(twin.program.pid, {last})


def main():
    (script, workload), (turn_ms, turns, rounds), commands = sys.argv[1:3], map(int, sys.argv[3:6]), sys.argv[6:]
    one, two = twins = [Twin(code(script), workload) for _ in range(2)]
    share_a_cpu(twins)
    measured = [{"slower": [], "peak_rss_bytes": 0} for _ in commands]
    try:
        for _ in range(rounds):
            for rows, command in zip(measured, commands):
                both = [slower(*pair, command, turn_ms / 1000, turns) for pair in [(one, two), (two, one)]]
                rows["slower"].append(math.exp(statistics.mean(ratio for ratio, _ in both)))
                rows["peak_rss_bytes"] = max(rows["peak_rss_bytes"], *(peak for _, peak in both))
    finally:
        for twin in twins:
            twin.program.kill()
    print(json.dumps(measured))


main()
