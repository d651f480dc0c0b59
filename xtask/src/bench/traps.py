"""Waste that a detector should find, each kind beside a twin that computes the same without it.

  traps.py                              prints the names of the kinds
  traps.py KIND alone|hidden|good SECONDS

`alone` does nothing but the wasteful work, on data that changes from turn to turn. `hidden` spends a twentieth of its
time on it, among useful work, and `good` runs the twin. The wasteful line is marked "# <- waste". Prints its file
and number as JSON.

Where the waste is to compute the same again, a turn takes a tenth of a second or so: of a call that repeats for a
millisecond, no two samples in a row have the same arguments. The twins work on more data, because on 500 numbers any call is
mostly overhead.
"""
import inspect
import json
import os
import random
import sys
import time
import warnings

import numpy as np
import pandas as pd
import scipy.linalg
import scipy.sparse
from sklearn.linear_model import LinearRegression

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests/workloads"))

import inefficiencies
import useful_work

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
MUCH = 1000 if sys.argv[2:3] == ["good"] else 1
shift = 0.0
left, right = rng.random(2000 * MUCH), rng.random(2000 * MUCH)
records = np.zeros(500 * MUCH, dtype=[("x", float), ("n", int)])
ramp = np.arange(500 * MUCH) * 0.5
frame = pd.DataFrame({"x": rng.random(500 * MUCH), "y": rng.random(500 * MUCH)})
angles, square, column = rng.random(4000), rng.random((200, 200)), rng.random(200)
listed = [float(number) for number in range(200)]
sparse = scipy.sparse.random(200, 200 * MUCH, 0.1, "csr", random_state=0)
words = np.array(["word%d" % number for number in range(200 * MUCH)])
days = pd.Series(pd.date_range("2020-01-01", periods=500).strftime("%Y-%m-%d"))
model = LinearRegression().fit(rng.random((200, 5)), rng.random(200))
points = rng.random((100 * MUCH, 5))
REPEATS, REPEATS_OF_MATRIX = 3000, 60


def compare_bad():
    count = 0
    for i in range(2000):
        if left[i] < right[i]:  # <- waste
            count += 1
    return count


def compare_good():
    return int((left < right).sum())


def record_bad():
    for i in range(500):
        records[i]["x"] = i * 0.5 + shift  # <- waste


def record_good():
    records["x"] = ramp + shift
    return records["x"].sum()


def loc_bad():
    total = 0.0
    for i in range(100):
        total += frame.loc[i, "x"]  # <- waste
    return total


def loc_good():
    return frame["x"].sum()


def constant_bad():
    total = 0.0
    for value in listed:
        total += value * np.sqrt(2.0)  # <- waste
    return total


def constant_good():
    root, total = 2.0 ** 0.5, 0.0
    for value in listed:
        total += value * root
    return total


def append_bad():
    made = np.zeros(0)
    for value in listed:
        made = np.append(made, value)  # <- waste
    return made


def append_good():
    made = []
    for value in listed:
        made.append(value)
    return np.array(made)


def doubled(value):
    return value * 2.0 + 1.0


each = np.vectorize(doubled)


def vectorize_bad():
    return each(left)  # <- waste


def vectorize_good():
    return left * 2.0 + 1.0


def iterrows_bad():
    total = 0.0
    for _, row in frame.iterrows():  # <- waste
        total += row.x
    return total


def iterrows_good():
    return frame["x"].sum()


def inverse_bad():
    moved = column
    for _ in range(REPEATS_OF_MATRIX):
        moved = np.linalg.inv(square) @ moved  # <- waste
        moved /= np.abs(moved).max()
    return moved


def inverse_good():
    moved, inverse = column, np.linalg.inv(square)
    for _ in range(REPEATS_OF_MATRIX):
        moved = inverse @ moved
        moved /= np.abs(moved).max()
    return moved


def listed_bad():
    total = 0.0
    for _ in range(3 * REPEATS):
        total += np.array(listed).sum()  # <- waste
    return total


def listed_good():
    return 3 * REPEATS * np.array(listed).sum()


def sparse_bad():
    total = 0.0
    for i in range(50):
        total += sparse[i, 7]  # <- waste
    return total


def sparse_good():
    return sparse.sum()


def text_bad():
    count = 0
    for word in words:
        count += bool(np.char.startswith(word, "word1"))  # <- waste
    return count


def text_good():
    return int(np.char.startswith(words, "word1").sum())


def cosine_bad():
    total = 0.0
    for _ in range(REPEATS):
        total += np.cos(angles).sum()  # <- waste
    return total


def cosine_good():
    return REPEATS * np.cos(angles).sum()


def item_bad():
    total = 0.0
    for i in range(2000):
        total += left.item(i)  # <- waste
    return total


def item_good():
    return float(left.sum())


def at_bad():
    for i in range(50):
        frame.at[i, "y"] = i * 0.5 + shift  # <- waste


def at_good():
    frame["y"] = ramp + shift
    return frame["y"].sum()


def apply_bad():
    return frame.apply(lambda row: row.x * 2.0, axis=1)  # <- waste


def apply_good():
    return frame["x"] * 2.0


def dates_bad():
    total = 0
    for _ in range(100):
        total += pd.to_datetime(days).dt.day.sum()  # <- waste
    return total


def dates_good():
    return 100 * pd.to_datetime(days).dt.day.sum()


def solve_bad():
    total = 0.0
    for _ in range(REPEATS_OF_MATRIX):
        total += scipy.linalg.solve(square, column).sum()  # <- waste
    return total


def solve_good():
    return REPEATS_OF_MATRIX * scipy.linalg.solve(square, column).sum()


def predict_bad():
    total = 0.0
    for i in range(100):
        total += model.predict(points[i:i + 1])[0]  # <- waste
    return total


def predict_good():
    return model.predict(points).sum()


def concat_bad():
    made = frame[:0]
    for i in range(20):
        made = pd.concat([made, frame[i:i + 1]])  # <- waste
    return made


def concat_good():
    return pd.concat([frame[:250], frame[250:]])


def drawn(array):
    def stir():
        array[...] = rng.random(array.shape)
    return stir


def shifted():
    global shift
    shift += 1.0


def stirred_frame():
    frame["x"] = rng.random(len(frame))


def stirred_list():
    listed[random.randrange(len(listed))] = random.random()


def stirred_words():
    words[random.randrange(len(words))] = "word%d" % random.randrange(1000)


def stirred_days():
    days.iloc[random.randrange(len(days))] = "2021-01-%02d" % random.randrange(1, 29)


# What changes the data of a kind from turn to turn, because a program that computes the same each time wastes all of it.
# The other kinds change theirs themselves.
STIRS = {
    "slice": drawn(inefficiencies.gradients), "api": drawn(inefficiencies.values),
    "invariant": drawn(inefficiencies.data), "compare": drawn(left), "record": shifted, "loc": stirred_frame,
    "constant": stirred_list, "append": stirred_list, "vectorize": drawn(left), "iterrows": stirred_frame,
    "inverse": drawn(square), "listed": stirred_list, "sparse": drawn(sparse.data), "text": stirred_words,
    "cosine": drawn(angles), "item": drawn(left), "at": shifted, "apply": stirred_frame, "dates": stirred_days,
    "solve": drawn(square), "predict": drawn(points), "concat": stirred_frame,
}
FUNCTIONS = {**vars(inefficiencies), **globals()}
KINDS = [name[:-4] for name in FUNCTIONS if name.endswith("_bad")]
USEFUL = useful_work.plain, useful_work.drawn, useful_work.multiplied, useful_work.streamed
SHARE = 0.05


def main():
    if len(sys.argv) == 1:
        return print("\n".join(KINDS))
    kind, form, end = sys.argv[1], sys.argv[2], time.monotonic() + float(sys.argv[3])
    bad, good = (FUNCTIONS[f"{kind}_{variant}"] for variant in ("bad", "good"))
    work, spent, all_spent = good if form == "good" else bad, 0.0, 0.0
    stir = STIRS.get(kind, lambda: None)
    while time.monotonic() < end:
        since = time.process_time()
        # In turns of random length, because samples have a rhythm of their own.
        if form != "hidden" or spent < SHARE * all_spent:
            stir()
            begun = time.process_time()
            work()
            spent += time.process_time() - begun
        else:
            for _ in range(random.randrange(1, 8)):
                random.choice(USEFUL)()
        all_spent += time.process_time() - since
    source, first = inspect.getsourcelines(bad)
    marked = next(number for number, line in enumerate(source, first) if line.rstrip().endswith("# <- waste"))
    source, first = inspect.getsourcelines(good)
    file = os.path.basename(inspect.getsourcefile(bad))
    print(json.dumps({"file": file, "line": marked, "good": [first, first + len(source)], "share": spent / all_spent}))


main()
