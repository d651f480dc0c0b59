"""forks.py COUNT SECONDS: forks COUNT times without exec, two at a time; each child burns in a function named after it.

Prints {"children": [{"pid": …, "function": …}, …]}.
"""
import json
import os
import sys

from burn import burn

count, seconds = int(sys.argv[1]), float(sys.argv[2])
children, running = [], 0
for number in range(count):
    function = "forked_%03d" % number
    pid = os.fork()
    if pid == 0:
        burn(function, seconds)
        os._exit(0)
    children.append({"pid": pid, "function": function})
    running += 1
    if running == 2:
        os.wait()
        running -= 1
burn("forking_parent", seconds)
while running:
    os.wait()
    running -= 1
print(json.dumps({"children": children}))
