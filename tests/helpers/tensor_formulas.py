"""The papers' formulas on rows of float64 logits, in torch, so that autograd gives their slopes; written without the library.

``rows(name, z, y, **parameters)`` is the loss of each row of ``z [N, K]`` for its label in ``y [N]``; of a head, ``z [N, D]``
are features. A class at -inf is left out of every sum, and K stays the number of columns. What a paper's code takes for a
constant is one: ``detach_focal``, the weight of DFT, the factors of JNPL.
"""

import math

import torch


class Rows:
    """The softmax of the classes that are not masked, and what formulas are made of."""

    def __init__(self, z, y):
        self.z, self.y, self.classes = z, y, z.shape[1]
        self.there = z > -math.inf
        self.log_p = torch.log_softmax(z, 1)
        self.p = self.log_p.exp()
        self.nll = -self.log_p.masked_fill(~self.there, 0.0)
        self.e = torch.nn.functional.one_hot(y, self.classes).double()

    def at(self, values):
        return values.gather(1, self.y[:, None])[:, 0]

    def total(self, values):
        return values.masked_fill(~self.there, 0.0).sum(1)


def focal(p, nll, gamma, detach):
    weight = (1 - p).clamp_min(1e-300) ** gamma
    return (weight.detach() if detach else weight) * nll


def amse_sum(r, a, q):
    return r.total((a * r.e - r.p).abs().clamp_min(1e-300) ** q)


def js(r, pi):
    p = r.at(r.p)
    mixed = pi + (1 - pi) * p
    others = r.total(r.p * (1 - r.e) * (1 - pi) * -(torch.log1p(torch.tensor(-pi, dtype=p.dtype)) + r.log_p.clamp_min(-700)))
    entropy = r.total(r.p * r.nll)
    return (-mixed * torch.log(mixed) + others - (1 - pi) * entropy) / (-(1 - pi) * math.log(1 - pi))


def negative(r, terms, top):
    rest = (top - terms).clamp_min(0.0)
    return 1 - r.at(rest) / r.total(rest)


def clipped(r, gamma, minimum, detach):
    p = r.p.clamp_min(minimum)
    return negative(r, focal(p, -torch.log(p), gamma, detach), (1 - minimum) ** gamma * -math.log(minimum))


def huber(r, tau):
    p = r.at(r.p)
    return torch.where(p > 1 / tau, r.at(r.nll), -tau * p + math.log(tau) + 1)


def fisher_rao(r):
    """The arcsine of the root of 1 - p, as an arctangent, whose slope is finite where p is next to 0 or 1."""
    others = r.total(r.p * (1 - r.e)).clamp_min(1e-300)
    return torch.atan2(others.sqrt(), r.at(r.p).clamp_min(1e-300).sqrt()) ** 2


def epsilon_softmax(r, m):
    top = (r.z == r.z.amax(1, keepdim=True)).double()
    return r.at((r.p + m * top) / (1 + m))


def ldr(r, c, lam):
    soft = torch.nn.functional.softplus(r.z.masked_fill(~r.there, -1e4))
    s = soft / (r.total(soft) / r.classes)[:, None]
    inner = ((c * (1 - r.e) + s - r.at(s)[:, None]) / lam).masked_fill(~r.there, -math.inf)
    return lam * (torch.logsumexp(inner, 1) - math.log(r.classes))


def rescaled(r, factor):
    """Of cross entropy, with logits times a factor of their norm."""
    kept = r.z.masked_fill(~r.there, 0.0)
    norm = kept.norm(dim=1, keepdim=True)
    return Rows((kept * factor(norm)).masked_fill(~r.there, -math.inf), r.y)


def biased(r, epsilon):
    return Rows(r.z + epsilon * r.e, r.y)


def sparse(r, temperature, lam, q, normalize, **_):
    r = rescaled(r, lambda norm: 1 / norm.clamp_min(1e-12) / temperature if normalize else torch.ones_like(norm) / temperature)
    return r.at(r.nll) + lam * r.total(r.p.clamp_min(1e-300) ** q)


def without(r, complement):
    """1 - p_c, as the sum of the other probabilities."""
    return r.total(r.p.scatter(1, complement[:, None], 0.0))


def jnpl(r, lam, complement, kept):
    p, miss = r.at(r.p).detach(), without(r, complement)
    boost = math.prod(1 + p ** (2**n) for n in range(4))
    return miss.detach() * -torch.log(miss) + lam * kept.double() * boost * r.at(r.nll)


SINGLE = {
    "ce": lambda r: r.at(r.nll),
    "fl": lambda r, gamma, detach_focal: r.at(focal(r.p, r.nll, gamma, detach_focal)),
    "mae": lambda r, scale: scale * (1 - r.at(r.p)),
    "mse": lambda r: amse_sum(r, 1.0, 2.0) / r.classes,
    "rce": lambda r, clip: -math.log(clip) * (1 - r.at(r.p)),
    "negative-ls": lambda r, r_: (1 - r_) * r.at(r.nll) + r_ / r.classes * r.total(r.nll),
    "gce": lambda r, q: (1 - r.at(r.p) ** q) / q,
    "truncated-gce": lambda r, q, k: (1 - r.at(r.p).clamp_min(k) ** q) / q,
    "taylor-ce": lambda r, t: sum((1 - r.at(r.p)) ** i / i for i in range(1, t + 1)),
    "phuber-ce": huber,
    "ogc": huber,
    "js": js,
    "gjs": js,
    "fisher-rao": fisher_rao,
    "dft": lambda r: r.at(r.p).detach() * r.at(r.nll),
    "nce": lambda r: r.at(r.nll) / r.total(r.nll),
    "nfl": lambda r, gamma, detach_focal: (
        r.at(focal(r.p, r.nll, gamma, detach_focal)) / r.total(focal(r.p, r.nll, gamma, detach_focal))
    ),
    "nnce": lambda r, minimum: clipped(r, 0.0, minimum, False),
    "nnfl": lambda r, gamma, minimum, detach_focal: clipped(r, gamma, minimum, detach_focal),
    "aul": lambda r, a, p: ((a - r.at(r.p)) ** p - (a - 1) ** p) / p,
    "agce": lambda r, a, q: ((a + 1) ** q - (a + r.at(r.p)) ** q) / q,
    "ael": lambda r, a: torch.exp(-r.at(r.p) / a),
    "anorm": lambda r, a, q: (amse_sum(r, a, q) - (a - 1) ** q) / q,
    "amse": lambda r, a, q, offset: (amse_sum(r, a, q) - (0.0 if offset else (a - 1) ** q)) / r.classes,
    "logitclip": lambda r, tau: (s := rescaled(r, lambda norm: tau / norm.clamp_min(tau))).at(s.nll),
    "ce+lc": lambda r, delta: (s := rescaled(r, lambda n: torch.where(n > 1 / delta, delta / n, 1.0))).at(s.nll),
    "logit-bias": lambda r, epsilon: 2 * (1 - (s := biased(r, epsilon)).at(s.p)),
    "sr": sparse,
    "ece": lambda r, m: -torch.log(epsilon_softmax(r, m)),
    "efl": lambda r, m, gamma, detach_focal: focal(p := epsilon_softmax(r, m), -torch.log(p), gamma, detach_focal),
    "ldr": ldr,
    "nl": lambda r, complement: -torch.log(without(r, complement)),
    "jnpl": jnpl,
}


def student(v, y, base, means, root_freedom, margin, lam, training, **parameters):
    """A base loss of the densities of a Student's t distribution per class, and how far the label's mean is."""
    width = v.shape[1]
    v, means = v / v.norm(dim=1, keepdim=True), means / means.norm(dim=1, keepdim=True)
    distance = (v[:, None] - means).square().sum(2) / 2
    label = torch.nn.functional.one_hot(y, len(means)).double()
    freedom, size = root_freedom**2 + 0.1, math.log(width)
    power = (freedom + size) / 2
    scale = torch.exp(torch.lgamma(power) - torch.lgamma(freedom / 2)) / freedom ** (size / 2)
    density = scale * (1 + distance * (1 + margin * label * training) / freedom) ** -power
    return rows(base, density / density.norm(dim=1, keepdim=True), y, **parameters) + lam * (distance * label).sum(1)


HEADS = {"lt", "lt-apl"}
NAMES_OF = {"negative-ls": {"r": "r_"}}
"""Parameters that are called like the rows here"""
PAIRS = {
    "sce": ("ce", "rce", {}), "anl-ce": ("nce", "nnce", {}), "anl-fl": ("nfl", "nnfl", {}), "jal-ce": ("nce", "amse", {}),
    "jal-fl": ("nfl", "amse", {}), "nce+mae": ("nce", "mae", {"scale": 1.0}), "nce+rce": ("nce", "rce", {}),
    "nce+aul": ("nce", "aul", {}), "nce+agce": ("nce", "agce", {}), "nce+ael": ("nce", "ael", {}),
    "nfl+mae": ("nfl", "mae", {"scale": 1.0}), "nfl+rce": ("nfl", "rce", {}), "nfl+aul": ("nfl", "aul", {}),
    "nfl+agce": ("nfl", "agce", {}), "nfl+ael": ("nfl", "ael", {}), "agce+mae": ("agce", "mae", {"scale": 1.0}),
    "ece+mae": ("ece", "mae", {"scale": 2.0}), "efl+mae": ("efl", "mae", {"scale": 2.0}),
}  # fmt: skip


def rows(name, z, y, **parameters):
    """The loss of each row."""
    if name in HEADS:
        return student(z, y, **parameters)
    if name in PAIRS:
        first, second, fixed = PAIRS[name]
        given = {**parameters, **fixed}
        return parameters["alpha"] * rows(first, z, y, **given) + parameters["beta"] * rows(second, z, y, **given)
    function = SINGLE[name]
    wanted = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    named = {NAMES_OF.get(name, {}).get(key, key): value for key, value in parameters.items()}
    return function(Rows(z, y), **{key: named[key] for key in wanted})
