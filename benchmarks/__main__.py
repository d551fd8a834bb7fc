"""`python -m benchmarks [name ...]`: run all benchmarks, or those named."""

import importlib
import sys

NAMES = ("overhead", "training", "optimizers", "loading", "graphs", "pool", "libraries")

for name in sys.argv[1:] or NAMES:
    importlib.import_module(f"benchmarks.{name}").main()
