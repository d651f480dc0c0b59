"""Calls C functions that burn CPU time below nests of every kind of Python frame, and records the stack of each.

The last line of output is JSON: {"truths": [{"name": …, "cpu_s": …, "frames": [[function, file, line], …]}, …]}, root first,
with qualified function names if the version has them. A sampler must see these stacks while the C function runs: the frame is
taken on the very line that calls it.
"""
import contextlib
import functools
import hashlib
import json
import os
import re
import sys
import time

TRUTHS = []
NUMBERS = range(3000000)
SHUFFLED = [(k * 7919) % 400009 for k in range(400009)]
BYTES = bytes(range(256)) * 100000


def cpu_time():
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def note(frame):
    """Records the stack, and the start of its C function."""
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    TRUTHS.append({"name": scenario_name, "frames": frames[::-1], "cpu_s": -cpu_time()})


def done():
    TRUTHS[-1]["cpu_s"] += cpu_time()


def leaf(work=sum, data=NUMBERS):
    note(sys._getframe()); work(data); done()
    return 1


def sorts():
    leaf(sorted, SHUFFLED)


def releases_the_gil():
    leaf(hashlib.sha512, BYTES)


def closure():
    def inner():
        def innermost():
            return leaf()

        return innermost()

    return inner()


class Thing:
    def method(self):
        return self.other()

    def other(self):
        return Thing.of_class()

    @classmethod
    def of_class(cls):
        return cls.of_nobody()

    @staticmethod
    def of_nobody():
        return Thing().attribute

    @property
    def attribute(self):
        return self + 1

    def __add__(self, other):
        return self[other]

    def __getitem__(self, key):
        return self.missing

    def __getattr__(self, name):
        return self(name)

    def __call__(self, *args, **kwargs):
        return leaf()

    class Inner:
        def __init__(self):
            leaf()


def methods():
    Thing().method()
    Thing.Inner()


def lambdas():
    return (lambda value: (lambda: (note(sys._getframe()), sum(value), done()))())(NUMBERS)


def comprehensions():
    [leaf() for _ in "1"]
    {leaf() for _ in "1"}
    {leaf(): 0 for _ in "1"}
    [[(note(sys._getframe()), sum(NUMBERS), done()) for _ in "1"] for _ in "1"]


def generator_expression():
    return max(leaf() for _ in "1")


def generator():
    yield 0
    yield leaf()


def delegating():
    yield from generator()


def generators():
    for _ in delegating():
        pass


async def awaited():
    return leaf()


async def coroutine():
    return await awaited()


async def async_generator():
    yield leaf()


async def iterating():
    async for _ in async_generator():
        pass


def coroutines():
    for one in (coroutine(), iterating()):
        try:
            one.send(None)
        except StopIteration:
            pass


def class_body():
    class Body:
        note(sys._getframe()); sum(NUMBERS); done()

        class Nested:
            leaf()


class Meta(type):
    def __new__(mcs, name, bases, namespace):
        leaf()
        return type.__new__(mcs, name, bases, namespace)


def metaclass():
    return Meta("Made", (), {})


def decorator(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@decorator
@functools.lru_cache(maxsize=None)
@decorator
def decorated(argument):
    return leaf()


def decorators():
    return decorated(argument=1)


def recursion(depth=7):
    if depth > 4:
        return recursion(depth - 1)
    return leaf() if depth == 0 else recursion(depth=depth - 1)


def executed():
    names = {"leaf": leaf}
    exec("def made():\n\n    return leaf()\nmade()\n", names)
    eval("leaf()", names)
    exec(compile("\n" * 700 + "def far():\n" + "\n" * 300 + "  leaf()\nfar()\n", "/no/such/far away.py", "exec"), names)


def executed_deep():
    def level(depth):
        text = "level(%d)" % (depth - 1) if depth else "leaf()"
        exec(compile("\n" * depth + text, "<level_%d>" % depth, "exec"), {"level": level, "leaf": leaf})

    level(25)


def from_c():
    sorted([1], key=lambda one: leaf())
    list(map(leaf_of_one, [1]))
    functools.reduce(lambda one, two: leaf(), [1, 2])
    functools.partial(leaf_of_one, 1)()
    re.sub("a", lambda match: str(leaf()), "a")


def leaf_of_one(one):
    return leaf()


@contextlib.contextmanager
def managed():
    leaf()
    try:
        yield
    finally:
        leaf()


class Manager:
    def __enter__(self):
        leaf()

    def __exit__(self, *exception):
        leaf()


def exceptions():
    with managed(), Manager():
        pass
    try:
        raise ValueError
    except ValueError:
        leaf()
    finally:
        leaf()


def many_lines():
    return dict(
        one=leaf(
        ),
        two=[
            leaf(),
        ][0]
        + leaf(
            sum,
            NUMBERS,
        ),
    )


def imported():
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.modules["nest"] = sys.modules["__main__"]
    import nest_imported  # noqa: F401


def größe():
    return 関数()


def 関数():
    return 𠀀()


def 𠀀():
    return leaf()


def with_cells_and_many_variables(a=1, b=2, *args, c=3, **kwargs):
    d = e = f = g = h = i = j = k = a
    return [lambda: (a, b, c, d, e), leaf(), (f, g, h, i, j, k)][1]


SCENARIOS = [
    sorts, releases_the_gil, closure, methods, lambdas, comprehensions, generator_expression, generators, coroutines, class_body,
    metaclass, decorators, recursion, executed, executed_deep, from_c, exceptions, many_lines, imported, größe,
    with_cells_and_many_variables,
]

if __name__ == "__main__":
    for scenario in SCENARIOS:
        scenario_name = scenario.__name__
        scenario()
    print(json.dumps({"truths": TRUTHS}))
