"""shm_std.py {ok|kill|killtracker|memfd|child_attach}: shared memory of the standard library. Prints the segment's name first."""
import os, sys, time, signal, subprocess
from multiprocessing import shared_memory, resource_tracker
v = sys.argv[1]
before = set(os.listdir("/dev/shm"))
if v == "memfd":
    import socket, array, mmap
    fd = os.memfd_create("pyobs-demo"); os.ftruncate(fd, 1 << 20)
    m = mmap.mmap(fd, 1 << 20); m[:4] = b"abcd"
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pid = os.fork()
    if pid == 0:
        msg, fds, fl, ad = socket.recv_fds(b, 10, 4)
        mm = mmap.mmap(fds[0], 1 << 20); print("child", mm[:4]); mm.close(); os.close(fds[0]); os._exit(0)
    socket.send_fds(a, [b"x"], [fd]); os.waitpid(pid, 0)
    m.close(); os.close(fd); sys.exit()
s = shared_memory.SharedMemory(create=True, size=1 << 20)
s.buf[:3] = b"abc"
print(s.name, sorted(set(os.listdir("/dev/shm")) - before), "tracker pid", resource_tracker._resource_tracker._pid, flush=True)
if v == "kill": os.kill(os.getpid(), signal.SIGKILL)                    # the tracker unlinks
if v == "killtracker":                                                  # nobody left to unlink
    os.kill(resource_tracker._resource_tracker._pid, signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)
if v == "child_attach":   # unrelated process attaches then exits: its own tracker unlinks the segment (bpo-38119) before 3.13 track=False
    subprocess.run([sys.executable, "-c", f"from multiprocessing import shared_memory as s; x=s.SharedMemory('{s.name}'); print(bytes(x.buf[:3])); x.close()"])
    time.sleep(.5); print("after child:", sorted(set(os.listdir("/dev/shm")) - before))
s.close()
try: s.unlink()
except FileNotFoundError as e: print("unlink:", e)
print("end", sorted(set(os.listdir("/dev/shm")) - before))
