"""UCXX within one process: its settings, and both ends of a connection."""
import asyncio, os

os.environ.update(
    UCX_TLS="tcp,self,sm", UCX_NET_DEVICES="lo", UCX_LOG_LEVEL="error", UCX_WARN_UNUSED_ENV_VARS="n",
    UCXPY_ENABLE_DELAYED_SUBMISSION="1", UCXPY_ENABLE_PYTHON_FUTURE="1",
)
os.environ.setdefault("UCXPY_PROGRESS_MODE", "thread")
import ucxx._cuda_context

# UCXX asks for a context on a GPU, which is not needed here.
ucxx._cuda_context.ensure_cuda_context = lambda device_id=0: None
import ucxx


async def connected():
    """The two ends of a connection, and the listener, which must live as long."""
    came = asyncio.get_running_loop().create_future()

    async def answer(endpoint):
        if not came.done():
            came.set_result(endpoint)
        await asyncio.Event().wait()

    listener = ucxx.create_listener(answer, port=0)
    one = await ucxx.create_endpoint("127.0.0.1", listener.port)
    return one, await came, listener
