"""The runs behind the published numbers: each once, breadth before depth, the paper's losses first."""

import itertools

import pytest

from noiseproof.paper import SEEDS, QuotedError, cells, recipe, recipe_of
from noiseproof.paper.plan import FIGURES, NOT_COMPARED, chosen_cells, chosen_curves, planned_runs, run_facts

EVERYTHING = planned_runs()


def test_each_distinct_run_is_planned_once_for_every_seed():
    counted = {
        dataset: sum(run.cells[0].dataset == dataset and run.seed == 123 for run in EVERYTHING.runs)
        for dataset in ("cifar10", "cifar100")
    }
    assert counted == {"cifar10": 205, "cifar100": 157}
    assert len(EVERYTHING.runs) == len(SEEDS) * (205 + 157 + 18)  # 9 losses on WebVision, which ILSVRC12 shares, and Clothing1M


def test_every_trained_cell_belongs_to_one_run_of_each_seed_and_the_quoted_ones_are_listed():
    for seed in SEEDS:
        planned = [cell for run in EVERYTHING.runs if run.seed == seed for cell in run.cells]
        assert len(planned) == len(set(planned)) == 425
    assert len(EVERYTHING.quoted) == 14
    assert all(cell.loss == "LT-APL" for cell in EVERYTHING.quoted)


def test_all_runs_of_a_seed_come_before_those_of_the_next():
    seeds = [run.seed for run in planned_runs(seeds=[7, 3, 7]).runs]
    assert seeds == [7] * 380 + [3] * 380


def test_runs_of_one_loss_are_neighbours_and_the_nearest_rivals_come_first():
    losses = [loss for loss, _ in itertools.groupby(run.cells[0].loss for run in EVERYTHING.runs if run.seed == 123)]
    assert losses[:6] == ["JAL-CE", "JAL-FL", "CE", "NCE+RCE", "NCE+AGCE", "ANL-CE"]
    assert len(losses) == len(set(losses))
    datasets = [run.cells[0].dataset for run in EVERYTHING.runs if run.seed == 123 and run.cells[0].loss == "JAL-CE"]
    assert len(list(itertools.groupby(datasets))) == len(set(datasets))


def test_the_recipe_is_that_of_every_cell_of_the_run():
    shared = [run for run in EVERYTHING.runs if len(run.cells) > 2 and run.seed == 124]
    assert shared
    for run in shared[:5]:
        facts = run.recipe.as_dict()
        assert (facts["seed"], facts["precision"]) == (124, "bf16")
        for cell in run.cells:
            assert {**recipe_of(cell, 124).as_dict(), "precision": "bf16"} == facts
    assert planned_runs(chosen_cells(tables=["ablation"]), precision=None).runs[0].recipe.precision == "tf32"


@pytest.mark.parametrize("profile", ["paper-code", "paper-text"])
def test_the_facts_of_a_cell_are_those_of_its_recipe(profile):
    for cell in cells()[:: 1 if profile == "paper-code" else 7]:
        if cell.quoted_from is None:
            facts = recipe_of(cell, profile=profile).as_dict()
            assert run_facts(cell, profile) == {name: facts[name] for name in facts if name not in NOT_COMPARED}


def test_a_quoted_cell_has_no_facts():
    with pytest.raises(QuotedError, match="there is no recipe behind it"):
        run_facts(cells(loss="LT-APL")[0])


def test_filters_take_several_values_and_a_noise_with_or_without_its_rate():
    chosen = chosen_cells(
        tables=["sym_asym", "human"], datasets=["cifar10"], losses=["jal-ce", "CE"], noises=["asymmetric", "human:worst"]
    )
    assert {(cell.table, cell.loss) for cell in chosen} == {
        (table, loss) for table in ("sym_asym", "human") for loss in ("CE", "JAL-CE")
    }
    assert {cell.spec for cell in chosen} == {f"asymmetric:0.{i}" for i in (1, 2, 3, 4)} | {"human:worst"}
    assert chosen_cells(noises=["clean"], tables=["sym_asym"]) == tuple(
        c for c in cells(table="sym_asym") if c.noise == "clean"
    )
    assert chosen_cells() == cells()


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"tables": ["symasym"]}, "unknown table 'symasym'; did you mean 'sym_asym'"),
        ({"datasets": ["cifar-10"]}, "unknown data set 'cifar-10'; did you mean 'cifar10'"),
        ({"noises": ["symetric:0.8"]}, "unknown noise 'symetric:0.8'; did you mean 'symmetric:0.8'"),
        ({"losses": ["jal-ec"]}, "did you mean 'jal-ce'"),
        ({"losses": ["mse"]}, "the paper has no numbers of 'mse'; it has those of CE, FL"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(filters, message):
    with pytest.raises(ValueError, match=message):
        chosen_cells(**filters)


def test_the_figures_are_the_papers():
    """Histograms of CE and JAL-CE; t-SNE of two more; AMSE with four a, and NNCE, at two noises; three q with four a."""
    assert {name: len(curves) for name, curves in FIGURES.items()} == {"histogram": 2, "tsne": 4, "amse_a": 10, "amse_q": 12}
    runs = planned_runs([], curves=chosen_curves(FIGURES), seeds=[123, 124]).runs
    assert len(runs) == 2 + 2 + 10 + 8  # histograms are of runs of t-SNE's, and q = 2 at symmetric 0.8 is in both of AMSE's
    assert {run.seed for run in runs} == {123}
    assert sum(len(run.curves) for run in runs) == 28
    for run in runs:
        for curve in run.curves:
            expected = recipe(f"cifar10/{curve.loss}", noise=curve.noise)
            facts = expected.as_dict() | {"precision": "bf16", "loss_options": {**expected.loss_options, **dict(curve.options)}}
            assert run.recipe.as_dict() == facts


def test_a_curve_whose_run_is_a_cells_is_not_run_twice():
    both = chosen_cells(tables=["ablation", "amse_a"])
    assert both == chosen_cells(tables=["ablation"])
    runs = planned_runs(both, curves=chosen_curves(["ablation", "amse_a"]), seeds=[123, 124]).runs
    assert len(runs) == 12 + (10 - 2) + 12  # AMSE with the paper's a = 30, at two noises
    assert [bool(run.cells) for run in runs] == [True] * 12 + [False] * 8 + [True] * 12
    assert [len(run.curves) for run in runs if run.seed == 124] == [0] * 12
    shared, _ = [run for run in runs if run.cells and run.curves]
    assert (shared.first.loss, shared.first.spec, shared.curves[0].name) == ("AMSE", "symmetric:0.8", "AMSE a=30")


def test_filters_keep_curves_too():
    assert chosen_curves(["sym_asym"]) == ()
    assert len(chosen_curves(["amse_a", "tsne"], noises=["asymmetric:0.4"], losses=["AMSE"])) == 4
    assert chosen_curves(["amse_a"], datasets=["cifar100"]) == ()
    assert chosen_curves(["amse_a"], datasets=["cifar100", "cifar10"]) == chosen_curves(["amse_a"]) != ()
