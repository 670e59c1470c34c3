"""A multi-layer perceptron, for data that are already features."""

from collections.abc import Sequence

from torch import Tensor, nn

from noiseproof.checks import check_integer
from noiseproof.models.base import Classifier, checked_widths, initialise_published, shape_text
from noiseproof.models.catalog import register_model

__all__ = ["MLP"]

HIDDEN = (256, 256)


@register_model("mlp")
class MLP(Classifier):
    """Linear layers with ReLU between them; inputs ``[N, ...]`` are flattened to ``[N, in_features]``.

    ``hidden`` lists the widths; with none it is multinomial logistic regression, and the features are the inputs. Weights
    are xavier-uniform.

    >>> MLP(classes=10, in_features=64, hidden=(32,))
    MLP(
      (body): Sequential(
        (0): Linear(in_features=64, out_features=32, bias=True)
        (1): ReLU(inplace=True)
      )
      (fc): Linear(in_features=32, out_features=10, bias=True)
    )
    """

    def __init__(self, classes: int, in_features: int, hidden: Sequence[int] = HIDDEN) -> None:
        super().__init__()
        classes = check_integer("classes", classes, at_least=2)
        self.in_features = before = check_integer("in_features", in_features, at_least=1)
        layers: list[nn.Module] = []
        for width in checked_widths("hidden", hidden, HIDDEN):
            layers += [nn.Linear(before, width), nn.ReLU(inplace=True)]
            before = width
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(before, classes)
        initialise_published(self)

    def penultimate(self, x: Tensor) -> Tensor:
        flat = x.flatten(1) if x.dim() > 1 else x
        if flat.dim() != 2 or flat.shape[1] != self.in_features:
            raise ValueError(f"MLP takes {self.in_features} features per example, got an input {shape_text(x)}")
        hidden: Tensor = self.body(flat)
        return hidden
