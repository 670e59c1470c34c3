"""Recipes of the paper's runs. Expected values are the paper's tables and the authors' scripts, written here by hand."""

import json
import math

import pytest
import torch

from noiseproof.losses import create_loss, find_loss
from noiseproof.models import create_model
from noiseproof.paper import PROFILES, QuotedError, cells, list_recipes, recipe, recipe_of
from noiseproof.train import Recipe

CODE = """
loss      options           cifar10       cifar100        webvision     clothing1m
gce       q                 0.7           0.7             0.6           0.6
fl        gamma             0.5           0.5             -             -
sce       alpha,beta        0.1,1         6,0.1           10,1          10,1
nce+rce   alpha,beta        1,1           10,0.1          50,0.1        10,1
nce+aul   alpha,beta,a,p    1,4,6.3,1.5   10,0.015,6,3    -             -
nce+agce  alpha,beta,a,q    1,4,6,1.5     10,0.1,1.8,3    50,0.1,2.5,3  50,0.1,2.5,3
agce      a,q               0.6,0.6       -               -             -
agce+mae  alpha,beta,a,q    1,1,6,1.5     -               -             -
mae       scale             2             -               -             -
amse      a,q               30,2          -               -             -
ce+lc     delta             2.5           0.5             -             -
anl-ce    alpha,beta        5,5           10,1            20,1          5,0.1
anl-fl    alpha,beta,gamma  5,5,0.5       10,1,0.5        20,1,0.5      5,0.1,0.5
jal-ce    alpha,beta,a      1,1,30        5,1,20          50,1,30       5,0.1,5
jal-fl    alpha,beta,a,gamma 1,1,30,0.5   5,1,20,0.5      50,1,30,0.5   5,0.1,5,0.5
"""
TEXT = """
loss      options           cifar10       cifar100        webvision     clothing1m
gce       q                 0.9           0.7             0.7           0.6
fl        gamma             0.5           0.5             -             -
sce       alpha,beta        0.1,1         6,1             10,1          10,1
nce+rce   alpha,beta        1,1           10,0.1          50,0.1        10,1
nce+aul   alpha,beta,a,p    1,3,6.3,1.5   10,0.015,6,3    -             -
nce+agce  alpha,beta,a,q    10,4,6,1.5    10,0.1,1.8,3    50,0.1,2.5,3  50,0.1,2.5,3
agce      a,q               6,1.5         -               -             -
agce+mae  alpha,beta,a,q    1,1,6,1.5     -               -             -
anl-ce    alpha,beta        5,5           10,1            20,1          5,0.1
anl-fl    alpha,beta,gamma  5,5,0.5       10,1,0.5        20,1,0.5      5,0.1,0.5
jal-ce    alpha,beta,a      1,1,30        5,1,20          50,1,30       5,0.1,5
jal-fl    alpha,beta,a,gamma 1,1,30,0.5   5,1,20,0.5      50,1,30,0.5   5,0.1,5,0.5
"""
CLASSES = {"cifar10": 10, "cifar100": 100, "webvision": 50, "clothing1m": 14, "digits": 10}


def rows(table):
    """(data set, loss, options) of a table; None where the paper does not train the loss on the data set."""
    header, *lines = (line.split() for line in table.strip().splitlines())
    for loss, names, *values in lines:
        for dataset, value in zip(header[2:], values, strict=True):
            options = dict(zip(names.split(","), map(float, value.split(",")), strict=True)) if value != "-" else None
            yield dataset, loss, options


@pytest.mark.parametrize(("profile", "table"), [("paper-code", CODE), ("paper-text", TEXT)])
def test_every_hyperparameter_is_the_printed_one(profile, table):
    for dataset, loss, expected in rows(table):
        if expected is None:
            assert f"{dataset}/{loss}" not in list_recipes()
            continue
        options = recipe(f"{dataset}/{loss}", profile=profile).loss_options
        assert {name: options[name] for name in expected} == expected, (dataset, loss)


@pytest.mark.parametrize(("profile", "logarithm"), [("paper-code", math.log(1e-4)), ("paper-text", -4)])
def test_the_logarithm_of_zero_is_minus_four_in_print_and_of_a_ten_thousandth_in_code(profile, logarithm):
    names = [name for name in list_recipes() if name.split("/")[1] in ("sce", "nce+rce") and not name.startswith("digits")]
    assert len(names) == 8
    for name in names:
        assert math.log(recipe(name, profile=profile).loss_options["clip"]) == pytest.approx(logarithm)


def test_the_code_takes_the_focal_factor_out_of_the_derivative_and_the_text_does_not():
    names = [name for name in list_recipes() if name.endswith(("/fl", "-fl")) and not name.startswith("digits")]
    assert len(names) == 10
    for name in names:
        assert recipe(name).loss_options["detach_focal"] is True
        assert recipe(name, profile="paper-text").loss_options["detach_focal"] is False


def test_probabilities_of_the_negative_losses_are_clipped_as_each_code_does():
    for name in (name for name in list_recipes() if name.split("/")[1] in ("anl-ce", "anl-fl", "nnce")):
        if not name.startswith("digits"):
            assert recipe(name).loss_options["minimum"] == 1e-8
            assert recipe(name, profile="paper-text").loss_options["minimum"] == 1e-7


@pytest.mark.parametrize("profile", PROFILES)
def test_every_published_number_that_is_not_quoted_has_a_recipe(profile):
    measured = [cell for cell in cells() if cell.loss != "LT-APL"]
    assert len(measured) == 439 - 14
    for cell in measured:
        found = recipe_of(cell, seed=124, profile=profile)
        assert found.seed == 124
        assert found.loss == find_loss(cell.loss).name
        assert found.dataset == ("webvision" if cell.dataset == "ilsvrc12" else cell.dataset)


def test_a_quoted_number_is_refused_with_where_it_is_from():
    quoted = cells(loss="LT-APL")
    assert len(quoted) == 14
    for cell in quoted:
        with pytest.raises(QuotedError, match=f"the paper quotes {cell.mean} from the student loss paper"):
            recipe_of(cell)


def test_a_cell_of_cifar10_is_said_completely():
    (cell,) = cells(table="sym_asym", dataset="cifar10", noise="symmetric", rate=0.8, loss="JAL-CE")
    assert recipe_of(cell) == Recipe(
        dataset="cifar10",
        loss="jal-ce",
        loss_options={"alpha": 1.0, "beta": 1.0, "a": 30.0},
        noise="symmetric:0.8",
        noise_rule="published",
        model="cnn8",
        optimiser="sgd",
        lr=0.01,
        momentum=0.9,
        schedule="cosine",
        l1=5e-5,
        clip=5.0,
        augment="cifar10",
        epochs=120,
        batch=128,
        precision="tf32",
        seed=123,
    )


def test_a_cell_of_cifar100_is_said_completely():
    (cell,) = cells(table="sym_asym", dataset="cifar100", noise="asymmetric", rate=0.3, loss="NCE+AGCE")
    assert recipe_of(cell, seed=125) == Recipe(
        dataset="cifar100",
        loss="nce+agce",
        loss_options={"alpha": 10.0, "beta": 0.1, "a": 1.8, "q": 3.0},
        noise="asymmetric-cifar100-blocks:0.3",
        noise_rule="published",
        model="resnet34",
        optimiser="sgd",
        lr=0.1,
        momentum=0.9,
        schedule="cosine",
        l2=1e-5,
        clip=5.0,
        augment="cifar100",
        epochs=200,
        batch=128,
        precision="tf32",
        seed=125,
    )


def test_a_cell_of_webvision_is_said_completely_and_ilsvrc12_tests_the_same_run():
    web, imagenet = (cells(dataset=name, loss="JAL-FL")[0] for name in ("webvision", "ilsvrc12"))
    assert recipe_of(web) == Recipe(
        dataset="webvision",
        loss="jal-fl",
        loss_options={"alpha": 50.0, "beta": 1.0, "a": 30.0, "gamma": 0.5, "detach_focal": True},
        model="resnet50",
        model_options={"stem": "imagenet", "zero_init_residual": True},
        optimiser="sgd",
        lr=0.4,
        momentum=0.9,
        nesterov=True,
        schedule="exponential:0.97",
        l2=3e-5,
        clip=5.0,
        augment="webvision",
        epochs=250,
        batch=256,
        precision="bf16",
        seed=123,
    )
    assert recipe_of(imagenet) == recipe_of(web)


def test_a_cell_of_clothing1m_is_said_completely():
    assert recipe_of(cells(dataset="clothing1m", loss="ANL-CE")[0]) == Recipe(
        dataset="clothing1m",
        loss="anl-ce",
        loss_options={"alpha": 5.0, "beta": 0.1, "minimum": 1e-8},
        model="resnet50",
        model_options={"stem": "imagenet"},
        weights="resnet50-11ad3fa6.pth",
        optimiser="sgd",
        lr=5e-3,
        momentum=0.9,
        schedule="step:5:0.1",
        l2=1e-3,
        augment="clothing1m",
        epochs=10,
        batch=256,
        precision="bf16",
        seed=123,
    )


def test_the_digits_are_trained_as_in_the_demonstration_by_every_loss_and_profile():
    for profile in PROFILES:
        assert recipe("digits/jal-ce", noise="symmetric:0.4", profile=profile) == Recipe(
            dataset="digits",
            loss="jal-ce",
            noise="symmetric:0.4",
            model="mlp",
            model_options={"hidden": [256, 256]},
            optimiser="adam",
            lr=2e-3,
            schedule="cosine",
            epochs=100,
            batch=128,
            seed=123,
            confidence_epochs=(25, 50, 75, 100),
        )
    assert {"digits/ce", "digits/taylor-ce", "digits/ce+lc"} <= set(list_recipes())
    assert not {"digits/lt", "digits/lt-apl", "digits/gjs"} & set(list_recipes())


@pytest.mark.parametrize(
    ("table", "loss", "expected"),
    [
        ("agce_mae", "AGCE+MAE", {"alpha": 1, "beta": 1, "a": 6, "q": 1.5}),
        ("agce_mae", "AGCE", {"a": 0.6, "q": 0.6}),
        ("agce_mae", "MAE", {"scale": 2}),
        ("agce_mae_all", "NCE", {}),
        ("ablation", "AMSE", {"a": 30, "q": 2}),
        ("ablation", "JAL-CE", {"alpha": 1, "beta": 1, "a": 30}),
    ],
)
def test_the_ablations_have_their_settings(table, loss, expected):
    for cell in cells(table=table, loss=loss):
        assert recipe_of(cell).loss_options == expected


def test_the_weights_of_agce_and_mae_are_the_cells_own():
    found = {tuple(recipe_of(cell).loss_options.values()) for cell in cells(table="agce_mae_all", loss="AGCE+MAE")}
    assert found == {(1, 1, 6, 1.5), (1, 10, 6, 1.5), (10, 1, 6, 1.5), (10, 10, 6, 1.5)}


@pytest.mark.parametrize(
    ("dataset", "joint", "negative", "others"), [("cifar10", 5e-5, 5e-5, 1e-4), ("cifar100", 5e-6, 5e-7, 1e-5)]
)
def test_joint_and_negative_losses_have_l1_decay_and_all_others_l2(dataset, joint, negative, others):
    names = [name for name in list_recipes() if name.startswith(f"{dataset}/")]
    expected = {name: (0.0, others) for name in names}
    expected |= {name: (joint, 0.0) for name in names if name.endswith(("/jal-ce", "/jal-fl", "/amse"))}
    expected |= {name: (negative, 0.0) for name in names if name.endswith(("/anl-ce", "/anl-fl", "/nnce"))}
    assert {name: (recipe(name).l1, recipe(name).l2) for name in names} == expected
    assert {(r.l1, r.l2) for r in (recipe(name, profile="paper-text") for name in names)} == {(joint, 0.0)}


@pytest.mark.parametrize(("dataset", "l2"), [("webvision", 3e-5), ("clothing1m", 1e-3), ("digits", 0.0)])
def test_other_data_sets_have_one_decay_for_all_losses(dataset, l2):
    found = [recipe(name, profile=profile) for name in list_recipes() if name.startswith(dataset) for profile in PROFILES]
    assert {(r.l1, r.l2) for r in found} == {(0.0, l2)}


def test_the_histograms_runs_keep_their_confidences_and_no_others_do():
    shown = {
        (c.loss, c.spec)
        for c in cells(dataset="cifar10", table="sym_asym")
        if not c.quoted_from and recipe_of(c).confidence_epochs
    }
    assert shown == {("CE", "symmetric:0.4"), ("JAL-CE", "symmetric:0.4")}
    assert recipe("cifar10/ce", noise="symmetric:0.40").confidence_epochs == (30, 60, 90, 120)
    assert recipe("cifar100/ce", noise="symmetric:0.4").confidence_epochs == ()


@pytest.mark.parametrize("name", list_recipes())
def test_the_loss_and_the_model_of_every_recipe_can_be_built(name):
    for profile in PROFILES:
        found = recipe(name, profile=profile)
        classes = CLASSES[found.dataset]
        value = create_loss(found.loss, **found.loss_options)(torch.zeros(2, classes), torch.tensor([0, 1]))
        assert torch.isfinite(value)
        inputs = {"in_features": 64} if found.model == "mlp" else {}
        with torch.device("meta"):
            create_model(found.model, classes, **found.model_options, **inputs)


@pytest.mark.parametrize(("name", "parameters"), [("cifar10/ce", 1_639_794), ("cifar100/ce", 21_328_292)])
def test_the_networks_are_as_large_as_the_authors(name, parameters):
    found = recipe(name)
    model = create_model(found.model, CLASSES[found.dataset], **found.model_options)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_a_recipe_survives_json():
    for name in ("digits/jal-ce", "webvision/jal-ce", "clothing1m/ce", "cifar10/jal-fl"):
        assert Recipe.from_dict(json.loads(json.dumps(recipe(name).as_dict()))) == recipe(name)


def test_changing_a_recipes_options_leaves_the_next_one_as_it_is():
    recipe("digits/ce").model_options["hidden"].append(7)
    recipe("cifar10/jal-ce").loss_options["a"] = 1.0
    assert recipe("digits/ce").model_options == {"hidden": [256, 256]}
    assert recipe("cifar10/jal-ce").loss_options["a"] == 30.0
