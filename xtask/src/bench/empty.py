"""empty.py TRACEPOINT... FILE: BPF programs that do nothing, at raw tracepoints, to measure what having any program costs.

Creates FILE once they are attached, and waits to be stopped.
"""
import ctypes, os, signal, struct, sys

BPF, PROG_LOAD, RAW_TRACEPOINT_OPEN, RAW_TRACEPOINT = 321, 5, 17, 17
# r0 = 0; exit
NOTHING = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)


def text(data):
    """The address of a buffer that lives as long as the program."""
    kept.append(ctypes.create_string_buffer(data, len(data)))
    return ctypes.addressof(kept[-1])


def bpf(command, attributes):
    found = ctypes.CDLL(None, use_errno=True).syscall(BPF, command, ctypes.c_void_p(text(attributes)), len(attributes))
    if found < 0:
        sys.exit("bpf %d: %s" % (command, os.strerror(ctypes.get_errno())))
    return found


kept = []
for name in sys.argv[1:-1]:
    # union bpf_attr of include/uapi/linux/bpf.h: type, number of instructions, their address, the license.
    program = bpf(PROG_LOAD, struct.pack("<IIQQ96x", RAW_TRACEPOINT, len(NOTHING) // 8, text(NOTHING), text(b"GPL\0")))
    bpf(RAW_TRACEPOINT_OPEN, struct.pack("<QI4x", text(name.encode() + b"\0"), program))
open(sys.argv[-1], "w").close()
signal.pause()
