"""The differences between the paper's text and its code: the known ones are listed, and the profiles differ in nothing else."""

import importlib
import math
from pathlib import Path

import pytest

from noiseproof.paper import PROFILES, differences, list_recipes, recipe

PAPERS = [name for name in list_recipes() if not name.startswith("digits/")]


def listed(dataset, loss):
    return {difference.field: (difference.text, difference.code) for difference in differences(dataset, loss)}


@pytest.mark.parametrize(
    ("dataset", "loss", "expected"),
    [
        ("cifar10", "gce", {"loss.q": (0.9, 0.7)}),
        ("webvision", "gce", {"loss.q": (0.7, 0.6)}),
        ("cifar100", "gce", {}),
        ("clothing1m", "gce", {}),
        ("cifar10", "sce", {"loss.clip": (math.exp(-4), 1e-4)}),
        ("cifar100", "sce", {"loss.beta": (1, 0.1), "loss.clip": (math.exp(-4), 1e-4)}),
        ("clothing1m", "nce+rce", {"loss.clip": (math.exp(-4), 1e-4)}),
        ("cifar10", "nce+aul", {"loss.beta": (3, 4)}),
        ("cifar10", "nce+agce", {"loss.alpha": (10, 1)}),
        ("cifar100", "nce+agce", {}),
        ("cifar10", "agce", {"loss.a": (6, 0.6), "loss.q": (1.5, 0.6)}),
        ("cifar10", "ce+lc", {"loss.delta": (None, 2.5)}),
        ("cifar100", "ce+lc", {"loss.delta": (None, 0.5)}),
        ("cifar10", "anl-ce", {"loss.minimum": (1e-7, 1e-8)}),
        ("cifar100", "jal-fl", {"loss.detach_focal": (False, True)}),
        ("cifar100", "jal-ce", {}),
    ],
)
def test_the_known_differences_of_hyperparameters_are_listed(dataset, loss, expected):
    assert {field: pair for field, pair in listed(dataset, loss).items() if field.startswith("loss.")} == expected


def test_what_the_text_does_not_mention_is_listed():
    assert listed("cifar10", "ce")["clip"] == listed("webvision", "ce")["clip"] == (None, 5.0)
    assert listed("cifar100", "ce")["augment"] == ("crop-flip", "cifar100")
    assert "clip" not in listed("clothing1m", "ce")
    assert listed("webvision", "ce")["model_options"] == (
        {"stem": "imagenet"},
        {"stem": "imagenet", "zero_init_residual": True},
    )


def test_the_differences_of_noise_are_listed():
    found = listed("cifar100", "jal-ce")
    assert found["noise_rule"] == ("exact", "published")
    assert found["noise asymmetric:RATE"] == ("asymmetric-cifar100:RATE", "asymmetric-cifar100-blocks:RATE")
    assert found["noise instance:RATE"] == ("instance:RATE", "labels:cifar100_dependent_RATE.json")
    assert "noise asymmetric:RATE" not in listed("cifar10", "jal-ce")


def test_the_text_has_l1_decay_for_all_and_the_code_for_some():
    assert listed("cifar10", "ce")["l1"] == (5e-5, 0.0)
    assert listed("cifar10", "ce")["l2"] == (0.0, 1e-4)
    assert listed("cifar100", "anl-ce")["l1"] == (5e-6, 5e-7)
    assert not {"l1", "l2"} & set(listed("cifar10", "jal-ce"))


def test_the_digits_are_not_the_papers_and_have_no_differences():
    assert differences("digits", "jal-fl") == []


def fields(name, profile):
    """The recipe's fields and the options of its loss, and what noise becomes, by the names that differences uses."""
    found = recipe(name, profile=profile).as_dict()
    options = {f"loss.{option}": value for option, value in found.pop("loss_options").items()}
    noise = {}
    for kind in ("asymmetric:0.4", "instance:0.4") if name.startswith("cifar") else ():
        made = recipe(name, noise=kind, profile=profile).noise
        noise[f"noise {kind.replace('0.4', 'RATE')}"] = made.replace("0.4", "RATE")
    return {**found, **options, **noise}


@pytest.mark.parametrize("name", PAPERS)
def test_the_two_profiles_differ_in_what_is_listed_and_in_nothing_else(name):
    code, text = (fields(name, profile) for profile in PROFILES)
    assert code.keys() == text.keys()
    found = listed(*name.split("/"))
    for field, value in code.items():
        if field in found and text[field] != value:
            assert found.pop(field) == (text[field], value)
        elif field in found:
            # The text gives none, so both take the code's.
            assert found.pop(field) == (None, value)
        else:
            assert text[field] == value
    assert found == {}


def test_every_difference_says_what_the_text_and_what_the_code_has():
    for name in PAPERS:
        for difference in differences(*name.split("/")):
            assert "the text" in difference.source or "the supplement" in difference.source
            assert "code" in difference.source


def test_differences_are_found_by_any_spelling_and_refused_like_recipes():
    assert differences("CIFAR-10", "GCE") == differences("cifar10", "gce")
    with pytest.raises(ValueError, match="unknown loss 'gec'; did you mean 'gce'"):
        differences("cifar10", "gec")


def test_the_page_says_where_the_texts_profile_leaves_out_what_the_code_does(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "tools"))
    differ, silent = importlib.import_module("differences").difference_lists().split("## The text says nothing")
    assert recipe("cifar10/ce", profile="paper-text").clip is None
    assert "**`clip`** (cifar10, cifar100, webvision; all losses): text none, code `5`." in differ
    assert "`clip`**" not in silent
    assert recipe("cifar10/ce+lc", profile="paper-text").loss_options["delta"] == 2.5
    assert "**`loss.delta`** (cifar10; ce+lc): code `2.5`." in silent
