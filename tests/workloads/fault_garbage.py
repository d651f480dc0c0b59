"""Damages the frames of its own threads, each in a different way, and keeps them on a CPU in C forever.

  fault_garbage.py        prints `KIND TID` for each damaged thread, `healthy TID`, then `ready`

A damaged thread never returns to Python, so that only a profiler reads its frames: it spins in libcrypt with billions of
rounds, without the GIL. One more thread runs Python code undisturbed.
"""
import ctypes
import gc
import signal
import sys
import threading
import time

WORD = ctypes.sizeof(ctypes.c_void_p)
VERSION = sys.version_info[:2]
HEAD = 2 * WORD

gc.disable()
# A limit, in case this program is not killed.
signal.alarm(300)


def libcrypt():
    try:
        return ctypes.CDLL("libcrypt.so.1")
    except OSError:
        return ctypes.CDLL("libcrypt.so.2")


crypt = libcrypt().crypt
crypt.restype = ctypes.c_void_p
crypt.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
libc = ctypes.CDLL(None)
FOR_EVER = b"$6$rounds=999999999$saltsalt"


def word(address):
    return ctypes.c_uint64.from_address(address)


# Include/internal/pycore_frame.h, Include/frameobject.h.
if VERSION <= (3, 10):
    # PyFrameObject: PyObject_VAR_HEAD, f_back, f_code.
    PREVIOUS, CODE = HEAD + WORD, HEAD + 2 * WORD
elif VERSION == (3, 11):
    CODE, PREVIOUS = 4 * WORD, 6 * WORD
else:
    CODE, PREVIOUS = 0, WORD


def address_of(frame):
    """The address of the frame that the interpreter itself walks."""
    if VERSION <= (3, 10):
        return id(frame)
    # PyFrameObject: PyObject_HEAD, f_back, f_frame.
    return word(id(frame) + HEAD + WORD).value


random_bytes = ctypes.create_string_buffer(bytes((17 * n * n + 31 * n) % 251 for n in range(1 << 16)))
RANDOM = ctypes.addressof(random_bytes) & ~15
UNMAPPED = 0x100000
KERNEL = 0xFFFFFFFF81000000
NON_CANONICAL = 0xDEAD0000DEADBEE8
TEXT = ctypes.cast(libc.qsort, ctypes.c_void_p).value & ~15

DAMAGE = {
    "cycle": lambda frame: (PREVIOUS, frame),
    "unmapped": lambda frame: (PREVIOUS, UNMAPPED),
    "non_canonical": lambda frame: (PREVIOUS, NON_CANONICAL),
    "kernel": lambda frame: (PREVIOUS, KERNEL),
    "random": lambda frame: (PREVIOUS, RANDOM + 4096),
    "misaligned": lambda frame: (PREVIOUS, RANDOM + 4099),
    "text": lambda frame: (PREVIOUS, TEXT),
    "code_unmapped": lambda frame: (CODE, UNMAPPED),
    "code_random": lambda frame: (CODE, RANDOM + 4096),
    "code_text": lambda frame: (CODE, TEXT),
    "code_no_code": lambda frame: (CODE, id(DAMAGE)),
}


def tid():
    return threading.get_native_id() if hasattr(threading, "get_native_id") else libc.syscall(186)


def damaged(kind):
    damaged_leaf(kind)


def damaged_leaf(kind):
    arguments = (b"x", FOR_EVER)
    frame = address_of(sys._getframe())
    where, what = DAMAGE[kind](frame)
    started.append((kind, tid()))
    place = word(frame + where)
    call = crypt
    place.value = what
    call(*arguments)


def healthy():
    started.append(("healthy", tid()))
    while True:
        healthy_leaf(10000)


def healthy_leaf(count):
    for number in range(count):
        pass


kinds = sys.argv[1:] or list(DAMAGE)
started = []
for kind in kinds:
    threading.Thread(target=damaged, args=(kind,), daemon=True).start()
threading.Thread(target=healthy, daemon=True).start()
while len(started) < len(kinds) + 1:
    time.sleep(0.01)
for kind, number in started:
    print(kind, number)
print("ready", flush=True)
while True:
    time.sleep(60)
