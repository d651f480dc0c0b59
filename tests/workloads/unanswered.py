"""unanswered.py SECONDS: a function whose file name lies partly in a page that a userfaultfd(2) serves but never delivers.

The program itself never reads it. Prints `ready`, computes for SECONDS of CPU time in `unanswered`, and ends."""
import ctypes
import fcntl
import os
import struct
import sys
import time

PAGE = 4096
SYS_USERFAULTFD, UFFD_API, UFFDIO_API, UFFDIO_REGISTER, MISSING = 323, 0xAA, 0xC018AA3F, 0xC020AA00, 1
MADV_DONTNEED = 4

libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def unanswered(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


name = "/u" * (4 << 20)
unanswered.__code__ = unanswered.__code__.replace(co_filename=name)
end = id(name) + sys.getsizeof(name) - 1
# The page in which the last kilobyte begins, because pyobs reads a name from its end.
page = (end - 1024) & -PAGE
descriptor = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC)
if descriptor < 0:
    sys.exit("userfaultfd failed: " + os.strerror(ctypes.get_errno()))
fcntl.ioctl(descriptor, UFFDIO_API, bytearray(struct.pack("QQQ", UFFD_API, 0, 0)))
if libc.madvise(page, PAGE, MADV_DONTNEED):
    sys.exit("the page cannot be released")
fcntl.ioctl(descriptor, UFFDIO_REGISTER, bytearray(struct.pack("QQQQ", page, PAGE, MISSING, 0)))
print("ready", flush=True)
unanswered(float(sys.argv[1]))
# Skips the clean-up, which would read the name.
os._exit(0)
