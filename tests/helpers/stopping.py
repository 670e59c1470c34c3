"""Runs that are interrupted."""

from noiseproof.train import Callback


class StoppedError(Exception):
    """What an interrupted run raises here."""


class StopIn(Callback):
    """Interrupts a run in the middle of an epoch, counted from 1."""

    def __init__(self, epoch):
        self.last = epoch

    def on_batch_end(self, epoch, done, total):
        if epoch + 1 == self.last and done > total // 2:
            raise StoppedError
