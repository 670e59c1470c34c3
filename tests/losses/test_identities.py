"""Limits and identities that tie the family together, each from a paper or from two lines of algebra."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from noiseproof import (
    AGCE,
    AMSE,
    AUL,
    CE,
    ECE,
    FL,
    GCE,
    GJS,
    JALFL,
    JS,
    LDR,
    MAE,
    MSE,
    NCE,
    NFL,
    NL,
    NNCE,
    NNFL,
    RCE,
    SCE,
    ANorm,
    LogitClip,
    NegativeLS,
    PHuberCE,
    PublishedLogitClip,
    SparseRegularization,
    Student,
    TaylorCE,
    TruncatedGCE,
)
from tests.helpers.cases import call, draw, gradient

LOGITS, TARGET = draw(32, 6, scale=3.0)


def same(first, second, **tolerance):
    torch.testing.assert_close(first(LOGITS, TARGET), second(LOGITS, TARGET), **tolerance)
    torch.testing.assert_close(gradient(first, LOGITS, TARGET), gradient(second, LOGITS, TARGET), **tolerance)


def miss():
    return 1 - torch.softmax(LOGITS, 1).gather(1, TARGET[:, None])[:, 0]


def test_rce_is_a_scaled_mae():
    torch.testing.assert_close(RCE(reduction="none")(LOGITS, TARGET), 9.210340371976184 * miss())


def test_sce_is_ce_plus_rce():
    torch.testing.assert_close(SCE(alpha=6.0, beta=0.1)(LOGITS, TARGET), 6 * CE()(LOGITS, TARGET) + 0.1 * RCE()(LOGITS, TARGET))


def test_gce_goes_from_cross_entropy_to_half_of_mae():
    same(GCE(q=1e-9), CE(), rtol=1e-6, atol=1e-8)
    same(GCE(q=1.0), MAE(scale=1.0))


def test_gce_without_truncation_below_the_threshold():
    sure = torch.softmax(LOGITS, 1).gather(1, TARGET[:, None])[:, 0] > 0.5
    plain, truncated = (loss(LOGITS, TARGET) for loss in (GCE(reduction="none"), TruncatedGCE(reduction="none")))
    torch.testing.assert_close(truncated[sure], plain[sure])
    torch.testing.assert_close(truncated[~sure], torch.full_like(truncated[~sure], (1 - 0.5**0.7) / 0.7))


def test_agce_near_zero_is_gce():
    same(AGCE(a=1e-9, q=0.7), GCE(q=0.7), rtol=1e-5, atol=1e-7)


def test_mse_is_amse_at_one():
    same(MSE(), AMSE(a=1.0))


def test_anorm_is_amse_times_classes_over_q():
    torch.testing.assert_close(ANorm(a=4.0)(LOGITS, TARGET), AMSE(a=4.0, offset=False)(LOGITS, TARGET) * 6 / 2)


def test_dropping_the_offset_keeps_the_gradient():
    torch.testing.assert_close(gradient(AMSE(), LOGITS, TARGET), gradient(AMSE(offset=False), LOGITS, TARGET), rtol=0, atol=0)
    torch.testing.assert_close(AMSE()(LOGITS, TARGET) - AMSE(offset=False)(LOGITS, TARGET), torch.tensor(29.0**2 / 6).double())


def test_amse_is_a_scaled_mae_minus_a_gini_term():
    """AMSE = (a-1)^2/K + [2a(1-p_y) - (1 - sum p^2)]/K."""
    p = torch.softmax(LOGITS, 1)
    gini = 1 - p.square().sum(1)
    expected = (29.0**2 + 60 * miss() - gini) / 6
    torch.testing.assert_close(AMSE(reduction="none")(LOGITS, TARGET), expected)


def test_a_does_not_matter_at_q_one():
    """Supplement of the paper: for q = 1 the constant a drops out, and the loss is a scaled MAE."""
    torch.testing.assert_close(gradient(AMSE(a=3.0, q=1.0), LOGITS, TARGET), gradient(AMSE(a=40.0, q=1.0), LOGITS, TARGET))
    torch.testing.assert_close(AMSE(a=3.0, q=1.0, offset=False, reduction="none")(LOGITS, TARGET), 2 * miss() / 6)


def test_gamma_zero_is_the_loss_without_focus():
    same(FL(gamma=0.0), CE())
    same(NFL(gamma=0.0), NCE())
    same(NNFL(gamma=0.0), NNCE())


def test_detaching_the_focal_weight_changes_the_gradient_and_not_the_value():
    logits = LOGITS.clone().requires_grad_()
    detached, plain = FL(detach_focal=True, reduction="sum"), FL(reduction="sum")
    torch.testing.assert_close(detached(logits, TARGET), plain(logits, TARGET))
    log_p = torch.log_softmax(logits, 1).gather(1, TARGET[:, None])[:, 0]
    expected = -(((1 - log_p.exp()) ** 0.5).detach() * log_p).sum()
    (wanted,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(gradient(detached, LOGITS, TARGET), wanted)
    assert not torch.allclose(gradient(detached, LOGITS, TARGET), gradient(plain, LOGITS, TARGET))


@pytest.mark.parametrize("loss", [NFL(detach_focal=True, reduction="sum"), JALFL(detach_focal=True, reduction="sum", a=3.0)])
def test_the_published_gradient_of_the_focal_family_is_the_detached_one(loss):
    logits = LOGITS.clone().requires_grad_()
    log_p = torch.log_softmax(logits, 1)
    focal = -(((1 - log_p.exp()) ** 0.5).detach() * log_p)
    value = focal.gather(1, TARGET[:, None])[:, 0] / focal.sum(1)
    if isinstance(loss, JALFL):
        value = value + ((3.0 * F.one_hot(TARGET, 6) - log_p.exp()) ** 2).mean(1)
    (wanted,) = torch.autograd.grad(value.sum(), logits)
    torch.testing.assert_close(loss(LOGITS, TARGET), value.sum().detach())
    torch.testing.assert_close(gradient(loss, LOGITS, TARGET), wanted)


def test_taylor_ce_goes_from_half_of_mae_to_cross_entropy():
    same(TaylorCE(t=1), MAE(scale=1.0))
    near = LOGITS / 10
    torch.testing.assert_close(TaylorCE(t=400)(near, TARGET), CE()(near, TARGET))


def test_phuber_goes_from_half_of_mae_to_cross_entropy():
    same(PHuberCE(tau=1.0 + 1e-9), MAE(scale=1.0), rtol=1e-6, atol=1e-8)
    same(PHuberCE(tau=1e12), CE())


def test_js_depends_on_the_label_alone():
    """Moving probability between the other classes changes nothing."""
    p = torch.tensor([[0.3, 0.6, 0.1], [0.3, 0.35, 0.35]], dtype=torch.float64)
    values = JS(pi=0.4, reduction="none")(p.log(), torch.tensor([0, 0]))
    torch.testing.assert_close(values[0], values[1])


def test_js_goes_from_cross_entropy_to_half_of_mae():
    torch.testing.assert_close(JS(pi=1e-7)(LOGITS, TARGET), CE()(LOGITS, TARGET), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(JS(pi=1 - 1e-7)(LOGITS, TARGET), MAE(scale=1.0)(LOGITS, TARGET), rtol=0.1, atol=0.1)


def test_gjs_rewards_agreement():
    other = LOGITS.flip(0)
    agree, disagree = GJS(pi=0.3)([LOGITS, LOGITS], TARGET), GJS(pi=0.3)([LOGITS, other], TARGET)
    torch.testing.assert_close(agree, JS(pi=0.3)(LOGITS, TARGET))
    assert disagree > 0


def test_gjs_of_two_predictions_is_the_formula():
    other = torch.randn(LOGITS.shape, dtype=torch.float64)
    p = [torch.softmax(z, 1) for z in (LOGITS, other)]
    mixed = 0.3 * F.one_hot(TARGET, 6) + 0.35 * p[0] + 0.35 * p[1]

    def entropy(q):
        return -torch.xlogy(q, q).sum(1)

    expected = (entropy(mixed) - 0.35 * entropy(p[0]) - 0.35 * entropy(p[1])) / (-0.7 * math.log(0.7))
    torch.testing.assert_close(GJS(pi=0.3, reduction="none")([LOGITS, other], TARGET), expected)


def test_gjs_says_how_many_predictions_it_takes():
    with pytest.raises(ValueError, match="GJS was built for 2 predictions, got 3; pass views=3"):
        GJS()([LOGITS] * 3, TARGET)
    with pytest.raises(ValueError, match="the predictions must have one shape"):
        GJS()([LOGITS, LOGITS[:3]], TARGET)


def test_negative_ls_is_label_smoothing_with_a_positive_rate():
    torch.testing.assert_close(NegativeLS(r=0.2)(LOGITS, TARGET), F.cross_entropy(LOGITS, TARGET, label_smoothing=0.2))
    same(NegativeLS(r=0.0), CE())


def test_epsilon_softmax_without_a_bonus_is_softmax():
    same(ECE(m=0.0), CE())


def test_logitclip_leaves_short_logits_alone_and_the_published_one_does_not():
    short = LOGITS / LOGITS.norm(dim=1, keepdim=True)  # norm 1
    torch.testing.assert_close(LogitClip(tau=1.5)(short, TARGET), CE()(short, TARGET))
    torch.testing.assert_close(LogitClip(tau=1.0)(7 * short, TARGET), CE()(short, TARGET))
    torch.testing.assert_close(PublishedLogitClip(delta=2.5)(short, TARGET), CE()(2.5 * short, TARGET))  # 1 > 1/2.5
    torch.testing.assert_close(PublishedLogitClip(delta=2.5)(0.3 * short, TARGET), CE()(0.3 * short, TARGET))
    same(PublishedLogitClip(delta=1.0), LogitClip(tau=1.0))


def test_sparse_regularisation_grows_over_epochs():
    loss = SparseRegularization(lam=2.0, growth=3.0, every=2)
    strengths = []
    for epoch in range(5):
        loss.set_epoch(epoch)
        strengths.append(loss.strength.item())
    assert strengths == [2.0, 2.0, 6.0, 6.0, 18.0]


def test_sparse_regularisation_has_the_digits_of_its_logits_whatever_it_was_cast_to():
    logits, target = LOGITS.double(), TARGET
    loss = SparseRegularization(temperature=0.7, lam=1.1, q=0.3, growth=1.07).to(torch.bfloat16)
    loss.set_epoch(5)
    p = torch.softmax(logits / 0.7, 1)
    expected = F.cross_entropy(logits / 0.7, target) + 1.1 * 1.07**5 * (p**0.3).sum(1).mean()
    torch.testing.assert_close(loss(logits, target), expected, rtol=1e-13, atol=0)


def test_sparse_regularisation_can_normalise_as_published():
    unit = LOGITS / LOGITS.norm(dim=1, keepdim=True)
    first, second = SparseRegularization(normalize=True), SparseRegularization()
    torch.testing.assert_close(first(LOGITS, TARGET), second(unit, TARGET))


def test_ldr_is_a_hinge_loss_at_small_lambda():
    scores = F.softplus(LOGITS) / F.softplus(LOGITS).mean(1, keepdim=True)
    of_label = scores.gather(1, TARGET[:, None])
    hinge = (scores - of_label + 0.5 * (1 - F.one_hot(TARGET, 6))).amax(1)
    torch.testing.assert_close(LDR(c=0.5, lam=1e-4, reduction="none")(LOGITS, TARGET), hinge, rtol=1e-3, atol=1e-3)


def test_negative_learning_draws_every_other_class_and_never_the_label():
    """1,000 draws from 5 classes miss one of them with probability below 1e-95."""
    from noiseproof.losses.complementary import complementary_labels

    target = torch.full((1000,), 3)
    drawn = complementary_labels(target, 6, torch.Generator().manual_seed(0))
    assert sorted(set(drawn.tolist())) == [0, 1, 2, 4, 5]


def test_negative_learning_follows_its_generator():
    values = [NL(generator=torch.Generator().manual_seed(5), reduction="none")(LOGITS, TARGET) for _ in range(2)]
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=0)


def test_the_stages_of_nlnl_keep_the_rows_they_should():
    p = torch.softmax(LOGITS, 1).gather(1, TARGET[:, None])[:, 0]
    selective = call(NL(stage="selnl", reduction="none"), LOGITS, TARGET)
    plain = call(NL(reduction="none"), LOGITS, TARGET)
    torch.testing.assert_close(selective, torch.where(p > 1 / 6, plain, 0.0))
    positive = NL(stage="selpl", reduction="none")(LOGITS, TARGET)
    torch.testing.assert_close(positive, torch.where(p > 0.5, -p.log(), 0.0))
    with pytest.raises(ValueError, match="stage must be one of nl, selnl, selpl, got 'all'"):
        NL(stage="all")


def test_the_student_head_scores_with_the_margin_only_in_training():
    head = Student(features=6, classes=4).double()
    features, target = LOGITS, TARGET % 4
    with_margin = head(features, target)
    head.eval()
    assert head(features, target) < with_margin
    torch.testing.assert_close(head.scores(features).norm(dim=1), torch.ones(32, dtype=torch.float64))
    with pytest.raises(ValueError, match="the student loss takes features \\[N, 6\\], got 5"):
        head(features[:, :5], target)


def test_the_student_head_learns():
    """Its own parameters get gradients, and a few steps separate two clusters."""
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(64) % 2
    features = torch.randn(64, 8, generator=generator) + 3 * target[:, None]
    head = Student(features=8, classes=2)
    optimiser = torch.optim.SGD(head.parameters(), lr=0.5)
    for _ in range(50):
        optimiser.zero_grad()
        head(features, target).backward()
        optimiser.step()
    assert bool((head.scores(features).argmax(1) == target).float().mean() > 0.95)
    assert head.means.grad is not None
    assert head.root_freedom.grad is not None


@pytest.mark.parametrize(
    "loss",
    [
        ECE(m=0.0),
        ECE(m=1e-9),
        AGCE(a=1e-8, q=0.5),
        AUL(a=1.01, p=20.0),
        AMSE(a=1.01, q=20.0),
        AMSE(a=1.0, q=0.1),
        FL(gamma=0.01),
        NFL(gamma=5.0),
        JS(pi=1e-4),
        JS(pi=1 - 1e-4),
        GCE(q=1e-3),
        NNCE(minimum=0.15),
        PHuberCE(tau=1.001),
    ],
    ids=repr,
)
@pytest.mark.parametrize("gap", [0.0, 2.0, 20.0, 200.0])
def test_extreme_parameters_are_still_finite(loss, gap):
    logits = torch.tensor([[0.0, gap, 1.0], [gap, 0.0, 1.0], [0.0, 0.0, 0.0]])
    target = torch.zeros(3, dtype=torch.long)
    assert bool(torch.isfinite(loss(logits, target)))
    assert bool(torch.isfinite(gradient(loss, logits, target)).all())


def test_a_clip_that_leaves_nothing_to_compare_is_refused():
    for loss, minimum in itertools.product((NNCE, NNFL), (0.25, 0.3)):
        with pytest.raises(ValueError, match=rf"minimum must be below 1/K, .*: got {minimum} for 4 classes"):
            loss(minimum=minimum)(torch.zeros(1, 4), torch.tensor([0]))
