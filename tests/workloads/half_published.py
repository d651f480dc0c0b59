"""half_published.py: children that stay forever at the point where CPython 3.11 and 3.12 are about to run a frame.

The thread's `_PyCFrame` is published there but not filled in yet: it points to whatever that memory held. In each child that
is something else, which the child prepares and its parent writes. Prints a line of JSON for each child: {"kind": ...,
"pid": ..., "frames": [[function, file, line], ...]}, root first, with the frames that it runs; then "ready".
"""
import ctypes
import json
import os
import signal
import sys
import time

WORD = ctypes.sizeof(ctypes.c_void_p)
# Include/cpython/pystate.h, Include/internal/pycore_frame.h.
CFRAME = 7 * WORD
FRAME_SIZE = 9 * WORD
if sys.version_info[:2] == (3, 11):
    CURRENT, CODE, PREVIOUS, IS_ENTRY = WORD, 4 * WORD, 6 * WORD, 68
else:
    CURRENT, CODE, PREVIOUS, IS_ENTRY = 0, 0, WORD, None

EVAL = ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, ctypes.c_void_p).value
state = ctypes.pythonapi.PyThreadState_Get
state.restype = ctypes.c_void_p
UNMAPPED, NON_CANONICAL, NO_CODE = 0x100000, 0xDEAD0000DEADBEE8, 0xFFFFFFFF
RANDOM = bytes((17 * n * n + 31 * n) % 251 for n in range(4096))
JUMP_TO_ITSELF = b"\xeb\xfe"


def place_behind_publishing():
    """The address after `mov %rXX, 0x38(%rYY)`, which is `tstate->cframe = &cframe`."""
    code = ctypes.string_at(EVAL, 256)
    for at in range(len(code) - 4):
        rex, opcode, operands, offset = code[at:at + 4]
        is_move = rex & 0xF8 == 0x48 and opcode == 0x89 and operands & 0xC0 == 0x40
        if is_move and operands & 7 not in (4, 5) and offset == CFRAME:
            return EVAL + at + 4
    sys.exit("this interpreter's loop does not start as expected")


def address_of(frame):
    """The interpreter's own frame, behind PyObject_HEAD and f_back in PyFrameObject, which is f_frame."""
    return ctypes.c_uint64.from_address(id(frame) + 3 * WORD).value


class Stale:
    """Memory that looks like the frame of a function that has returned."""

    def __init__(self, previous=None, code=None, is_entry=False):
        self.memory = ctypes.create_string_buffer(has_returned(), FRAME_SIZE)
        self.address = ctypes.addressof(self.memory)
        self.put(PREVIOUS, self.address if previous is None else previous)
        if code is not None:
            self.put(CODE, code)
        if IS_ENTRY is not None:
            self.memory[IS_ENTRY] = bytes([is_entry])

    def put(self, offset, value):
        ctypes.c_uint64.from_address(self.address + offset).value = value


def has_returned():
    return ctypes.string_at(address_of(sys._getframe()), FRAME_SIZE)


def suspended():
    yield address_of(sys._getframe())


kept = []


def keep(thing):
    kept.append(thing)
    return thing


def stale(*arguments, **more):
    return keep(Stale(*arguments, **more)).address


# What the `_PyCFrame` points to, given the running frame and its caller.
KINDS = {
    "nothing": lambda running, caller: 0,
    "unmapped": lambda running, caller: UNMAPPED,
    "non_canonical": lambda running, caller: NON_CANONICAL,
    "random": lambda running, caller: ctypes.addressof(keep(ctypes.create_string_buffer(RANDOM))),
    "the_frame_that_runs": lambda running, caller: running,
    "its_caller": lambda running, caller: caller,
    "stale_upon_the_one_that_runs": lambda running, caller: stale(running),
    "stale_in_a_cycle": lambda running, caller: stale(),
    "stale_without_code": lambda running, caller: stale(code=NO_CODE),
    "stale_upon_nothing": lambda running, caller: stale(0),
    "stale_upon_the_unmapped": lambda running, caller: stale(UNMAPPED),
    "stale_entry_upon_nothing": lambda running, caller: stale(0, is_entry=True),
    "stale_entry_upon_another": lambda running, caller: stale(stale(0), is_entry=True),
    "suspended_generator": lambda running, caller: next(keep(suspended())),
}


def note(frame, **more):
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), os.path.basename(code.co_filename), frame.f_lineno])
        frame = frame.f_back
    return json.dumps(dict(more, pid=os.getpid(), frames=frames[::-1])).encode() + b"\n"


def never_begins(item):
    raise AssertionError


def runs(kind):
    frame, place, cframe = sys._getframe(), place_behind_publishing(), state() + CFRAME
    about = {
        "kind": kind, "garbage": KINDS[kind](address_of(frame), address_of(frame.f_back)),
        "cframe": cframe, "outer": ctypes.c_uint64.from_address(cframe).value,
    }
    code, write, send = os.open("/proc/self/mem", os.O_WRONLY), os.pwrite, os.write
    # sorted() is the first of these to enter the interpreter's loop again.
    send(REPORTS, note(frame, **about)); write(code, JUMP_TO_ITSELF, place); sorted([1], key=never_begins)


def word_of(memory, address):
    return int.from_bytes(os.pread(memory, WORD, address), "little")


def spoil(child):
    """Waits until a child has reached its place, and writes its garbage there."""
    memory = os.open("/proc/%d/mem" % child["pid"], os.O_RDWR)
    while word_of(memory, child["cframe"]) == child["outer"]:
        time.sleep(0.001)
    cframe = word_of(memory, child["cframe"])
    # The field after it, `previous`, is not filled in either.
    os.pwrite(memory, child["garbage"].to_bytes(WORD, "little") + UNMAPPED.to_bytes(WORD, "little"), cframe + CURRENT)
    os.close(memory)


signal.alarm(300)
reading, REPORTS = os.pipe()
with open(reading, "rb") as reports:
    for kind in KINDS:
        if os.fork() == 0:
            # A limit, in case this program is not killed.
            signal.alarm(300)
            sorted([kind], key=runs)
        child = json.loads(reports.readline())
        spoil(child)
        print(json.dumps(child))
print("ready", flush=True)
time.sleep(300)
