"""Student loss: a parametric head that scores features with a Student's t distribution per class. LT and LT-APL."""

import math
from typing import Unpack

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch reader expects
from torch import Tensor, nn

from noiseproof.checks import check_integer, check_range
from noiseproof.core.row_sums import accumulation_dtype
from noiseproof.losses.base import Contract, RobustLoss, inner_loss
from noiseproof.losses.catalog import register
from noiseproof.losses.classic import CE
from noiseproof.losses.pairs import NCEandRCE
from noiseproof.losses.transformed import row_norm

__all__ = ["Student", "StudentAPL"]

MAX_SCORES = 2**25
"""That a loss of every label forms with a margin; each takes some 50 bytes until the backward pass."""


@register(
    "lt",
    title="Student loss",
    aliases=("student",),
    formula="base(scores / norm(scores)) + lam / 2 * sum((v - mu[y])**2)",
    kind="head",
    reads="features",
    reference="Zhang et al., TPAMI 2024",
)
class Student(RobustLoss):
    r"""Student loss: class scores from features, under one Student's t distribution per class.

    .. math:: s_k = \frac{\Gamma((\nu_k + D)/2)}{\Gamma(\nu_k/2)\, \nu_k^{D/2}} (1 + d_k/\nu_k)^{-(\nu_k + D)/2}, \qquad
              d_k = \tfrac12 \|v - \mu_k\|^2, \quad \nu_k = r_k^2 + 0.1, \quad D = \log(\text{features})

    v are the features and :math:`\mu_k` learned means, both scaled to length 1. The scores, scaled to length 1 over the
    classes, are the logits of ``base`` (cross entropy if none is given); lambda/2 times the squared distance to the label's
    mean is added. In training the label's distance is multiplied by 1 + ``margin``.

    It replaces the last layer of the network and has parameters of its own, so it is called on features ``[N, D]``, its
    parameters go to the optimiser, and :meth:`scores` gives predictions::

        criterion = Student(features=512, classes=10)
        optimiser = torch.optim.SGD([*network.parameters(), *criterion.parameters()], lr=0.1)
        loss = criterion(network(images), labels)
        predicted = criterion.scores(network(images)).argmax(1)

    Use it where the last layer may be replaced.

    Args:
        features: Width of the features, at least 1.
        classes: Number of classes, at least 2.
        margin: How much further away the label's mean counts in training, in [0, inf).
        lam: Weight of the part that is added, in [0, inf).
        base: The loss that is changed; None: cross entropy.
        **contract: The options of :class:`RobustLoss`.

    >>> loss = Student(features=3, classes=4)
    >>> loss(torch.ones(2, 3), torch.tensor([2, 0])).shape, loss.scores(torch.ones(2, 3)).shape
    (torch.Size([]), torch.Size([2, 4]))
    """

    def __init__(
        self,
        *,
        features: int,
        classes: int,
        margin: float = 0.1,
        lam: float = 0.01,
        base: RobustLoss | None = None,
        **contract: Unpack[Contract],
    ) -> None:
        super().__init__(**contract)
        self.features = check_integer("features", features, at_least=1)
        self.classes = check_integer("classes", classes, at_least=2)
        self.margin = check_range("margin", margin, at_least=0)
        self.lam = check_range("lam", lam, at_least=0)
        self.base = inner_loss(CE() if base is None else base)
        self.means = nn.Parameter(torch.empty(self.classes, self.features))
        self.root_freedom = nn.Parameter(torch.ones(self.classes))
        nn.init.xavier_uniform_(self.means)

    def classes_of(self, logits: Tensor) -> int:
        if logits.shape[1] != self.features:
            raise ValueError(f"the student loss takes features [N, {self.features}], got {logits.shape[1]} of them")
        return self.classes

    def masked_classes(self, logits: Tensor) -> Tensor:
        """Return that no class is masked: features are of no class.

        Args:
            logits: The features, ``[N, D]``.

        Returns:
            False everywhere, ``[N, K]``.
        """
        return torch.zeros(len(logits), self.classes, dtype=torch.bool, device=logits.device)

    def constant(self, classes: int) -> float:
        return self.base.constant(classes)

    def scores(self, features: Tensor, target: Tensor | None = None) -> Tensor:
        """Return the class scores, whose largest is the prediction.

        Args:
            features: ``[N, D]``.
            target: Labels to which the margin applies, ``[N]``; None for a prediction.

        Returns:
            The scores, ``[N, K]``.
        """
        return self._scores(self._distances(features), target)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        distance = self._distances(logits)
        scores = self._scores(distance, target if self.training else None)
        return self.base.rows(scores, target) + self.lam * distance.gather(1, target[:, None])[:, 0]

    def every_label(self, logits: Tensor) -> Tensor:
        if self.training and self.margin > 0:
            if len(logits) * self.classes**2 > MAX_SCORES:
                raise ValueError(
                    "with probability targets or smoothing the student loss forms N K^2 scores, because its margin makes them "
                    f"differ between labels: {len(logits)} rows of {self.classes} classes are too many; use labels, or margin=0"
                )
            return super().every_label(logits)
        distance = self._distances(logits)
        return self.base.every_label(self._scores(distance, None)) + self.lam * distance

    def _distances(self, features: Tensor) -> Tensor:
        """Half the squared distance of the normalised features to each normalised mean, which is 1 - cosine."""
        dtype = accumulation_dtype(features.dtype)
        kind = "cpu" if features.device.type == "meta" else features.device.type  # for which there is no autocast
        with torch.autocast(kind, enabled=False):
            return 1 - _unit(features.to(dtype)) @ _unit(self.means.to(dtype)).T

    def _scores(self, distance: Tensor, target: Tensor | None) -> Tensor:
        if target is not None:
            is_label = target[:, None] == torch.arange(self.classes, device=target.device)
            distance = torch.where(is_label, (1 + self.margin) * distance, distance)
        size = math.log(self.features)
        freedom = self.root_freedom.to(distance.dtype).square() + 0.1
        log_normaliser = torch.lgamma((freedom + size) / 2) - torch.lgamma(freedom / 2) - size / 2 * torch.log(freedom)
        log_density = log_normaliser - (freedom + size) / 2 * torch.log1p(distance / freedom)
        # The length cancels any common factor, so the largest density may as well be 1.
        return F.normalize(torch.exp(log_density - log_density.detach().amax(1, keepdim=True)), dim=1)


def _unit(vectors: Tensor) -> Tensor:
    """Rows scaled to length 1; a row of zeros stays, and has no gradient, instead of one as large as 1 / 0."""
    norm = row_norm(vectors)
    return vectors * torch.where(norm > 0, 1 / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0.0)


@register(
    "lt-apl",
    title="Student loss on NCE+RCE",
    formula="base(scores / norm(scores)) + lam / 2 * sum((v - mu[y])**2)",
    kind="head",
    reads="features",
    reference="Zhang et al., TPAMI 2024",
)
class StudentAPL(Student):
    r"""The student loss on ``alpha * NCE + beta * RCE``, the row LT-APL of the paper's tables.

    Use it as :class:`Student`, with a base that is robust itself.

    Args:
        features: Width of the features, at least 1.
        classes: Number of classes, at least 2.
        alpha: Weight of the first loss, in [0, inf).
        beta: Weight of the second loss, in [0, inf).
        margin: How much further away the label's mean counts in training, in [0, inf).
        lam: Weight of the part that is added, in [0, inf).
        **contract: The options of :class:`RobustLoss`.

    >>> StudentAPL(features=3, classes=4)(torch.ones(2, 3), torch.tensor([2, 0])).shape
    torch.Size([])
    """

    def __init__(
        self,
        *,
        features: int,
        classes: int,
        alpha: float = 1.0,
        beta: float = 1.0,
        margin: float = 0.1,
        lam: float = 0.01,
        **contract: Unpack[Contract],
    ) -> None:
        base = NCEandRCE(alpha=alpha, beta=beta)
        super().__init__(features=features, classes=classes, margin=margin, lam=lam, base=base, **contract)
        self.alpha, self.beta = alpha, beta
