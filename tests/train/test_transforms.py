"""The augmentations by name: each normalises by the statistics of its own data set."""

import numpy as np
import pytest
import torch

from noiseproof.data import DataError, ImageFiles, Split
from noiseproof.train.batch_loader import MemoryLoader, Standardise, Transforms

STATISTICS = {
    "cifar10": ((0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "webvision": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clothing1m": ((0.6959, 0.6537, 0.6371), (0.3113, 0.3192, 0.3214)),
}
"""Mean and standard deviation of the training images in [0, 1]: CIFAR's, ImageNet's, and those that are used for Clothing1M"""
PLAIN = np.full((4, 256, 256, 3), (10, 100, 200), np.uint8)


@pytest.mark.parametrize(
    ("name", "files", "part"),
    [
        ("cifar10", False, "train"),
        ("cifar10", False, "test"),
        ("cifar100", False, "train"),
        ("cifar100", False, "test"),
        ("webvision", False, "test"),
        ("webvision", True, "test"),
        ("clothing1m", False, "train"),
        ("clothing1m", True, "train"),
        ("clothing1m", True, "test"),
    ],
)
def test_a_plain_image_is_normalised_by_the_data_sets_mean_and_deviation(name, files, part):
    """Its middle keeps its colour under every crop, flip and turn; only WebVision's training images have theirs jittered."""
    split = ImageFiles(("a.png",) * 4, np.arange(4)) if files else Split(PLAIN[:, :32, :32], np.arange(4))
    images = torch.from_numpy(PLAIN if name in ("clothing1m", "webvision") else PLAIN[:, :32, :32]).permute(0, 3, 1, 2)
    made = getattr(Transforms.named(name, split), part)(images.contiguous(), torch.Generator().manual_seed(0))
    middle = made[:, :, made.shape[2] // 2, made.shape[3] // 2]
    mean, std = map(torch.tensor, STATISTICS[name])
    expected = (torch.tensor([10, 100, 200]) / 255 - mean) / std
    torch.testing.assert_close(middle, expected.expand(4, 3), rtol=1e-5, atol=1e-5)


def test_other_names_normalise_by_the_training_images_themselves():
    images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    made = Transforms.named("none", Split(images, np.arange(50))).test(
        torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    )
    torch.testing.assert_close(made.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(made.std((0, 2, 3), unbiased=False), torch.ones(3), rtol=0, atol=1e-5)


def features(x):
    return Split(np.asarray(x, np.float32), np.arange(len(x)) % 2)


def test_features_are_standardised_by_column_and_floating_images_by_channel():
    """Two passes in float64: a column a million away from zero keeps its digits. Several parts of rows are joined."""
    generator = np.random.default_rng(0)
    x = (generator.normal(size=(5000, 3)) * (1e-3, 1, 50) + (0, -7, 1e6)).astype(np.float32)
    made = Standardise.of(features(x))(x)
    exact = x.astype(np.longdouble)
    expected = (exact - exact.mean(0)) / exact.std(0)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    images = (generator.normal(size=(40, 2, 5, 4)) * np.array([2, 30])[:, None, None]).astype(np.float32)
    made = Standardise.of(features(images))(images)
    np.testing.assert_allclose(made.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(made.std((0, 2, 3)), 1, rtol=1e-5)
    assert len(Standardise.of(features(images)).mean) == 2


def test_with_one_scale_the_columns_keep_their_proportions():
    """Mean and deviation of all values, here of 5000 x 3; a constant column is 0 all the same."""
    generator = np.random.default_rng(0)
    x = generator.choice([0, 4, 16], size=(5000, 3), p=[0.6, 0.3, 0.1]).astype(np.float32)
    x[:, 1] *= generator.random(5000) < 0.01
    made = Standardise.of(features(x), global_scaling=True)
    np.testing.assert_allclose(made(x), (x - x.mean(dtype=np.float64)) / x.std(dtype=np.float64), rtol=1e-5, atol=1e-6)
    x[:, 2] = 4.0
    made = Standardise.of(features(x), global_scaling=True)
    assert made.std[2] == 0
    assert not made(x)[:, 2].any()


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-30, -3e38])
def test_a_constant_column_becomes_zero_also_where_a_test_example_differs(value):
    x = np.stack([np.full(1001, value), np.arange(1001)], 1).astype(np.float32)
    standardise = Standardise.of(features(x))
    assert not standardise(x)[:, 0].any()
    assert standardise(np.float32([[7.0, 500.0]])).tolist() == [[0.0, 0.0]]


def test_features_near_the_end_of_float32_stay_finite_and_one_beyond_is_named():
    x = np.array([[3e38], [-3e38], [1e38]], np.float32)
    made = Standardise.of(features(x))(x)
    assert np.isfinite(made).all()
    np.testing.assert_allclose(made.mean(), 0, atol=1e-6)
    tiny = Standardise.of(features([[1e-30], [2e-30], [3e-30]]))
    with pytest.raises(DataError, match="example 1 is too far from the training examples to be standardised in float32"):
        tiny(np.float32([[2e-30], [1e30]]))


def test_the_statistics_are_those_of_the_training_examples_alone():
    train, test = features([[0.0], [2.0]]), features([[1.0], [101.0]])
    transforms = Transforms.named("none", train, standardise=True)
    loader = MemoryLoader(test, transforms, batch=2, seed=0, device=torch.device("cpu"))
    assert next(loader.eval_batches()).inputs.tolist() == [[0.0], [100.0]]
    again = MemoryLoader(test, Transforms.named("none", test, standardise=True), batch=2, seed=0, device=torch.device("cpu"))
    assert next(again.eval_batches()).inputs.tolist() == [[-1.0], [1.0]]  # not shared with the other loader of these inputs


def test_images_are_not_standardised_twice():
    with pytest.raises(ValueError, match="standardise is for features; images are normalised by their augmentation"):
        Transforms.named("none", Split(PLAIN, np.arange(4)), standardise=True)


def test_the_facts_of_a_preprocessing_repeat_it():
    """By hand, from what a record says: scale, mean and deviation of each channel; mean and deviation of each column."""
    images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    split = Split(images, np.arange(50))
    transforms = Transforms.named("crop-flip", split)
    facts = transforms.facts(split)
    assert (facts["kind"], facts["channels"], facts["size"]) == ("images", 3, [8, 8])
    by_hand = (images.transpose(0, 3, 1, 2) * facts["scale"] - np.reshape(facts["mean"], (3, 1, 1))) / np.reshape(
        facts["std"], (3, 1, 1)
    )
    made = transforms.test(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous())
    np.testing.assert_allclose(made, by_hand, rtol=1e-4, atol=1e-5)
    x = np.random.default_rng(0).normal(3, 2, (20, 4)).astype(np.float32)
    facts = Transforms.named("none", features(x), standardise=True).facts(features(x))["standardise"]
    np.testing.assert_allclose((x - facts["mean"]) / facts["std"], Standardise.of(features(x))(x), rtol=1e-5, atol=1e-6)
    assert Transforms.named("none", features(x)).facts(features(x)) == {"kind": "features"}
    files = ImageFiles(("a.png",) * 4, np.arange(4))
    facts = Transforms.named("webvision", files).facts(files)
    assert (facts["size"], facts["framing"]) == ([224, 224], "ResizeCenterCrop(resize=256, size=224)")
    facts = Transforms.named("clothing1m", files).facts(files)
    assert (facts["size"], facts["framing"]) == ([224, 224], "Resize(height=256, width=256)")
    assert facts["operations"] == ["ResizeCenterCrop(resize=256, size=224)"]


def test_image_files_have_the_size_that_is_asked_for():
    files = ImageFiles(("a.png",) * 4, np.arange(4))
    assert Transforms.named("flip", files, size=(48, 40)).train_framing.frame_size == (48, 40)
    chosen = Transforms.named("webvision", files, size=(96, 96))
    assert (chosen.train_framing.frame_size, chosen.test_framing.frame_size) == ((96, 96), (96, 96))
    with pytest.raises(ValueError, match="augment 'webvision' makes squares, size must be one number, got 48x40"):
        Transforms.named("webvision", files, size=(48, 40))
    with pytest.raises(ValueError, match="augment 'clothing1m' crops to 224x224"):
        Transforms.named("clothing1m", files, size=(96, 96))
