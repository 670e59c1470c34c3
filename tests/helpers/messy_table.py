"""A table as people have them: gaps in every column, categories, a date, a text, an id, a boolean, and class imbalance."""

import numpy as np
import pandas as pd

GOOD = ("fine product", "works well", "arrived on time", "happy with it", "as described")
BAD = ("broken on arrival", "refund please", "never again", "does not work", "very slow support")


def messy_table(rows=5000, seed=0, wrong=0.15, gaps=0.03):
    """The table with its column ``churn`` of labels, some of them wrong, and the true classes.

    Of the label ``yes``, one row in ten, a larger share is wrong than of ``no``, as where people overlook the rare case.
    """
    draw = np.random.default_rng(seed)
    true = (draw.random(rows) < 0.1).astype(int)
    frame = pd.DataFrame({"id": [f"C{k:06d}" for k in draw.permutation(rows)]})
    frame["age"] = draw.normal(40 + 8 * true, 12).round()
    frame["income"] = np.exp(draw.normal(10 + 0.5 * true, 0.6)).round(2)
    frame["city"] = [f"city {min(k, 42)}" for k in draw.geometric(0.08, rows)]
    plan = draw.choice(["basic", "plus", "pro"], rows, p=[0.6, 0.3, 0.1])
    frame["plan"] = np.where((true == 1) & (draw.random(rows) < 0.4), "pro", plan)
    frame["member"] = pd.array(draw.random(rows) < 0.3 + 0.3 * true, dtype="boolean")
    days = pd.to_timedelta(draw.integers(0, 900, rows) + 60 * true, unit="D")
    frame["signed"] = (pd.Timestamp("2023-01-01") + days).strftime("%Y-%m-%d")
    unhappy = draw.random(rows) < np.where(true == 1, 0.7, 0.15)
    frame["comment"] = [", ".join(draw.choice(BAD if sad else GOOD, 3)) for sad in unhappy]
    for name in frame.columns[1:]:
        frame[name] = frame[name].mask(draw.random(rows) < gaps)
    flipped = draw.random(rows) < wrong * np.where(true == 1, 1.5, 0.9)
    frame["churn"] = np.where(true ^ flipped, "yes", "no")
    return frame, true
