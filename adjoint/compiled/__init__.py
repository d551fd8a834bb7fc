"""Functions and whole training steps as native programs: `ad.compile`; control flow in them."""

from .control import cond as cond
from .control import scan as scan
from .control import while_loop as while_loop
from .function import CompiledFunction as CompiledFunction
from .function import CompiledModule as CompiledModule
from .function import compile as compile
