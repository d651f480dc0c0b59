"""Tasks of asyncio that wait for each other, and know who waits for whom.
  dump_tasks.py [uvloop]

Prints a JSON line with the stack of each task as asyncio itself has it, and whom it awaits, and then blocks the loop.
"""
import asyncio, json, os, sys, threading, time


async def leaf(event):
    await event.wait()


async def middle(event):
    await leaf(event)


async def outer(event):
    await middle(event)


async def on_task(task):
    await task


async def on_many(tasks):
    await asyncio.gather(*tasks)


async def generate(event):
    yield 1
    await event.wait()
    yield 2


async def on_generator(event):
    async for _ in generate(event):
        pass


class Context:
    def __init__(self, event):
        self.event = event

    async def __aenter__(self):
        await self.event.wait()

    async def __aexit__(self, *_):
        pass


async def on_context(event):
    async with Context(event):
        pass


async def on_queue(queue):
    await queue.get()


async def sleeps():
    await asyncio.sleep(1000)


async def on_cancelled_future(future):
    try:
        await future
    except ZeroDivisionError:
        pass


async def ended():
    return 1


async def yields():
    while True:
        await asyncio.sleep(0)


async def on_done(future):
    await future


def chain(task):
    """The coroutines of a task from the outermost in, as (file, line, qualified name)."""
    frames, awaited = [], task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        awaited = next((getattr(awaited, name) for name in ("cr_await", "ag_await", "gi_yieldfrom") if hasattr(awaited, name)), None)
        if type(awaited).__name__ == "async_generator_asend":
            # Nothing leads from here to the generator but its referents.
            import gc

            awaited = next((other for other in gc.get_referents(awaited) if type(other).__name__ == "async_generator"), None)
    return frames


def block():
    time.sleep(1000)  # blocks here


def idle():
    time.sleep(1000)


async def main():
    # Its globals lead to asyncio too, but it runs no loop.
    threading.Thread(target=idle, daemon=True).start()
    loop = asyncio.get_running_loop() if hasattr(asyncio, "get_running_loop") else asyncio.get_event_loop()
    event, queue, future, done = asyncio.Event(), asyncio.Queue(), loop.create_future(), loop.create_future()
    tasks = {}

    def begin(name, coroutine):
        tasks[name] = loop.create_task(coroutine)
        if hasattr(tasks[name], "set_name") and not name.startswith("plain"):
            tasks[name].set_name("t:" + name)
        return tasks[name]

    first = begin("outer", outer(event))
    begin("plain", middle(event))
    begin("on_task", on_task(first))
    inner = [begin("inner%d" % number, sleeps()) for number in range(3)]
    begin("on_many", on_many(inner))
    begin("on_generator", on_generator(event))
    begin("on_context", on_context(event))
    begin("on_queue", on_queue(queue))
    begin("on_future", on_cancelled_future(future))
    begin("ended", ended())
    begin("yields", yields())
    begin("on_done", on_done(done))
    await asyncio.sleep(0.2)
    begin("created", sleeps())
    done.set_result(None)
    states = {"created": "created", "yields": "scheduled", "on_done": "scheduled"}
    edges = {"on_task": ["outer"], "on_many": ["inner0", "inner1", "inner2"]}
    names = {name: task.get_name() if hasattr(task, "get_name") else None for name, task in tasks.items()}
    facts = {
        "pid": os.getpid(),
        "tasks": {name: {"id": hex(id(task)), "name": names[name], "stack": chain(task)} for name, task in tasks.items() if not task.done()},
        "edges": edges,
        "states": states,
        "blocks": block.__code__.co_firstlineno + 1,
        "all": len(asyncio.all_tasks()) if hasattr(asyncio, "all_tasks") else None,
    }
    print(json.dumps(facts), flush=True)
    block()


if sys.argv[1:] == ["uvloop"]:
    import uvloop

    uvloop.install()
asyncio.run(main())
