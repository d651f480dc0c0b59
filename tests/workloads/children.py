"""children.py COUNT SECONDS: runs burn.py COUNT times, two at a time, with numbered functions; prints what forks.py prints."""
import json
import os
import subprocess
import sys

burn = os.path.join(os.path.dirname(os.path.abspath(__file__)), "burn.py")
count, seconds = int(sys.argv[1]), sys.argv[2]
children, running = [], []
for number in range(count):
    function = "child_%03d" % number
    child = subprocess.Popen([sys.executable, "-B", burn, function, seconds], stdout=subprocess.DEVNULL)
    children.append({"pid": child.pid, "function": function})
    running.append(child)
    if len(running) == 2:
        running.pop(0).wait()
for child in running:
    child.wait()
print(json.dumps({"children": children}))
