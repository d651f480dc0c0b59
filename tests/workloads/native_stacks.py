"""Programs whose native stacks have a particular shape. The environment variable STACKS names one, with an argument after a
colon. Prints "ready", works until it is killed, and ends by itself after two minutes."""
import os
import sys
import time

deadline = time.time() + 120
name, _, argument = os.environ["STACKS"].partition(":")
sys.setrecursionlimit(100000)


def ready():
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def spin(count=200):
    total = 0
    for number in range(count):
        total += number * number
    return total


def while_time(work):
    ready()
    while time.time() < deadline:
        work()


def recursion(n=30):
    return spin() if n <= 0 else recursion(n - 1) + 1


def depth():
    """Burns below this many Python frames, counting the module's, while_time's and so on."""
    frames = int(argument)

    def down(n):
        if n > 0:
            return down(n - 1)
        ready()
        while time.time() < deadline:
            spin(20000)

    if frames <= 3:
        # The module and this function are two frames.
        ready()
        while time.time() < deadline:
            sum(range(20000))
    down(frames - 3)


def through_c():
    """Each level goes through a C function."""

    def down(n):
        if n > 0:
            return max(map(down, (n - 1,)))
        ready()
        while time.time() < deadline:
            sum(range(20000))

    down(int(argument))


def sort():
    data = [(k * 7919) % 1009 for k in range(300)]
    while_time(lambda: sorted(data, key=lambda k: spin(5) - k))


def json_():
    import json
    data = {"a": list(range(100)), "b": {str(k): k / 3 for k in range(100)}, "c": ["x" * k for k in range(50)]}

    def work():
        json.loads(json.dumps(data, indent=1), object_hook=lambda pairs: pairs)
        json.loads(json.dumps(data))

    while_time(work)


def re_():
    import re
    text = "".join("word%d, " % k for k in range(300))

    def work():
        re.sub(r"(\w+?)(\d+)", lambda match: match.group(2), text)
        re.search(r"(a|ab|w.*)*c.*z", text[:60])

    while_time(work)


def sqlite():
    import sqlite3
    base = sqlite3.connect(":memory:")
    base.create_function("double", 1, lambda value: value * 2)
    base.execute("create table t (a, b)")
    base.executemany("insert into t values (?, ?)", [(k, str(k)) for k in range(2000)])
    while_time(lambda: base.execute("select sum(double(a)), max(b) from t where b like '%1%' order by b").fetchall())


def zlib_():
    import zlib
    data = bytes(k * k % 251 for k in range(100000))
    while_time(lambda: zlib.decompress(zlib.compress(data)))


def hashes():
    import hashlib
    data = bytes(200000)

    def work():
        for kind in ("md5", "sha1", "sha256", "sha512", "blake2b", "sha3_256"):
            hashlib.new(kind, data).digest()
        hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 300)

    while_time(work)


def tls():
    """Handshakes and data between two ends in memory, with ciphers that need no certificate."""
    import ssl

    def end(server):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.options |= ssl.OP_NO_TLSv1_3
        context.set_ciphers("aNULL:@SECLEVEL=0")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        return context.wrap_bio(incoming, outgoing, server_side=server), incoming, outgoing

    def work():
        (client, client_in, client_out), (server, server_in, server_out) = end(False), end(True)
        waiting = {client, server}
        while waiting:
            for one in list(waiting):
                try:
                    one.do_handshake()
                    waiting.discard(one)
                except ssl.SSLWantReadError:
                    pass
                server_in.write(client_out.read())
                client_in.write(server_out.read())
        for _ in range(20):
            client.write(bytes(10000))
            server_in.write(client_out.read())
            server.read(10000)

    while_time(work)


def qsort():
    import ctypes
    libc = ctypes.CDLL(None)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int), ctypes.c_void_p)
    compare = kind(lambda left, right, _: left[0] - right[0])
    values = [(k * 7919) % 1009 for k in range(200)]

    def work():
        array = (ctypes.c_int * len(values))(*values)
        libc.qsort_r(array, ctypes.c_size_t(len(values)), ctypes.c_size_t(4), compare, None)

    while_time(work)


def callbacks():
    import ctypes
    kind = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)
    back = kind(lambda n: spin(30) if n <= 0 else back(n - 1) + 1)
    while_time(lambda: back(4))


def generators():
    def numbers(n):
        if n <= 0:
            yield from range(20)
        else:
            for number in numbers(n - 1):
                yield number + spin(5)

    while_time(lambda: sum(number for number in numbers(6)))


def coroutines():
    import asyncio

    async def inner(n):
        if n <= 0:
            await asyncio.sleep(0)
            return spin(50)
        return await inner(n - 1)

    async def outer():
        ready()
        while time.time() < deadline:
            await asyncio.gather(*[inner(5) for _ in range(10)])

    asyncio.get_event_loop_policy().new_event_loop().run_until_complete(outer())


def signals():
    import signal
    signal.signal(signal.SIGALRM, lambda *_: spin(300))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    while_time(lambda: sorted(range(300), key=lambda k: -k))


def threads():
    import threading
    for _ in range(3):
        threading.Thread(target=lambda: while_time(mixed), daemon=True).start()
    while_time(mixed)


def mixed():
    import re
    recursion(20)
    sorted(range(50), key=lambda k: (spin(3), -k))
    re.sub(r"\d", lambda match: "x", "a1b2c3" * 10)
    sum(number for number in range(100))


def numpy_():
    import numpy
    numbers = numpy.random.rand(120, 120)

    def work():
        numpy.sort(numbers, axis=None)
        numpy.sin(numbers)
        numpy.einsum("ij,jk->ik", numbers[:30, :30], numbers[:30, :30])
        numpy.fft.fft2(numbers)
        numpy.apply_along_axis(lambda row: row.sum(), 0, numbers[:20, :20])
        numbers.astype("float32").cumsum()
        numpy.frompyfunc(lambda value: value + 1, 1, 1)(numbers[0])

    while_time(work)


def blas():
    import numpy
    numbers = numpy.random.rand(120, 120)

    def work():
        numpy.linalg.svd(numbers[:40, :40])
        numbers @ numbers

    while_time(work)


def later():
    """Loads libraries while the program runs."""
    until = time.time() + float(argument)
    ready()
    while time.time() < until:
        spin()
    import bz2
    import decimal
    import lzma
    data = bytes(k * k % 251 for k in range(20000))
    print("loaded")
    while time.time() < deadline:
        bz2.decompress(bz2.compress(data))
        lzma.decompress(lzma.compress(data, preset=1))
        sum(decimal.Decimal(k) / 7 for k in range(200))


def kernel():
    """Spends most of its time in the kernel: in system calls, and touching pages for the first time."""
    import mmap
    length, page = 1 << 20, mmap.PAGESIZE
    zero, touched = os.open("/dev/zero", os.O_RDONLY), bytes(length // page)

    def work():
        for _ in range(50):
            os.stat("/proc/self/status")
        with mmap.mmap(-1, length) as memory:
            os.readv(zero, [memory])
        with mmap.mmap(-1, length) as memory:
            memory[::page] = touched

    while_time(work)


def clocks():
    def work():
        for _ in range(1000):
            time.time()
            time.monotonic()

    while_time(work)


def jit():
    """Runs code without a file or tables that keeps frame pointers: it calls back, and loops by itself."""
    import ctypes
    import mmap
    kind = ctypes.CFUNCTYPE(ctypes.c_long)
    back = kind(lambda: spin(100))
    address = ctypes.cast(back, ctypes.c_void_p).value
    code = (
        b"\x55\x48\x89\xe5"  # push rbp; mov rbp, rsp
        + b"\x48\xb8" + address.to_bytes(8, "little")  # mov rax, address
        + b"\xff\xd0"  # call rax
        + b"\xb9\x00\x20\x00\x00"  # mov ecx, 8192
        + b"\xff\xc9\x75\xfc"  # dec ecx; jne back by 4
        + b"\x5d\xc3"  # pop rbp; ret
    )
    page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    outer = kind(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    while_time(outer)


def born_in_c():
    import ctypes
    libc = ctypes.CDLL(None)
    started = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: while_time(mixed))
    thread = ctypes.c_ulong()
    for _ in range(2):
        assert libc.pthread_create(ctypes.byref(thread), None, started, None) == 0
    libc.pthread_join(thread, None)


def library():
    """Calls the function `run` of one of the tests' libraries, which calls back."""
    import ctypes
    loaded = ctypes.CDLL(argument)
    kind = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)
    back = kind(lambda n: spin(20) + n)
    while_time(lambda: loaded.run(back))


def all_of_it():
    """Several kinds of work in turn."""
    import json
    import re
    import zlib

    def work():
        mixed()
        json.loads(json.dumps({"a": list(range(50))}, indent=1))
        re.search(r"(a|ab|w.*)*c.*z", "word and word")
        zlib.compress(bytes(5000))

    while_time(work)


kinds = {"sorted": sort, "json": json_, "re": re_, "sqlite3": sqlite, "zlib": zlib_, "numpy": numpy_, "mixed": all_of_it}
if name == "recursion":
    while_time(recursion)
else:
    (kinds.get(name) or globals()[name])()
