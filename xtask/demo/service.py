"""Answers requests in a few threads, beside one that computes a report and keeps the GIL from them."""
import os, threading, time

ANSWERING = 3
LENGTH = 200_000


def report():
    while True:
        sum(n * n for n in range(LENGTH))  # planted: gil/convoy


def answer():
    answered = 0
    while True:
        time.sleep(0.01)  # waits for the next request
        answered += 1


def main():
    parent = os.getppid()
    threading.Thread(target=report, name="report", daemon=True).start()
    for n in range(ANSWERING):
        threading.Thread(target=answer, name=f"answer-{n}", daemon=True).start()
    while os.getppid() == parent:
        time.sleep(1)


if __name__ == "__main__":
    main()
