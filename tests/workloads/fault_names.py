"""Runs functions with hostile names, file names, thread names and process title, until it is killed.

  fault_names.py

Prints the number of functions, then burns CPU in each of them in turn.
"""
import signal
import threading
import time
import types

# A limit, in case this program is not killed.
signal.alarm(300)

HOSTILE = [
    "\x1b[2J\x1b]0;pwned\x07\x1b[8m",
    "\x1bc\x1bP0;1|evil\x1b\\\x9b2J\x85\x7f",
    "<script>alert('pwned')</script>]]><img src=x onerror=alert(1)>",
    "\" onload=\"alert(1)\" x='",
    "--><!ENTITY x SYSTEM 'file:///etc/passwd'>&x;&#0;",
    "semi;colon;folded 1234567",
    "line\nbreak\r\nand\ttab\x0b\x0c\u2028\u2029",
    "\u202eevil\u202c\u2066\u200b\ufeffbidi",
    "nul\x00byte",
    "lone surrogate \ud800 \udfff",
    "\U0001f600 astral \U000e0041\ufffe\uffff",
    "{{7*7}}${jndi:ldap://x}%s%n`id`$(id)",
    "",
    "long" * 25000,
]

SOURCE = """def hot(until):
    while time.thread_time() < until:
        pass
"""


def renamed(code, name, file):
    if hasattr(code, "replace"):
        changes = {"co_name": name, "co_filename": file}
        if hasattr(code, "co_qualname"):
            changes["co_qualname"] = name
        return code.replace(**changes)
    return types.CodeType(
        code.co_argcount, code.co_kwonlyargcount, code.co_nlocals, code.co_stacksize, code.co_flags, code.co_code,
        code.co_consts, code.co_names, code.co_varnames, file, name, code.co_firstlineno, code.co_lnotab,
        code.co_freevars, code.co_cellvars,
    )  # fmt: skip


def hostile_functions():
    names = {"time": time}
    exec(compile(SOURCE, "ordinary.py", "exec"), names)
    code = names["hot"].__code__
    for text in HOSTILE:
        yield types.FunctionType(renamed(code, text, "/tmp/" + text + "/" + text + ".py"), names)


def rename_thread(name):
    with open("/proc/thread-self/comm", "w") as comm:
        comm.write(name)


def burn(functions):
    rename_thread("\x1b]0;t\x07<i>;\n")
    while True:
        for function in functions:
            function(time.thread_time() + 0.02)


rename_thread("\x1b[31m;<b>\n")
functions = list(hostile_functions())
print(len(functions), flush=True)
thread = threading.Thread(target=burn, args=(functions,))
thread.start()
thread.join()
