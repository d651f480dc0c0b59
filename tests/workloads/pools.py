"""pools.py METHOD SECONDS: two children of multiprocessing with this start method; prints what forks.py prints."""
import json
import multiprocessing
import os
import sys

from burn import burn


def in_child(number, queue, seconds):
    function = "pooled_%03d" % number
    burn(function, seconds)
    queue.put({"pid": os.getpid(), "function": function})


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    children = [context.Process(target=in_child, args=(k, queue, float(sys.argv[2]))) for k in range(2)]
    for child in children:
        child.start()
    found = [queue.get() for _ in children]
    for child in children:
        child.join()
    print(json.dumps({"children": found}))
