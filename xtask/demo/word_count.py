"""Map and reduce over several processes: the parent hands out text, children count, short-lived ones come and go."""
import collections, multiprocessing, os, random, time

WORDS = "observe the program and never stop it for it has work to do and no time to wait".split()


def make_text(seed):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(20000))


def count(text):
    return collections.Counter(word.strip(".,").lower() for word in text.split())


def merge(counts):
    total = collections.Counter()
    for part in counts:
        total.update(part)
    return total


def main():
    parent = os.getppid()
    texts = [make_text(seed) for seed in range(6)]
    # A child is replaced after 40 tasks, so that processes begin and end while one looks.
    with multiprocessing.Pool(2, maxtasksperchild=40) as pool:
        while os.getppid() == parent:
            merge(pool.imap_unordered(count, texts))
            time.sleep(0.05)


if __name__ == "__main__":
    main()
