"""Expected values: one plain float64 NumPy formula per loss, for one example at a time.

Written from the papers' printed formulas and the design notes alone, without looking at the library, so that agreement
between the two means something. Every formula is the slow literal one: an explicit one-hot vector, an explicit softmax,
explicit sums over the classes, nothing simplified. `FORMULAS[name](z, y, **parameters)` is the loss of the logits `z`
(shape [K]) at the label `y`; parameters a formula does not know are ignored. `columns` is K where `z` holds only the classes
that are not masked.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Formula = Callable[..., float]


# The pieces.


def one_hot(y: int, classes: int) -> Vector:
    """e_y: one at the label, zero elsewhere."""
    vector = np.zeros(classes)
    vector[y] = 1.0
    return vector


def softmax(z: Vector) -> Vector:
    """p_k = exp(z_k) / sum_j exp(z_j)."""
    exponentials = np.exp(z - np.max(z))
    return exponentials / np.sum(exponentials)


def log_softmax(z: Vector) -> Vector:
    """log p_k = -log sum_j exp(z_j - z_k); the term j = k is the 1 of log1p, so that log p_k is accurate near p_k = 1."""
    return np.array([-math.log1p(sum(math.exp(z[j] - z[k]) for j in range(len(z)) if j != k)) for k in range(len(z))])


def one_minus(probabilities: Vector, k: int) -> float:
    """1 - p_k as the sum of the other probabilities, which is not rounded to zero when p_k is near one."""
    return float(sum(probabilities[j] for j in range(len(probabilities)) if j != k))


def entropy(probabilities: Vector) -> float:
    """H(p) = -sum_k p_k log p_k with 0 log 0 = 0."""
    return -sum(float(value) * math.log(value) for value in probabilities if value > 0)


def focal_losses(z: Vector, gamma: float) -> Vector:
    """f_k = (1 - p_k)^gamma (-log p_k) for every class k."""
    probabilities, log_probabilities = softmax(z), log_softmax(z)
    return np.array([one_minus(probabilities, k) ** gamma * -log_probabilities[k] for k in range(len(z))])


def joint(first: Formula, second: Formula, **fixed: Any) -> Formula:
    """alpha times the first loss plus beta times the second (APL, Ma et al. 2020); `fixed` overrides parameters."""

    def formula(z: Vector, y: int, *, alpha: float, beta: float, **parameters: Any) -> float:
        parameters = {**parameters, **fixed}
        return alpha * first(z, y, **parameters) + beta * second(z, y, **parameters)

    return formula


# Single losses.


def ce(z: Vector, y: int, **_: Any) -> float:
    """Cross entropy: -sum_k e_k log p_k."""
    return float(-np.sum(one_hot(y, len(z)) * log_softmax(z)))


def fl(z: Vector, y: int, *, gamma: float, **_: Any) -> float:
    """Focal loss (Lin et al. 2017): -(1 - p_y)^gamma log p_y."""
    return float(np.sum(one_hot(y, len(z)) * focal_losses(z, gamma)))


def mae(z: Vector, y: int, *, scale: float, **_: Any) -> float:
    """Mean absolute error (Ghosh et al. 2017): sum_k |e_k - p_k|, which is 2 (1 - p_y), at scale 2."""
    return float(scale / 2 * np.sum(np.abs(one_hot(y, len(z)) - softmax(z))))


def mse(z: Vector, y: int, *, columns: int | None = None, **_: Any) -> float:
    """Mean square error: (1/K) sum_k (e_k - p_k)^2."""
    return float(np.sum((one_hot(y, len(z)) - softmax(z)) ** 2) / (columns or len(z)))


def rce(z: Vector, y: int, *, clip: float, **_: Any) -> float:
    """Reverse cross entropy (Wang et al. 2019): -sum_k p_k log e_k, where log 0 is replaced by log clip."""
    label = one_hot(y, len(z))
    label[label == 0] = clip
    return float(-np.sum(softmax(z) * np.log(label)))


def negative_ls(z: Vector, y: int, *, r: float, columns: int | None = None, **_: Any) -> float:
    """Negative label smoothing (Wei et al. 2022): cross entropy with the soft label (1 - r) e_k + r/K, r < 0."""
    soft_label = (1 - r) * one_hot(y, len(z)) + r / (columns or len(z))
    return float(-np.sum(soft_label * log_softmax(z)))


def gce(z: Vector, y: int, *, q: float, **_: Any) -> float:
    """Generalised cross entropy (Zhang and Sabuncu 2018): (1 - p_y^q) / q."""
    return float((1 - softmax(z)[y] ** q) / q)


def truncated_gce(z: Vector, y: int, *, q: float, k: float, **_: Any) -> float:
    """Truncated GCE (Zhang and Sabuncu 2018): (1 - k^q) / q where p_y <= k, else GCE."""
    if softmax(z)[y] <= k:
        return (1 - k**q) / q
    return gce(z, y, q=q)


def taylor_ce(z: Vector, y: int, *, t: int, **_: Any) -> float:
    """Taylor cross entropy (Feng et al. 2020): sum_{i=1..t} (1 - p_y)^i / i."""
    return float(sum((1 - softmax(z)[y]) ** i / i for i in range(1, t + 1)))


def phuber_ce(z: Vector, y: int, *, tau: float, **_: Any) -> float:
    """Partially Huberised cross entropy (Menon et al. 2020): linear in p_y where p_y <= 1/tau."""
    probability = float(softmax(z)[y])
    if probability <= 1 / tau:
        return -tau * probability + math.log(tau) + 1
    return ce(z, y)


def js(z: Vector, y: int, *, pi: float, **_: Any) -> float:
    """Jensen-Shannon loss (Englesson and Azizpour 2021): [H(m) - pi H(e) - (1 - pi) H(p)] / Z, m = pi e + (1 - pi) p."""
    label, probabilities = one_hot(y, len(z)), softmax(z)
    mixture = pi * label + (1 - pi) * probabilities
    divergence = entropy(mixture) - pi * entropy(label) - (1 - pi) * entropy(probabilities)
    return divergence / (-(1 - pi) * math.log(1 - pi))


def gjs(z: Vector, y: int, *, pi: float | Sequence[float], views: Sequence[Vector] | None = None, **_: Any) -> float:
    """Generalised JS (Englesson and Azizpour 2021): the label weighs pi (or pi[0]), the predictions share the rest."""
    logits = [z, z] if views is None else list(views)
    if np.ndim(pi) == 0:
        label_weight = float(pi)  # type: ignore[arg-type]
        view_weights = [(1 - label_weight) / len(logits)] * len(logits)
    else:
        label_weight, *view_weights = [float(weight) for weight in pi]  # type: ignore[union-attr]
    label = one_hot(y, len(logits[0]))
    predictions = [softmax(view) for view in logits]
    mixture = label_weight * label
    divergence = -label_weight * entropy(label)
    for weight, prediction in zip(view_weights, predictions, strict=True):
        mixture = mixture + weight * prediction
        divergence -= weight * entropy(prediction)
    divergence += entropy(mixture)
    return divergence / (-(1 - label_weight) * math.log(1 - label_weight))


def fisher_rao(z: Vector, y: int, **_: Any) -> float:
    """Fisher-Rao loss (Miyamoto et al. 2022): the squared angle between the unit vectors sqrt(p) and e, from their chord."""
    probabilities = softmax(z)
    chord = math.sqrt((1 - math.sqrt(probabilities[y])) ** 2 + one_minus(probabilities, y))
    return (2 * math.asin(chord / 2)) ** 2


def dft(z: Vector, y: int, **_: Any) -> float:
    """Dynamic fine-tuning (Wu et al. 2025): cross entropy times the label's probability."""
    return float(softmax(z)[y]) * ce(z, y)


# Normalised losses and normalised negative losses.


def nce(z: Vector, y: int, **_: Any) -> float:
    """Normalised cross entropy (Ma et al. 2020): CE at the label over the sum of CE at every label."""
    return ce(z, y) / sum(ce(z, k) for k in range(len(z)))


def nfl(z: Vector, y: int, *, gamma: float, **_: Any) -> float:
    """Normalised focal loss (Ma et al. 2020): FL at the label over the sum of FL at every label."""
    return fl(z, y, gamma=gamma) / sum(fl(z, k, gamma=gamma) for k in range(len(z)))


def nnce(z: Vector, y: int, *, minimum: float, **_: Any) -> float:
    """Normalised negative CE (Ye et al. 2023): 1 - (C - A_y) / sum_k (C - A_k), p clipped below, C = -log minimum."""
    bound = -math.log(minimum)
    losses = -np.log(np.maximum(softmax(z), minimum))
    return float(1 - (bound - losses[y]) / np.sum(bound - losses))


def nnfl(z: Vector, y: int, *, gamma: float, minimum: float, **_: Any) -> float:
    """Normalised negative FL (Ye et al. 2023): 1 - (C - f_y) / sum_k (C - f_k), C the focal loss at p = minimum."""
    bound = (1 - minimum) ** gamma * -math.log(minimum)
    probabilities = np.clip(softmax(z), minimum, 1.0)
    losses = (1 - probabilities) ** gamma * -np.log(probabilities)
    return float(1 - (bound - losses[y]) / np.sum(bound - losses))


# Asymmetric losses.


def aul(z: Vector, y: int, *, a: float, p: float, **_: Any) -> float:
    """Asymmetric unhinged loss (Zhou et al. 2021): ((a - p_y)^p - (a - 1)^p) / p."""
    return float(((a - softmax(z)[y]) ** p - (a - 1) ** p) / p)


def agce(z: Vector, y: int, *, a: float, q: float, **_: Any) -> float:
    """Asymmetric generalised cross entropy (Zhou et al. 2021): ((a + 1)^q - (a + p_y)^q) / q."""
    return float(((a + 1) ** q - (a + softmax(z)[y]) ** q) / q)


def ael(z: Vector, y: int, *, a: float, **_: Any) -> float:
    """Asymmetric exponential loss (Zhou et al. 2021): exp(-p_y / a)."""
    return float(np.exp(-softmax(z)[y] / a))


def anorm(z: Vector, y: int, *, a: float, q: float, **_: Any) -> float:
    """Asymmetric norm loss (design notes): (sum_k |a e_k - p_k|^q - (a - 1)^q) / q."""
    return float((np.sum(np.abs(a * one_hot(y, len(z)) - softmax(z)) ** q) - (a - 1) ** q) / q)


def amse(z: Vector, y: int, *, a: float, q: float, offset: bool, columns: int | None = None, **_: Any) -> float:
    """Asymmetric mean square error (the JAL paper): sum_k |a e_k - p_k|^q / K; without offset, less (a - 1)^q / K."""
    classes = columns or len(z)
    value = float(np.sum(np.abs(a * one_hot(y, len(z)) - softmax(z)) ** q / classes))
    return value if offset else value - (a - 1) ** q / classes


# Losses of changed logits or changed probabilities.


def logitclip(z: Vector, y: int, *, tau: float, **_: Any) -> float:
    """LogitClip (Wei et al. 2023): cross entropy of z tau / ||z|| where ||z|| > tau."""
    norm = math.sqrt(np.sum(z**2))
    return ce(z * tau / norm if norm > tau else z, y)


def ce_lc(z: Vector, y: int, *, delta: float, **_: Any) -> float:
    """LogitClip as published code has it: logits longer than 1/delta are rescaled to the length delta."""
    norm = math.sqrt(np.sum(z**2))
    return ce(z * delta / norm if norm > 1 / delta else z, y)


def sr(z: Vector, y: int, *, temperature: float, lam: float, q: float, **_: Any) -> float:
    """Sparse regularisation (Zhou et al. 2021): cross entropy of p = softmax(z / temperature) plus lam sum_k p_k^q."""
    return float(ce(z / temperature, y) + lam * np.sum(softmax(z / temperature) ** q))


def epsilon_softmax(z: Vector, m: float) -> Vector:
    """Epsilon-softmax (Wang et al. 2024): (p + m e_top) / (1 + m), top the most probable class."""
    probabilities = softmax(z)
    top = int(np.argmax(probabilities))
    return (probabilities + m * one_hot(top, len(z))) / (1 + m)


def ece(z: Vector, y: int, *, m: float, **_: Any) -> float:
    """Cross entropy of the epsilon-softmax (Wang et al. 2024)."""
    return float(-np.sum(one_hot(y, len(z)) * np.log(epsilon_softmax(z, m))))


def efl(z: Vector, y: int, *, m: float, gamma: float, **_: Any) -> float:
    """Focal loss of the epsilon-softmax (Wang et al. 2024)."""
    probabilities = epsilon_softmax(z, m)
    return one_minus(probabilities, y) ** gamma * -math.log(probabilities[y])


def logit_bias(z: Vector, y: int, *, epsilon: float, **_: Any) -> float:
    """MAE with a logit bias (Staats et al. 2025): sum_k |e_k - p_k| of the softmax of z + epsilon e_y."""
    biased = z + epsilon * one_hot(y, len(z))
    return one_minus(softmax(biased), y) + sum(float(softmax(biased)[k]) for k in range(len(z)) if k != y)


def ldr(z: Vector, y: int, *, c: float, lam: float, columns: int | None = None, **_: Any) -> float:
    """LDR with the KL term (Zhu et al. 2023): lam log mean_k exp((c [k != y] + s_k - s_y) / lam), s from softplus."""
    softplus = np.logaddexp(0.0, z)
    classes = columns or len(z)
    scores = softplus / (np.sum(softplus) / classes)
    margins = c * (1 - one_hot(y, len(z)))
    return float(lam * np.log(np.sum(np.exp((margins + scores - scores[y]) / lam)) / classes))


# Losses of a complementary label.


def nl(z: Vector, y: int, *, complement: int, **_: Any) -> float:
    """Negative learning (Kim et al. 2019): -log(1 - p_c), c a label other than y."""
    return -math.log(one_minus(softmax(z), complement))


def jnpl(z: Vector, y: int, *, complement: int, kept: bool, lam: float, **_: Any) -> float:
    """JNPL (Kim et al. 2021): (1 - p_c)(-log(1 - p_c)) + lam [kept] prod_{n=0..3} (1 + p_y^(2^n)) (-log p_y)."""
    miss = one_minus(softmax(z), complement)
    negative = miss * -math.log(miss)
    weight = math.prod(1 + float(softmax(z)[y]) ** (2**n) for n in range(4))
    positive = weight * ce(z, y)
    return negative + lam * (1.0 if kept else 0.0) * positive


# The Student's-t head: here z is the feature vector [D], and the logits come from the class means [K, D].


def lt(
    z: Vector,
    y: int,
    *,
    means: NDArray[np.float64],
    root_freedom: Vector,
    margin: float,
    lam: float,
    training: bool,
    base: str = "ce",
    **parameters: Any,
) -> float:
    """LT (design notes): a base loss of Student's-t scores, plus lam times half the squared distance to the label's mean."""
    log_size = math.log(len(z))
    feature = z / math.sqrt(np.sum(z**2))
    distances, scores = np.zeros(len(means)), np.zeros(len(means))
    for k in range(len(means)):
        mean = means[k] / math.sqrt(np.sum(means[k] ** 2))
        distances[k] = np.sum((feature - mean) ** 2) / 2
        freedom = float(root_freedom[k]) ** 2 + 0.1
        distance = distances[k] * (1 + margin) if training and k == y else distances[k]
        gamma_ratio = math.exp(math.lgamma((freedom + log_size) / 2) - math.lgamma(freedom / 2))
        normaliser = gamma_ratio / freedom ** (log_size / 2)
        scores[k] = normaliser * (1 + distance / freedom) ** (-(freedom + log_size) / 2)
    logits = scores / math.sqrt(np.sum(scores**2))
    return float(FORMULAS[base](logits, y, **parameters) + lam * distances[y])


def lt_apl(z: Vector, y: int, *, clip: float = 1e-4, **parameters: Any) -> float:
    """LT-APL (design notes): LT with NCE+RCE as its base."""
    return lt(z, y, **{**parameters, "base": "nce+rce", "clip": clip})


FORMULAS: dict[str, Formula] = {
    "ce": ce,
    "fl": fl,
    "mae": mae,
    "mse": mse,
    "rce": rce,
    "sce": joint(ce, rce),
    "negative-ls": negative_ls,
    "gce": gce,
    "truncated-gce": truncated_gce,
    "taylor-ce": taylor_ce,
    "phuber-ce": phuber_ce,
    "ogc": phuber_ce,
    "js": js,
    "fisher-rao": fisher_rao,
    "dft": dft,
    "gjs": gjs,
    "nce": nce,
    "nfl": nfl,
    "nnce": nnce,
    "nnfl": nnfl,
    "aul": aul,
    "agce": agce,
    "ael": ael,
    "anorm": anorm,
    "amse": amse,
    "anl-ce": joint(nce, nnce),
    "anl-fl": joint(nfl, nnfl),
    "jal-ce": joint(nce, amse),
    "jal-fl": joint(nfl, amse),
    "nce+mae": joint(nce, mae, scale=1.0),
    "nce+rce": joint(nce, rce),
    "nce+aul": joint(nce, aul),
    "nce+agce": joint(nce, agce),
    "nce+ael": joint(nce, ael),
    "nfl+mae": joint(nfl, mae, scale=1.0),
    "nfl+rce": joint(nfl, rce),
    "nfl+aul": joint(nfl, aul),
    "nfl+agce": joint(nfl, agce),
    "nfl+ael": joint(nfl, ael),
    "agce+mae": joint(agce, mae, scale=1.0),
    "logitclip": logitclip,
    "ce+lc": ce_lc,
    "logit-bias": logit_bias,
    "sr": sr,
    "ece": ece,
    "efl": efl,
    "ece+mae": joint(ece, mae, scale=2.0),
    "efl+mae": joint(efl, mae, scale=2.0),
    "ldr": ldr,
    "nl": nl,
    "jnpl": jnpl,
    "lt": lt,
    "lt-apl": lt_apl,
}
