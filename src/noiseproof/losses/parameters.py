"""What each hyper-parameter means and where it may lie, for the documentation of the functions."""

from noiseproof.losses.catalog import LossEntry

__all__ = ["CONTRACT", "describe_parameters"]

PARAMETERS = {
    "a": "of the asymmetric part, in (0, inf): the larger, the closer to the mean absolute error",
    "aul.a": "in (1, inf): the larger, the closer to the mean absolute error",
    "anorm.a": "what p_y is pulled towards, in [1, inf): the larger, the more robust and the slower to fit",
    "alpha": "weight of the first loss, in [0, inf)",
    "base": "the loss that is changed; None: cross entropy",
    "logit-bias.base": "the loss of the label's probability that is biased; None: mean absolute error",
    "beta": "weight of the second loss, in [0, inf)",
    "c": "margin of the labels other than the given one, in [0, inf)",
    "classes": "number of classes, at least 2",
    "clip": "what stands for 0 in the logarithm of the label, in (0, 1)",
    "delta": "norms above 1/delta become delta, in (0, inf)",
    "detach_focal": "whether the focal weight is a constant to the gradient, as in the code behind the published numbers",
    "epsilon": "what is added to the label's logit",
    "ogc.epsilon": "how much steeper than on clean labels the gradient on wrong ones may be, per learning rate, in [0, inf)",
    "every": "epochs between two steps of lambda, at least 1",
    "features": "width of the features, at least 1",
    "gamma": "exponent of the focal weight (1 - p)^gamma, in [0, inf); 0 is none",
    "generator": "where the complementary labels are drawn; None: torch's default generator",
    "growth": "factor of lambda at each of its steps, in (0, inf)",
    "k": "probabilities below it have no gradient, in (0, 1)",
    "lam": "weight of the part that is added, in [0, inf)",
    "ldr.lam": "temperature over the labels, in (0, inf): 0 is a hinge loss, infinity a symmetric loss",
    "m": "how far epsilon-softmax goes to one-hot, in [0, inf); 0 is softmax",
    "margin": "how much further away the label's mean counts in training, in [0, inf)",
    "minimum": "probabilities are clipped below at it, in (0, 0.5) and below 1/K",
    "normalize": "whether each row of logits is scaled to length 1 first",
    "offset": "whether the value holds AMSE's constant (a-1)^q / K; the gradient is the same",
    "p": "exponent, in (0, inf); 1 is 1 - p_y",
    "pi": "weight of the label against the prediction, in (0, 1): 0 is cross entropy, 1 half the mean absolute error",
    "q": "exponent, in (0, inf)",
    "gce.q": "in (0, 1]: 0 is cross entropy, 1 is 1 - p_y",
    "r": "rate of the smoothing, in (-inf, 1); 0 is cross entropy",
    "scale": "factor, in (0, inf)",
    "stage": "nl: all rows; selnl: rows with p_y > 1/K; selpl: cross entropy on rows with p_y > threshold",
    "t": "number of terms, at least 1; 1 is 1 - p_y",
    "tau": "the slope in p_y is at most this, in (1, inf): 1 is 1 - p_y, infinity cross entropy",
    "logitclip.tau": "largest norm of a row of logits, in (0, inf)",
    "ogc.tau": "the slope in p_y is at most this until the first update, in (1, 1e+07]",
    "temperature": "the logits are divided by it, in (0, inf)",
    "threshold": "p_y from which a row is believed in the stage selpl, in [0, 1)",
    "views": "number of predictions of each example, at least 1",
}
"""By parameter, or by ``loss.parameter`` where a loss, and the pairs and relatives named in ``SAME``, mean something else."""

SAME = {
    **{"truncated-gce": "gce", "nce+aul": "aul", "nfl+aul": "aul"},
    **{"amse": "anorm", "jal-ce": "anorm", "jal-fl": "anorm"},
}

CONTRACT = {
    "weight": "factor of each class's loss, [K]",
    "ignore_index": "the label of rows that count for nothing",
    "reduction": "none, mean (by the weights of the labels) or sum",
    "label_smoothing": "share of the target that goes to all classes alike, in [0, 1]",
}


def describe_parameters(entry: LossEntry) -> dict[str, str]:
    """The meaning of each hyper-parameter of a loss; that of one that is not described here is its name."""
    kind = SAME.get(entry.name, entry.name)
    return {name: PARAMETERS.get(f"{kind}.{name}", PARAMETERS.get(name, name)) for name in entry.defaults}
