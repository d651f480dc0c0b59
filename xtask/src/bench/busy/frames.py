# Data frames: groups, a join, and a function applied to columns.
import numpy as np
import pandas as pd

while True:
    frame = pd.DataFrame({"k": np.random.randint(0, 100, 20000), "v": np.random.rand(20000)})
    groups = frame.groupby("k").v.agg(["mean", "std", "max"])
    frame.merge(groups, left_on="k", right_index=True).apply(lambda column: column, axis=0)
