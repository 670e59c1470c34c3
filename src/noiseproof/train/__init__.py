"""Training: one loop, its recipe, its record, and a fast path on CUDA that is the same computation.

recipe       Recipe, everything that a result depends on
task         the data set with the labels of the recipe's noise
transforms   the augmentations by name
feed         batches, from memory or from image files, a function of seed and epoch
network      the recipe's network
update       one step of the optimiser on all weights at once
run          one network in training, step by step
loop         train: epochs, records, checkpoints, going on after an interruption
record       what a run writes about itself
checkpoint   the state of a run on disk
confidence   how sure a run was of each given label, as a file
side_by_side several runs on one device
distributed  several processes that train one network
paths        plain or fast: start_run
fast         the fast path, a step in a CUDA graph
folder       what a run's folder is called, and that one process at a time works in it
memory       which batch would fit when the memory does not
defaults     the default recipe for data of your own
"""

from noiseproof.train.checkpoint import CheckpointError
from noiseproof.train.defaults import own_recipe
from noiseproof.train.loop import Observer, Outcome, train
from noiseproof.train.memory import OutOfMemoryError
from noiseproof.train.options import RunOptions
from noiseproof.train.recipe import Recipe, override
from noiseproof.train.record import Epoch, Record
from noiseproof.train.run import DivergenceError, Predictions, Run
from noiseproof.train.runs import RunStore, StoredRun, folder_name, identity
from noiseproof.train.side_by_side import train_together
from noiseproof.train.task import Task, prepare, with_noise

__all__ = [
    "CheckpointError",
    "DivergenceError",
    "Epoch",
    "Observer",
    "OutOfMemoryError",
    "Outcome",
    "Predictions",
    "Recipe",
    "Record",
    "Run",
    "RunOptions",
    "RunStore",
    "StoredRun",
    "Task",
    "folder_name",
    "identity",
    "override",
    "own_recipe",
    "prepare",
    "train",
    "train_together",
    "with_noise",
]
