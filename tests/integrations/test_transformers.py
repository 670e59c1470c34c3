"""Hugging Face's Trainer with our losses: a step is one large batch, however it is divided."""

import subprocess
import sys
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
    loss = criterion and TrainerLoss(criterion, noiseproof.L1(model, strength) if strength else None)
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


@pytest.mark.parametrize("kind", ["token", "causal"])
def test_a_step_with_cross_entropy_is_the_trainers_own(kind, tmp_path):
    """Whose token classifiers take the mean of means over the parts of a step, so that step has one part."""
    parts = (16, 1) if kind == "token" else (4, 4)
    (loss, norm, weights), (own_loss, own_norm, own_weights) = (
        one_step(kind, criterion, *parts, tmp_path) for criterion in (noiseproof.CE(), None)
    )
    assert (loss, norm) == pytest.approx((own_loss, own_norm), rel=1e-5)
    torch.testing.assert_close(weights, own_weights, rtol=0, atol=1e-6)


def test_the_loss_itself_in_place_of_trainerloss_is_a_mistake_that_is_explained(tmp_path):
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=1, **QUIET)
    for criterion in (noiseproof.JALCE(a=30.0), noiseproof.GJS()):
        trainer = transformers.Trainer(
            model_for("text"), arguments, train_dataset=sentences(8, "text"), compute_loss_func=criterion
        )
        with pytest.raises(TypeError, match=r"wrap it: noiseproof\.integrations\.transformers\.TrainerLoss\(loss\)"):
            trainer.train()
    with pytest.raises(TypeError, match=r"got 'reduce' as well$"):
        noiseproof.CE()(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), reduce=True)
    outputs = model_for("text")(input_ids=torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(TypeError, match="got SequenceClassifierOutput; pass its logits"):
        noiseproof.CE()(outputs, torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize("averaged", [True, False])
def test_under_data_parallel_the_count_is_not_taken_twice(averaged):
    """The Trainer passes the count once for each device, divided by them unless tokens are averaged, and takes the mean of the
    loss after multiplying it by their number where they are."""
    devices, logits, labels = 2, torch.randn(8, 4), torch.arange(8) % 4
    count = torch.tensor(8 if averaged else 8 // devices).unsqueeze(0).expand(devices, -1)
    loss = TrainerLoss(noiseproof.CE())({"logits": logits}, labels, count)
    torch.testing.assert_close((loss * devices if averaged else loss).mean(), F.cross_entropy(logits, labels))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "token", "causal"])
def test_two_processes_take_the_step_of_one(kind, tmp_path):
    loss, norm, weights = one_step(kind, noiseproof.JALCE(a=30.0), 16, 1, tmp_path, 1e-2)
    script = f"""
import sys, json, torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
import noiseproof, test_transformers as t
loss, norm, weights = t.one_step({kind!r}, noiseproof.JALCE(a=30.0), 4, 2, {str(tmp_path)!r}, 1e-2)
if torch.distributed.get_rank() == 0:
    torch.save((loss, norm, weights), {str(tmp_path / "two.pt")!r})
torch.distributed.barrier()  # torch may abort one that is still spoken to while it ends
torch.distributed.destroy_process_group()
"""
    (tmp_path / "two.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(tmp_path / "two.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    loss_2, norm_2, weights_2 = torch.load(tmp_path / "two.pt", weights_only=True)
    assert (loss_2, norm_2) == pytest.approx((loss, norm), rel=1e-5)
    torch.testing.assert_close(weights_2, weights, rtol=0, atol=1e-6)


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


@pytest.mark.skipif(torch.__version__ < "2.7", reason="its compiler does not read a module's move to a device")
def test_compiled_beside_the_same_loss_each_has_its_own_reduction():
    logits, labels = torch.randn(8, 5), torch.arange(8) % 5
    criterion = noiseproof.JALCE()
    loss = TrainerLoss(criterion, shift=False)
    torch.compiler.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def both(logits, labels):
        return loss({"logits": logits}, labels, num_items_in_batch=16), criterion(logits, labels)

    mean = criterion(logits, labels)
    torch.testing.assert_close(both(logits, labels), (mean * 8 / 16, mean))


def test_soft_labels_and_class_weights_are_divided_by_the_number_of_examples():
    logits, labels, weight = torch.randn(6, 4), torch.arange(6) % 4, torch.tensor([1.0, 2.0, 3.0, 4.0])
    whole = F.cross_entropy(logits, labels, weight=weight, reduction="sum") / 6
    torch.testing.assert_close(TrainerLoss(noiseproof.CE(weight=weight))({"logits": logits}, labels, 6), whole)
    soft = F.one_hot(labels, 4).float()
    torch.testing.assert_close(TrainerLoss(noiseproof.CE())((logits,), soft, 24), F.cross_entropy(logits, labels))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: TrainerLoss(noiseproof.CE(), 5e-5),
            r"decay must be a penalty such as noiseproof\.L1\(model, 5e-5\), got float",
        ),
        (lambda: TrainerLoss(noiseproof.CE())((torch.zeros(2, 3),), [0, 1]), "labels must be a tensor, got list"),
        (lambda: TrainerLoss(noiseproof.CE())((), torch.tensor([0, 1])), "no logits"),
        (
            lambda: TrainerLoss(noiseproof.CE(), shift=True)((torch.zeros(2, 3),), torch.tensor([0, 1])),
            r"shift needs logits \[N, T, K\], a position after the other, got \[2, 3\]",
        ),
        (lambda: TrainerLoss(noiseproof.CE(ignore_index=255)), "ignore_index=-100"),
        (lambda: TrainerLoss(noiseproof.CE())({"logits": torch.zeros(2, 3)}, None), "no 'labels'"),
        (lambda: TrainerLoss(noiseproof.CE())({"loss": torch.zeros(2)}, torch.zeros(2)), "no logits"),
        (lambda: TrainerLoss(noiseproof.CE())((torch.zeros(2, 3),), torch.zeros(2)), "probabilities of the classes must"),
        (lambda: TrainerLoss(noiseproof.CE())((torch.zeros(2, 5, 3),), torch.zeros(2, dtype=torch.long)), r"shape \[2, 5\]"),
    ],
)
def test_what_does_not_fit_is_said(call, said):
    with pytest.raises((ValueError, TypeError), match=said):
        call()
