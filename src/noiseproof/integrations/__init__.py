"""Losses in other people's training loops. Each module stands for one framework and is imported by its name.

transformers       TrainerLoss, for Hugging Face's Trainer and TRL's
lightning          HeldOutProbabilities, a callback that writes predictions for the audit of the labels
skorch             NoiseRobustNet, whose predictions are probabilities
fastai             FlatLoss, whose predictions are probabilities
keras              KerasLoss, for Keras 3 on torch

For all of them:

log_probabilities  label_loss, from the log-probability of the label alone
folds              write_fold and join_folds, predictions of a cross-validation
"""
