"""Keras 3 on torch with our losses: labels as float32, classes last, the mean its own."""

import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import noiseproof

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Keras' imports


@pytest.fixture(scope="module")
def integration():
    with pytest.MonkeyPatch.context() as patch:
        if "keras" not in sys.modules:
            patch.setenv("KERAS_BACKEND", "torch")
        keras = pytest.importorskip("keras")
    if keras.backend.backend() != "torch":
        pytest.skip("Keras was imported with another backend")
    from noiseproof.integrations import keras as integration

    return integration


def data():
    y = np.arange(120) % 3
    return (3 * np.eye(3, 4)[y] + np.random.default_rng(0).normal(size=(120, 4))).astype("float32"), y


def classifier(loss):
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss=loss, metrics=["accuracy"])
    return model


def test_cross_entropy_trains_as_keras_own_does(integration):
    import keras

    x, y = data()
    own = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trained = []
    for loss in (own, integration.KerasLoss(noiseproof.CE())):
        model = classifier(loss)
        model.fit(x, y, batch_size=30, epochs=2, shuffle=False, verbose=0, sample_weight=1.0 + y)
        trained.append(model.get_weights())
    for ours, theirs in zip(*trained, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_model_learns_is_saved_and_loaded_with_its_loss(integration, tmp_path):
    import keras

    x, y = data()
    model = classifier(integration.KerasLoss(noiseproof.JALCE(alpha=2.0, a=3.0, weight=torch.tensor([1.0, 2.0, 3.0]))))
    model.fit(x, y, batch_size=30, epochs=20, verbose=0)
    loss, accuracy = model.evaluate(x, y, verbose=0)
    assert accuracy > 0.9
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.evaluate(x, y, verbose=0) == pytest.approx([loss, accuracy], rel=1e-5)
    assert repr(again.loss.criterion) == repr(model.loss.criterion)


@pytest.mark.parametrize("shape", [(6,), (6, 1), (2, 3, 4), (2, 3, 4, 1)])
def test_labels_of_every_shape_and_ignored_ones(integration, shape):
    logits = torch.randn(*(shape[:-1] if shape[-1] == 1 else shape), 5)
    labels = torch.randint(5, shape)
    labels.view(-1)[1] = 255
    found = integration.KerasLoss(noiseproof.CE(ignore_index=255))(labels.float(), logits)
    rows, target = logits.reshape(-1, 5), labels.reshape(-1)
    torch.testing.assert_close(found, F.cross_entropy(rows, target, ignore_index=255))
    total = integration.KerasLoss(noiseproof.CE(ignore_index=255), reduction="sum")(labels.float(), logits)
    torch.testing.assert_close(total, F.cross_entropy(rows, target, ignore_index=255, reduction="sum"))


def test_probabilities_of_classes_are_targets_too(integration):
    logits, p = torch.randn(6, 5), torch.softmax(torch.randn(6, 5), 1)
    torch.testing.assert_close(integration.KerasLoss(noiseproof.CE())(p, logits), F.cross_entropy(logits, p))


def test_what_cannot_be_is_said(integration, monkeypatch):
    with pytest.raises(TypeError, match="must be a loss of this package"):
        integration.KerasLoss(torch.nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="cannot be saved by its name"):
        integration.KerasLoss(noiseproof.CE() + noiseproof.MAE()).get_config()
    monkeypatch.setattr(integration.keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="KERAS_BACKEND=torch before keras is imported, it is 'jax'"):
        integration.KerasLoss(noiseproof.CE())
