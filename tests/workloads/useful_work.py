"""Work that wastes nothing: each turn computes something new, and all of it is used."""
import numpy as np

rng = np.random.default_rng(0)
matrix, vector = rng.random((220, 220)), rng.random(220)
stream, scale = rng.random(200_000), 1.0 + 1e-7


def plain():
    total = 0
    for i in range(30_000):
        total = (total * 31 + i) % 1_000_003
    return total


def drawn():
    return rng.random(30_000).sum()


def multiplied():
    global vector
    vector = np.dot(matrix, vector)
    vector /= vector.max()
    return vector


def streamed():
    global stream
    stream *= scale
    return stream
