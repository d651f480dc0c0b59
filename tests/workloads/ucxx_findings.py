"""Provokes each finding of the family `ucx`, or does the same correctly, by UCXX within one process.

  ucxx_findings.py SCENE provoked|honest
"""
import asyncio, os, signal, sys, threading, time

SCENE, IS_PROVOKED = sys.argv[1], sys.argv[2] == "provoked"
if SCENE == "grows":
    # With a CPU of its own, the progress thread might keep up.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.environ["UCXPY_PROGRESS_MODE"] = "thread-polling" if SCENE == "polls" and IS_PROVOKED else "thread"
import numpy

from ucxx_within import connected, ucxx


def buffers(count, size):
    return [numpy.full(size, number & 255, "u1") for number in range(count)]


async def send_all(endpoint, held):
    await asyncio.gather(*[endpoint.send(buffer) for buffer in held])


async def receive_all(endpoint, count, size):
    await asyncio.gather(*[endpoint.recv(numpy.empty(size, "u1")) for _ in range(count)])


async def both(one, other, count=1, size=8192):
    await asyncio.gather(send_all(one, buffers(count, size)), receive_all(other, count, size))


def burn(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def polls(one, other):
    await both(one, other)
    await asyncio.sleep(5)


async def hogs(one, other):
    async def hog():
        while True:
            if IS_PROVOKED:
                burn(0.02)
            await asyncio.sleep(0 if IS_PROVOKED else 0.02)

    task = asyncio.create_task(hog())
    for _ in range(40):
        await both(one, other)
    task.cancel()


async def grows(one, other):
    for _ in range(200):
        await both(one, other, size=64)
    for _ in range(1 if IS_PROVOKED else 200):
        await both(one, other, count=200 if IS_PROVOKED else 1, size=64)


async def connects(one, other):
    """Other threads compute, while the progress thread calls Python for each new connection."""
    end = threading.Event()
    burners = [threading.Thread(target=lambda: [burn(0.01) for _ in iter(end.is_set, True)]) for _ in range(2)]
    for thread in burners:
        thread.start()
    for _ in range(40):
        if IS_PROVOKED:
            await ucxx.create_endpoint("127.0.0.1", PORT)
        else:
            await both(one, other)
    end.set()
    for thread in burners:
        thread.join()


async def resends(one, other):
    # The pages must exist: memory that was never touched cannot be read by pyobs.
    held = numpy.ones(65536, "u1")
    for number in range(6):
        if not IS_PROVOKED:
            held[:] = number
        await asyncio.gather(one.send(held), other.recv(numpy.empty(65536, "u1")))


async def leaves(one, other):
    await both(one, other, count=3)
    if IS_PROVOKED:
        asyncio.create_task(other.recv(numpy.empty(4321, "u1")))
        await asyncio.sleep(1)


async def killed(one, other):
    """Two receives without a sender and a send without a receiver are open when the process is killed."""
    await both(one, other, count=3)
    if IS_PROVOKED:
        requests = [other.recv(numpy.empty(size, "u1")) for size in (4321, 1234)]
        requests.append(one.send(numpy.zeros(4 << 20, "u1"), tag=9))
        tasks = [asyncio.create_task(it) for it in requests]
        await asyncio.wait(tasks, timeout=0.3)
        assert not any(task.done() for task in tasks)


async def main():
    global PORT
    one, other, listener = await connected()
    PORT = listener.port
    # By then even a loaded machine has recorded the first events.
    await asyncio.sleep(3)
    await globals()[SCENE](one, other)
    print("done", flush=True)
    if SCENE == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.5)
    os._exit(0)


asyncio.run(main())
