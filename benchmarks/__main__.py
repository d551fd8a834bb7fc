"""`python -m benchmarks [name ...] [options]`: run all benchmarks, or those named.

`python -m benchmarks operations --help` says what options there are.
"""

import importlib
import itertools
import sys

NAMES = (
    "overhead", "operations", "layers", "attention", "recurrent", "training", "workloads",
    "optimizers", "inference", "loading", "graphs", "pool", "libraries", "compiling", "compile",
    "products", "sizes", "distributed", "packages", "loops", "derivatives", "sampling",
    "evolve",
)  # fmt: skip

named = list(itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
del sys.argv[1 : len(named) + 1]
for name in named or NAMES:
    importlib.import_module(f"benchmarks.{name}").main()
