"""Functions and whole training steps as native programs: `ad.compile`."""

from .function import CompiledFunction as CompiledFunction
from .function import CompiledModule as CompiledModule
from .function import compile as compile
