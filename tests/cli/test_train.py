"""``noiseproof train``, as a person types it and sees it."""

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from noiseproof.cli import app
from noiseproof.report.charts import draw_curves
from noiseproof.train import Record
from noiseproof.train.batch_loader import SINGLE
from noiseproof.train.distributed import LostProcessError
from noiseproof.train.runs import read_checkpoint
from noiseproof.train.training_data import rare_class_warnings

BUG = """
from torch import nn


class Net(nn.Linear):
    def __init__(self, classes):
        super().__init__(4, classes)

    def forward(self, x):
        raise ValueError("my mistake")
"""
SHORT = ("--set", "epochs=2", "--set", "model.hidden=[16]")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOISEPROOF_DATA", raising=False)
    monkeypatch.setattr("noiseproof.report.charts.draw_curves", lambda *_: None)  # takes longer than most runs


def run(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)], env={"COLUMNS": "100", "TERM": "dumb"})


def folders():
    return sorted(path.name for path in Path("runs").iterdir())


def features(name="mine.npz", **arrays):
    generator = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = generator.normal(size=(60, 4)) + y[:, None]
    np.savez(name, x=x, y=y, **arrays)
    return name


def test_a_dry_run_prints_the_whole_recipe_and_writes_nothing():
    result = run("cifar10/jal-ce", "--noise", "symmetric:0.8", "--set", "lr=0.02", "--set", "loss.a=20", "--dry-run")
    assert result.exit_code == 0, result.output
    lines = dict(line.split(None, 1) for line in result.output.splitlines())
    assert lines["lr"] == "0.02"
    assert json.loads(lines["loss_options"]) == {"alpha": 1.0, "beta": 1.0, "a": 20}
    assert lines["noise"] == "symmetric:0.8"
    assert "JALCE(alpha=1.0, beta=1.0, a=20, q=2.0, offset=True)" in result.output
    assert re.fullmatch(r"runs/cifar10_jal-ce_symmetric-0\.8_seed123_[0-9a-f]{8}", lines["folder"])
    assert not Path("runs").exists()


def test_a_dry_run_needs_no_gpu_and_says_what_a_run_there_would_do():
    Path("pictures.txt").write_text("".join(f"{k}.png {k % 2}\n" for k in range(4)))
    for k in range(4):
        Image.new("RGB", (80, 60)).save(f"{k}.png")
    options = (["--device", "cuda"], ["--device", "cpu"], ["--device", "cpu", "--model", "resnet50"])
    plans = [json.loads(run("ce", "--data", "pictures.txt", *o, "--dry-run", "--json").stdout) for o in options]
    assert [plan["recipe"]["model"] for plan in plans] == ["resnet50", "cnn5", "resnet50"]
    assert [plans[k]["recipe"]["precision"] for k in (0, 2)] == ["bf16", "float32"]
    assert len({plan["folder"] for plan in plans}) == 3


def test_a_dry_run_as_json_is_a_recipe():
    facts = json.loads(run("cifar10/jal-ce", "--dry-run", "--json").stdout)
    assert facts["recipe"]["model"] == "cnn8"
    assert re.fullmatch(r"runs/cifar10_jal-ce_none_seed123_[0-9a-f]{8}", facts["folder"])


def test_the_folders_name_depends_on_the_recipe_and_not_on_how_it_is_written():
    def folder(*more):
        return json.loads(run("cifar10/jal-ce", "--dry-run", "--json", *more).stdout)["folder"]

    assert folder("--set", "lr=0.01") == folder()
    assert folder("--set", "lr=0.02") == folder("--set", "lr=2e-2") != folder()
    assert folder("--profile", "paper-text") != folder()
    assert folder("--set", "loss.a=30") == folder("--set", "loss.a=30.0") == folder()
    assert re.fullmatch(r"runs/cifar10_jal-ce_none_seed7_[0-9a-f]{8}", folder("--seed", "7"))


def test_a_wait_for_the_compiler_is_announced(monkeypatch):
    monkeypatch.setattr("noiseproof.cli.train_view.fast_path_suits", lambda *_: True)
    said = "compiled for this GPU first, which can take a minute"
    assert said in run("digits/jal-ce", *SHORT).output
    assert said not in run("digits/jal-ce", *SHORT).output  # finished before


def test_a_run_prints_a_line_for_each_epoch_and_then_the_result():
    result = run("digits/jal-ce", "--noise", "symmetric:0.4", *SHORT)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert re.match(r"digits, jal-ce: 1297 examples of 10 classes, 5\d\d labels wrong \(symmetric:0\.4\)", lines[0])
    assert lines[1] == "500 examples to test on"
    epochs = [line for line in lines if line.startswith("epoch")]
    assert len(epochs) == 2
    assert lines[lines.index(epochs[0]) - 1] == (
        "loss: mean over the epoch's steps, less its constant 84.1; given: training labels predicted, before each step; "
        "clean: of the clean ones; test: test accuracy"
    )
    assert re.match(r"epoch 1/2  loss \d\.\d{4}  given .* %  clean .* %  test .* %  [\d,]+ examples/s  .* left", epochs[0])
    *_, total, by_class, last, command = result.stdout.splitlines()
    metrics = r"\d+\.\d\d % test accuracy in the last epoch, 2; .* % balanced accuracy; .* % macro F1"
    assert re.match(metrics + "; .* right labels learned; .* memorised", total)
    record = Record.read(Path("runs") / folders()[0])
    shares = enumerate(record.result["accuracy_by_class"])
    assert by_class == "recall by class: " + ", ".join(f"{k} {100 * share:.1f} %" for k, share in shares)
    assert last.endswith(f"files in runs/{folders()[0]}")
    assert command == f"for new examples: noiseproof predict runs/{folders()[0]} --data PLACE --out predictions.csv"


def test_of_many_epochs_every_nth_and_the_last_are_printed():
    result = run("digits/ce", *SHORT, "--set", "epochs=7", "--every", "3")
    assert [line.split()[1] for line in result.output.splitlines() if line.startswith("epoch")] == ["3/7", "6/7", "7/7"]


def test_the_curves_are_drawn_beside_the_record(monkeypatch):
    monkeypatch.setattr("noiseproof.report.charts.draw_curves", draw_curves)
    folder = Path(json.loads(run("digits/ce", *SHORT, "--json").stdout)["folder"])
    drawn = (folder / "curves.png").read_bytes()
    assert drawn.startswith(b"\x89PNG")
    (folder / "curves.png").unlink()
    run("digits/ce", *SHORT)  # finished before
    assert (folder / "curves.png").read_bytes() == drawn


def test_warnings_are_on_stderr_also_where_only_the_result_is_wanted():
    """Class 1 of the file has no example, and class 2 hardly one."""
    y = np.array([0, 2] + [0] * 58)
    np.savez("gap.npz", x=np.random.default_rng(0).normal(size=(60, 4)), y=y)
    for more in ((), ("--quiet",), ("--json",)):
        result = run("ce", "--data", "gap.npz", "--set", "epochs=1", *more)
        assert result.exit_code == 0, result.output
        assert result.stderr.count("warning: ") == 3
        assert "warning: no example to train on is of class 1 (labels count from 0" in result.stderr
        assert "warning: no test split, so no test accuracy will be known" in result.stderr
        assert "warning: dead run: every example is predicted as 0\n" in result.stderr
        assert "warning" not in result.stdout.replace('"warnings": ["dead run: every example is predicted as 0"]', "")


def test_a_minority_class_that_a_robust_loss_loses_is_found_by_class_weights_and_from_a_start_by_cross_entropy():
    """As docs/how_to/train.md: the default weights it; without, the doubt before the training and the ways out after it."""
    generator = np.random.default_rng(0)
    y, y_test = (generator.permutation(np.arange(count) < 0.08 * count).astype(int) for count in (1000, 400))
    x, x_test = (generator.normal(size=(len(labels), 8)) + 1.5 * labels[:, None] for labels in (y, y_test))
    np.savez("rare.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    words = ("--data", "rare.npz", "--set", "epochs=30", "--every", "30")
    lost = run("jal-ce", *words, "--class-weight", "none")
    assert "warning: class imbalance: class 1 (8.0%) beside 0 (92.0%); a robust loss may never predict it" in lost.stderr
    assert "warning: dead run: every example is predicted as 0; --class-weight auto" in lost.stderr
    assert "50.00 % balanced accuracy; 47.92 % macro F1" in lost.stdout  # of 400, 368 are right: F1 is 2 * 368 / 768, and 0
    found = run("jal-ce", *words)
    assert "class imbalance of 1:11.5, in which this loss may collapse: tempered class weights" in found.stdout
    assert "warning" not in found.stderr
    start = Path(json.loads(run("ce", *words[:2], "--set", "epochs=10", "--json").stdout)["folder"]) / "weights.safetensors"
    warm = run("jal-ce", *words, "--class-weight", "none", "--set", f"weights={start}", "--json")
    recalls = [record.result["accuracy_by_class"] for folder in folders() if (record := Record.read(Path("runs", folder)))]
    assert sorted(one[1] > 0.7 for one in recalls) == [False, True, True, True]
    assert "never predicted" not in warm.stderr


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([70, 30], ""),
        ([71, 29], "class imbalance: class 1 (29.0%) beside 0 (71.0%); "),
        ([100, 10, 50], ""),
        ([100, 50, 9, 0], "class imbalance: class 2 (5.7%) beside 0 (62.9%); "),
        (
            [9, 800, 9, 7],
            "class imbalance: classes 3 (0.8%), 0 (1.1%), 2 (1.1%) beside 1 (97.0%); a robust loss may never predict them",
        ),
    ],
)
def test_rare_classes_are_those_beside_a_much_more_frequent_one(counts, said):
    labels = np.repeat(np.arange(len(counts)), counts)
    (text,) = [*rare_class_warnings(labels, [*map(str, range(len(counts)))])] or [""]
    assert text.startswith(said)
    assert bool(text) == bool(said)


@pytest.mark.parametrize(("model", "said"), [("resnet18", True), ("cnn5", False)])
def test_a_large_network_on_a_cpu_is_said_to_take_long(model, said):
    np.savez("images.npz", x=np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8), y=np.arange(8) % 2)
    result = run("ce", "--data", "images.npz", "--model", model, "--set", "epochs=1", "--device", "cpu")
    assert result.exit_code == 0, result.output
    hint = f"warning: {model} takes hours on a CPU where a small network, --model cnn5, takes minutes"
    assert (hint in result.stderr) == said


@pytest.mark.parametrize("command", [("train", "ce"), ("compare", "ce", "--seeds", "1")])
def test_labels_from_one_and_labels_in_another_order_are_doubted(command):
    """Symmetric noise gives labels to class 0, which has no example of its own; labels in another order agree by chance."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    x = rng.normal(size=(300, 4))
    np.savez("one.npz", x=x, y=y + 1)
    np.savez("zero.npz", x=x, y=y)
    np.save("noisy.npy", np.where(rng.random(300) < 0.45, (y + 1) % 3, y))
    np.save("shuffled.npy", rng.permutation(y))
    said = {}
    for data, labels in (
        ("one.npz", ("--noise", "symmetric:0.4")),
        ("zero.npz", ("--labels", "noisy.npy")),
        ("zero.npz", ("--labels", "shuffled.npy")),
    ):
        words = [*command, "--data", data, *labels, "--test-size", "0.2", "--set", "epochs=1"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        said[labels[1]] = result.stderr
    assert "warning: no example to train on is of class 0 (labels count from 0" in said["symmetric:0.4"]
    assert "same order" not in said["noisy.npy"]
    assert "shuffled.npy are the data's own, as many as by chance" in said["shuffled.npy"]


def test_a_finished_run_is_shown_again_without_training():
    first = run("digits/ce", *SHORT)
    again = run("digits/ce", *SHORT)
    assert again.exit_code == 0
    assert "finished before: nothing is trained now" in again.output
    assert not [line for line in again.output.splitlines() if line.startswith("epoch")]
    assert first.output.splitlines()[-4:] == again.output.splitlines()[-4:]


def test_quiet_prints_one_line():
    result = run("digits/ce", *SHORT, "--quiet")
    assert re.fullmatch(
        r"\d+\.\d\d % test accuracy in the last epoch, 2; \d+\.\d\d % balanced accuracy; \d+\.\d\d % macro F1\n", result.stdout
    )
    assert all(line.startswith("warning: ") for line in result.stderr.splitlines())


def test_json_prints_one_object_and_nothing_else_on_stdout():
    result = run("digits/ce", *SHORT, "--json")
    facts = json.loads(result.stdout)
    assert facts["status"] == "finished"
    assert facts["result"]["epoch"] == 2
    assert Record.read(Path(facts["folder"])).result == facts["result"]
    assert "epoch 1/2" in result.stderr
    assert "epoch 1/2" not in run("digits/ce", *SHORT, "--json", "--quiet", "--seed", "4").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digits/ce", "--set", "learningrate=1"], "a recipe has no 'learningrate'"),
        (["digits/ce", "--set", "epoch=1"], "did you mean 'epochs'?"),
        (["digits/ce", "--set", "lr"], "--set takes KEY=VALUE, such as lr=0.02, got 'lr'"),
        (["digits/ce", "--set", "loss.q=1"], "q"),
        (["digits/gec"], "did you mean 'gce'?"),
        (["digit/ce"], "did you mean 'digits/ce'?"),
        (["jal-ce"], "RECIPE must be DATASET/LOSS, such as cifar10/jal-ce, or a loss together with --data PLACE"),
        (["cifar10"], "RECIPE must be DATASET/LOSS"),
        (["gec", "--data", "mine.npz"], "did you mean 'gce'?"),
        (["ce,gce", "--data", "mine.npz"], "one loss is trained, got 'ce,gce'; 'noiseproof compare ce,gce --data mine.npz'"),
        (["jal-ce", "--data", "gone.npz"], "gone.npz: no such file or folder"),
        (["jal-ce", "--data", "mine.npz", "--profile", "paper-text"], "--profile is for the paper's recipes"),
        (["digits/ce", "--data", "mine.npz"], "give the loss alone: noiseproof train ce --data mine.npz"),
        (["digits/ce", "--noise", "symetric:0.4"], "digits has no noise 'symetric:0.4'"),
        (["digits/ce", "--noise", "symmetric:2"], "must be in [0, 1], got 2"),
        (["digits/ce", "--noise", "labels:gone.npy"], "no label file"),
        (["digits/ce", "--noise", "symmetric:0.2", "--labels", "x.npy"], "--labels and --noise both say"),
        (["digits/ce", "--device", "gpu"], "--device must be auto, cpu, cuda or cuda:NUMBER, got 'gpu'"),
        (["digits/ce", "--device", "cuda:99"], "CUDA devices here; use cpu or auto"),
        (["digits/ce", "--test-size", "0.1"], "for data without a test split; digits has one of 500"),
        (["digits/ce", "--model", "gone:network"], "cannot import gone"),
        (["cifar10/ce"], "'noiseproof data fetch cifar10' downloads it"),
        (["digits/ce", "--set", "dataset=b.npz"], "--set does not take dataset: RECIPE or --data says it"),
        (["digits/ce", "--model", "resnt18", "--dry-run"], "unknown model 'resnt18'; did you mean 'resnet18'?"),
        (["digits/ce", "--set", "augment=crop", "--dry-run"], "augment must be one of none, flip, crop-flip"),
        (["digits/ce", "--set", "seed=3"], "--set does not take seed: give --seed"),
        (["digits/ce", "--set", "model.hiden=[9]", "--dry-run"], "mlp has no option 'hiden'; it takes"),
        (["cifar10/ce", "--set", "model.stem=big", "--model", "resnet18", "--dry-run"], "stem must be"),
        (["ce", "--data", "mine.npz", "--model", "resnet18", "--dry-run"], "these inputs are features (4,): use mlp"),
        (["digits/ce", "--model", "gone:network", "--dry-run"], "cannot import gone: No module named 'gone'; it must be on"),
        (["digits/ce", "--model", ":network", "--dry-run"], "model must be package.module:function, got ':network'"),
        (["digits/ce", "--model", "json:"], "model must be package.module:function, got 'json:'"),
        (
            ["digits/ce", "--model", "textwrap:dedent", "--set", "model.width=3", "--dry-run"],
            "function of the number of classes",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_one_line_and_status_2(words, message, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    features()
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not Path("runs").exists()


def test_a_folder_of_another_run_is_refused_with_the_difference():
    name = json.loads(run("digits/ce", *SHORT, "--json").stdout)["folder"]
    facts = json.loads((Path(name) / "record.json").read_text(encoding="utf-8"))
    facts["recipe"]["lr"] = 0.5
    (Path(name) / "record.json").write_text(json.dumps(facts), encoding="utf-8")
    result = run("digits/ce", *SHORT)
    assert result.exit_code == 2
    assert "is of another run: lr is 0.5, not 0.002" in result.stderr


def test_divergence_has_its_own_status_and_leaves_the_record():
    result = run("digits/jal-ce", *SHORT, "--set", "lr=1e30", "--json")
    assert result.exit_code == 3
    assert re.search(r"diverged: the loss is \w+ in epoch 1, step \d+ of 11, at learning rate 1e\+30", result.stderr)
    facts = json.loads(result.stdout)
    assert facts["status"] == "diverged"
    assert Record.read(Path(facts["folder"])).status == "diverged"


def test_stopping_says_how_to_go_on(monkeypatch):
    def stop(*words, folder, **more):
        (folder / "checkpoint.safetensors").parent.mkdir(parents=True)
        (folder / "checkpoint.safetensors").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("noiseproof.train.train", stop)
    result = run("digits/ce", *SHORT)
    assert result.exit_code == 130
    assert "stopped; the same command goes on from the last checkpoint in runs/digits_ce" in result.stderr


def test_a_process_that_is_lost_is_one_line(monkeypatch):
    asked = []

    @contextmanager
    def group(device, timeout):
        asked.append(timeout)
        yield SINGLE, device

    def lost(*words, **more):
        raise LostProcessError("another of the 2 processes does not answer")

    monkeypatch.setattr("noiseproof.train.distributed.process_group", group)
    monkeypatch.setattr("noiseproof.train.train", lost)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = run("digits/ce", *SHORT, "--timeout", "7", "--quiet")
    assert result.exit_code == 2
    assert result.stderr == "error: another of the 2 processes does not answer\n"
    assert asked == [7.0]


def test_ones_own_features_train_without_a_test_split_and_say_so():
    result = run("jal-ce", "--data", features(), *SHORT)
    assert result.exit_code == 0, result.output
    assert "no test split, so no test accuracy will be known; --test-size 0.1 holds out a tenth" in result.output
    assert "labels as given" in result.output
    assert "of the given labels predicted; no test accuracy is known" in result.output
    assert re.fullmatch(r"mine_jal-ce_none_seed123_\w{8}", folders()[0])


def test_a_share_of_ones_own_data_is_held_out_on_request():
    result = run("jal-ce", "--data", features(), "--test-size", "0.2", *SHORT)
    assert "12 held out to test on, labels as given: where these are wrong, so is the test accuracy" in result.output
    assert "% test accuracy in the last epoch, 2" in result.output


def test_ones_own_labels_make_the_datas_the_clean_ones():
    np.save("given.npy", (np.arange(60) % 3 + (np.arange(60) < 6)) % 3)
    result = run("jal-ce", "--data", features(), "--labels", "given.npy", *SHORT)
    assert "6 labels wrong" in result.output
    assert "of the wrong labels memorised" in result.output
    assert folders()[0].startswith("mine_jal-ce_labels-given_seed123")


def test_ones_own_model_is_found_in_the_current_folder(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("my_net.py").write_text("from torch import nn\n\n\ndef net(classes, width=4):\n    return nn.Linear(width, classes)\n")
    result = run("ce", "--data", features(), "--model", "my_net:net", "--set", "epochs=1", "--set", "model.width=4")
    assert result.exit_code == 0, result.output
    assert "my_net:net, adam 0.002" in result.output


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def net(classes:\n", "cannot import odd0: SyntaxError: '(' was never closed (odd0.py, line 1)"),
        ("import gone_package\n", "cannot import odd1: No module named 'gone_package'"),
        ("import torch\nx = 1 / 0\n", "cannot import odd2: ZeroDivisionError: division by zero (odd2.py, line 2)"),
        ("raise SystemExit(4)\n", "cannot import odd3: SystemExit: 4 (odd3.py, line 1)"),
        (
            "from torch import nn\ndef net(classes):\n    return nn.Linear(4, classes + 1)\n",
            "the model must return logits [60, 3], got [60, 4] for inputs [60, 4]",
        ),
        (
            "from torch import nn\ndef net(classes):\n    return nn.Linear(5, classes)\n",
            "model 'odd5:net': mat1 and mat2 shapes cannot be multiplied (60x4 and 5x3)",
        ),
        (
            "from torch import nn\nclass net(nn.Linear):\n    def __init__(self, classes):\n"
            "        super().__init__(5, classes)\n    def forward(self, x):\n        return super().forward(x)\n",
            "mat1 and mat2 shapes cannot be multiplied (60x4 and 5x3) (odd6.py, line 6)",
        ),
    ],
    ids=["syntax", "import", "error", "exit", "logits", "inputs", "inputs with a place"],
)
def test_a_model_that_does_not_fit_is_one_line(code, says, request, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    number = request.node.callspec.indices["code"]
    Path(f"odd{number}.py").write_text(code, encoding="utf-8")
    result = run("ce", "--data", features(), "--model", f"odd{number}:net", "--quiet")
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert line.startswith("error: ")
    assert says in line
    assert not Path("runs").exists()


def test_an_error_inside_ones_own_model_keeps_its_trace(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("my_bug.py").write_text(BUG, encoding="utf-8")
    result = run("ce", "--data", features(), "--model", "my_bug:Net")
    assert isinstance(result.exception, ValueError)
    assert str(result.exception) == "my mistake"


@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_it_with_a_checkpoint_and_a_sentence_and_the_same_command_goes_on(tmp_path, monkeypatch, number, status):
    words = ["train", "digits/jal-ce", "--set", "epochs=3000", "--set", "model.hidden=[16]", "--checkpoint-every", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "noiseproof", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    while "epoch    5/3000" not in process.stdout.readline():
        pass
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == status
    assert re.fullmatch(r"stopped; the same command goes on from the last checkpoint in runs/digits_jal-ce\S+\n", stderr)
    (folder,) = Path("runs").iterdir()
    done = len(read_checkpoint(folder)[1]["epochs"])
    assert 5 <= done <= len(Record.read(folder).epochs)

    def stop(self, record, epochs_done):
        assert epochs_done == done
        raise KeyboardInterrupt

    monkeypatch.setattr("noiseproof.cli.train_view.RunDisplay.on_train_begin", stop)
    assert run(*words[1:]).exit_code == 130


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("customer_id", range(1000, 1040), True),
        ("CustomerID", range(40), True),
        ("customer_id", [k // 2 for k in range(40)], False),  # not on every row another
        ("customer_id", [k + 0.5 for k in range(40)], False),
        ("acid", range(40), False),
    ],
)
def test_a_column_that_names_the_rows_is_left_out_and_named(tmp_path, column, values, said):
    rows = "".join(f"{value},{k % 2}.5,{k % 2}\n" for k, value in enumerate(values))
    (tmp_path / "data.csv").write_text(f"{column},size,label\n{rows}")
    done = run("ce", "--data", tmp_path / "data.csv", "--out", tmp_path / "runs", "--set", "epochs=1")
    assert done.exit_code == 0, done.output
    assert (f"  {column} left out: all different\n" in done.stdout) == said


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        (
            "code,size,label",
            lambda k: f"{7 - k % 2},{k},{k % 2}",
            "column 'code' nearly determines the label: leave it out if it is made from it, --columns code=drop",
        ),
        ("code,size,label", lambda k: f"{k % 4},{k},{k % 2}", "column 'code' nearly determines"),  # two values for each class
        ("code,size,label", lambda k: f"{(k + (k % 8 == 1)) % 2},{k},{k % 2}", ""),  # but for every eighth row
        ("code,size,label", lambda k: f"{k % 20},{k},{k % 2}", ""),  # many values, as a measurement has
        ("a,b,label", lambda k: f"{k},{k},{['cat', 'Cat', 'dog'][k % 3]}", "classes 'Cat' and 'cat' differ in capitals or"),
        ("a,b,label", lambda k: f"{k},{k},{'odd' if k == 7 else 'usual'}", "no example to test on is of class odd: the test"),
    ],
)
def test_what_makes_a_result_worthless_is_doubted(tmp_path, header, row, said):
    (tmp_path / "data.csv").write_text("\n".join([header, *map(row, range(40))]) + "\n")
    words = ("ce", "--data", tmp_path / "data.csv", "--out", tmp_path / "runs", "--set", "epochs=1", "--test-size", "0.25")
    done = run(*words)
    assert done.exit_code == 0, done.output
    warnings = [line for line in done.stderr.splitlines() if "column" in line or "capitals" in line or "to test on" in line]
    assert len(warnings) == bool(said), warnings
    assert said in done.stderr
