"""Shares memory for the first time long after its start: first_segment.py MODE. It goes on at each SIGUSR1.

Prints `ready`, and `private` when it has only used memory of its own. Then, for its first and its second segment, it prints
`first` or `second`, the inode, and how many descriptors and mappings of it the process has by /proc.
"""
import mmap, multiprocessing, os, signal, sys

MIB = 1 << 20
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
kept = []


def private():
    # A semaphore is a file in /dev/shm, but shares no memory of the program's.
    kept.append(multiprocessing.Lock())
    for _ in range(200):
        mmap.mmap(-1, MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
        os.close(os.dup(0))


def wait():
    # The calls of dup(2) show whether programs run at them.
    while signal.sigtimedwait({signal.SIGUSR1}, 0.01) is None:
        os.close(os.dup(0))


def is_of(fd, inode):
    try:
        return os.fstat(int(fd)).st_ino == inode
    except OSError:  # listdir's own
        return False


def tell(which, inode):
    fds = sum(is_of(fd, inode) for fd in os.listdir("/proc/self/fd"))
    lines = [line.split() for line in open("/proc/self/maps")]
    mappings = sum(line[4] == str(inode) and line[1].endswith("s") for line in lines)
    print(which, inode, fds, mappings, flush=True)


def anonymous():
    kept.append(mmap.mmap(-1, 3 * MIB))
    kept[-1][:5] = b"first"
    lines = [line.split() for line in open("/proc/self/maps")]
    return next(int(line[4]) for line in lines if line[1] == "rw-s" and "/dev/zero" in line[5])


def memfd(name="first"):
    fd = os.memfd_create(name)
    os.ftruncate(fd, 3 * MIB)
    kept.append(mmap.mmap(fd, 3 * MIB))
    kept[-1][:5] = b"first"
    inode = os.fstat(fd).st_ino
    os.close(fd)
    return inode


def standard():
    from multiprocessing import shared_memory

    kept.append(shared_memory.SharedMemory(create=True, size=3 * MIB))
    kept[-1].buf[:5] = b"first"
    return os.fstat(kept[-1]._fd).st_ino


def written():
    path = "/dev/shm/first_%d" % os.getpid()
    kept.append(open(path, "wb", buffering=0))
    kept[-1].write(bytes(3 * MIB))
    return os.fstat(kept[-1].fileno()).st_ino


print("ready", flush=True)
wait()
private()
print("private", flush=True)
wait()
tell("first", globals()[sys.argv[1]]())
wait()
if sys.argv[1] == "standard":
    kept[-1].unlink()
tell("second", memfd("second"))
wait()
