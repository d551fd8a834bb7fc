"""oneDNN through its C API: plans, convolutions, pooling, layers."""
