"""Your own CSV: which labels are wrong, and a cleaned copy of the file.

    pip install '.[lab]'                # in noiseproof's repository
    python audit_csv.py                # writes flowers.csv, with wrong labels, and audits it
    python audit_csv.py mine.csv       # a header, columns of numbers, and a column called label

The command line does the same and more: noiseproof audit mine.csv
"""

import csv
import sys
from pathlib import Path

import noiseproof
from noiseproof.data import open_dataset


def flowers(path: Path) -> set[int]:
    """Write the iris data with every tenth label wrong; returns which."""
    from sklearn.datasets import load_iris

    iris = load_iris()
    wrong = set(range(0, 150, 10))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sepal length", "sepal width", "petal length", "petal width", "label"])
        for row, (x, y) in enumerate(zip(iris.data, iris.target, strict=True)):
            writer.writerow([*x, iris.target_names[(y + 1) % 3 if row in wrong else y]])
    return wrong


def audit(path: Path) -> set[int]:
    """Print what looks wrong, write the files; returns which rows do."""
    data = open_dataset(str(path))
    found = noiseproof.audit_labels(data.train, classes=data.classes, epochs=30, folds=3, seed=0)
    low, high = found.rate_interval
    print(f"{path}: {found.rate:.0%} of {len(data.train)} labels look wrong ({low:.0%} to {high:.0%})")
    for row in (-found.p_wrong).argsort()[:5]:
        given, suggested = data.classes[data.train.labels[row]], data.classes[found.suggested[row]]
        print(f"  line {row + 2}: {given}, rather {suggested} ({found.p_wrong[row]:.0%} sure that it is wrong)")
    found.save(Path("audit"))
    print("audit/audit.csv has all of them")
    return set(found.flagged.nonzero()[0].tolist())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        audit(Path(sys.argv[1]))
    else:
        wrong = flowers(Path("flowers.csv"))
        flagged = audit(Path("flowers.csv"))
        print(f"we made {len(wrong)} labels wrong; {len(flagged & wrong)} of the {len(flagged)} flagged are among them")
