"""Losses in other people's training loops. Each module stands for one framework and is imported by its name.

transformers  TrainerLoss, for Hugging Face's Trainer
"""
