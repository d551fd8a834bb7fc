"""Kernels for the host's processor: an IR of loops over arrays, lowered to vector code by LLVM.

docs/compiler.md explains it with an example.
"""

from .ir import Kernel as Kernel
from .ir import KernelValue as KernelValue
from .ir import Output as Output
from .ir import verify as verify
from .run import Compiled as Compiled
from .run import Runner as Runner
