"""stuck_files.py SECONDS: maps ten files of a file system that has stopped answering, as libraries are mapped.

It is a FUSE file system, served by a child that is stopped after that. Prints `ready`, computes for SECONDS in `beside_them`, and
ends. It mounts in a namespace of its own, so it must run as root."""
import ctypes
import mmap
import os
import signal
import struct
import sys
import time

# include/uapi/linux/fuse.h, protocol 7.31.
LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, BATCH_FORGET = 1, 2, 3, 14, 15, 26, 42
ROOT, FILES, SIZE, MOUNTED = 1, 10, 16 * 4096, "/mnt"
CLONE_NEWNS, MS_REC, MS_PRIVATE, PR_SET_PDEATHSIG = 0x20000, 0x4000, 1 << 18, 1
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    if getattr(libc, name)(*arguments) != 0:
        sys.exit("%s failed: %s" % (name, os.strerror(ctypes.get_errno())))


def attributes(node):
    mode = 0o40755 if node == ROOT else 0o100755
    size = 0 if node == ROOT else SIZE
    return struct.pack("6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def serve(fuse):
    """Answers until it is stopped. Answers expire at once, so that the kernel asks again each time."""
    while True:
        request = os.read(fuse, 1 << 20)
        _, operation, unique, node = struct.unpack_from("IIQQ", request)
        error, answer = 0, b""
        if operation in (FORGET, BATCH_FORGET):
            continue
        if operation == INIT:
            answer = struct.pack("4I2H2I2H8I", 7, 31, 1 << 16, 0, 16, 12, 1 << 16, 1, 16, 0, *[0] * 8)
        elif operation == LOOKUP:
            child = ROOT + 1 + int(request[40:-1])
            answer = struct.pack("4Q2I", child, 0, 0, 0, 0, 0) + attributes(child)
        elif operation == GETATTR:
            answer = struct.pack("Q2I", 0, 0, 0) + attributes(node)
        elif operation == OPEN:
            answer = struct.pack("Q2I", 0, 0, 0)
        elif operation == READ:
            offset, length = struct.unpack_from("QI", request, 48)
            answer = bytes(max(0, min(length, SIZE - offset)))
        else:
            error = -38
        os.write(fuse, struct.pack("IiQ", 16 + len(answer), error, unique) + answer)


def beside_them(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def main():
    call("unshare", CLONE_NEWNS)
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = "fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
    call("mount", b"pyobs-test", MOUNTED.encode(), b"fuse", 0, options.encode())
    server = os.fork()
    if server == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        serve(fuse)
    os.close(fuse)
    mapped = []
    for number in range(FILES):
        with open("%s/%d" % (MOUNTED, number), "rb") as file:
            mapped.append(mmap.mmap(file.fileno(), SIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
    os.kill(server, signal.SIGSTOP)
    print("ready", flush=True)
    beside_them(float(sys.argv[1]))
    os.kill(server, signal.SIGKILL)


main()
