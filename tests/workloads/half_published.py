"""half_published.py: children that stay for ever where CPython 3.11 and 3.12 are about to run a frame.

The thread's `_PyCFrame` is published there and not filled in yet: it points to whatever lay in that memory. In each child that is
something else, which the child has made ready and its parent writes. Prints for each child a line of JSON: {"kind": ...,
"pid": ..., "frames": [[function, file, line], ...]}, root first, which are the frames that it runs; then "ready".
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
    """Behind `mov %rXX, 0x38(%rYY)`, which is `tstate->cframe = &cframe`."""
    code = ctypes.string_at(EVAL, 256)
    for at in range(len(code) - 4):
        rex, opcode, operands, offset = code[at:at + 4]
        is_move = rex & 0xF8 == 0x48 and opcode == 0x89 and operands & 0xC0 == 0x40
        if is_move and operands & 7 not in (4, 5) and offset == CFRAME:
            return EVAL + at + 4
    sys.exit("this interpreter's loop does not begin as it should")


def address_of(frame):
    """PyFrameObject: PyObject_HEAD, f_back, f_frame."""
    return ctypes.c_uint64.from_address(id(frame) + 3 * WORD).value


class Stale:
    """What looks like a frame, of a function that has returned."""

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


# What the `_PyCFrame` points to, where this is the frame that runs, and this its caller.
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
    code, write, tell = os.open("/proc/self/mem", os.O_WRONLY), os.pwrite, os.write
    # The last of these is the first to enter the loop again.
    tell(TOLD, note(frame, **about)); write(code, JUMP_TO_ITSELF, place); sorted([1], key=never_begins)


def word_of(memory, address):
    return int.from_bytes(os.pread(memory, WORD, address), "little")


def spoil(said):
    """Waits until a child is where it stays, and puts its garbage there."""
    memory = os.open("/proc/%d/mem" % said["pid"], os.O_RDWR)
    while word_of(memory, said["cframe"]) == said["outer"]:
        time.sleep(0.001)
    cframe = word_of(memory, said["cframe"])
    # What follows, `previous`, is not filled in either.
    os.pwrite(memory, said["garbage"].to_bytes(WORD, "little") + UNMAPPED.to_bytes(WORD, "little"), cframe + CURRENT)
    os.close(memory)


signal.alarm(300)
heard, TOLD = os.pipe()
with open(heard, "rb") as heard:
    for kind in KINDS:
        if os.fork() == 0:
            # Nobody waits longer.
            signal.alarm(300)
            sorted([kind], key=runs)
        said = json.loads(heard.readline())
        spoil(said)
        print(json.dumps(said))
print("ready", flush=True)
time.sleep(300)
