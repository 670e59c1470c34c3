"""Hugging Face's Trainer with our losses: a step is one large batch, however it is divided."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import noiseproof
from noiseproof.integrations.transformers import TrainerLoss

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 30}
QUIET = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 1, "seed": 3}


def sentences(count, kind):
    """Of different lengths, so that batches have different numbers of labels."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for row in range(count):
        ids = torch.randint(3, 30, (8,), generator=generator)
        kept = torch.arange(8) < 2 + row % 7
        labels = {
            "text": torch.tensor(row % 4),
            "token": torch.where(kept, ids % 4, -100),
            "causal": torch.where(kept, ids, -100),
        }
        made.append({"input_ids": ids, "attention_mask": kept.long(), "labels": labels[kind]})
    return made


def model_for(kind):
    torch.manual_seed(1)
    if kind == "causal":
        config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=30, n_positions=8)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        return transformers.GPT2LMHeadModel(config)
    config = transformers.BertConfig(**SIZES, num_labels=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    cls = {"text": transformers.BertForSequenceClassification, "token": transformers.BertForTokenClassification}[kind]
    return cls(config)


def one_step(kind, criterion, batch, steps, folder, strength=0.0):
    """The loss and the norm of the gradient that the Trainer logs for its first step, and the weights after it."""
    model = model_for(kind)
    loss = TrainerLoss(criterion, noiseproof.L1(model, strength) if strength else None)
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=steps,
        max_steps=1,
        max_grad_norm=1e9,
        **QUIET,
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=sentences(16, kind), compute_loss_func=loss)
    trainer.train()
    logged = trainer.state.log_history[0]
    return logged["loss"], logged["grad_norm"], torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.parametrize("kind", ["text", "token", "causal"])
@pytest.mark.parametrize("strength", [0.0, 1e-2])
def test_a_step_of_four_batches_is_the_step_of_one(kind, strength, tmp_path):
    criterion = noiseproof.JALCE(a=30.0)
    (loss, norm, weights), (loss_4, norm_4, weights_4) = (
        one_step(kind, criterion, batch, steps, tmp_path, strength) for batch, steps in ((16, 1), (4, 4))
    )
    assert loss_4 == pytest.approx(loss, rel=1e-5)
    assert norm_4 == pytest.approx(norm, rel=1e-5)
    torch.testing.assert_close(weights_4, weights, rtol=0, atol=1e-6)


def test_cross_entropy_gives_what_the_model_itself_computes(tmp_path):
    for kind in ("token", "causal"):
        model = model_for(kind)
        batch = {name: torch.stack([row[name] for row in sentences(6, kind)]) for name in ("input_ids", "labels")}
        outputs = model(**batch)
        ours = TrainerLoss(noiseproof.CE())(model(input_ids=batch["input_ids"]), batch["labels"])
        torch.testing.assert_close(ours, outputs.loss)


def test_the_penalty_is_added_once_and_not_to_an_evaluation(tmp_path):
    (plain, *_), (with_decay, *_) = (one_step("text", noiseproof.CE(), 4, 4, tmp_path, strength) for strength in (0.0, 1e-2))
    penalty = noiseproof.L1(model_for("text"), 1e-2)().item()
    assert with_decay - plain == pytest.approx(penalty, rel=1e-4)
    logits, labels = torch.randn(6, 4), torch.arange(6) % 4
    loss = TrainerLoss(nn.CrossEntropyLoss(), noiseproof.L1(model_for("text"), 1e-2))
    with torch.no_grad():
        torch.testing.assert_close(loss({"logits": logits}, labels), F.cross_entropy(logits, labels))


def test_soft_labels_and_class_weights_are_divided_by_the_number_of_examples():
    logits, labels, weight = torch.randn(6, 4), torch.arange(6) % 4, torch.tensor([1.0, 2.0, 3.0, 4.0])
    whole = F.cross_entropy(logits, labels, weight=weight, reduction="sum") / 6
    torch.testing.assert_close(TrainerLoss(noiseproof.CE(weight=weight))({"logits": logits}, labels, 6), whole)
    soft = F.one_hot(labels, 4).float()
    torch.testing.assert_close(TrainerLoss(noiseproof.CE())((logits,), soft, 24), F.cross_entropy(logits, labels))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: TrainerLoss(noiseproof.CE(ignore_index=255)), "ignore_index=-100"),
        (lambda: TrainerLoss(noiseproof.CE())({"logits": torch.zeros(2, 3)}, None), "no 'labels'"),
        (lambda: TrainerLoss(noiseproof.CE())({"loss": torch.zeros(2)}, torch.zeros(2)), "no logits"),
        (lambda: TrainerLoss(noiseproof.CE())((torch.zeros(2, 3),), torch.zeros(2)), "probabilities of the classes must"),
        (lambda: TrainerLoss(noiseproof.CE())((torch.zeros(2, 5, 3),), torch.zeros(2, dtype=torch.long)), r"shape \[2, 5\]"),
    ],
)
def test_what_does_not_fit_is_said(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.filterwarnings("ignore:.*pin_memory")
def test_the_page_on_it_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(code, names)
    assert names["trainer"].state.global_step == 2
