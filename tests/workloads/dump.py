"""Threads that stay where they are, and know where that is.
  dump.py MODE [ARGUMENT]

threads       threads that wait in various ways, and their stacks as faulthandler writes them
locks         threads in four deadlocks, and some that only wait
order         threads that take two locks in one order, over and over
gil           a thread that sleeps with the GIL, and threads that want it
calls         recursion of two kinds, one after the other
pipe          a child that writes to a pipe which its parent does not read, because it waits for the child's end
socket        a process that reads from a connection to its child
unix          a process that reads from a multiprocessing.Pipe to its child
lockf FILE    a process that has a lock on FILE, and one that wants it
semaphore     a process that waits for a multiprocessing.Semaphore that nobody releases
children      a child that has ended, and one that is stopped
burn          a thread that burns the CPU
vfork FIFO    a child that is made but cannot start its program, because it waits for the FIFO

Prints a JSON line when everybody is in place, and stays there.
"""
import ctypes, faulthandler, functools, json, os, select, signal, sys, tempfile, threading, time

MODE, ARGUMENT = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
libc = ctypes.CDLL(None)
holding = ctypes.PyDLL(None)
tids, since = {}, {}


def begin(name, body):
    started = threading.Event()

    def run():
        tids[name] = libc.syscall(186)
        since[name] = time.clock_gettime(7)  # CLOCK_BOOTTIME
        started.set()
        body()

    thread = threading.Thread(target=run, name="t-" + name)
    thread.daemon = True
    thread.start()
    started.wait()
    return thread


def line_of(function, text):
    code = function.__code__
    lines = open(__file__).read().splitlines()
    return next(n for n in range(code.co_firstlineno, len(lines) + 1) if text in lines[n - 1])


def announce(**facts):
    time.sleep(0.3)
    print(json.dumps(dict(facts, pid=os.getpid(), tids=tids, since=since)), flush=True)


def sleeps():
    time.sleep(1000)


def deep(n):
    if n == 0:
        sleeps()
    else:
        deep(n - 1)


def generate():
    for number in range(3):
        yield number
        (lambda: sleeps())()


class Object:
    def __lt__(self, other):
        sleeps()

    def method(self):
        return [sleeps() for _ in range(2)]


def threads():
    lock = threading.Lock()
    lock.acquire()
    reader, writer = os.pipe()
    never = threading.Event()
    begin("sleep", sleeps)
    begin("deep", lambda: deep(60))
    begin("generator", lambda: list(generate()))
    begin("callback", lambda: sorted([Object(), Object()]))
    begin("reduce", lambda: functools.reduce(lambda a, b: sleeps(), [1, 2, 3]))
    begin("method", Object().method)
    begin("lock", lock.acquire)
    begin("event", never.wait)
    begin("poll", lambda: select.select([reader], [], []))
    begin("read", lambda: os.read(reader, 1))
    begin("exec", lambda: exec(compile("def made():\n\n  sleeps()\nmade()", "<made here>", "exec"), dict(globals())))
    time.sleep(0.3)
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        announce(stacks=file.read(), main=line_of(stay, "# stays here"))
    stay()


def stay():
    while True:
        signal.pause()  # stays here


def locks():
    one, two, five, six, own, plain = [threading.Lock() for _ in range(6)]
    three, four = threading.RLock(), threading.RLock()
    both = threading.Barrier(2)

    def with_one():
        with one:
            both.wait()
            with two:  # waits here
                pass

    def with_two():
        with two:
            both.wait()
            one.acquire()  # waits here

    def with_three():
        three.acquire()
        both.wait()
        four.acquire()  # waits here

    def with_four():
        with four:
            both.wait()
            with three:  # waits here
                pass

    def with_own():
        with own:
            with own:  # waits here
                pass

    def holder():
        with plain:
            sleeps()

    def waiter():
        with plain:  # waits here
            pass

    def joiner():
        sleeper.join()  # waits here

    def wants():
        with five:  # waits here
            pass

    def joins():
        with five:
            begin("wants", wants).join()  # waits here

    def conditional():
        with six:
            threading.Condition(six).wait()

    def takes():
        six.acquire()
        sleeps()

    def waits_for_six():
        with six:  # waits here
            pass

    begin("conditional", conditional)
    time.sleep(0.1)
    begin("takes", takes)
    sleeper = begin("sleeper", sleeps)
    bodies = [with_one, with_two, with_three, with_four, with_own, holder, waiter, joiner, joins, waits_for_six]
    for body in bodies:
        begin(body.__name__, body)
    bodies = [body for body in bodies if body is not holder] + [wants]
    announce(lines={body.__name__: line_of(body, "# waits here") for body in bodies})
    stay()


def order():
    first, second = threading.Lock(), threading.Lock()

    def run():
        while True:
            with first:
                with second:
                    time.sleep(0.0001)

    for number in range(8):
        begin("run%d" % number, run)
    announce()
    stay()


def gil():
    def hold():
        holding.usleep(20 * 1000 * 1000)

    def want():
        while True:
            pass

    begin("want", want)
    time.sleep(0.1)
    print(json.dumps({"pid": os.getpid(), "line": line_of(gil, "holding.usleep(")}), flush=True)
    begin("hold", hold)


def left(n):
    return left(n - 1) if n else sum(range(2000))


def right(n):
    return right(n - 1) if n else sum(range(2000))


def calls():
    announce()
    while True:
        for n in range(50):
            left(n)
            right(50 - n)


def pipe():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.write(writer, b"x" * (1 << 20))
        os._exit(0)
    os.close(writer)
    announce(child=child)
    os.waitpid(child, 0)


def socket():
    from socket import create_connection, socket

    server = socket()
    server.bind(("127.0.0.1", 0))
    server.listen(1)
    child = os.fork()
    if child == 0:
        connection = server.accept()
        time.sleep(1000)
    connection = create_connection(server.getsockname())
    server.close()
    begin("read", lambda: connection.recv(1))
    announce(child=child, port=connection.getpeername()[1])
    stay()


def unix():
    import multiprocessing

    ours, theirs = multiprocessing.Pipe()
    child = os.fork()
    if child == 0:
        ours.close()
        time.sleep(1000)
    theirs.close()
    begin("read", ours.recv)
    announce(child=child)
    stay()


def lockf():
    import fcntl

    file = open(ARGUMENT, "w")
    fcntl.lockf(file, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        fcntl.lockf(file, fcntl.LOCK_EX)
        os._exit(0)
    announce(child=child)
    stay()


def semaphore():
    import multiprocessing

    wanted = multiprocessing.get_context("fork").Semaphore(0)
    begin("wait", wanted.acquire)
    files = [line.split()[5] for line in open("/proc/self/maps") if "/dev/shm/sem." in line]
    announce(files=files)
    stay()


def children():
    ended, stopped = os.fork(), 0
    if ended == 0:
        os._exit(0)
    stopped = os.fork()
    if stopped == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    announce(ended=ended, stopped=stopped)
    stay()


def burn():
    announce()
    while True:
        pass


def vfork():
    opens = [(os.POSIX_SPAWN_OPEN, 9, ARGUMENT, os.O_RDONLY, 0)]
    child = os.fork()
    if child == 0:
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=opens)
        os._exit(0)
    announce(child=child)
    stay()


globals()[MODE]()
os._exit(0)
