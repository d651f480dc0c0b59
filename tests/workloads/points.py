"""points.py [LIBRARY | SCENARIO]: burns CPU time in C functions below callbacks from other C functions, and records each stack.

LIBRARY is built from points.cpp. A SCENARIO runs alone; the environment variable POINTS may name it instead. The last line of
output is JSON: {"points": [{"name": …, "cpu_s": …, "leaf": pattern, "frames": [[function, file, line, via], …], "native":
[[module, function], …]}, …]}, root first. `via` is a pattern for the native frames between a frame and its caller, "" if the
interpreter calls one Python function from another, and null if it decides what lies between; `leaf` is a pattern for the frames
beyond the last one. `native`, if not null, has the native frames up to the last C function that called a Python function, as
the C library's own unwinder finds them, with null for functions that a file does not export.
"""
import asyncio
import ctypes
import functools
import hashlib
import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
import zlib

POINTS = []
BYTES = bytes(range(256)) * 60 + os.urandom(3000000)
LONG = BYTES * 10
SHUFFLED = [(k * 7919) % 200003 for k in range(200003)]
# A pattern for the C code that calls each function.
VIA = {}
LEAF = {"re": "(?i)sre", "hash": "(?i)sha|libcrypto", "zlib": "libz|zlib", "sort": "sort", "sum": "sum|range|long"}


def cpu_time():
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


class Symbol(ctypes.Structure):
    """struct Dl_info of dladdr(3)."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def symbol_at(address):
    symbol = Symbol()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(symbol)):
        return [None, None]
    return [os.path.basename(os.path.realpath(symbol.file.decode())), symbol.name and symbol.name.decode()]


def native_frames():
    addresses = (ctypes.c_void_p * 512)()
    count = ctypes.CDLL(None).backtrace(addresses, len(addresses))
    # The address of a call's last byte, because another function may follow the call.
    frames = [symbol_at(address - 1) for address in addresses[count - 1::-1]]
    # Drops this call and the interpreter's frames that make it.
    interpreter = symbol_at(ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value)[0]
    while frames[-1][0] != interpreter:
        frames.pop()
    while frames[-1][0] == interpreter:
        frames.pop()
    return frames


def note(frame, leaf):
    """Records the stack, and the start of its C function."""
    frames = []
    while frame is not None:
        code = frame.f_code
        called_by = "" if code.co_name == "point" else VIA.get(code.co_name)
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno, called_by])
        frame = frame.f_back
    native = native_frames() if scenario_name in WITH_NATIVE else None
    POINTS.append({"name": scenario_name, "leaf": LEAF[leaf], "frames": frames[::-1], "native": native, "cpu_s": -cpu_time()})


def done():
    POINTS[-1]["cpu_s"] += cpu_time()


def point(leaf="sum"):
    work, data = WORK[leaf]
    note(sys._getframe(), leaf); made = work(*data); done()  # noqa: F841
    return 1


WORK = {
    "re": (re.compile("(a+)+$").match, ("a" * 20 + "b",)),
    "zlib": (zlib.compress, (BYTES, 6)),
    "sort": (sorted, (SHUFFLED,)),
    "sum": (sum, (range(5000000),)),
    "hash": (hashlib.sha512, (LONG,)),
}


def via(pattern):
    """Sets the pattern for the C code that calls the function."""

    def mark(function):
        VIA[function.__name__] = pattern
        return function

    return mark


def plain():
    for leaf in sorted(WORK):
        if leaf != "hash":
            point(leaf)


def hashed():
    """Runs alone, if it is named: OpenSSL's functions in assembly."""
    point("hash")


def sorted_by_key():
    @via("sort")
    def by_key(item):
        return point("zlib")

    def caller():
        return sorted([1], key=by_key)

    return caller()


class Ordered:
    @via("sort")
    def __lt__(self, other):
        return bool(point("re"))


def compared():
    [Ordered(), Ordered()].sort()


class Key:
    @via("hash|dict")
    def __hash__(self):
        return point()


class Lazy:
    @via("getattr|Getattr")
    def __getattr__(self, name):
        return point()


class Dying:
    @via("dealloc|inalize")
    def __del__(self):
        point()


def slots():
    {}.get(Key())
    Lazy().anything
    dying = Dying()
    del dying


def through_ctypes():
    @via("qsort_r")
    def compare(left, right, argument):
        point("re")
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    numbers = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort_r(numbers, ctypes.c_size_t(2), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int)), kind(compare), None)


def embedded():
    """Runs in a program that embeds an interpreter and calls the function it is given: embed.c."""
    @via("call_back.*program")
    def from_main():
        through_ctypes()

    ctypes.CDLL(None).call_back(ctypes.CFUNCTYPE(None)(from_main))


def encoded():
    @via("_json|encoder")
    def default(thing):
        point("zlib")
        return "thing"

    json.dumps({"a": [object()]}, default=default)


def queried():
    @via("sqlite")
    def from_sql(value):
        return point()

    database = sqlite3.connect(":memory:")
    database.create_function("from_sql", 1, from_sql)
    assert database.execute("SELECT from_sql(1)").fetchall() == [(1,)]


def folded():
    @via("reduce")
    def reducer(left, right):
        return point()

    functools.reduce(reducer, [1, 2])
    VIA["mapped"] = "map|list"

    def mapped(item):
        return point()

    list(map(mapped, [1]))


def substituted():
    @via("sub|_sre")
    def replacement(match):
        return str(point("sort"))

    re.sub("a", replacement, "a")


@via("sum|gen")
def yielding():
    yield point()
    yield from delegated()


def delegated():
    yield point()


def nested():
    VIA.update(outer_key="sort", inner_replacement="sub|_sre", innermost_reducer="reduce")

    def outer_key(item):
        return re.sub("a", inner_replacement, "a")

    def inner_replacement(match):
        return functools.reduce(innermost_reducer, ["a", "b"])

    def innermost_reducer(left, right):
        return str(point("zlib"))

    sorted([1], key=outer_key)


def generators():
    sum(yielding())


async def awaited():
    return point("re")


@via("task|_asyncio|gen")
async def main_task():
    await asyncio.sleep(0)
    await awaited()


def coroutines():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main_task())
    loop.close()


def executed():

    exec(compile("def made():\n\n    point()\nmade()\n", "/no/such/made.py", "exec"), {"point": point})


def signalled():
    @via("ignal")
    def handler(number, frame):
        point("zlib")

    signal.signal(signal.SIGUSR1, handler)
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0)


def threads():
    def of_thread():
        point("zlib")

    thread = threading.Thread(target=of_thread)
    thread.start()
    thread.join()


def thread_of_c():
    VIA["of_c"] = "_ctypes|libffi"

    def of_c(argument):
        point("re")

    libc = ctypes.CDLL(None)
    thread, kind = ctypes.c_ulong(), ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    function = kind(of_c)
    assert libc.pthread_create(ctypes.byref(thread), None, function, None) == 0
    libc.pthread_join(thread, None)


def plus_plus():
    """Runs only with the library."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)

    @via("by_std_sort|std::.*sort|introsort|insertion")
    def from_std_sort(left, right):
        return left < right and bool(point("re"))

    @via("Guard|unwinding")
    def in_flight(left, right):
        return point("zlib")

    assert LIBRARY.by_std_sort(kind(from_std_sort)) == 1
    assert LIBRARY.unwinding(kind(in_flight)) == 1


def of_numpy():
    """Runs alone, if it is named: needs NumPy."""
    import numpy

    @via("umath|multiarray|numpy")
    def of_element(value):
        return point("zlib")

    numpy.frompyfunc(of_element, 1, 1)(numpy.arange(1))


SCENARIOS = [
    plain, sorted_by_key, compared, slots, through_ctypes, encoded, queried, folded, substituted, nested, generators, coroutines,
    executed, signalled, threads, thread_of_c,
]

ALONE = {"hashed": hashed, "numpy": of_numpy, "embedded": embedded}
WITH_NATIVE = ["through_ctypes", "embedded"]

if __name__ == "__main__":
    for name in sys.argv[1:] or os.environ.get("POINTS", "").split():
        if name == "numpy":
            import numpy  # noqa: F401
        if name in ALONE:
            SCENARIOS = [ALONE[name]]
        else:
            LIBRARY = ctypes.CDLL(name)
            SCENARIOS.append(plus_plus)
    # Stacks are complete only once pyobs has examined the files that were loaded last.
    time.sleep(1)
    for scenario in SCENARIOS:
        scenario_name = scenario.__name__
        scenario()
    print(json.dumps({"points": POINTS, "scenarios": len(SCENARIOS)}))
