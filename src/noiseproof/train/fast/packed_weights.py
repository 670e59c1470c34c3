"""The training pass with less work: a network's computation rearranged for the device, equal up to rounding.

Channels     numbers of channels are rounded up (196 to 200, 3 to 8), which tensor cores need; the added ones stay zero.
Biases       before BatchNorm a bias changes nothing in training: it is subtracted with the mean, and its gradient is zero.
             It is left out of the pass and decays with the other weights; each step adds it to the running mean.
Precision    in bf16 the weights of convolutions and linear layers are read from a bfloat16 copy that the optimiser keeps,
             instead of being converted in every pass. Autocast rounds there too.
Counters     BatchNorm's counters of batches, which nothing reads, are set at the end of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noiseproof.models.base import Classifier, round_up
from noiseproof.train.network import drawing_from

ALIGNMENT = 64
"""Weights start at multiples of this many numbers, so that every view is aligned for any kernel"""
Norm = nn.BatchNorm1d | nn.BatchNorm2d


@dataclass(frozen=True)
class Span:
    """Where a parameter is in a vector of all of them, and its shape there; the network's parameter is a corner of it."""

    start: int
    shape: torch.Size
    corner: torch.Size

    @property
    def stop(self) -> int:
        return self.start + self.shape.numel()

    def whole(self, vector: Tensor) -> Tensor:
        """Four-dimensional parameters are channels-last."""
        part = vector[self.start : self.stop]
        if len(self.shape) == 4:
            outer, inner, height, width = self.shape
            return part.view(outer, height, width, inner).permute(0, 3, 1, 2)
        return part.view(self.shape)

    def corner_of(self, vector: Tensor) -> Tensor:
        return self.whole(vector)[tuple(slice(size) for size in self.corner)]


class PackedWeights:
    """A network's parameters and running statistics, arranged for the packed pass.

    The network's own tensors become views of the vectors here, so that evaluation and checkpoints see every step.

    flat        all parameters: those that are copied, then the biases left out of the pass, then BatchNorm's
    copy        the first of them in bfloat16, or nothing
    bias        the part of ``flat`` with the biases; ``bias_means`` are the running means after them, in the same places
    template    the structure of the pass, without values
    leaves      what the pass reads and is differentiated by, under the template's names; ``buffers`` what it keeps
    """

    def __init__(self, network: Classifier, *, multiple: int, half: bool) -> None:
        with torch.device("meta"), drawing_from(0):
            self.template = network.aligned(multiple).train()
        shapes = {name: parameter.shape for name, parameter in self.template.named_parameters()}
        self._parameters = dict(network.named_parameters())
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        folded = {names[id(layer.bias)]: norm for layer, norm in before_norm(network)}
        copied = [name for name in names.values() if name not in folded and not _of_norm(network, name)]
        rest = [name for name in names.values() if name not in folded and name not in copied]
        self.spans: dict[str, Span] = {}
        end = 0
        for name in (*copied, *folded, *rest):
            self.spans[name] = Span(end, shapes[name], self._parameters[name].shape)
            end = round_up(self.spans[name].stop, ALIGNMENT)
        device = next(network.parameters()).device
        self.flat = torch.zeros(end, device=device)
        self.copy = torch.zeros(self.spans[copied[-1]].stop if half else 0, dtype=torch.bfloat16, device=device)
        biases = [self.spans[name] for name in folded]
        self.bias = self.flat[biases[0].start : biases[-1].stop] if biases else self.flat[:0]
        self.bias_means = torch.zeros_like(self.bias)
        for name, view in self.views(self.flat).items():
            view.copy_(self._parameters[name].data)
            self._parameters[name].data = view
        self._drop_from_template()
        self.leaves = {
            name: self.spans[name].whole(self.copy if half and name in copied else self.flat).detach().requires_grad_()
            for name, _ in self.template.named_parameters()
        }
        self.buffers = self._adopt_statistics(network, folded)
        self.refresh()

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The parts of a vector like :attr:`flat`, each with its parameter's name and the network's own shape."""
        return {name: self.spans[name].corner_of(vector) for name in self._parameters}

    def evaluation_buffers(self) -> dict[str, Tensor]:
        """What the pass reads in evaluation: its layers lack their biases, which are taken off the running means instead."""
        means = self.bias_means - self.bias
        return {**self.buffers, **{name: means[place] for name, place in self._mean_places.items()}}

    def refresh(self) -> None:
        """Update the bfloat16 copy, after the weights were loaded."""
        self.copy.copy_(self.flat[: len(self.copy)])

    def _drop_from_template(self) -> None:
        for layer, _ in list(before_norm(self.template)):
            layer.bias = None
        for module in self.template.modules():
            if isinstance(module, Norm):
                module.num_batches_tracked = None

    def _adopt_statistics(self, network: Classifier, folded: dict[str, Norm]) -> dict[str, Tensor]:
        """The running statistics of the template, of which the network's become views."""
        start_of = {id(norm): self.spans[name].start - self.spans[next(iter(folded))].start for name, norm in folded.items()}
        buffers = {}
        self._mean_places: dict[str, slice] = {}
        for name, buffer in self.template.named_buffers():
            owner_name, _, kind = name.rpartition(".")
            owner = network.get_submodule(owner_name)
            values = torch.zeros(buffer.shape, device=self.flat.device)
            if kind == "running_mean" and id(owner) in start_of:
                start = start_of[id(owner)]
                self._mean_places[name] = slice(start, start + len(buffer))
                values = self.bias_means[self._mean_places[name]]
            statistic: Tensor = getattr(owner, kind)
            values[: len(statistic)].copy_(statistic)
            setattr(owner, kind, values[: len(statistic)])
            buffers[name] = values
        return buffers


def before_norm(network: nn.Module) -> Iterator[tuple[nn.Conv2d | nn.Linear, Norm]]:
    """Layers with a bias that are followed directly by a BatchNorm."""
    for module in network.modules():
        if isinstance(module, nn.Sequential):
            for layer, norm in zip(list(module), list(module)[1:], strict=False):
                if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None and isinstance(norm, Norm):
                    yield layer, norm


def _of_norm(network: nn.Module, name: str) -> bool:
    return isinstance(network.get_submodule(name.rpartition(".")[0]), Norm)
