"""What a run calls while it goes on, and a callback that writes TensorBoard events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noiseproof.train.record import Epoch, Record

__all__ = ["Callback", "CallbackList", "TensorBoard"]

FORMER_METHODS = {
    "started": "on_train_begin",
    "batch": "on_batch_end",
    "evaluating": "on_evaluation_begin",
    "epoch": "on_epoch_end",
    "ended": "on_train_end",
}


class Callback:
    """Follows a run. These methods do nothing; a subclass overrides those that it needs.

    Raises:
        TypeError: a subclass defines a method under a name that it had in earlier versions.

    >>> class Losses(Callback):
    ...     def on_epoch_end(self, facts):
    ...         print(f"epoch {facts.epoch}: loss {facts.loss:.1f}")
    >>> from noiseproof.train import Recipe, train
    >>> _ = train(Recipe(dataset="digits", loss="mae", epochs=2), callback=Losses())
    epoch 1: loss 1.8
    epoch 2: loss 1.8
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in FORMER_METHODS.keys() & vars(cls).keys():
            raise TypeError(f"{cls.__name__}.{name}: this method of a callback is called {FORMER_METHODS[name]} now")

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        """Called before the first step.

        Args:
            record: what is known of the run so far.
            epochs_done: 0, or how many epochs a resumed run has behind it.
        """

    def on_batch_end(self, epoch: int, done: int, total: int) -> None:
        """Called after a step.

        Args:
            epoch: the epoch, counted from 0.
            done: examples of the epoch that were trained on.
            total: examples in the epoch.
        """

    def on_evaluation_begin(self, epoch: int) -> None:
        """Called after the last step of an epoch.

        Args:
            epoch: the epoch, counted from 0.
        """

    def on_epoch_end(self, facts: Epoch) -> None:
        """Called after an epoch and its evaluation.

        Args:
            facts: its numbers.
        """

    def on_train_end(self, record: Record) -> None:
        """Called when the run is finished or has diverged.

        Args:
            record: what it wrote, with its result.
        """


class CallbackList(Callback):
    """Calls several callbacks, one after another.

    >>> both = CallbackList(Callback(), TensorBoard("runs/NAME"))  # doctest: +SKIP
    """

    def __init__(self, *callbacks: Callback) -> None:
        self.callbacks = callbacks

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        for callback in self.callbacks:
            callback.on_train_begin(record, epochs_done)

    def on_batch_end(self, epoch: int, done: int, total: int) -> None:
        for callback in self.callbacks:
            callback.on_batch_end(epoch, done, total)

    def on_evaluation_begin(self, epoch: int) -> None:
        for callback in self.callbacks:
            callback.on_evaluation_begin(epoch)

    def on_epoch_end(self, facts: Epoch) -> None:
        for callback in self.callbacks:
            callback.on_epoch_end(facts)

    def on_train_end(self, record: Record) -> None:
        for callback in self.callbacks:
            callback.on_train_end(record)


class TensorBoard(Callback):
    """Writes the numbers of each epoch as TensorBoard events.

    Args:
        folder: Where to, usually the run's own folder.

    Raises:
        ImportError: tensorboard is not installed.

    >>> _ = train(recipe, folder=folder, callback=TensorBoard(folder))  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoard events need tensorboard: pip install '.[track]' in noiseproof's repository"
            ) from error
        self.writer_for, self.folder = SummaryWriter, folder

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        # Events of epochs that an interruption lost are purged: these epochs are trained again.
        self.writer: Any = self.writer_for(str(self.folder), purge_step=epochs_done + 1 if epochs_done else None)
        self.writer.add_text("recipe", f"```json\n{json.dumps(record.recipe, indent=1)}\n```")

    def on_epoch_end(self, facts: Epoch) -> None:
        numbers = {f"accuracy/{name}": share for name, share in facts.accuracies().items()}
        for name, value in {"loss": facts.loss, "lr": facts.lr, **numbers}.items():
            self.writer.add_scalar(name, value, facts.epoch)

    def on_train_end(self, record: Record) -> None:
        self.writer.close()
