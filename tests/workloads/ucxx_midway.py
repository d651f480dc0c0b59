"""Messages by UCXX within one process, each of 1000 bytes plus its number. Five receives are requested at the start, and their
messages, of 60000 bytes plus a number, are sent at the end. SIGUSR1 lets it send 200 more, from the number that it prints.
"""
import asyncio, os, signal

import numpy

from ucxx_within import connected

LATE = 5
WINDOW = 4
MORE = 200


async def both(one, other, sizes):
    sends = [one.send(numpy.zeros(size, "u1")) for size in sizes]
    await asyncio.gather(*sends, *[other.recv(numpy.empty(size, "u1")) for size in sizes])


async def main():
    go = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go.set)
    one, other, _listener = await connected()
    late = [asyncio.create_task(other.recv(numpy.empty(60000 + at, "u1"), tag=77)) for at in range(LATE)]
    number, begun = 0, None
    while begun is None or number < begun + MORE:
        await both(one, other, range(1000 + number, 1000 + number + WINDOW))
        number += WINDOW
        if number == 20 * WINDOW:
            print("ready", flush=True)
        if begun is None and go.is_set():
            begun = number
        await asyncio.sleep(0.005)
    await asyncio.gather(*late, *[one.send(numpy.zeros(60000 + at, "u1"), tag=77) for at in range(LATE)])
    print("begun", begun, "last", number, flush=True)
    await asyncio.sleep(0.5)
    os._exit(0)


asyncio.run(main())
