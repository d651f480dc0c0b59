"""Tasks that know what they cost: tasks.py MODE SECONDS

asyncio, uvloop: a server with tasks that compute, that sleep and read without awaiting, and that wait.
eager: a task that starts another eagerly (3.12 and newer).
idle: tasks that all wait, from before pyobs looks.
requests: more short tasks than pyobs keeps names for.
alone: coroutines that no event loop runs.
greenlets, gevent: greenlets that compute, and one that sleeps without giving way.
starving: a task that computes for long at a time, and one that computes as much in short parts.

Prints a JSON line with the CPU time of each task, and for how long each blocked the loop.
"""
import json, os, socket, sys, threading, time

from timing import until_known

MODE, SECONDS = sys.argv[1], float(sys.argv[2])
facts = {"pid": os.getpid(), "cpu_s": {}, "blocked_s": {}, "blocked": {}, "starved_s": {}, "starved": {}}
# The part of a round of 100 ms for which each of these computes.
PARTS = {"first": 0.08, "second": 0.16, "third": 0.32}


def add(kind, name, amount):
    facts[kind][name] = facts[kind].get(name, 0) + amount


def spin(name, seconds):
    """Computes in a generator, which a function calls that is not a coroutine."""
    begun = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
    while time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - begun < seconds:
        sum(number * number for number in range(200))
    add("cpu_s", name, time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - begun)


def blocks(name, call):
    begun = time.monotonic()
    call()
    add("blocked_s", name, time.monotonic() - begun)
    add("blocked", name, 1)


until_known(0)

if MODE == "alone":

    class Tick:
        def __await__(self):
            yield

    async def inner(name):
        spin(name, PARTS[name] / 10)
        await Tick()

    async def outer_a():
        while True:
            await inner("first")

    async def outer_b():
        while True:
            await inner("third")

    coroutines, until = [outer_a(), outer_b()], time.monotonic() + SECONDS
    while time.monotonic() < until:
        for coroutine in coroutines:
            coroutine.send(None)
    print(json.dumps(facts), flush=True)
    os._exit(0)

if MODE in ("greenlets", "gevent"):

    def first():
        computes("first")

    def second():
        computes("second")

    def third():
        computes("third")

    def sleeper():
        while True:
            blocks("sleeper", lambda: time.sleep(0.06))
            for _ in range(2):
                give()

    def computes(name):
        # C code that calls back lies between.
        while True:
            sorted([1], key=lambda _: spin(name, PARTS[name] / 4) or 0)
            give()

    everyone, until = [first, second, third, sleeper], time.monotonic() + SECONDS
    if MODE == "gevent":
        import gevent

        give = lambda: gevent.sleep(0.02)
        for work in everyone:
            gevent.spawn(work)
        gevent.sleep(SECONDS)
    else:
        import greenlet

        main = greenlet.getcurrent()
        give = main.switch
        everyone = [greenlet.greenlet(work) for work in everyone]
        while time.monotonic() < until:
            for one in everyone:
                one.switch()
    print(json.dumps(facts), flush=True)
    os._exit(0)

import asyncio


async def compute_inner(name):
    spin(name, PARTS[name] / 4)
    await asyncio.sleep(0.1 / 4)


async def compute(name):
    while True:
        await compute_inner(name)


async def sleeper():
    while True:
        blocks("sleeper", lambda: time.sleep(0.06))
        await asyncio.sleep(0.2)


async def reader(connection):
    while True:
        connection.sendall(b"?")
        blocks("reader", lambda: connection.recv(1))
        await asyncio.sleep(0.3)


async def on_event(event):
    await event.wait()


async def on_task(task):
    await task


async def request(number):
    spin("requests", 0.002)
    await asyncio.sleep(0)


async def requests():
    number = 0
    while True:
        number += 1
        await asyncio.create_task(request(number))


async def eager_child():
    spin("child", 0.02)
    await asyncio.sleep(0)


async def eager_parent():
    while True:
        spin("parent", 0.01)
        await asyncio.create_task(eager_child())


def grind(seconds):
    begun, total = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        total += sum(number * number for number in range(200))
    return time.monotonic() - begun


async def hog():
    while True:
        await asyncio.sleep(0.25)
        took = grind(0.13)
        add("starved_s", "hog", took)
        add("starved", "hog", 1)


async def polite():
    while True:
        spin("polite", 0.015)
        await asyncio.sleep(0)


def named(coroutine, name):
    task = asyncio.ensure_future(coroutine)
    if hasattr(task, "set_name"):
        task.set_name(name)
    return task


def answers(connection):
    while connection.recv(1):
        time.sleep(0.08)
        connection.sendall(b"!")


async def main():
    event = asyncio.Event()
    if MODE == "idle":
        everyone = [named(on_event(event), "waiter-%d" % number) for number in range(3)]
        everyone.append(named(on_task(everyone[0]), "follower"))
        facts["awaits"] = {"follower": "waiter-0"}
    elif MODE == "starving":
        everyone = [named(hog(), "hog"), named(polite(), "polite"), named(on_event(event), "waiter")]
    elif MODE == "requests":
        asyncio.ensure_future(requests())
    elif MODE == "eager":
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        asyncio.get_running_loop().call_soon(lambda: asyncio.Task(eager_parent(), name="parent"))
    else:
        ours, theirs = socket.socketpair()
        threading.Thread(target=answers, args=(theirs,), daemon=True).start()
        tasks = [named(compute(name), name) for name in PARTS]
        tasks += [named(sleeper(), "sleeper"), named(reader(ours), "reader")]
        waiters = [named(on_event(event), "waiter-%d" % number) for number in range(40)]
        tasks += waiters + [named(on_task(waiters[number]), "follower-%d" % number) for number in range(5)]
        facts["awaits"] = {"follower-%d" % number: "waiter-%d" % number for number in range(5)}
    await asyncio.sleep(SECONDS)
    everyone = asyncio.all_tasks()
    facts["all"] = sorted(task.get_name() for task in everyone if hasattr(task, "get_name"))
    print(json.dumps(facts), flush=True)
    os._exit(0)


if MODE == "uvloop":
    import uvloop

    uvloop.install()
asyncio.run(main())
