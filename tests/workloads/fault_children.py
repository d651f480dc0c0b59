"""Starts many Python children at once, each of which burns a little CPU time, and prints all their pids.

  fault_children.py COUNT
"""
import subprocess
import sys

CHILD = """
import time
def hot_in_a_child(until):
    while time.thread_time() < until:
        pass
hot_in_a_child(time.thread_time() + 0.1)
"""

children = [subprocess.Popen([sys.executable, "-S", "-E", "-c", CHILD]) for _ in range(int(sys.argv[1]))]
print(" ".join(str(child.pid) for child in children), flush=True)
sys.exit(sum(child.wait() != 0 for child in children) != 0)
