"""fastai's Learner with our losses. Its vision part needs torchvision; its Learner does not."""

import pickle

import pytest
import torch
from torch import nn

import noiseproof

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of fastai's many imports


@pytest.fixture(scope="module")
def flat():
    pytest.importorskip("fastai.learner")
    from noiseproof.integrations.fastai import FlatLoss

    return FlatLoss


def batches(seed=0, count=96):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    x = 3 * nn.functional.one_hot(y, 4).float() + torch.randn(count, 4, generator=generator)
    return list(zip(x, y, strict=True))


def learner(loss, folder, **options):
    import fastai.callback.progress  # noqa: F401 - gives Learner its no_bar
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from fastai.learner import Learner

    torch.manual_seed(0)
    loaders = DataLoaders(DataLoader(batches(), bs=16, shuffle=True), DataLoader(batches(1), bs=16))
    return Learner(loaders, nn.Linear(4, 3), loss_func=loss, path=folder, **options)


def test_predictions_are_probabilities_and_decoded_ones_classes(flat, tmp_path):
    learn = learner(flat(noiseproof.JALCE, a=30.0), tmp_path)
    with learn.no_bar(), learn.no_logging():
        learn.fit(5, 0.05)
        p, y, decoded = learn.get_preds(with_decoded=True)
        *_, losses = learn.get_preds(with_loss=True)
    with torch.no_grad():
        logits = learn.model(torch.stack([x for x, _ in batches(1)]))
    torch.testing.assert_close(p, torch.softmax(logits, 1))
    assert torch.equal(decoded, p.argmax(1))
    assert (decoded == y).float().mean() > 0.9
    torch.testing.assert_close(losses, noiseproof.JALCE(a=30.0, reduction="none")(logits, y))


def test_baseloss_trains_too_but_predicts_logits(flat, tmp_path):
    from fastai.losses import BaseLoss

    learn = learner(BaseLoss(noiseproof.JALCE, a=30.0), tmp_path)
    with learn.no_bar(), learn.no_logging():
        learn.fit(1, 0.05)
        p, _ = learn.get_preds()
    assert (p.sum(1) - 1).abs().max() > 0.01


def test_the_classes_of_a_segmentation_are_on_axis_1(flat):
    logits, masks = torch.randn(2, 3, 4, 5), torch.randint(3, (2, 4, 5))
    loss = flat(noiseproof.JALCE, a=30.0, axis=1)
    torch.testing.assert_close(loss(logits, masks).as_subclass(torch.Tensor), noiseproof.JALCE(a=30.0)(logits, masks))
    torch.testing.assert_close(loss.activation(logits), torch.softmax(logits, 1))
    assert torch.equal(loss.decodes(logits), logits.argmax(1))


def test_mixup_mixes_the_losses(flat, tmp_path):
    from fastai.callback.mixup import MixUp

    learn = learner(flat(noiseproof.JALCE, a=30.0), tmp_path, cbs=MixUp())
    with learn.no_bar(), learn.no_logging():
        learn.fit(1, 0.05)
    assert learn.recorder.values


def test_it_is_pickled_as_export_does(flat):
    loss = flat(noiseproof.JALCE, a=30.0)
    again = pickle.loads(pickle.dumps(loss))
    logits, y = torch.randn(4, 3), torch.arange(4) % 3
    assert torch.equal(again(logits, y), loss(logits, y))
