"""What a noise is for a data set, and noise that no data set has."""

import json
import re

import numpy as np
import pytest

from noiseproof.noise import from_spec, load_labels
from noiseproof.paper import PROFILES, cells, recipe, recipe_of


@pytest.mark.parametrize(
    ("name", "noise", "code", "text"),
    [
        ("cifar10/ce", "none", "none", "none"),
        ("cifar10/ce", "clean", "none", "none"),
        ("cifar10/ce", "symmetric:0.8", "symmetric:0.8", "symmetric:0.8"),
        ("cifar10/ce", "asymmetric:0.4", "asymmetric-cifar10:0.4", "asymmetric-cifar10:0.4"),
        ("cifar100/ce", "asymmetric:0.4", "asymmetric-cifar100-blocks:0.4", "asymmetric-cifar100:0.4"),
        ("cifar10/ce", "instance:0.2", "labels:cifar10_dependent_0.2.json", "instance:0.2"),
        ("cifar100/ce", "instance:0.60", "labels:cifar100_dependent_0.6.json", "instance:0.6"),
        ("cifar10/ce", "human:aggregate", "labels:CIFAR-10_human.pt#aggre_label", "labels:CIFAR-10_human.pt#aggre_label"),
        ("cifar10/ce", "human:random1", "labels:CIFAR-10_human.pt#random_label1", "labels:CIFAR-10_human.pt#random_label1"),
        ("cifar10/ce", "human:worst", "labels:CIFAR-10_human.pt#worse_label", "labels:CIFAR-10_human.pt#worse_label"),
        ("cifar100/ce", "human:noisy", "labels:CIFAR-100_human.pt#noisy_label", "labels:CIFAR-100_human.pt#noisy_label"),
        ("digits/ce", "asymmetric:0.4", "asymmetric-mnist:0.4", "asymmetric-mnist:0.4"),
        ("digits/ce", "instance:0.3", "instance:0.3", "instance:0.3"),
        ("webvision/ce", "pairflip:0.1", "pairflip:0.1", "pairflip:0.1"),
        ("cifar100/ce", "asymmetric-cifar100:0.4", "asymmetric-cifar100:0.4", "asymmetric-cifar100:0.4"),
        ("cifar10/ce", "labels:mine.npz#b", "labels:mine.npz#b", "labels:mine.npz#b"),
        ("cifar10/ce", "matrix.npy", "matrix.npy", "matrix.npy"),
    ],
)
def test_a_noise_is_what_the_data_set_and_the_profile_make_of_it(name, noise, code, text):
    assert recipe(name, noise=noise).noise == code
    assert recipe(name, noise=noise, profile="paper-text").noise == text


def test_counts_are_published_in_the_codes_profile_and_exact_in_the_texts():
    for name, expected in (("cifar10/ce", "published"), ("cifar100/ce", "published"), ("digits/ce", "exact")):
        assert recipe(name, noise="symmetric:0.4").noise_rule == expected
        assert recipe(name, noise="symmetric:0.4", profile="paper-text").noise_rule == "exact"


def test_the_noise_of_every_cell_is_one_that_the_generators_know_or_a_file_of_labels():
    classes = {"cifar10": 10, "cifar100": 100}
    for profile in PROFILES:
        for cell in cells():
            if cell.quoted_from:
                continue
            noise = recipe_of(cell, profile=profile).noise
            if noise == "none" or noise.startswith(("labels:", "instance:")):
                continue
            assert from_spec(noise, classes[cell.dataset]).classes == classes[cell.dataset]


def test_a_file_in_the_authors_format_is_read_as_labels(tmp_path):
    path = tmp_path / recipe("cifar10/ce", noise="instance:0.4").noise.removeprefix("labels:")
    path.write_text(json.dumps([6, 9, 9, 4]), encoding="utf-8")
    assert load_labels(path).tolist() == [6, 9, 9, 4]


@pytest.mark.parametrize(
    ("name", "noise", "said"),
    [
        ("cifar10/ce", "symetric:0.4", "cifar10 has no noise 'symetric:0.4'; did you mean 'symmetric'"),
        ("cifar10/ce", "symmetricish:0.4", "cifar10 has no noise 'symmetricish:0.4'"),
        ("cifar10/ce", "asymmetric-cifar11:0.4", "cifar10 has no noise 'asymmetric-cifar11:0.4'"),
        (
            "cifar10/ce",
            "symmetric",
            r"no noise 'symmetric'; did you mean 'symmetric:0.4'\? it has none, symmetric:RATE",
        ),
        ("cifar10/ce", "asymmetric", "cifar10 has no noise 'asymmetric'"),
        ("cifar10/ce", "human:noisy", "human:aggregate, human:random1, human:worst"),
        ("webvision/ce", "asymmetric:0.4", "webvision has no noise 'asymmetric:0.4'"),
        ("cifar10/ce", "symmetric:1.5", r"the rate in 'symmetric:1.5' must be in \[0, 1\], got 1.5"),
        ("cifar10/ce", "asymmetric:nan", r"the rate in 'asymmetric:nan' must be in \[0, 1\], got nan"),
        ("cifar10/ce", "instance:half", "the rate in 'instance:half' must be a number, got 'half'"),
        ("cifar10/ce", "instance:0.5", "have the rates 0.2, 0.4, 0.6, got 0.5; profile 'paper-text' makes labels of any rate"),
    ],
)
def test_a_noise_that_there_is_not_is_refused_with_those_there_are(name, noise, said):
    with pytest.raises(ValueError, match=said):
        recipe(name, noise=noise)


def test_noise_that_the_published_counts_turn_into_none_is_refused():
    with pytest.raises(ValueError, match=r"must be at least 0\.198 in profile 'paper-code', got 0\.1"):
        recipe("cifar100/ce", noise="symmetric:0.1")
    assert recipe("cifar100/ce", noise="symmetric:0.1", profile="paper-text").noise == "symmetric:0.1"
    assert recipe("cifar10/ce", noise="symmetric:0.1").noise == "symmetric:0.1"
    assert recipe("cifar100/ce", noise="symmetric:0.198").noise == "symmetric:0.198"
    labels = np.repeat(np.arange(100), 500)
    assert from_spec("symmetric:0.1", 100).apply(labels, seed=0, rule="published").rate == 0
    assert from_spec("symmetric:0.198", 100).apply(labels, seed=0, rule="published").rate == pytest.approx(0.198)


def test_every_rate_of_the_papers_files_is_one_that_the_paper_prints():
    rates = {cell.rate for cell in cells(table="instance")}
    files = {recipe_of(cell).noise for cell in cells(table="instance")}
    assert {float(re.search(r"_([\d.]+)\.json", file).group(1)) for file in files} == rates
    assert len(files) == 6
