"""second_mapping.py: maps a page of the interpreter's own code a second time, executable and at a lower address. Then burns two
seconds of its CPU time, and prints how much it was.
"""
import ctypes
import mmap
import os
import sys
import time

MAP_FIXED_NOREPLACE = 0x100000
LOW = 0x10000000


def code():
    """The interpreter's file, and the offset of a page in the middle of its code."""
    program = os.path.realpath(sys.executable)
    with open("/proc/self/maps") as maps:
        rows = [line.split() for line in maps]
    own = [row for row in rows if "x" in row[1] and len(row) > 5 and ("libpython" in row[5] or row[5] == program)]
    row = sorted(own, key=lambda row: "libpython" not in row[5])[0]
    start, end = (int(address, 16) for address in row[0].split("-"))
    return row[5], int(row[2], 16) + ((end - start) // 2 & ~(mmap.PAGESIZE - 1))


def burn(seconds):
    while time.process_time() < seconds:
        sum(range(10000))


path, offset = code()
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
with open(path, "rb") as file:
    flags = mmap.MAP_PRIVATE | MAP_FIXED_NOREPLACE
    at = libc.mmap(LOW, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC, flags, file.fileno(), offset)
if at != LOW:
    sys.exit("mmap: " + os.strerror(ctypes.get_errno()))
print("ready", flush=True)
begun = time.process_time()
burn(begun + 2)
print(time.process_time() - begun, flush=True)
