"""Messages of several buffers by UCXX within one process. Three are waited for in the beginning; SIGUSR1 lets it send these and five
more, one after the other.
"""
import asyncio, os, signal

os.environ.update(
    UCX_TLS="tcp,self,sm", UCX_NET_DEVICES="lo", UCX_LOG_LEVEL="error", UCX_WARN_UNUSED_ENV_VARS="n",
    UCXPY_PROGRESS_MODE="thread", UCXPY_ENABLE_DELAYED_SUBMISSION="1", UCXPY_ENABLE_PYTHON_FUTURE="1",
)
import numpy
import ucxx._cuda_context

# It asks for a context on a GPU, which nobody needs here.
ucxx._cuda_context.ensure_cuda_context = lambda device_id=0: None
import ucxx

EARLY = 3
AFTER = 5


async def main():
    loop = asyncio.get_running_loop()
    came, go = loop.create_future(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, go.set)

    async def answer(endpoint):
        if not came.done():
            came.set_result(endpoint)
        await asyncio.Event().wait()

    listener = ucxx.create_listener(answer, port=0)
    one = await ucxx.create_endpoint("127.0.0.1", listener.port)
    other = await came
    send = lambda tag: one.send_multi([numpy.zeros(1000 * number, "u1") for number in range(1, 5)], tag=tag)
    # Each with a tag of its own: what is announced would be taken for announcements.
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
