"""late_code.py HOW LIBRARY OTHER SECONDS: runs code of a file that is mapped late, without a loader.

A second after the start it maps OTHER, a copy of LIBRARY, executable by mmap, or makes it executable by mprotect or
pkey_mprotect, and burns CPU time in its function late_code.
"""
import ctypes
import os
import sys
import time

how, library, other, seconds = sys.argv[1:]
CALLS = {"mprotect": 10, "pkey_mprotect": 329}
PROT_READ, PROT_EXEC, MAP_PRIVATE, NO_KEY = 1, 4, 2, -1
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long, ctypes.c_long]

# The offset of the function in the file.
address = ctypes.cast(ctypes.CDLL(library).late_code, ctypes.c_void_p).value
for line in open("/proc/self/maps"):
    place, rights, offset = line.split()[:3]
    start, end = (int(part, 16) for part in place.split("-"))
    if start <= address < end:
        offset, size = int(offset, 16), end - start
        break

time.sleep(1)
fd = os.open(other, os.O_RDONLY)
at = libc.mmap(None, size, PROT_READ | (PROT_EXEC if how == "mmap" else 0), MAP_PRIVATE, fd, offset)
os.close(fd)
if how in CALLS and libc.syscall(CALLS[how], at, size, PROT_READ | PROT_EXEC, NO_KEY):
    sys.exit(os.strerror(ctypes.get_errno()))
function = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_ulong)(at + address - start)
until = time.thread_time() + float(seconds)
while time.thread_time() < until:
    function(1000000)
