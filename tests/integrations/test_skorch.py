"""skorch with our losses: probabilities, and L1 regularisation in the steps."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

import noiseproof

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def integration():
    pytest.importorskip("skorch")
    from noiseproof.integrations import skorch

    return skorch


def data():
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    return (np.eye(3, 4)[y] * 3 + generator.normal(size=(90, 4))).astype(np.float32), y.astype(np.int64)


class Linear(nn.Sequential):
    def __init__(self, width=8):
        super().__init__(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))


def net(integration, **options):
    torch.manual_seed(0)
    return integration.NoiseRobustNet(Linear, criterion__a=3.0, lr=0.5, max_epochs=8, verbose=0, train_split=None, **options)


def test_predictions_are_probabilities_where_skorch_alone_gives_logits(integration):
    from skorch import NeuralNetClassifier

    x, y = data()
    fitted = net(integration).set_params(max_epochs=40).fit(x, y)
    p = fitted.predict_proba(x)
    with torch.no_grad():
        expected = torch.softmax(fitted.module_(torch.from_numpy(x)), 1).numpy()
    np.testing.assert_allclose(p, expected, rtol=1e-5)
    assert isinstance(fitted.criterion_, noiseproof.JALCE)
    assert fitted.score(x, y) > 0.9
    alone = NeuralNetClassifier(Linear, criterion=noiseproof.JALCE, verbose=0, max_epochs=1).fit(x, y).predict_proba(x)
    assert abs(alone.sum(1) - 1).max() > 0.01


def test_l1_is_in_the_training_steps_and_in_no_validation(integration):
    x, y = (torch.from_numpy(array) for array in data())
    fitted = net(integration, l1=0.01).initialize()
    logits = fitted.module_(x)
    plain = noiseproof.JALCE(a=3.0)(logits, y)
    penalty = 0.01 * sum(weight.abs().sum() for weight in fitted.module_.parameters())
    torch.testing.assert_close(fitted.get_loss(logits, y, training=True), plain + penalty)
    torch.testing.assert_close(fitted.get_loss(logits, y), plain)
    sizes = [sum(w.abs().sum().item() for w in net(integration, l1=l1).fit(*data()).module_.parameters()) for l1 in (0.0, 0.05)]
    assert sizes[1] < 0.5 * sizes[0]


def test_it_is_cloned_searched_and_pickled_as_an_estimator(integration):
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV

    x, y = data()
    copy = clone(net(integration, l1=0.01, criterion=noiseproof.GCE, module__width=5).set_params(criterion__a=None))
    assert (copy.l1, copy.criterion, copy.module__width) == (0.01, noiseproof.GCE, 5)
    search = GridSearchCV(net(integration), {"l1": [0.0, 1.0], "criterion__a": [3.0]}, cv=2, scoring="neg_log_loss").fit(x, y)
    assert search.best_params_["l1"] == 0.0
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(x), search.predict_proba(x))
