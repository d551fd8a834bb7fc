"""`import torch` where adjoint serves PyTorch programs: adjoint's own modules (adjoint.as_torch).

This folder is on the path of processes that a program with the alias starts.
"""

import adjoint

adjoint.as_torch()  # puts itself in the place of this module
