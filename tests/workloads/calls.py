"""calls.py graph, or calls.py run SECONDS THREADS: calls functions in every possible way, and does hardly anything else.

`run` prints its age in seconds when it begins to call. `graph` prints the calls that `run` can be sampled in, as JSON:
{"edges": [[caller's file, name, line, callee's file, name], …], "lines": [[file, name, line], …]}. A thread's first
function has "" and 0 as its caller. Names are qualified if the version supports it.
"""
import collections
import functools
import json
import operator
import os
import re
import sys
import threading
import time


def plain(a, b):
    return a


def with_keywords(a, *, b=1, **more):
    return plain(a, b)


def with_list(*items):
    return plain(*items[:2])


def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


def closures(n):
    def outer():
        def inner():
            return n

        return inner()

    return outer()


class Base:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value

    @classmethod
    def make(cls, value):
        return cls(value)

    @staticmethod
    def nothing():
        return None


class Derived(Base):
    def __init__(self, value):
        super().__init__(value)
        self.get()

    def get(self):
        return super().get()

    @property
    def doubled(self):
        return self.get() + self.get()

    def __lt__(self, other):
        return self.get() < other.get()

    def __hash__(self):
        return hash(self.get())

    def __eq__(self, other):
        return self.get() == other.get()

    def __add__(self, other):
        return Derived.make(self.get() + other.get())

    def __getitem__(self, index):
        return self.get() + index

    def __call__(self, *items):
        return with_list(*items)

    def __getattr__(self, name):
        return plain(name, self)

    def __enter__(self):
        return self.get()

    def __exit__(self, *exception):
        self.nothing()

    def __iter__(self):
        yield self.get()


def methods():
    left, right = Derived(1), Derived.make(2)
    left.doubled
    left + right
    left[1]
    left(1, 2, 3)
    left.missing
    with left:
        pass
    for _ in right:
        pass
    return sorted([right, left]), {left: 1, right: 2}[Derived(1)]


def numbers(n):
    for k in range(n):
        yield plain(k, k)


def delegating(n):
    yield from numbers(n)
    yield plain(n, n)


def generators():
    """Profilers do not see the creation of a generator, so each is used on the line that creates it."""
    total = 0
    for k in delegating(4):
        total += k
    sum(numbers(3))
    collections.deque(plain(k, k) for k in (1, 2))
    receiving = receiver(); next(receiving)
    receiving.send(1)
    next(receiving, None)
    return total


def receiver():
    got = yield
    yield plain(got, got)


async def awaited(n):
    return plain(n, n)


async def awaiting(n):
    if n == 0:
        return await awaited(n)
    return await awaiting(n - 1)


def coroutines():
    try:
        awaiting(3).send(None)
    except StopIteration:
        pass


def by_key(item):
    return plain(-item, item)


def reducer(left, right):
    return plain(left, right)


def replacement(match):
    return plain("b", match)


def encoded(thing):
    return plain("thing", thing)


def from_c():
    sorted([3, 1, 2], key=by_key)
    list(map(by_key, [1, 2]))
    functools.reduce(reducer, [1, 2, 3])
    functools.partial(plain, 1)(2)
    operator.methodcaller("get")(Base(1))
    PATTERN.sub(replacement, "aa")
    ENCODER.encode([THING])
    [plain(k, k) for k in (1, 2)]
    {k: (lambda k: plain(k, k))(k) for k in (1, 2)}
    eval(EXPRESSION)


PATTERN, EXPRESSION = re.compile("a"), compile("plain(1, 2)", "expression.py", "eval")
ENCODER, THING = json.JSONEncoder(default=encoded), object()


def raising(n):
    if n == 0:
        raise ValueError
    raising(n - 1)


def exceptions():
    try:
        raising(3)
    except ValueError:
        plain(1, 2)
    finally:
        plain(1, 2)


def calls():
    plain(1, 2)
    with_keywords(1, b=2, c=3)
    fibonacci(6)
    closures(1)
    methods()
    generators()
    coroutines()
    from_c()
    exceptions()


def work(until):
    RUNNING.append(until)
    while time.time() < until:
        calls()


RUNNING = []


def main(seconds, count):
    until = time.time() + seconds
    threads = [threading.Thread(target=work, args=(until,)) for _ in range(count - 1)]
    for thread in threads:
        thread.start()
    while len(RUNNING) < len(threads):
        time.sleep(0.01)
    if not GRAPH:
        print(age())
    work(until)
    for thread in threads:
        thread.join()


def age():
    """The age of this process in seconds."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    with open("/proc/uptime") as file:
        return float(file.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


class Graph:
    def __init__(self):
        self.edges, self.codes = set(), set()

    def profile(self, frame, event, argument):
        # Up to the root, because a profile function never sees a call to the outermost frames.
        while event == "call" and frame is not None:
            caller = frame.f_back
            self.codes.add(frame.f_code)
            before = self.names(caller.f_code) + (caller.f_lineno,) if caller else ("", "", 0)
            edge = before + self.names(frame.f_code)
            if edge in self.edges:
                break
            self.edges.add(edge)
            frame = caller

    @staticmethod
    def names(code):
        return os.path.basename(code.co_filename), getattr(code, "co_qualname", code.co_name)

    def lines(self):
        for code in self.codes:
            for line in {code.co_firstlineno} | lines_of(code):
                yield self.names(code) + (line,)


def lines_of(code):
    if hasattr(code, "co_lines"):
        return {line for _, _, line in code.co_lines() if line is not None}
    import dis

    return {line for _, line in dis.findlinestarts(code)}


if __name__ == "__main__":
    GRAPH = Graph() if sys.argv[1] == "graph" else None
    SECONDS, THREADS = (0.5, 2) if GRAPH else (float(sys.argv[2]), int(sys.argv[3]))
    if GRAPH:
        threading.setprofile(GRAPH.profile)
        sys.setprofile(GRAPH.profile)
    main(SECONDS, THREADS)
    # Leaves time to name the last samples.
    time.sleep(0.3)
    if GRAPH:
        sys.setprofile(None)
        print(json.dumps({"edges": sorted(GRAPH.edges), "lines": sorted(GRAPH.lines())}))
        sys.stdout.flush()
    # What runs at exit is not in the graph.
    os._exit(0)
