"""`import torch` where adjoint serves PyTorch programs: adjoint's own modules (adjoint.as_torch).

This folder is on the path of processes that a program with the alias starts; `adjoint shim` puts a
copy of it into an environment.
"""

import adjoint

ADJOINTS = True  # not PyTorch's own
adjoint.as_torch()  # puts itself in the place of this module
