"""Classifiers that are trained in one call and stored as plain arrays of numbers: the views of a cross-validation.

catalog     LEARNERS: the learners by name, in words, with their cost
crossfit    each learner trained without each fold: tasks in processes, stored, resumed, within a budget
base        what every learner does
linear      logistic regression, on the features or on RBF features
neighbours  nearest neighbours
trees       forests and gradient boosting, predicted from arrays of nodes
network     a small network
"""

from noiseproof.learners.base import Learner
from noiseproof.learners.catalog import LEARNERS, LearnerSpec

__all__ = ["LEARNERS", "Learner", "LearnerSpec"]
