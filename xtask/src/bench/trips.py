"""trips.py BYTES: sends messages there and back between two processes by UCXX, forever.

For each tenth of a second it prints the time and the tenth percentile of its round trips in seconds, because the fastest were
not held up by other load.
"""
import asyncio, contextlib, os, subprocess, sys, time

WINDOW = 0.1
os.environ.update(
    UCX_TLS="tcp,self,sm", UCX_NET_DEVICES="lo", UCX_LOG_LEVEL="error", UCX_WARN_UNUSED_ENV_VARS="n",
    UCXPY_PROGRESS_MODE="thread", UCXPY_ENABLE_DELAYED_SUBMISSION="1", UCXPY_ENABLE_PYTHON_FUTURE="1",
)
import numpy
import ucxx._cuda_context

# UCXX asks for a context on a GPU, which is not needed here.
ucxx._cuda_context.ensure_cuda_context = lambda device_id=0: None
import ucxx


async def answer(endpoint):
    held = numpy.empty(int(sys.argv[1]), "u1")
    while True:
        await endpoint.recv(held)
        await endpoint.send(held)


async def ask(port):
    endpoint = await ucxx.create_endpoint("127.0.0.1", port)
    held = numpy.zeros(int(sys.argv[1]), "u1")
    while True:
        lengths, until = [], time.monotonic() + WINDOW
        while time.monotonic() < until:
            since = time.perf_counter()
            await endpoint.send(held)
            await endpoint.recv(held)
            lengths.append(time.perf_counter() - since)
        os.write(1, b"%.6f %.9f\n" % (time.monotonic(), sorted(lengths)[len(lengths) // 10]))


async def main():
    # Keeps other programs' load and the scheduler's choice of CPUs out of the measurement, if possible.
    with contextlib.suppress(OSError):
        os.nice(-15)
        os.sched_setaffinity(0, {int(len(sys.argv) > 2)})
    if len(sys.argv) > 2:
        await ask(int(sys.argv[2]))
    listener = ucxx.create_listener(answer, port=0)
    asker = subprocess.Popen([sys.executable, *sys.argv, str(listener.port)])
    while asker.poll() is None:
        await asyncio.sleep(1)
    os._exit(0)


try:
    asyncio.run(main())
finally:
    # Skips UCXX's notifier thread, which would be joined after the other side has gone.
    os._exit(1)
