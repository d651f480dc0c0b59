"""Processes that make, hold, pass and release shared segments at random, and are killed meanwhile.
  segments.py SEED PREFIX LOG

Prints "ready" and starts at SIGUSR1. LOG gets a line for each new segment: {"pid", "dev", "ino", "name"}. At the end it prints one
JSON line: {"pids": [living processes]}; /proc shows what they hold. It ends by itself after a minute.
"""
import array, ctypes, fcntl, json, os, random, signal, socket, sys, time

SEED, PREFIX, LOG = int(sys.argv[1]), sys.argv[2], sys.argv[3]
WORKERS, STEPS, PAGE = 4, 60, 4096
SHM = "/dev/shm/"
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
FAILED = ctypes.c_void_p(-1).value
SHARED, ANONYMOUS = 1, 0x20


class Worker:
    def __init__(self, number, inboxes, log):
        self.random = random.Random(SEED * 1000 + number)
        self.inboxes, self.inbox, self.log = inboxes, inboxes[number][0], log
        self.others = [box[1] for other, box in enumerate(inboxes) if other != number]
        self.fds, self.mappings, self.names, self.made = [], [], [], 0

    def made_one(self, fd, name):
        found = os.fstat(fd)
        line = {"pid": os.getpid(), "dev": found.st_dev, "ino": found.st_ino, "name": name}
        os.write(self.log, (json.dumps(line) + "\n").encode())

    def size(self, least, most):
        """Often not a multiple of the page size. The kernel maps and unmaps whole pages all the same."""
        return PAGE * self.random.randint(least, most) - self.random.choice([0, self.random.randrange(PAGE)])

    def make(self):
        self.made += 1
        name = "%s_%d_%d" % (PREFIX, os.getpid(), self.made)
        if self.random.random() < 0.3:
            name += "\x1b[31m\n\u202e"
        if self.random.random() < 0.5:
            fd = os.memfd_create(name)
        else:
            fd = os.open(SHM + name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            self.names.append(name)
        self.made_one(fd, name)
        os.ftruncate(fd, self.size(1, 8))
        self.fds.append(fd)

    def anonymous(self):
        size = self.size(2, 8)
        at = libc.mmap(None, size, 3, SHARED | ANONYMOUS, -1, 0)
        self.mappings.append((at, size))

    def duplicate(self):
        if self.fds:
            fd = self.random.choice(self.fds)
            how = self.random.randrange(3)
            if how == 0:
                self.fds.append(os.dup(fd))
            elif how == 1:
                self.fds.append(fcntl.fcntl(fd, fcntl.F_DUPFD, 300))
            else:
                os.dup2(fd, self.random.choice(self.fds))

    def close(self):
        if self.fds:
            os.close(self.fds.pop(self.random.randrange(len(self.fds))))

    def map(self):
        if self.fds:
            fd = self.random.choice(self.fds)
            size = os.fstat(fd).st_size
            at = libc.mmap(None, size, 3, SHARED, fd, 0)
            assert at != FAILED
            ctypes.memset(at, 7, size)
            self.mappings.append((at, size))

    def unmap(self):
        if self.mappings:
            at, size = self.mappings.pop(self.random.randrange(len(self.mappings)))
            how = self.random.randrange(3)
            if how == 0 and size >= 3 * PAGE:
                libc.munmap(at + PAGE, PAGE)
                self.mappings += [(at, PAGE), (at + 2 * PAGE, size - 2 * PAGE)]
            elif how == 1 and size >= 2 * PAGE:
                libc.munmap(at, PAGE)
                self.mappings.append((at + PAGE, size - PAGE))
            else:
                libc.munmap(at, size)

    def move(self):
        if self.mappings:
            at, size = self.mappings.pop(self.random.randrange(len(self.mappings)))
            new = size + PAGE if self.random.random() < 0.5 else max(PAGE, size - PAGE)
            to = libc.mremap(at, size, new, 1)
            self.mappings.append((at, size) if to == FAILED else (to, new))

    def unlink(self):
        if self.names:
            os.unlink(SHM + self.names.pop(self.random.randrange(len(self.names))))

    def send(self):
        if self.fds:
            fds = array.array("i", self.random.sample(self.fds, min(len(self.fds), self.random.randint(1, 3))))
            try:
                self.random.choice(self.others).sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)],
                                                        socket.MSG_DONTWAIT)
            except (BlockingIOError, ConnectionError):
                pass

    def receive(self):
        fds = array.array("i")
        try:
            _, ancillary, _, _ = self.inbox.recvmsg(1, socket.CMSG_SPACE(16 * 4), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        for _, _, data in ancillary:
            fds.frombytes(data[:len(data) - len(data) % 4])
        self.fds += list(fds)
        return bool(fds)

    def child(self):
        """Forks a child that holds the same segments; every second one executes another program."""
        becomes = self.random.random() < 0.5
        keep = self.random.choice(self.fds) if self.fds and self.random.random() < 0.7 else None
        pid = os.fork()
        if pid == 0:
            if becomes:
                if keep is not None:
                    os.set_inheritable(keep, True)
                os.execv("/bin/sleep", ["sleep", "60"])
            hold()
        os.write(self.log, (json.dumps({"child": pid}) + "\n").encode())

    def work(self):
        actions = [self.make] * 4 + [self.map] * 3 + [self.duplicate, self.close, self.unmap] * 2
        actions += [self.anonymous, self.move, self.unlink, self.send, self.send, self.receive, self.receive]
        for step in range(STEPS):
            self.random.choice(actions)()
            if step in (20, 40):
                self.child()
            time.sleep(self.random.random() * 0.002)


def hold():
    time.sleep(60)
    os._exit(0)


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print("ready", flush=True)
    signal.sigwait([signal.SIGUSR1])
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    inboxes = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(WORKERS)]
    control = [socket.socketpair() for _ in range(WORKERS)]
    workers = []
    for number in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            worker = Worker(number, inboxes, log)
            worker.work()
            control[number][1].send(b"d")
            control[number][1].recv(1)
            while worker.receive():
                pass
            control[number][1].send(b"d")
            hold()
        workers.append(pid)
    choice = random.Random(SEED)
    time.sleep(choice.random() * 0.15)
    dead = set(choice.sample(range(WORKERS), choice.randint(1, WORKERS - 1)))
    for number in dead:
        os.kill(workers[number], signal.SIGKILL)
        os.waitpid(workers[number], 0)
    alive = [number for number in range(WORKERS) if number not in dead]
    for what in (b"", b"r"):
        for number in alive:
            if what:
                control[number][0].send(what)
        for number in alive:
            assert control[number][0].recv(1) == b"d"
    children = [json.loads(line) for line in open(LOG)]
    pids = [workers[number] for number in alive] + [it["child"] for it in children if "child" in it]
    print(json.dumps({"pids": [os.getpid()] + pids}), flush=True)
    time.sleep(60)


if __name__ == "__main__":
    main()
