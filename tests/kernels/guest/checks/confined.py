"""Machine settings that pyobs must cope with, or name in one sentence. The last one cannot be undone."""
import contextlib
import subprocess

from pyobs import PATIENCE_S, PYOBS, PYTHONS, refusals

BUSY = "while True: sum(range(9000))"
# pyobs must record under these, and without securityfs. They are tried together, because a recording under emulation
# takes 20 s.
SETTINGS = [
    ("/proc/sys/kernel/perf_event_paranoid", "4"),
    ("/proc/sys/kernel/unprivileged_bpf_disabled", "2"),
    ("/proc/sys/net/core/bpf_jit_enable", "0"),
]
LOCKDOWN = "/sys/kernel/security/lockdown"


def checks():
    busy = subprocess.Popen([PYTHONS[-1][1], "-c", BUSY])
    try:
        yield from each()
    finally:
        busy.kill()
        busy.wait()


def each():
    subprocess.run(["umount", "/sys/kernel/security"], stderr=subprocess.DEVNULL)
    with contextlib.ExitStack() as settings:
        for path, value in SETTINGS:
            settings.enter_context(setting(path, value))
        yield "strict settings, no BPF compiler, no securityfs", records()
    subprocess.run(["mount", "-t", "securityfs", "none", "/sys/kernel/security"], stderr=subprocess.DEVNULL)
    with mounted("tmpfs", "/sys/kernel/btf"):
        yield "no type information", refuses("CONFIG_DEBUG_INFO_BTF")
    try:
        with open(LOCKDOWN, "w") as file:
            file.write("confidentiality")
    except OSError:
        return  # this kernel has no lockdown
    yield "lockdown", refuses("lockdown=integrity")


def record():
    command = [PYOBS, "record", "--duration", "1", "-o", "/tmp/confined.pyobs"]
    done = subprocess.run(command, timeout=PATIENCE_S, stderr=subprocess.PIPE)
    return done.returncode, done.stderr.decode()


def records():
    """The problem if pyobs does not record. A kernel that is too old must refuse, which is not a problem."""
    code, stderr = record()
    if refusals.get("cpu"):
        return "" if code == 3 else "exit code %d: %s" % (code, stderr)
    return "" if code == 0 and " 0 samples" not in stderr and " off: " not in stderr else "exit code %d: %s" % (code, stderr)


def refuses(word):
    code, stderr = record()
    is_one = code == 3 and stderr.count("\n") == 1 and (word in stderr or refusals.get("cpu"))
    return "" if is_one else "exit code %d: %s" % (code, stderr)


@contextlib.contextmanager
def setting(path, value):
    with open(path) as file:
        before = file.read()
    try:
        # Some kernels do not allow a change; the setting then stays.
        with contextlib.suppress(OSError), open(path, "w") as file:
            file.write(value)
        yield
    finally:
        with contextlib.suppress(OSError), open(path, "w") as file:
            file.write(before)


@contextlib.contextmanager
def mounted(kind, place):
    subprocess.run(["mount", "-t", kind, "none", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)
