"""Tables with scikit-learn: tumours of which 30 % have a wrong label, in a pipeline, under cross-validation.

pip install '.[lab]'                # in noiseproof's repository
python tabular_sklearn.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import noiseproof
from noiseproof.sklearn import NoiseRobustClassifier

x, y = load_breast_cancer(return_X_y=True)
given = noiseproof.noise.symmetric(2, 0.3).apply(y, seed=0).labels  # in your work: the labels you have

models = {
    "noiseproof.fit": NoiseRobustClassifier(quick=True, random_state=0),
    "logistic regression": LogisticRegression(max_iter=1000),
    "network, cross entropy": NoiseRobustClassifier("ce", epochs=40, random_state=0),
    "network, JAL-CE": NoiseRobustClassifier("jal-ce", loss_options={"a": 30.0}, epochs=40, random_state=0),
}

if __name__ == "__main__":
    print(f"{(given != y).mean():.0%} of {len(y)} labels are wrong; accuracy on right ones, mean of 3 folds:")
    for name, model in models.items():
        scores = []
        for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(x, y):
            fitted = make_pipeline(StandardScaler(), model).fit(x[train], given[train])
            scores.append(fitted.score(x[test], y[test]))
        print(f"  {name:<24}{np.mean(scores):.1%}")
