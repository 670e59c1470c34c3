"""Losses in other people's training loops. Each module stands for one framework and is imported by its name.

transformers   TrainerLoss, for Hugging Face's Trainer and TRL's
skorch         NoiseRobustNet, whose predictions are probabilities
"""
