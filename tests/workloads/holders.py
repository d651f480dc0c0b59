"""Processes that share segments in ways that are hard to follow, and print what they did.
  holders.py MODE [NUMBER]

many N     one segment, held by N children
reuse N    N files one after the other, mapped shared; the file system reuses the inode number
die N      N children, one after the other, each with its own segment and killed between two calls
names      segments with unprintable names
taken      a child takes a descriptor from its parent (pidfd_getfd)
unseen     a child gets a descriptor by sendmmsg and recvmmsg, which no record shows
others     maps a perf event and /dev/zero shared, opens a folder and a pipe in /dev/shm
account    four processes that share pages of one segment
pairs N    maps and unmaps N times, 50,000 times a second

Prints "ready", starts at SIGUSR1, prints a JSON line with the results, and ends at SIGUSR2.
"""
import array, ctypes, json, mmap, os, signal, socket, sys, tempfile, time

MODE, NUMBER = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
libc = ctypes.CDLL(None, use_errno=True)
PAGE = 4096
kept = []


def key(fd):
    found = os.fstat(fd)
    return {"dev": found.st_dev, "ino": found.st_ino}


def child(body):
    pid = os.fork()
    if pid == 0:
        body()
        os._exit(0)
    return pid


def many():
    fd = os.memfd_create("many")
    os.ftruncate(fd, PAGE)
    kept.append(mmap.mmap(fd, PAGE))
    kept[0][0] = 1
    return {"pids": [os.getpid()] + [child(signal.pause) for _ in range(NUMBER)], "segment": key(fd)}


def reuse():
    made = []
    folder = tempfile.mkdtemp(prefix="pyobs_test_", dir=sys.argv[3])
    for number in range(NUMBER):
        path = os.path.join(folder, "file%d" % number)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(fd, PAGE)
        made.append(key(fd)["ino"])
        view = mmap.mmap(fd, PAGE)
        view[0] = 1
        view.close()
        os.close(fd)
        os.unlink(path)
    os.rmdir(folder)
    return {"inodes": made}


def die():
    pids = []
    for number in range(NUMBER):
        name = "/dev/shm/pyobs_test_%d_%d" % (os.getpid(), number)

        def body():
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            if number % 3 == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            os.ftruncate(fd, PAGE)
            if number % 3 == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            mmap.mmap(fd, PAGE)
            os.kill(os.getpid(), signal.SIGKILL)

        pid = child(body)
        os.waitpid(pid, 0)
        pids.append({"pid": pid, "name": os.path.basename(name)})
    return {"made": pids}


def names():
    made = []
    for number, name in enumerate([b"\x1b[31mred\x07", b"a\nb\rc", b"\xff\xfe\x80", b"\xe2\x80\xaegpj", b"n" * 200]):
        name = b"pyobs_test_%d_%d_" % (os.getpid(), number) + name
        fd = os.open(b"/dev/shm/" + name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(fd, PAGE)
        os.unlink(b"/dev/shm/" + name)
        made.append(dict(key(fd), fd=fd))
    return {"made": made}


def taken():
    fd = os.memfd_create("taken")
    os.ftruncate(fd, PAGE)
    parent, (ready, done) = os.getpid(), os.pipe()

    def body():
        os.close(fd)
        pidfd = os.pidfd_open(parent)
        own = libc.syscall(438, pidfd, fd, 0)
        assert own >= 0, ctypes.get_errno()
        mmap.mmap(own, PAGE)
        os.write(done, b"d")
        signal.pause()

    pid = child(body)
    os.read(ready, 1)
    return {"from": parent, "to": pid, "segment": key(fd)}


class Message(ctypes.Structure):
    """struct mmsghdr of recvmmsg(2)."""
    _fields_ = [("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32), ("iov", ctypes.c_void_p),
                ("iov_length", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("length", ctypes.c_uint32)]


def message(fd):
    text = ctypes.create_string_buffer(b"x", 8)
    iov = (ctypes.c_size_t * 2)(ctypes.addressof(text), 1)
    control = (ctypes.c_int * 6)(20, 0, socket.SOL_SOCKET, socket.SCM_RIGHTS, fd, 0)
    head = Message(None, 0, ctypes.addressof(iov), 1, ctypes.addressof(control), 24)
    return head, control, (text, iov)


def unseen():
    fd = os.memfd_create("unseen")
    os.ftruncate(fd, PAGE)
    ours, theirs = socket.socketpair()
    # The child is forked before there is anything to hold, and reports through a pipe.
    ready, done = os.pipe()

    def body():
        os.close(fd)
        head, control, _keep = message(-1)
        assert libc.recvmmsg(theirs.fileno(), ctypes.byref(head), 1, 0, None) == 1
        os.write(done, b"%d\n" % control[4])
        signal.pause()

    pid = child(body)
    head, _control, _keep = message(fd)
    assert libc.sendmmsg(ours.fileno(), ctypes.byref(head), 1, 0) == 1
    got = int(os.read(ready, 16))
    return {"to": pid, "fd": got, "segment": key(fd)}


def others():
    """Only the memory of /dev/zero is a segment."""
    attributes = (ctypes.c_uint8 * 112)()
    # PERF_TYPE_SOFTWARE, and the size of the structure; all else is 0 (perf_event_open(2)).
    attributes[0], attributes[4] = 1, len(attributes)
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    event = libc.syscall(number, ctypes.byref(attributes), 0, -1, -1, 0)
    assert event >= 0, ctypes.get_errno()
    kept.append(mmap.mmap(event, 2 * PAGE))
    folder = tempfile.mkdtemp(prefix="pyobs_test_", dir="/dev/shm")
    os.mkfifo(folder + "/pipe")
    kept.append([os.open(folder, os.O_RDONLY), os.open(folder + "/pipe", os.O_RDWR)])
    os.unlink(folder + "/pipe")
    os.rmdir(folder)
    zero = os.open("/dev/zero", os.O_RDWR)
    kept.append(mmap.mmap(zero, 3 * PAGE))
    to = child(signal.pause)
    with open("/proc/self/maps") as maps:
        line = next(line for line in maps if "/dev/zero (deleted)" in line).split()
    major, minor = (int(part, 16) for part in line[3].split(":"))
    return {"pid": os.getpid(), "to": to, "segment": {"dev": os.makedev(major, minor), "ino": int(line[4])}}


def account():
    size = 32 << 20
    fd = os.memfd_create("account")
    os.ftruncate(fd, size)
    view = mmap.mmap(fd, size)
    for at in range(0, size, PAGE):
        view[at] = 1
    kept.append(view)
    pids = [os.getpid()]
    for number in range(3):
        ready, done = os.pipe()

        def body():
            own = mmap.mmap(fd, size)
            for at in range(0, size >> number, PAGE):
                own[at]
            os.write(done, b"d")
            signal.pause()

        pids.append(child(body))
        os.read(ready, 1)
    return {"pids": pids, "segment": key(fd), "bytes": size}


def pairs():
    fd = os.memfd_create("pairs")
    os.ftruncate(fd, PAGE)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    since = time.monotonic()
    for number in range(0, NUMBER, 100):
        while time.monotonic() < since + number / 50_000:
            pass
        for _ in range(100):
            libc.munmap(libc.mmap(None, PAGE, 3, 1, fd, 0), PAGE)
    return {"segment": key(fd), "seconds": time.monotonic() - since}


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    print("ready", flush=True)
    signal.sigwait([signal.SIGUSR1])
    result = globals()[MODE]()
    print(json.dumps(result), flush=True)
    signal.sigwait([signal.SIGUSR2])
    for pid in result.get("pids", [])[1:] + [result[key] for key in ("to",) if key in result]:
        os.kill(pid, signal.SIGKILL)


main()
