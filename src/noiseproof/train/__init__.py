"""Training: one loop, its recipe, its record, and two engines, of which the fast one on CUDA computes the same.

recipe         Recipe, everything that a result depends on; the schedules of the learning rate
plan           plan_run: a recipe with changes, or the default one for data of your own, its data and its folder
training_data  TrainingData, the data set with the labels of the recipe's noise; resolve_auto; data_warnings
class_weights  class imbalance: weights by class, logit adjustment, and which losses need them
batch_loader   batches, from memory or from image files, a function of seed and epoch; the augmentations by name
network        the recipe's network
engine         how a run computes its epochs: RunOptions, the plain engine on torch.optim, and which engine suits
fast           the fast engine, a step in a CUDA graph
run            one network in training
loop           train: epochs, what follows them, records, checkpoints, resuming
record         what a run writes about itself, its result and warnings
record_files   records of runs as JSON lines, and folders of runs as such lines
runs           the runs in a folder, found by what they are; checkpoints, and how sure a run was of each given label
trained        a finished run's network for new examples: load; predict_data, predictions saved as CSV, JSON or npz
preprocessing  how the inputs of a trained network are prepared
executors      lists of runs, and where they are trained: in this process, in processes of this machine, on a Ray cluster
distributed    several processes that train one network
"""

from noiseproof.train.engine import RunOptions
from noiseproof.train.executors import train_concurrently
from noiseproof.train.loop import Callback, Outcome, train
from noiseproof.train.plan import RunPlan, own_recipe, plan_run
from noiseproof.train.recipe import Recipe, override
from noiseproof.train.record import Record
from noiseproof.train.run import DivergenceError, Epoch, OutOfMemoryError, Predictions, Run
from noiseproof.train.runs import CheckpointError, RunStore, StoredRun, folder_name, identity
from noiseproof.train.trained import PredictionTable, TrainedClassifier, load, predict_data
from noiseproof.train.training_data import TrainingData, prepare, resolve_auto, with_noise

__all__ = [
    "Callback", "CheckpointError", "DivergenceError", "Epoch", "OutOfMemoryError", "Outcome",
    "PredictionTable", "Predictions", "Recipe", "Record", "Run", "RunOptions", "RunPlan", "RunStore", "StoredRun",
    "TrainedClassifier", "TrainingData", "folder_name", "identity", "load", "override", "own_recipe",
    "plan_run", "predict_data", "prepare", "resolve_auto", "train", "train_concurrently", "with_noise",
]  # fmt: skip
