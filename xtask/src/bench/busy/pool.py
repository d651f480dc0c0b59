# A pool of three processes that runs small tasks.
import multiprocessing


def work(text):
    return sum(i * i % 7 for i in range(3000)) + len(text)


if __name__ == "__main__":
    with multiprocessing.Pool(3) as pool:
        while True:
            pool.map(work, ["x" * 1000] * 200, chunksize=5)
