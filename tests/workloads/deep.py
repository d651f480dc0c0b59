"""deep.py DEPTH: recurses to this depth, and burns half a second of CPU time in a C function there."""
import sys


def bottom():
    for _ in range(3): sum(range(6000000))


def recurse(depth):
    if depth > 1:
        recurse(depth - 1)
    else:
        bottom()


def main():
    recurse(int(sys.argv[1]))


sys.setrecursionlimit(100000)
main()
