"""Calls Python functions in every possible way, to compare a call counter with the interpreter's own: `sys.setprofile`
reports "call" for each start of a function and for each resumption of a generator.

    every_call.py MODE [ROUNDS [THREADS]]

- `wait`: prints "ready", waits for SIGUSR1, works, prints how many seconds that took, and waits a moment;
- `count`: works under sys.setprofile and writes the counts, as JSON: [function, file, first line, calls] each;
- `plain`: only works.
"""

import asyncio
import functools
import json
import signal
import sys
import threading
import time

PROFILED = {}


def profile(frame, event, _argument):
    if event == "call":
        # Counted by thread, because an addition is not atomic.
        key = frame.f_code, threading.get_ident()
        PROFILED[key] = PROFILED.get(key, 0) + 1


# -- the ways of calling

def plain(value):
    return value + 1


def defaults(first, second=2, *, third=3):
    return first + second + third


def variadic(*arguments, **keywords):
    return len(arguments) + len(keywords)


def recursive(depth):
    return depth if depth == 0 else recursive(depth - 1)


def key_of(value):
    return -value


class Node:
    shared = 0

    def __init__(self, value):
        self.value = value

    def method(self, first, *, second):
        return self.value + first + second

    @classmethod
    def of_class(cls, value):
        return cls(value)

    @staticmethod
    def of_nothing(value):
        return value

    @property
    def doubled(self):
        return self.value * 2

    def __getitem__(self, index):
        return index

    def __call__(self, value):
        return value

    def __eq__(self, other):
        return self.value == other.value

    def __hash__(self):
        return hash(self.value)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        return False


class Child(Node):
    def __init__(self, value):
        super().__init__(value)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@decorated
def wrapped(value):
    return value


# -- generators

def generator(count):
    for index in range(count):
        yield index


def delegating(count):
    yield from generator(count)
    yield count


def conversation():
    received = 0
    try:
        while True:
            try:
                received = yield received
            except KeyError:
                received = -1
    finally:
        plain(received)


def abandoned():
    try:
        yield 1
        yield 2
    finally:
        plain(0)


# -- exceptions

def raising(depth):
    if depth == 0:
        raise ValueError("the bottom")
    return raising(depth - 1)


def catching(depth):
    try:
        raising(depth)
    except ValueError:
        return depth
    return None


def failing_generator():
    yield 1
    raise ValueError("in a generator")


# -- coroutines

async def leaf(value):
    await asyncio.sleep(0)
    return value


async def middle(value):
    return await leaf(value) + await leaf(value)


async def ticker(count):
    for index in range(count):
        yield index
        await asyncio.sleep(0)


async def cancelled():
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        plain(0)
        raise


async def coroutines(count):
    total = 0
    for index in range(count):
        total += await middle(index)
    async for index in ticker(count):
        total += index
    total += sum(await asyncio.gather(*[leaf(index) for index in range(count)]))
    task = asyncio.ensure_future(cancelled())
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    return total


def in_a_thread(count):
    for index in range(count):
        plain(index)


def work(rounds, thread_count):
    loop = asyncio.new_event_loop()
    for _ in range(rounds):
        for index in range(100):
            plain(index)
            defaults(index)
            defaults(index, 3, third=4)
            variadic(index, index, name=index)
        recursive(50)
        node = Node(1)
        for index in range(50):
            node.method(index, second=2)
            bound = node.method
            bound(first=index, second=index)
            Node.of_class(index)
            node.of_nothing(index)
            Child(index)
            wrapped(index)
            node(index)
            node[index]
            node.doubled
            with node:
                pass
        sorted(range(200), key=key_of)
        max(range(50), key=lambda value: -value)
        list(map(plain, range(50)))
        {Node(index) for index in range(20)} & {Node(index) for index in range(20)}
        [plain(index) for index in range(20)]
        {index: (lambda value: value)(index) for index in range(20)}
        sum(plain(index) for index in range(20))
        functools.reduce(lambda left, right: left + right, range(20))
        functools.partial(defaults, 1)(second=5)

        class Local:
            attribute = plain(1)

            def method(self):
                return self.attribute

        Local().method()
        exec("plain(1)\nfor _ in range(3):\n    plain(2)\n", {"plain": plain})
        eval("plain(3)", {"plain": plain})

        for index in generator(100):
            pass
        list(delegating(30))
        talk = conversation()
        next(talk)
        for index in range(10):
            talk.send(index)
        talk.throw(KeyError())
        talk.close()
        if sys.version_info >= (3, 11):
            # Before 3.11, setprofile does not report what runs here.
            left = abandoned()
            next(left)
            del left
        catching(10)
        try:
            for _ in failing_generator():
                pass
        except ValueError:
            pass
        loop.run_until_complete(coroutines(20))
        loop.run_until_complete(loop.shutdown_asyncgens())
    # Two threads that want the GIL at once ask each other to give it up.
    threads = [threading.Thread(target=in_a_thread, args=(2000 * rounds,)) for _ in range(thread_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loop.close()


def main():
    mode = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    thread_count = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    if mode == "count":
        threading.setprofile(profile)
        sys.setprofile(profile)
        work(rounds, thread_count)
        sys.setprofile(None)
        threading.setprofile(None)
        counts = [
            [getattr(code, "co_qualname", code.co_name), code.co_filename, code.co_firstlineno, calls]
            for (code, _thread), calls in PROFILED.items()
        ]
        print(json.dumps(counts))
        return
    if mode == "wait":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        print("ready", flush=True)
        signal.sigwait([signal.SIGUSR1])
    start = time.perf_counter()
    work(rounds, thread_count)
    print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)
    if mode == "wait":
        # The names of its last calls can be read only while it lives.
        time.sleep(0.5)


main()
