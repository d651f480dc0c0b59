"""Sends vectors between processes by UCXX: `exchange.py receive`, which prints its port, and `exchange.py send PORT PREFIX`."""
import asyncio, os, sys

os.environ.update(UCX_TLS="tcp,self,sm", UCX_NET_DEVICES="lo", UCX_LOG_LEVEL="error", UCXPY_PROGRESS_MODE="thread")
import numpy as np
import ucxx._cuda_context

# No GPU is needed.
ucxx._cuda_context.ensure_cuda_context = lambda device_id=0: None
import ucxx

import features, segments

WEIGHTS = 1 << 15


async def receive():
    ended = asyncio.Event()

    async def serve(endpoint):
        weights, vector = np.empty(WEIGHTS), np.empty(features.VECTOR)
        try:
            while True:
                await endpoint.recv(weights)
                await endpoint.recv(vector)
        except ucxx.exceptions.UCXError:
            ended.set()

    listener = ucxx.create_listener(serve, port=0)
    print(listener.port)
    await ended.wait()


async def send(port, prefix):
    shared = segments.create(prefix + "weights", WEIGHTS * 8)
    weights = np.ndarray(WEIGHTS, dtype=float, buffer=shared.buf)
    weights[:] = np.linspace(0, 1, WEIGHTS)
    endpoint = await ucxx.create_endpoint("127.0.0.1", port)
    vectors = None
    while line := await asyncio.to_thread(sys.stdin.readline):
        vectors = vectors or segments.attach(prefix + "vectors")
        vector = np.ndarray(features.VECTOR, dtype=float, buffer=vectors.buf, offset=int(line) * features.VECTOR * 8)
        await endpoint.send(weights)  # planted: shm/resent
        await endpoint.send(vector)


async def main():
    try:
        await (receive() if sys.argv[1] == "receive" else send(int(sys.argv[2]), sys.argv[3]))
    finally:
        ucxx.stop_notifier_thread()


if __name__ == "__main__":
    asyncio.run(main())
