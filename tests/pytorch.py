"""PyTorch, which results of ours are compared with.

Other Pythons (tests/pythons.py) have none. There adjoint stands in for it: everything still runs,
and must give the same again when it runs by what the first time has prepared.
"""

import os

import pytest

if os.environ.get("COMPARED_WITH") == "itself":
    import adjoint as torch
else:
    torch = pytest.importorskip("torch")

__all__ = ["torch"]
