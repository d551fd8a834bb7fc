"""Computations written down: typed values and the nodes between them, captured, changed and run."""
