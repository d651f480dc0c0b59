"""Writes tensors into slots of a shared segment, and the number of each full slot to standard output."""
import os, random, sys, time

import segments

SLOTS = 4
SLOT = 1 << 19
PAUSE = 0.1


def main():
    parent = os.getppid()
    tensors = segments.create(sys.argv[1] + "tensors", SLOTS * SLOT)
    step = 0
    while os.getppid() == parent:
        slot = step % SLOTS
        tensors.buf[slot * SLOT:(slot + 1) * SLOT] = random.randbytes(SLOT)
        print(slot)
        step += 1
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
