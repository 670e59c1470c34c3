"""Losses from the log-probability of the label alone: the same value and gradient as from logits, or a clear refusal."""

import pytest
import torch

import noiseproof
from noiseproof.integrations.log_probabilities import label_loss, label_losses

STATISTICS = [entry.name for entry in noiseproof.list_losses() if entry.reads == "statistics"]


def log_probability(logits, target):
    return torch.log_softmax(logits, 1).gather(1, target.clamp_min(0)[:, None])[:, 0]


@pytest.mark.parametrize("name", label_losses())
@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"weight": torch.tensor([1.0, 0.0, 2.0, 3.0, 0.5])}], ids=str)
def test_it_is_the_loss_of_the_logits(name, options):
    logits = 3 * torch.randn(12, 5, dtype=torch.float64)
    target = torch.arange(12) % 5
    target[3] = -100
    criterion = noiseproof.create_loss(name, **options)
    found = []
    for from_logits in (True, False):
        z = logits.clone().requires_grad_()
        loss = criterion(z, target) if from_logits else label_loss(criterion, log_probability(z, target), target)
        loss.sum().backward()
        found.append((loss.detach(), z.grad))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("name", label_losses())
def test_certainty_gives_a_finite_loss_and_no_nan(name):
    """A head may give 0, or by rounding slightly more, for a label that is certain."""
    log_p = torch.tensor([0.0, 1e-7, -1e-38, -1e-20, -1e4], requires_grad=True)
    loss = label_loss(noiseproof.create_loss(name), log_p, torch.zeros(5, dtype=torch.long))
    (gradient,) = torch.autograd.grad(loss, log_p)
    assert loss.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", [name for name in STATISTICS if name not in label_losses()])
def test_a_loss_that_sums_over_the_classes_says_so(name):
    with pytest.raises(TypeError, match="needs sums over all classes; functions of the label's probability"):
        label_loss(noiseproof.create_loss(name), torch.zeros(3), torch.zeros(3, dtype=torch.long))


def test_those_of_the_paper_are_among_the_refused():
    assert not {"jal-ce", "jal-fl", "nce", "amse", "anl-ce"} & set(label_losses())
    assert {"ce", "mae", "gce", "rce", "sce", "agce", "aul", "agce+mae"} <= set(label_losses())


@pytest.mark.parametrize(
    ("criterion", "target", "said"),
    [
        (
            noiseproof.CE(label_smoothing=0.1),
            torch.zeros(3, dtype=torch.long),
            "label smoothing needs the probability of every class",
        ),
        (noiseproof.CE(), torch.zeros(3), "soft labels need the logits"),
        (noiseproof.CE(), torch.zeros(2, dtype=torch.long), r"for each label: \[2\], got \[3\]"),
        (noiseproof.NL(), torch.zeros(3, dtype=torch.long), "NL needs logits"),
    ],
)
def test_what_does_not_fit_is_said(criterion, target, said):
    with pytest.raises((TypeError, ValueError), match=said):
        label_loss(criterion, torch.zeros(3), target)
