"""Computes feature vectors from shared tensors, into a shared segment of its own."""
import sys

import numpy as np

import loader, segments

ANGLES = 500_000
ROWS, COLUMNS = 96, 256
VECTOR = 1 << 16


def rotate(angles, signal):
    turn = np.cos(angles)  # planted: redundancy/recomputed
    return signal * turn


def smooth(weights, gradients, total=0.0):
    for i in range(ROWS):
        for j in range(COLUMNS):
            total += weights[i, j] * gradients[i, j]  # planted: redundancy/dispatch
    return total / weights.size


def normalise(tensor):
    return (tensor - tensor.mean()) / (tensor.std() + 1e-9)


def main():
    tensors = None
    vectors = segments.create(sys.argv[1] + "vectors", loader.SLOTS * VECTOR * 8)
    output = np.ndarray((loader.SLOTS, VECTOR), dtype=float, buffer=vectors.buf)
    angles, weights = np.linspace(0, np.pi, ANGLES), np.zeros((ROWS, COLUMNS))
    for line in sys.stdin:
        slot = int(line)
        # The loader has made them once it announces a slot.
        tensors = tensors or segments.attach(sys.argv[1] + "tensors")
        tensor = np.ndarray(loader.SLOT, dtype="u1", buffer=tensors.buf, offset=slot * loader.SLOT)
        signal = normalise(tensor[:ANGLES].astype(float))
        rotated = rotate(angles, signal)
        weights += smooth(weights, signal[:ROWS * COLUMNS].reshape(ROWS, COLUMNS)) - 0.01
        np.multiply(rotated[:VECTOR], weights[0, 0], out=output[slot])
        print(slot)


if __name__ == "__main__":
    main()
