"""many_mappings.py MAPS SECONDS: maps one file MAPS times, with alternating protections so that the kernel cannot merge them.

Then burns CPU time while it maps and unmaps a page 100 times a second. Prints its number of mappings and `ready`, and at the end
its CPU seconds since then."""

import ctypes
import json
import sys
import tempfile
import time

MAPS, SECONDS = int(sys.argv[1]), float(sys.argv[2])
READ, CODE, PRIVATE, FIXED, ANONYMOUS = 1, 5, 2, 0x10, 0x20
PAGE = 4096

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

file = tempfile.TemporaryFile()
file.write(bytes(PAGE))
file.flush()


def take(address, protection, flags):
    page = libc.mmap(address, PAGE, protection, PRIVATE | flags, file.fileno(), 0)
    if page in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    return page


base = libc.mmap(None, PAGE * (MAPS + 1), 0, PRIVATE | ANONYMOUS, -1, 0)
for number in range(MAPS):
    take(base + PAGE * number, CODE if number % 2 else READ, FIXED)
with open("/proc/self/maps") as maps:
    print(sum(1 for _ in maps), flush=True)
print("ready", flush=True)


def hot_function():
    total = 0
    for number in range(20_000):
        total += number * number
    return total


begun, end = time.process_time(), time.monotonic() + SECONDS
due = time.monotonic()
while time.monotonic() < end:
    hot_function()
    while time.monotonic() > due:
        libc.munmap(take(None, CODE, 0), PAGE)
        due += 0.01
print(json.dumps({"cpu_s": time.process_time() - begun}), flush=True)
