"""Ops of neural networks: activations, convolution, pooling, softmax."""
