"""One step of the optimiser on all weights as one vector, in the published order: L1, clip, L2, momentum, step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from noiseproof.train.recipe import Recipe

__all__ = ["Adam", "Sgd", "Update", "Weights", "update_for"]


class Weights:
    """The parameters of a network as views of one vector, :attr:`flat`, each in its own memory format."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]]) -> None:
        trained = {name: parameter for name, parameter in named if parameter.requires_grad}
        if not trained:
            raise ValueError("the model has no parameters to train")
        self.names, self.parameters = list(trained), list(trained.values())
        first = self.parameters[0]
        kinds = sorted({str(parameter.dtype) for parameter in self.parameters})
        if len(kinds) > 1:
            raise ValueError(f"the model's parameters must be of one kind, got {' and '.join(kinds)}")
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.flat = torch.empty(sum(self.sizes), dtype=first.dtype, device=first.device)
        for parameter, view in zip(self.parameters, self.views(self.flat).values(), strict=True):
            view.copy_(parameter.data)
            parameter.data = view

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The parts of a vector in the order of :attr:`flat`, each with its parameter's name and shape."""
        parts = zip(self.names, self.parameters, vector.split(self.sizes), strict=True)
        return {name: _in_layout_of(parameter, part) for name, parameter, part in parts}

    def gradient(self) -> Tensor:
        """The gradients in the order of :attr:`flat`; zero for a parameter that has none."""
        parts = []
        for parameter in self.parameters:
            gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            parts.append((gradient.permute(0, 2, 3, 1) if _channels_last(parameter) else gradient).reshape(-1))
        return torch.cat(parts)

    def clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def _channels_last(parameter: Tensor) -> bool:
    return parameter.dim() == 4 and not parameter.is_contiguous() and parameter.is_contiguous(memory_format=torch.channels_last)


def _in_layout_of(parameter: Tensor, part: Tensor) -> Tensor:
    if _channels_last(parameter):
        outer, inner, height, width = parameter.shape
        return part.view(outer, height, width, inner).permute(0, 3, 1, 2)
    return part.view(parameter.shape)


class Update:
    """Changes weights in place. :attr:`state` is all that it keeps between steps."""

    kept: ClassVar[tuple[str, ...]]  # names of the vectors in the state

    def __init__(self, recipe: Recipe, flat: Tensor) -> None:
        self.recipe = recipe
        self.state = {name: torch.zeros_like(flat) for name in self.kept}

    def __call__(self, flat: Tensor, gradient: Tensor, lr: Tensor | float) -> None:
        raise NotImplementedError

    def regularised(self, flat: Tensor, gradient: Tensor) -> Tensor:
        """The gradient with the L1 penalty, then clipped, then with the L2 decay."""
        recipe = self.recipe
        if recipe.l1:
            gradient = gradient + recipe.l1 * flat.sign()
        if recipe.clip is not None:
            gradient = gradient * (recipe.clip / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp(max=1.0)
        if recipe.l2:
            gradient = gradient + recipe.l2 * flat
        return gradient


class Sgd(Update):
    """Stochastic gradient descent with momentum, Nesterov's on request."""

    kept = ("momentum",)

    def __call__(self, flat: Tensor, gradient: Tensor, lr: Tensor | float) -> None:
        gradient = self.regularised(flat, gradient)
        velocity = self.state["momentum"].mul_(self.recipe.momentum).add_(gradient)
        step = gradient + self.recipe.momentum * velocity if self.recipe.nesterov else velocity
        flat.sub_(lr * step)


class Adam(Update):
    """Adam with betas 0.9 and 0.999."""

    BETAS, EPSILON = (0.9, 0.999), 1e-8
    kept = ("mean", "square")

    def __init__(self, recipe: Recipe, flat: Tensor) -> None:
        super().__init__(recipe, flat)
        # In bfloat16 0.999 is 1, so that 1 - 0.999^n is 0 at first, and counting ends at 256.
        self.state["steps"] = flat.new_zeros((), dtype=torch.promote_types(flat.dtype, torch.float32))

    def __call__(self, flat: Tensor, gradient: Tensor, lr: Tensor | float) -> None:
        gradient = self.regularised(flat, gradient)
        first, second = self.BETAS
        mean, square, steps = self.state["mean"], self.state["square"], self.state["steps"].add_(1)
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = square.sqrt() / (1 - second**steps).sqrt() + self.EPSILON
        flat.sub_(lr / (1 - first**steps) * mean / scale)


def update_for(recipe: Recipe, flat: Tensor) -> Update:
    return {"sgd": Sgd, "adam": Adam}[recipe.optimiser](recipe, flat)
