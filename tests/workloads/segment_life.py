"""segment_life.py: makes, maps, inherits and removes one segment; the last line of output says who held it."""
import json
import mmap
import os
import time

from timing import until_known

BYTES = 3 << 16


def make(name):
    return os.open("/dev/shm/" + name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def main():
    # Waits until pyobs knows the interpreter.
    until_known(1)
    name = "kernels-%d" % os.getpid()
    descriptor = make(name)
    os.ftruncate(descriptor, BYTES)
    memory = mmap.mmap(descriptor, BYTES)
    memory[:] = b"x" * BYTES
    child = os.fork()
    if child == 0:
        time.sleep(0.3)
        os._exit(0)
    os.waitpid(child, 0)
    os.unlink("/dev/shm/" + name)
    time.sleep(0.3)
    memory.close()
    os.close(descriptor)
    time.sleep(1.5)
    print(json.dumps({"name": name, "bytes": BYTES, "pids": [os.getpid(), child]}))


main()
