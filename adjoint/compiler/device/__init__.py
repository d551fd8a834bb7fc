"""Compiled programs on PyTorch's memory: Triton's kernels and CUDA graphs."""
