"""The fast path on CUDA: the same computation as the plain path, up to rounding. Most of its modules need Triton.

graph         GraphRun, a run whose steps are replays of a CUDA graph
lean          the weights as its pass reads them: channels rounded up, biases folded, a bfloat16 copy
staging       examples augmented ahead of the steps
streams       a run's own streams, and the one on the side
norm          BatchNorm with shortcut, ReLU and pooling; its kernels are in norm_kernels
stem          the first convolution
overlap       convolutions and linear layers whose weights' gradients are computed on the side
sgd           L1, clip, momentum and the step in three kernels
"""
