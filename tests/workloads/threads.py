"""threads.py SECONDS [LIBRARY]: burns this much CPU time in each of several kinds of threads.
One in LIBRARY, built from native.c, never enters Python. The last line of output is JSON:
{"threads": [{"tid": …, "name": …, "function": … or null, "cpu_s": …}, …]}, with the kernel's names of the threads.
"""
import ctypes
import json
import sys
import threading

from burn import burn

PR_SET_NAME, PR_GET_NAME, SYS_GETTID = 15, 16, 186
libc = ctypes.CDLL(None)
seconds = float(sys.argv[1])
seen = []


def work(function, name):
    libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
    tid = libc.syscall(SYS_GETTID)
    buffer = ctypes.create_string_buffer(16)
    libc.prctl(PR_GET_NAME, buffer, 0, 0, 0)
    seen.append({"tid": tid, "name": buffer.value.decode(), "function": function, "cpu_s": burn(function, seconds)})


def in_c_thread(argument):
    work("in_thread_of_c", "thread-of-c")


def start_c_thread(function, argument):
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, function, argument) == 0
    return thread


def main():
    of_python = [
        threading.Thread(target=work, args=("in_first_thread", "first-thread")),
        threading.Thread(target=work, args=("in_second_thread", "a name that is longer than the kernel's")),
        threading.Thread(target=work, args=("in_daemon_thread", "daemon-thread"), daemon=True),
    ]
    for thread in of_python:
        thread.start()
    callback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(in_c_thread)
    of_c = [start_c_thread(callback, None)]
    if len(sys.argv) > 2:
        library = ctypes.CDLL(sys.argv[2])
        argument = ctypes.c_double(seconds)
        of_c.append(start_c_thread(library.burn_natively, ctypes.byref(argument)))
    work("in_main_thread", "main-thread")
    for thread in of_python:
        thread.join()
    for thread in of_c:
        libc.pthread_join(thread, None)
    if len(sys.argv) > 2:
        value = lambda kind, name: kind.in_dll(library, name).value
        native = {"tid": value(ctypes.c_long, "native_tid"), "name": "native-thread", "function": None}
        native["cpu_s"] = value(ctypes.c_double, "native_seconds")
        seen.append(native)
    print(json.dumps({"threads": seen}))


main()
