"""The error of this library."""

import adjoint as ad


class EvolutionError(ad.AdjointError, ValueError, RuntimeError):
    """Arguments, individuals or results that evolution cannot go on with.

    >>> from adjoint import evolve
    >>> evolve.NEAT(0, 1)
    Traceback (most recent call last):
    adjoint.evolve.errors.EvolutionError: NEAT: inputs and outputs must be 1 or more, got 0 and 1
    """
