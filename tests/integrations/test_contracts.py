"""Frameworks that call a loss as they call ``torch.nn.CrossEntropyLoss``: nothing of ours is needed, and that is tested.

timm and segmentation-models-pytorch depend on torchvision, which does not install beside every build of torch, so these calls
are theirs with a module in place of their model; Lightning and others have tests of their own.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import noiseproof


def test_timm_classification_task_calls_criterion_of_output_and_target_also_of_mixup():
    """timm/task/classification.py: ``loss = self.criterion(output, target)``; Mixup gives targets [B, K] that sum to 1."""
    model, images = nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), torch.randn(6, 3, 2, 2)
    labels = torch.arange(6) % 5
    mixed = 0.7 * F.one_hot(labels, 5).float() + 0.3 * F.one_hot(labels.flip(0), 5).float()
    criterion = noiseproof.JALCE(a=30.0)
    output = model(images)
    expected = 0.7 * criterion(output, labels) + 0.3 * criterion(output, labels.flip(0))
    torch.testing.assert_close(criterion(output, mixed), expected)
    with torch.autocast("cpu", torch.bfloat16):  # as its --amp does
        loss = criterion(model(images), labels)
    assert loss.dtype == torch.float32
    loss.backward()
    assert isinstance(getattr(criterion, "__name__", None) or type(criterion).__name__, str)  # it logs one of the two


def test_segmentation_masks_leave_out_255():
    """segmentation_models_pytorch: logits [N, K, H, W] of a model, masks [N, H, W] with 255 where nobody knows."""
    logits = torch.randn(2, 4, 5, 6, requires_grad=True)
    masks = torch.randint(4, (2, 5, 6))
    masks[:, 0] = 255
    loss = noiseproof.JALCE(a=30.0, ignore_index=255)(logits, masks)
    loss.backward()
    assert (logits.grad[:, :, 0] == 0).all()
    assert (logits.grad[:, :, 1:] != 0).any(1).all()
    torch.testing.assert_close(loss, noiseproof.JALCE(a=30.0)(logits[:, :, 1:], masks[:, 1:]))


def test_monai_labels_lose_their_channel():
    """MONAI's images have a channel, also those of labels: [N, 1, H, W], float32 as the transforms leave them."""
    logits, labels = torch.randn(2, 4, 5, 6, 7), torch.randint(4, (2, 1, 5, 6, 7)).float()
    criterion = noiseproof.JALCE(a=30.0)
    loss = criterion(logits, labels.squeeze(1).long())
    rows = logits.movedim(1, -1).reshape(-1, 4)
    torch.testing.assert_close(loss, criterion(rows, labels.reshape(-1).long()))
    with pytest.raises(ValueError, match=r"target must have shape \(2, 5, 6, 7\)"):
        criterion(logits, labels)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_monai_network_and_its_tensors_train():
    monai = pytest.importorskip("monai")
    from monai.networks.nets import UNet

    torch.manual_seed(0)
    network = UNet(spatial_dims=2, in_channels=1, out_channels=3, channels=(4, 8), strides=(2,))
    images = monai.data.MetaTensor(torch.randn(2, 1, 16, 16))
    labels = monai.data.MetaTensor((images > 0).float() + (images > 1).float())
    criterion, optimiser = noiseproof.JALCE(a=10.0), torch.optim.Adam(network.parameters(), 0.02)
    losses = []
    for _ in range(40):
        optimiser.zero_grad()
        loss = criterion(network(images), labels.squeeze(1).long())
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_sentence_transformers_softmax_loss_takes_it_as_loss_fct():
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses

    class Encoder(nn.Module):
        """What the loss asks of a model: embeddings of features, and a device."""

        device = torch.device("cpu")

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 6)

        def forward(self, features):
            return {"sentence_embedding": self.linear(features["x"])}

    pairs = [{"x": torch.randn(8, 4)}, {"x": torch.randn(8, 4)}]
    labels = torch.arange(8) % 3
    model = Encoder()
    loss = losses.SoftmaxLoss(model, 6, num_labels=3, loss_fct=noiseproof.JALCE(a=30.0))
    value = loss(pairs, labels)
    a, b = (model(pair)["sentence_embedding"] for pair in pairs)
    logits = loss.classifier(torch.cat([a, b, (a - b).abs()], 1))
    torch.testing.assert_close(value, noiseproof.JALCE(a=30.0)(logits, labels))
    value.backward()
    assert model.linear.weight.grad.abs().sum() > 0
