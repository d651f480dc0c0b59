"""dashboard.py SECONDS COMMAND...: the share of a core that the dashboard's thread uses on each screen.
The command runs in a terminal of 140x40 whose output is read at once; its main thread draws.
"""
import fcntl, os, pty, signal, struct, sys, termios, threading, time

seconds, command = float(sys.argv[1]), sys.argv[2:]
SCREENS = "0123456789"
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm-256color"
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    os.execv(command[0], command)

written = 0


def read():
    global written
    try:
        while data := os.read(terminal, 65536):
            written += len(data)
    except OSError:  # it has ended
        pass


def ran():
    """Seconds that the main thread was on a CPU."""
    with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


threading.Thread(target=read, daemon=True).start()
time.sleep(5)
try:
    for screen in SCREENS:
        os.write(terminal, screen.encode())
        time.sleep(1)
        started, before, bytes_before = time.monotonic(), ran(), written
        time.sleep(seconds)
        passed = time.monotonic() - started
        print(screen, f"{(ran() - before) / passed:.5f} {(written - bytes_before) / passed:.0f}")
finally:
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
