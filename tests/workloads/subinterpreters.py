"""subinterpreters.py SECONDS MAKER: burns this much CPU time in the main interpreter and two others, each in its own thread.

With MAKER "itself", the thread makes its interpreter; with "another", the main thread does.
Each interpreter prints a JSON line {"function": …, "cpu_s": …, "functions": [root, …, leaf]}, with its own stack.
"""
import sys
import threading

from burn import burn

try:
    import _interpreters as interpreters
except ImportError:
    try:
        import _xxsubinterpreters as interpreters
    except ImportError:
        import _testcapi  # CPython 3.6 and 3.7 have only this.

PROGRAM = """
import json, sys, time

def cpu_time():
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)

def {name}():
    begin, x = cpu_time(), 0
    while cpu_time() - begin < {seconds}:
        for k in range(20000):
            x = (x * 31 + k) & 0xFFFF
    frame, functions = sys._getframe(), []
    while frame:
        functions.append(frame.f_code.co_name)
        frame = frame.f_back
    found = {{"function": "{name}", "cpu_s": cpu_time() - begin, "functions": functions[::-1]}}
    sys.stdout.write(json.dumps(found) + "\\n")
    sys.stdout.flush()

{name}()
"""

seconds = float(sys.argv[1])
programs = [PROGRAM.format(name="in_sub_interpreter_%d" % number, seconds=seconds) for number in range(2)]


def make_and_run(program):
    if "_testcapi" in globals():
        _testcapi.run_in_subinterp(program)
    else:
        interpreter = interpreters.create()
        interpreters.run_string(interpreter, program)
        interpreters.destroy(interpreter)


threads, ids = [], []
for program in programs:
    if sys.argv[2] == "itself":
        threads.append(threading.Thread(target=make_and_run, args=(program,)))
    else:
        ids.append(interpreters.create())
        threads.append(threading.Thread(target=interpreters.run_string, args=(ids[-1], program)))
for thread in threads:
    thread.start()
burn("in_main_interpreter", seconds)
for thread in threads:
    thread.join()
for interpreter in ids:
    interpreters.destroy(interpreter)  # CPython 3.11 hangs at exit if one is left.
