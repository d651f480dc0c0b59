"""Prints the CPU seconds of a call of a Python function and of a resumption of a generator: the least of seven rounds."""
import time

COUNT, ROUNDS = 20000, 7


def function(x):
    return x


def generator():
    while True:
        yield


def calls():
    for _ in range(COUNT):
        function(1)


def resumptions(resumed=generator()):
    for _ in range(COUNT):
        next(resumed)


def nothing():
    for _ in range(COUNT):
        pass


def least(work):
    def once():
        since = time.process_time()
        work()
        return time.process_time() - since

    return min(once() for _ in range(ROUNDS))


# Leaves time to attach the probes.
time.sleep(1)
loop = least(nothing)
print(*((least(work) - loop) / COUNT for work in (calls, resumptions)), flush=True)
