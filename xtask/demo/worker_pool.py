"""A queue and a few threads that take from it: they share one GIL, and the profile shows who holds it."""
import hashlib, os, queue, threading, time, zlib

jobs = queue.Queue(maxsize=64)


def checksum(block):
    return hashlib.sha256(block).hexdigest()  # leaves the GIL to others


def compress(block):
    return len(zlib.compress(block, 6))  # so does this


def count_words(block):
    counts = {}
    for word in block.split(b" "):
        counts[word] = counts.get(word, 0) + 1
    return max(counts.values())


def worker():
    while True:
        work, block = jobs.get()
        work(block)
        jobs.task_done()


def producer(parent):
    text = b" ".join(b"word%d" % (n * n % 997) for n in range(6000))
    while os.getppid() == parent:
        for work in (count_words, checksum, compress, count_words):
            jobs.put((work, text))
        time.sleep(0.002)


def main():
    for n in range(4):
        threading.Thread(target=worker, name=f"worker-{n}", daemon=True).start()
    producer(os.getppid())


if __name__ == "__main__":
    main()
