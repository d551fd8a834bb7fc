"""Computations: what they are kept as, and how they are run."""
