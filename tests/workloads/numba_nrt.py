"""numba_nrt.py [all|wait|leak]: uses Numba's arrays, lists and strings, prints Numba's own statistics, and may leak one array."""
import os, sys, numpy as np, numba
from numba import njit
from numba.core.runtime import rtsys, _nrt_python as n
st = lambda: list(rtsys.get_allocation_stats()) if n.memsys_stats_enabled() else [0]*4

@njit
def make(n):
    a = np.ones(n)
    b = np.zeros(n)
    return a + b

@njit
def churn(k, n):
    s = 0.0
    for i in range(k):
        t = np.empty(n)
        t[0] = i
        s += t[0]
    return s

@njit
def lst(n):
    l = [1]
    for i in range(n): l.append(i)
    return l

@njit
def strs(n):
    s = ""
    for i in range(n):
        s = s + "ab"
    return len(s)

phase = sys.argv[1] if len(sys.argv) > 1 else "all"
make(4); churn(2, 4); strs(2); lst(2)      # compile
print("pid", os.getpid(), "numba", numba.__version__, st(), flush=True)
if phase == "wait": input("ready\n")
s0 = st()
keep = make(1000)             # 1 survivor
churn(50, 256)                # 50 alloc / 50 free
lst(100)
strs(20)
from numba.core.runtime import _nrt_python as n
s1 = st()
print("delta", [b - a for a, b in zip(s0, s1)], type(keep.base), keep.base.refcount, hex(keep.ctypes.data), flush=True)
v = keep[10:]
print("refs", keep.base.refcount)
del keep, v
print("after del", [b - a for a, b in zip(s0, st())], flush=True)
if phase == "leak":
    # an intended leak: acquire without release
    k2 = make(5000)
    k2.base.acquire()
    del k2
    print("leaked one", [b - a for a, b in zip(s0, st())], flush=True)
