"""meminfos.py LIBRARY: makes and frees MemInfos, and prints how many."""
import ctypes
import json
import sys
import time

from timing import until_known

library = ctypes.CDLL(sys.argv[1])
library.NRT_MemInfo_alloc.restype = ctypes.c_void_p
library.NRT_MemInfo_alloc.argtypes = [ctypes.c_size_t]
library.NRT_dealloc.argtypes = [ctypes.c_void_p]


def churn(count):
    for size in range(1, count + 1):
        library.NRT_dealloc(library.NRT_MemInfo_alloc(size))


def leak(count):
    for size in range(1, count + 1):
        library.NRT_MemInfo_alloc(size)


until_known(1)
churn(500)
leak(20)
time.sleep(1)
print(json.dumps({"born": 520, "died": 500, "live": 20}))
