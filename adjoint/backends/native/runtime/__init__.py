"""The runtime of kernels: memory, threads, compiled code."""
