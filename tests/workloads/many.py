"""many.py COUNT SECONDS: COUNT Python processes at once, which burn CPU time at SIGUSR1; prints "ready", then as forks.py."""
import json
import os
import signal
import subprocess
import sys

burn = os.path.join(os.path.dirname(os.path.abspath(__file__)), "burn.py")
count, seconds = int(sys.argv[1]), sys.argv[2]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
gate, opener = os.pipe()
children = []
for number in range(count):
    function = "many_%03d" % number
    program = [sys.executable, "-B", burn, function, seconds, "gated"]
    child = subprocess.Popen(program, stdin=gate, stdout=subprocess.PIPE, universal_newlines=True)
    children.append((child, {"pid": child.pid, "function": function}))
os.close(gate)
for child, _ in children:
    assert child.stdout.readline() == "ready\n"
print("ready")
sys.stdout.flush()
signal.sigwait([signal.SIGUSR1])
os.close(opener)
for child, _ in children:
    child.communicate()
print(json.dumps({"children": [found for _, found in children]}))
