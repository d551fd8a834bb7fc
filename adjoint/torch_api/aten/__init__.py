"""PyTorch's functions at the top that its `nn.functional` is written with: the order of arguments
of its lower layer (ATen), numbers for reductions and modes, and the statistics that gradients need.

Each is one of `adjoint.nn.functional` called another way. The files are imported with the first
name of theirs that a program asks `adjoint` for (`adjoint/later.py`).
"""
