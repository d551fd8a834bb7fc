"""Names that are here because PyTorch has them: `fx`, `jit`, `func`, `utils`, the alias, ..."""
