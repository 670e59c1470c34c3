"""The fast engine on CUDA: the same computation as the plain engine, up to rounding. Most of its modules need Triton.

graph           GraphEngine, whose steps are replays of a CUDA graph
packed_weights  the weights as its pass reads them: channels rounded up, biases folded, a bfloat16 copy
staging         examples augmented ahead of the steps
streams         the streams of a run; convolutions and linear layers whose weights' gradients are computed on the side stream;
                outputs that two layers read, without adding up their gradients
metrics         losses and counts of an epoch's steps
norm            BatchNorm with shortcut, ReLU and pooling; its kernels are in norm_kernels
first_conv      the first convolution
sgd             L1, clip, momentum and the step in three kernels
"""
