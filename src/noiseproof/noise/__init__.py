"""Label noise: every generator returns the labels, the mask, the realised matrix and rate, and a hash.

matrix     LabelNoise and its constructors: symmetric, asymmetric, pairflip, from_matrix, from_file; drawing labels from it;
           clean_accuracy: what accuracy on noisy labels says of that on clean ones
instance   instance_dependent: the image decides whether and to what its label changes
files      published label files, our own with a manifest that can be verified, and soft labels, the probability of every class
spec       NoiseSpec: noise as text, such as symmetric:0.8, parsed and applied

>>> import numpy as np
>>> noisy = symmetric(10, 0.8).apply(np.arange(1000) % 10, seed=0)
>>> noisy.rate, int(noisy.mask.sum())
(0.8, 800)
"""

from noiseproof.noise.files import SoftLabels, load_labels, read_noisy_labels, read_soft_labels, verify, write_noisy_labels
from noiseproof.noise.instance import instance_dependent
from noiseproof.noise.matrix import (
    CleanAccuracy,
    LabelNoise,
    NoisyLabels,
    asymmetric,
    clean_accuracy,
    from_file,
    from_matrix,
    label_hash,
    pairflip,
    symmetric,
)
from noiseproof.noise.spec import NoiseSpec, from_spec

__all__ = ["LabelNoise", "asymmetric", "from_file", "from_matrix", "instance_dependent", "pairflip", "symmetric"]
__all__ += ["CleanAccuracy", "NoiseSpec", "NoisyLabels", "SoftLabels", "clean_accuracy", "from_spec", "label_hash"]
__all__ += ["load_labels", "read_noisy_labels", "read_soft_labels", "verify", "write_noisy_labels"]
