"""Leaves a copy of the state in shared memory, and ends."""
import sys
from multiprocessing import resource_tracker, shared_memory

STATE = 1 << 18


def main():
    name = f"{sys.argv[1]}checkpoint-{sys.argv[2]}"
    copy = shared_memory.SharedMemory(name, create=True, size=STATE)  # planted: shm/residue
    # Avoids the warning at exit; now nothing removes the segment.
    resource_tracker.unregister(copy._name, "shared_memory")
    copy.buf[:] = bytes(range(256)) * (STATE // 256)
    copy.close()


if __name__ == "__main__":
    main()
