"""What it costs a program to be watched. Two twins of it take turns of five thousandths of a second, so that a machine whose speed
changes hurts both alike; now the one is watched and now the other, so that it does not matter if one is faster by nature. Twins of
one thread share a CPU, since two CPUs of a machine are seldom equally fast.

  twins.py OVERHEAD WORKLOAD ROUNDS COMMAND...

OVERHEAD is the script whose workload of that name it is; COMMAND has {pid} for the watched program's process id. Prints JSON: for
each command a list, for each round how many times as long the work took.
"""
import ast, json, math, mmap, os, shlex, signal, statistics, struct, subprocess, sys, tempfile, time

TURN_S, TURNS = 0.005, 800
SETTLE_S = 3
# A turn in which one was slower by more (e^x) than in the middle turn was disturbed by something else: it counts as that much.
FAR = 0.2
SLOTS = struct.Struct("<8Q")


def code(script):
    assigned = [node for node in ast.parse(open(script).read()).body if isinstance(node, ast.Assign)]
    return next(ast.literal_eval(node.value) for node in assigned if node.targets[0].id == "WORKLOAD")


class Twin:
    def __init__(self, code, workload):
        self.file = tempfile.NamedTemporaryFile()
        self.file.write(bytes(mmap.PAGESIZE))
        self.file.flush()
        self.page = mmap.mmap(self.file.fileno(), mmap.PAGESIZE)
        self.program = subprocess.Popen([sys.executable, "-c", code, workload, self.file.name])
        self.rate(SETTLE_S)

    def done(self):
        return sum(SLOTS.unpack(self.page[:SLOTS.size]))

    def rate(self, seconds):
        """Units of work a second."""
        self.program.send_signal(signal.SIGCONT)
        since, before = time.perf_counter(), self.done()
        time.sleep(seconds)
        until, after = time.perf_counter(), self.done()
        self.program.send_signal(signal.SIGSTOP)
        return (after - before) / (until - since)


def slower(watched, other, command):
    """The logarithm of how many times as long the watched one takes."""
    words = shlex.split(command.replace("{pid}", str(watched.program.pid)))
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    watcher = subprocess.Popen(words, **quiet)
    watched.rate(SETTLE_S)
    if watcher.poll() is not None:
        sys.exit("%s ended with %d" % (words[0], watcher.returncode))
    turns = []
    for turn in range(TURNS):
        both = [watched, other] if turn % 2 else [other, watched]
        rates = {twin: twin.rate(TURN_S) for twin in both}
        # A machine that is busy with something else gives one of them no time.
        if min(rates.values()) > 0:
            turns.append(math.log(rates[other] / rates[watched]))
    # Not an interrupt, which is ignored by who was started in the background.
    watcher.terminate()
    watcher.wait()
    middle = statistics.median(turns)
    return middle + statistics.mean(max(-FAR, min(FAR, turn - middle)) for turn in turns)


def share_a_cpu(twins):
    if any(len(os.listdir("/proc/%d/task" % twin.program.pid)) > 1 for twin in twins):
        return
    last = max(os.sched_getaffinity(0))
    for twin in twins:
        os.sched_setaffinity(twin.program.pid, {last})


def main():
    script, workload, rounds, commands = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    one, two = twins = [Twin(code(script), workload) for _ in range(2)]
    share_a_cpu(twins)
    measured = [[] for _ in commands]
    try:
        for _ in range(rounds):
            for rows, command in zip(measured, commands):
                rows.append(math.exp((slower(one, two, command) + slower(two, one, command)) / 2))
    finally:
        for twin in twins:
            twin.program.kill()
    print(json.dumps(measured))


main()
