"""docs/integrations.md, whose every block of code runs."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import noiseproof
from noiseproof.cli import app
from noiseproof.integrations.log_probabilities import label_losses

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
SECTIONS = {
    heading: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for heading, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}


def run(section, folder, monkeypatch, names=None):
    """What the blocks of a section leave behind."""
    monkeypatch.chdir(folder)
    names = {"__name__": "page", **(names or {})}
    for block in SECTIONS[section]:
        exec(block, names)
    return names


def check_probabilities(found, shape):
    assert found.shape == shape
    torch.testing.assert_close(torch.as_tensor(found).sum(1), torch.ones(shape[0]), check_dtype=False)


def test_every_block_is_in_a_section_that_is_run():
    assert sum(map(len, SECTIONS.values())) == PAGE.count("```python")
    tests = Path(__file__).read_text(encoding="utf-8")
    assert [heading for heading, blocks in SECTIONS.items() if blocks and f'run("{heading}"' not in tests] == []


@pytest.mark.filterwarnings("ignore:.*pin_memory")
def test_hugging_face(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    names = run("Hugging Face's Trainer", tmp_path, monkeypatch)
    assert names["trainer"].state.global_step == 2


def tiny_language_model():
    transformers, datasets = pytest.importorskip("transformers"), pytest.importorskip("datasets")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", *"abcdefghij"])}
    tokens = Tokenizer(models.WordLevel(words, "<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=13, n_positions=16, bos_token_id=1, eos_token_id=1
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    torch.manual_seed(0)
    texts = datasets.Dataset.from_dict({"text": [" ".join("abcdefghij"[k % 10 :][: 2 + k % 5]) for k in range(16)]})
    return {"model": transformers.GPT2LMHeadModel(config), "texts": texts, "tokenizer": tokenizer}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_trl(tmp_path, monkeypatch):
    """Also that its step is that of the logits, however it is divided, with L1."""
    trl = pytest.importorskip("trl")
    from noiseproof.integrations.transformers import TrainerLoss

    def arguments(batch, steps):
        options = {"report_to": "none", "save_strategy": "no", "logging_steps": 1, "use_cpu": True, "bf16": False}
        divided = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": steps, "max_steps": 1}
        return trl.SFTConfig("out", **options, **divided, gradient_checkpointing=False, max_grad_norm=1e9, disable_tqdm=True)

    def first_step(trainer):
        trainer.train()
        return [trainer.state.log_history[0][name] for name in ("loss", "grad_norm")]

    names = run("TRL", tmp_path, monkeypatch, {**tiny_language_model(), "arguments": arguments(4, 4)})
    assert names["trainer"].state.global_step == 1
    found = []
    for cls, divided in ((names["RobustSFTTrainer"], (16, 1)), (names["RobustSFTTrainer"], (4, 4)), (trl.SFTTrainer, (4, 4))):
        tiny = tiny_language_model()
        loss = names["robust"] = TrainerLoss(noiseproof.GCE(q=0.7), noiseproof.L1(tiny["model"], 1e-2))
        own = {"compute_loss_func": loss} if cls is trl.SFTTrainer else {}
        given = {"args": arguments(*divided), "train_dataset": tiny["texts"], "processing_class": tiny["tokenizer"], **own}
        found.append(first_step(cls(tiny["model"], **given)))
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert found[2] == pytest.approx(found[0], rel=1e-5)


def test_the_page_names_the_losses_of_the_labels_probability():
    said = re.search(r"That is enough for (.*?) \(`label_losses", PAGE, re.DOTALL).group(1)
    words = {"its truncated form": "truncated-gce", "the logit bias": "logit-bias"}
    names = [word.strip() for word in re.split(r",|\band\b", said.replace("\n", " ")) if word.strip()]
    assert [words.get(name, name.lower()) for name in names] == label_losses()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path, monkeypatch):
    pytest.importorskip("lightning")
    run("Lightning", tmp_path, monkeypatch)
    check_probabilities(np.load("probabilities.npz")["probabilities"], (120, 3))
    (command,) = re.findall(r"^ {4}noiseproof (audit .*)", PAGE, re.MULTILINE)
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    assert len(Path("audit/audit.csv").read_text(encoding="utf-8").splitlines()) == 121


@pytest.mark.slow
def test_skorch(tmp_path, monkeypatch):
    pytest.importorskip("skorch")
    check_probabilities(run("skorch", tmp_path, monkeypatch)["probabilities"], (90, 3))


@pytest.mark.slow
def test_scikit_learn(tmp_path, monkeypatch):
    check_probabilities(run("scikit-learn", tmp_path, monkeypatch)["probabilities"], (178, 3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_fastai(tmp_path, monkeypatch):
    pytest.importorskip("fastai.learner")
    names = run("fastai", tmp_path, monkeypatch)
    check_probabilities(names["probabilities"], (96, 3))
    learn = names["learn"]
    learn.path = tmp_path
    monkeypatch.setattr(learn.dls, "new_empty", lambda: learn.dls, raising=False)  # which loaders of plain lists do not have
    learn.export("learner.pkl")
    from fastai.learner import load_learner

    assert load_learner(tmp_path / "learner.pkl").loss_func.func.a == 30.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_keras(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("keras")
    names = run("Keras 3 on torch", tmp_path, monkeypatch)
    assert names["model"].loss.criterion.a == 30.0


class Task(nn.Module):
    """As timm's ClassificationTask calls a criterion."""

    def __init__(self, model, criterion):
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, inputs, target):
        output = self.model(inputs)
        return {"loss": self.criterion(output, target), "output": output}


class Segmentation(nn.Conv2d):
    """Logits [N, 4, H, W]; for timm's and sentence-transformers' blocks the mean of them, and a device."""

    device = torch.device("cpu")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_those_that_need_nothing(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    model = Segmentation(3, 4, 1)
    names = {
        "noiseproof": noiseproof,
        "ClassificationTask": Task,
        "model": model,
        "network": model,
        "images": torch.randn(2, 3, 5, 6),
        "masks": torch.randint(4, (2, 5, 6)),
        "labels": torch.randint(4, (2, 5, 6)),
    }
    blocks = SECTIONS["Where the loss itself will do"]
    for block in blocks:
        names["labels"] = torch.randint(4, (2, 1, 5, 6)).float() if "squeeze" in block else torch.randint(4, (2, 5, 6))
        monkeypatch.setitem(SECTIONS, "Where the loss itself will do", [block])
        names = run("Where the loss itself will do", tmp_path, monkeypatch, names)
        assert isinstance(names["loss"], nn.Module) or names["loss"].isfinite()
