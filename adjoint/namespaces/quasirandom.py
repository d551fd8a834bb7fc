"""Quasirandom points, which fill a cube evenly, under PyTorch's names; computed by SciPy, imported
on first use.

Source: https://docs.pytorch.org/docs/stable/generated/torch.quasirandom.SobolEngine.html
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.errors import InvalidArgument, Unsupported
from ..ops.create.allocation import finish, into

__all__ = ["SobolEngine"]


class SobolEngine:
    """The points of a Sobol sequence (I. Sobol, 1967) in `dimension` dimensions, in order; the
    directions are S. Joe and F. Kuo's. Without `scramble` they are PyTorch's; scrambled ones
    (A. Owen, 1998) are SciPy's for that seed.

    Errors: InvalidArgument outside 1 to 21201 dimensions; Unsupported without SciPy.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.quasirandom.SobolEngine.html

    >>> engine = ad.quasirandom.SobolEngine(2)
    >>> engine.draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    >>> engine.num_generated
    3
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise InvalidArgument(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], got "
                f"{dimension}"
            )
        try:
            from scipy.stats import qmc
        except ImportError:
            raise Unsupported(
                "SobolEngine: the points are SciPy's, which is not installed: pip install scipy"
            ) from None
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        self._points = qmc.Sobol(dimension, scramble=scramble, bits=self.MAXBIT, seed=seed)

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """The next `n` points as rows.

        Shapes: (n, dimension).
        Errors: InvalidArgument for a negative n, and after 2**30 points.

        >>> ad.quasirandom.SobolEngine(1).fast_forward(1).draw(2, dtype=ad.float64)
        tensor([[0.5000],
                [0.7500]], dtype=adjoint.float64)
        """
        n = self._count(n)
        kind = dt.get_default_dtype() if dtype is None else dtype
        first = int(not self.num_generated and n > 1)  # alone, since SciPy warns of unbalanced ones
        parts = [self._points.random(size) for size in (first, n - first) if size]
        points = np.concatenate([np.empty((0, self.dimension)), *parts])
        self.num_generated += n
        sample: Any = finish(points).to(kind)
        return sample if out is None else into(sample._data, out, None, "SobolEngine.draw")

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """The next 2**m points, after which the total must be a power of 2.

        Errors: InvalidArgument where there are not.

        >>> ad.quasirandom.SobolEngine(2).draw_base2(2).mean(0)
        tensor([0.3750, 0.3750])
        """
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise InvalidArgument(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(2**m, out, dtype)

    def reset(self) -> SobolEngine:
        """Restart the sequence.

        >>> ad.quasirandom.SobolEngine(2).fast_forward(5).reset().num_generated
        0
        """
        self._points.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Skip `n` points.

        >>> ad.quasirandom.SobolEngine(2).fast_forward(1).draw()
        tensor([[0.5000, 0.5000]])
        """
        n = self._count(n)
        if n:
            self._points.fast_forward(n)
        self.num_generated += n
        return self

    def _count(self, n: Any) -> int:
        count = operator.index(n)
        if count < 0 or self.num_generated + count > 2**self.MAXBIT:
            raise InvalidArgument(
                f"SobolEngine: {n} points after {self.num_generated}; there are 2**{self.MAXBIT}: "
                "begin again with reset()"
            )
        return count

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"
