"""Runs that are interrupted."""

from noiseproof.train import Observer


class StoppedError(Exception):
    """What an interrupted run raises here."""


class StopIn(Observer):
    """Interrupts a run in the middle of an epoch, counted from 1."""

    def __init__(self, epoch):
        self.last = epoch

    def batch(self, epoch, done, total):
        if epoch + 1 == self.last and done > total // 2:
            raise StoppedError
