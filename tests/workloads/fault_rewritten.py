"""Burns CPU on a known line after its own file was rewritten and then deleted.

  fault_rewritten.py FOLDER
"""
import os
import sys

PROGRAM = """import time


def hot_of_the_old_file(until):
    while time.monotonic() < until:
        for number in range(1000): pass  # line 6


print("ready", flush=True)
hot_of_the_old_file(time.monotonic() + 300)
"""

path = os.path.join(sys.argv[1], "rewritten.py")
with open(path, "w") as file:
    file.write(PROGRAM)
code = compile(PROGRAM, path, "exec")
with open(path, "w") as file:
    file.write("def another():\n    pass\n" * 100)
os.unlink(path)
exec(code, {"__name__": "__main__"})
