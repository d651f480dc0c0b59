"""first_screen.py FUNCTION COMMAND...: seconds until the dashboard that COMMAND starts has drawn its first screen, and until
it shows FUNCTION. The dashboard draws a screen in one write, header first.
"""
import fcntl, os, pty, select, signal, struct, sys, termios, time

function, *command = sys.argv[1:]
LIMIT = 15.0  # seconds
started = time.monotonic()
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm-256color"
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.execvp(command[0], command)

seen, screen, named = b"", None, None
while time.monotonic() - started < LIMIT and named is None:
    ready, _, _ = select.select([terminal], [], [], 0.02)
    if not ready:
        continue
    try:
        seen += os.read(terminal, 65536)
    except OSError:  # it has ended
        break
    now = time.monotonic() - started
    # Only after the alternate screen was entered, because an error message contains "pyobs" too.
    entered = seen.find(b"\x1b[?1049h")
    if screen is None and entered >= 0 and b"pyobs" in seen[entered:]:
        screen = now
    if function.encode() in seen:
        named = now

try:
    os.write(terminal, b"q")
except OSError:
    pass
deadline = time.monotonic() + 3
while time.monotonic() < deadline and os.waitpid(pid, os.WNOHANG) == (0, 0):
    if select.select([terminal], [], [], 0.05)[0]:
        try:
            os.read(terminal, 65536)
        except OSError:
            pass
else:
    if time.monotonic() >= deadline:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
if screen is None:
    text = seen.decode(errors="replace").strip()
    sys.exit(f"{' '.join(command)} drew no screen in {LIMIT:.0f} s, or ended before; it wrote {text[-300:]!r}")
print(f"{screen:.3f}" + (f" {named:.3f}" if named is not None else ""))
