"""What is told of a run while it goes on."""

from __future__ import annotations

from noiseproof.train.record import Epoch, Record

__all__ = ["Observer", "Several"]


class Observer:
    """Is told how a run gets on. These methods do nothing; a subclass shows what it likes."""

    def started(self, record: Record, epochs_done: int) -> None:
        """Before the first step; a run that is resumed has some epochs done."""

    def batch(self, epoch: int, done: int, total: int) -> None:
        """After a batch: examples done of those in the epoch, which is counted from 0."""

    def evaluating(self, epoch: int) -> None:
        """Before the evaluation of an epoch, which is counted from 0."""

    def epoch(self, facts: Epoch) -> None:
        """After an epoch and its evaluation."""

    def ended(self, record: Record) -> None:
        """The run is over, finished or diverged."""


class Several(Observer):
    """Tells each of several observers."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def started(self, record: Record, epochs_done: int) -> None:
        for observer in self.observers:
            observer.started(record, epochs_done)

    def batch(self, epoch: int, done: int, total: int) -> None:
        for observer in self.observers:
            observer.batch(epoch, done, total)

    def evaluating(self, epoch: int) -> None:
        for observer in self.observers:
            observer.evaluating(epoch)

    def epoch(self, facts: Epoch) -> None:
        for observer in self.observers:
            observer.epoch(facts)

    def ended(self, record: Record) -> None:
        for observer in self.observers:
            observer.ended(record)
