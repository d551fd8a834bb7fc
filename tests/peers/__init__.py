"""PyTorch's own test samples, run against adjoint."""
