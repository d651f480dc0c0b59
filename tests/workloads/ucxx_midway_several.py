"""Messages of several buffers by UCXX within one process. Three receives are requested at the start; SIGUSR1 lets it send for
these and for five more, one after the other.
"""
import asyncio, os, signal

import numpy

from ucxx_within import connected

EARLY = 3
AFTER = 5


async def main():
    go = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go.set)
    one, other, _listener = await connected()
    send = lambda tag: one.send_multi([numpy.zeros(1000 * number, "u1") for number in range(1, 5)], tag=tag)
    # Each has its own tag, because the parts would otherwise be taken for announcements.
    early = [asyncio.create_task(other.recv_multi(tag=tag)) for tag in range(EARLY)]
    await asyncio.sleep(0.3)
    print("ready", flush=True)
    await go.wait()
    for tag in range(EARLY):
        await send(tag)
    received = len(await asyncio.gather(*early))
    for tag in range(EARLY, EARLY + AFTER):
        await asyncio.gather(send(tag), other.recv_multi(tag=tag))
        received += 1
        await asyncio.sleep(0.05)
    print("received", received, flush=True)
    await asyncio.sleep(0.5)
    os._exit(0)


asyncio.run(main())
