"""Objects in arenas of a library, compared with what the library itself counts.

pool LIBRARY      arenas of the library built from pool.c: one that ends, one that does not, one in a shared segment, and one in
                  memory of CPython's own arenas
replaced LIBRARY OTHER HOW  the same, after OTHER has replaced the library on disk: by rename, or by unlink and another file
                  with its name
quelling FOLDER   arenas of the package in the folder: three without escaping objects, one that its last object ends, one that
                  is closed again after its objects died, one that is lost
often LIBRARY     objects created and freed as fast as possible, until SIGUSR2
numpy             arrays, some of which live to the end; tracemalloc counts them as well
pyarrow           buffers; the pool counts their bytes
"""
import ctypes
import json
import os
import signal
import sys
import time
import warnings

# pyobs knows a module some milliseconds after it was imported.
SETTLE = 1.0
# Objects that live to the end.
kept = []


def settle():
    """Waits until a recording covers what has been imported."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print("ready", flush=True)
    signal.sigwait([signal.SIGUSR1])
    time.sleep(SETTLE)


def quelling(folder):
    sys.path.insert(0, folder)
    warnings.simplefilter("ignore")
    import quelling_blade as qb

    def work():
        return [qb.Node() for _ in range(20)]

    def clean():
        with qb.Arena(qb.Node, 256):
            work()

    def last_owner():
        qb.set_fixed(True)
        with qb.Arena(qb.Node, 512):
            kept = work()[:4]
        qb.set_fixed(False)
        del kept

    def late():
        arena = qb.Arena(qb.Node, 256)
        with arena:
            kept = work()[:3]
        del kept

    def lose():
        with qb.Arena(qb.Node, 256):
            kept = work()[:2]
        kept += [qb.Node() for _ in range(6)]
        del kept

    time.sleep(SETTLE)
    outside = [qb.Node() for _ in range(5)]
    del outside
    for _ in range(3):
        clean()
    last_owner()
    late()
    lose()
    return qb.counts()


def pool(path):
    library = ctypes.CDLL(path)
    pointer = ctypes.c_void_p
    library.pool_open.restype = library.pool_take.restype = pointer
    library.pool_open.argtypes = [ctypes.c_size_t, ctypes.c_uint32]
    library.pool_grow.argtypes = [ctypes.POINTER(pointer), ctypes.c_uint32]
    library.pool_take.argtypes = [pointer, ctypes.c_uint32]
    library.pool_give.argtypes = [pointer, pointer]
    library.pool_close.argtypes = [pointer]
    time.sleep(SETTLE)
    addresses = []
    for size, taken, given in [(4096, 9, 9), (8192, 5, 2)]:
        made = library.pool_open(0, size)
        library.pool_grow(ctypes.byref(pointer(made)), 1000)
        objects = [library.pool_take(made, 16) for _ in range(taken)]
        for taken in objects[:given]:
            library.pool_give(taken, made)
        if given == len(objects):
            library.pool_close(made)
        addresses.append(hex(made))
    import mmap

    library.pool_place.argtypes = [pointer, ctypes.c_uint32]
    library.pool_place.restype = None
    segment = mmap.mmap(-1, 8192)
    small = ctypes.create_string_buffer(64)
    placed = [ctypes.addressof(ctypes.c_char.from_buffer(segment, 512)), ctypes.addressof(small)]
    for address in placed:
        library.pool_place(address, 48)
    kept.extend([segment, small])
    time.sleep(0.5)
    return {"addresses": addresses, "placed": [hex(address) for address in placed]}


def replaced(path, other, how):
    library = ctypes.CDLL(path)
    if how == "rename":
        os.rename(other, path)
    else:
        os.unlink(path)
        with open(other, "rb") as source, open(path, "wb") as target:
            target.write(source.read())
    settle()
    return take(library)


def take(library):
    """Three of five objects of one arena die."""
    pointer = ctypes.c_void_p
    library.pool_open.restype = library.pool_take.restype = pointer
    library.pool_open.argtypes = [ctypes.c_size_t, ctypes.c_uint32]
    library.pool_take.argtypes = [pointer, ctypes.c_uint32]
    library.pool_give.argtypes = [pointer, pointer]
    made = library.pool_open(0, 4096)
    objects = [library.pool_take(made, 16) for _ in range(5)]
    for taken in objects[:3]:
        library.pool_give(taken, made)
    return {"address": hex(made), "born": 5, "dead": 3}


def often(path):
    library = ctypes.CDLL(path)
    ended = []
    signal.signal(signal.SIGUSR2, lambda *_: ended.append(True))
    settle()
    result = take(library)
    made = int(result["address"], 16)
    while not ended:
        for _ in range(100):
            library.pool_give(library.pool_take(made, 0), made)
        result["born"] += 100
        result["dead"] += 100
    return result


def numpy():
    import tracemalloc

    import numpy as np

    domain = (np.lib.tracemalloc_domain if hasattr(np.lib, "tracemalloc_domain") else 389047)
    settle()
    tracemalloc.start()
    kept[:] = [np.empty(1000 + index) for index in range(50)] + [np.zeros(77), np.full(5, 1.0)]
    for index in range(200):
        np.ones(index + 1)
    kept[0].resize(9000, refcheck=False)
    traces = tracemalloc.take_snapshot().traces
    sizes = [trace.size for trace in traces if trace.domain == domain]
    return {"live": len(sizes), "bytes": sum(sizes)}


def pyarrow():
    import pyarrow as pa

    settle()
    before = pa.total_allocated_bytes()
    kept[:] = [pa.allocate_buffer(1000 + index) for index in range(20)]
    for index in range(50):
        pa.allocate_buffer(64 + index)
    grown = pa.allocate_buffer(100, resizable=True)
    grown.resize(100_000)
    kept.append(grown)
    return {"bytes": pa.total_allocated_bytes() - before, "live": len(kept), "all": len(kept) + 50}


warnings.simplefilter("ignore")
mode = {"pool": pool, "replaced": replaced, "often": often, "quelling": quelling, "numpy": numpy, "pyarrow": pyarrow}[sys.argv[1]]
result = mode(*sys.argv[2:])
print(json.dumps(result), flush=True)
time.sleep(0.3)
os._exit(0)
