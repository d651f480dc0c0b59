"""Names of the demo's shared segments, and their removal."""
import os, sys
from multiprocessing import resource_tracker, shared_memory

FOLDER = "/dev/shm"
OURS = "pyobs-demo-"


def prefix(pid):
    return f"{OURS}{pid}-"


def create(name, size):
    return untracked(name, create=True, size=size)


def attach(name):
    return untracked(name)


def untracked(name, **how):
    """Makes a segment that no stage's tracker removes: the pipeline removes all of them at the end."""
    if sys.version_info >= (3, 13):
        return shared_memory.SharedMemory(name, track=False, **how)
    segment = shared_memory.SharedMemory(name, **how)
    resource_tracker.unregister(segment._name, "shared_memory")
    return segment


def remove(start):
    for name in os.listdir(FOLDER):
        if name.startswith(start):
            os.unlink(os.path.join(FOLDER, name))


def remove_abandoned():
    """Removes segments of pipelines that were killed."""
    for name in os.listdir(FOLDER):
        if name.startswith(OURS):
            pid = name[len(OURS):].split("-")[0]
            if not os.path.exists(f"/proc/{pid}"):
                remove(prefix(pid))
