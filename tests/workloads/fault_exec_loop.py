"""Executes itself over and over, in the same process.

  fault_exec_loop.py ROUNDS
"""
import os
import sys
import time


def hot_in_every_image(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


hot_in_every_image(0.05)
left = int(sys.argv[1]) - 1
if left > 0:
    os.execv(sys.executable, [sys.executable, __file__, str(left)])
print("done", flush=True)
