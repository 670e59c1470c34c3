r"""The one operation that reads logits: a few numbers per row, with its own gradient.

One row is the logits ``z`` of one example with label ``y`` and ``p = softmax(z)``. Split the softmax at the label: the
other classes have a softmax ``r`` of their own, and ``p_k = (1 - p_y) r_k``.

Every loss of the family is a function of ``nll``, ``log1m`` and a few sums over the *other* classes. These are the statistics
of a row::

    statistic                                                d/dz_j, j != y                  d/dz_y
    nll        = -log p_y                                    p_j                             -(1 - p_y)
    log1m      = log(1 - p_y)                                p_y r_j                         -p_y
    nll_others = sum_{k != y} -log p_k                       (K-1) p_j - 1                   (K-1) p_y
    power_q    = sum_{k != y} p_k^q                          q (p_j^q - p_j power_q)         -q p_y power_q
    focal      = sum_{k != y} f_k, f = (1-p)^gamma (-log p)  p_j H - h_j                     p_y H
    clipped    = sum_{k != y} max(C - f_k, 0)                h_j - p_j H                     -p_y H
    margin     = z_y - max_{k != y} z_k                      (a constant: for comparisons only)

with h the derivative of a focal term by -log p (in ``clipped`` only of those below C, the term of a smallest probability
``minimum``) and H its sum. With e_j = exp(z_j - max_k z_k), d = sum_{j != y} e_j and D = d + e_y the whole gradient has one
form, whatever the loss: ``dz_j = c0 e_j + c2 (e_j^q - e_j) + u + w h_j``.

Why not softmax and closed forms: where the network is sure, of the label or of another class, ``1 - p_y``, ``p_j - power_2``
and their like are differences of equal numbers, and float32 returns noise. Sums that leave the label out remove the first::

    nll = log D + (max z - z_y)      log1m = -log(1 + e_y/d)      nll_others = (K-1) log D + sum_{k != y} (max z - z_k)

where no term is negative, ``1 - p_y = d/D`` and ``p_y r_j = p_y e_j/d``. The largest class has e = 1 exactly, so log D is
log1p of the sum of the others, of d where that is the label. For the second::

    (K-1) p_j - 1       = D^-1 [ (K-1) (e_j - 1) - sum_{k != y} (e_k - 1) - e_y ]
    p_j H - h_j         = h_t ((K-1) p_j - 1) + p_j sum_{k != y} (h_k - h_t) - (h_j - h_t),    t the largest class
    p_j^q - p_j power_q = D^-q [ (e_j^q - e_j) + e_j G/D ],        G = e_y + sum_{k != y} (e_k - e_k^q)
                        = D^-q [ e_j^q - e_j (1 - G/D) ],          1 - G/D = power_q D^(q-1)

With e - 1 = expm1(z - max z), for a few classes, the first two lines and e^2 - e = e (e - 1) are exact where classes tie. For
another q the round bracket is a product too, with x = z - max z::

    e^q - e = e expm1((q-1) x)  for q > 1        e^q - e = -e^q expm1((1-q) x)  for q < 1

In both the argument of expm1 is not positive, so its value is in [-1, 0] however far the class. With more classes than a few
only e^2 - e remains a difference of e and 1, which costs digits where classes tie and nothing else is needed. In the third
line the largest class, if it is not the label, has e = 1 and drops out of the round bracket and of the sum exactly; if it is
the label, the fourth has nothing to cancel. With two classes ``(K-1) p_j - 1`` and ``p_j H - h_j`` cancel too: there dz_j is
-dz_y, whose column above is made of products alone. Measured against 60-digit arithmetic the worst row's gradient is within
1e-5 at every confidence, right or wrong (tests/losses/test_accuracy.py).

A class at -inf is masked: it is in no sum, K - 1 is then the number of the others that are left, and its dz is 0.

statistics      the statistics of a row by name, and where a loss gets them from
row_sums        RowSum, what the operation computes besides nll and log1m; the definition in plain torch; what a class adds
reference       the two passes in plain torch, which run everywhere
small           the same for a small batch on the CPU, both passes together
backends        which implementation of the passes runs on which device
dispatch_state  whether compilers, transforms or dispatch modes are active
operation       the registered operations, their gradients and vmap rules
linear          the operation on hidden states and a linear head, a chunk of the logits at a time
"""

from noiseproof.core.backends import Backend, ProgramRunner, register_backend
from noiseproof.core.row_sums import RowSum

__all__ = ["Backend", "ProgramRunner", "RowSum", "register_backend"]
