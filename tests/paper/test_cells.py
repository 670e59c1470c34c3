"""The published numbers: all there, typed, and found by what they were measured on."""

import collections
import dataclasses

import pytest

from noiseproof.paper import cells


def test_every_table_has_as_many_numbers_as_the_paper_prints():
    counted = collections.Counter(cell.table for cell in cells())
    # Rows times columns of each table; LT-APL has 7 of 9 columns, on two data sets.
    assert counted == {
        "sym_asym": 2 * (13 * 9 + 7),
        "instance": 10 * 6,
        "human": 10 * 4,
        "real_world": 9 * 3,
        "agce_mae": 5 * 4,
        "agce_mae_all": 8 * 4,
        "ablation": 3 * 4,
    }
    assert sum(counted.values()) == len(cells()) == 439


@pytest.mark.parametrize(
    ("which", "mean", "std"),
    [
        ({"table": "sym_asym", "dataset": "cifar10", "noise": "symmetric", "rate": 0.8, "loss": "JAL-CE"}, 65.43, 0.99),
        ({"table": "sym_asym", "dataset": "cifar100", "noise": "asymmetric", "rate": 0.4, "loss": "JAL-FL"}, 56.26, 0.05),
        ({"table": "sym_asym", "dataset": "cifar100", "noise": "clean", "loss": "NCE"}, 29.95, 0.56),
        ({"table": "instance", "dataset": "cifar100", "rate": 0.6, "loss": "ANL-CE"}, 48.12, 0.48),
        ({"table": "human", "rate": "worst", "loss": "CE+LC"}, 70.11, 0.10),
        ({"table": "real_world", "dataset": "ilsvrc12", "loss": "JAL-CE"}, 66.64, None),
    ],
)
def test_a_number_is_found_by_what_it_was_measured_on(which, mean, std):
    (cell,) = cells(**which)
    assert (cell.mean, cell.std) == (mean, std)


def test_the_weights_that_a_table_varies_are_part_of_the_cell():
    found = {(cell.alpha, cell.beta): cell.mean for cell in cells(table="agce_mae_all", loss="AGCE+MAE", rate=0.8)}
    assert found == {(1, 1): 44.61, (1, 10): 39.44, (10, 1): 23.36, (10, 10): 21.83}


def test_a_loss_may_be_written_as_in_the_paper_or_as_in_the_catalogue():
    assert cells(loss="NCE+RCE") == cells(loss="nce+rce") == cells(loss="NCEandRCE")
    assert len(cells(loss="NCE+RCE")) == 18 + 4 + 4 + 6 + 4 + 3


def test_the_fourteen_numbers_of_the_student_loss_are_quoted():
    quoted = [cell for cell in cells() if cell.quoted_from]
    assert len(quoted) == 14
    assert {(cell.loss, cell.quoted_from) for cell in quoted} == {("LT-APL", "student loss paper")}
    assert all("quoted from the student loss paper" in cell.remark for cell in quoted)


def test_numbers_that_cannot_be_right_say_so():
    assert "likely a copy" in cells(dataset="cifar10", loss="GCE", noise="clean")[0].remark
    assert "likely a copy" in cells(dataset="cifar10", loss="GCE", noise="symmetric", rate=0.2)[0].remark
    assert "fail on 100 classes" in cells(dataset="cifar100", loss="NCE+AUL")[0].remark
    assert cells(dataset="cifar10", loss="GCE", noise="symmetric", rate=0.4)[0].remark is None


def test_noise_is_said_as_a_recipe_takes_it():
    specs = {cell.spec for cell in cells()}
    assert {"none", "symmetric:0.8", "asymmetric:0.1", "instance:0.6", "human:random1", "human:noisy"} <= specs
    assert {cell.spec for cell in cells(table="real_world")} == {"none"}


def test_a_value_that_no_cell_has_is_refused_with_those_there_are():
    with pytest.raises(
        ValueError, match="dataset must be one of cifar10, cifar100, webvision, ilsvrc12, clothing1m, got 'mnist'"
    ):
        cells(dataset="mnist")
    with pytest.raises(ValueError, match=r"rate must be one of .*got 0\.5"):
        cells(rate=0.5)
    with pytest.raises(ValueError, match="did you mean 'gce'"):
        cells(loss="gec")


def test_values_that_exist_but_not_together_find_nothing():
    assert cells(table="human", noise="symmetric") == ()


def test_a_cell_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        cells()[0].mean = 0.0
