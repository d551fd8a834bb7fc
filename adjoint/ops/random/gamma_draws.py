"""Draws whose parameters are tensors: gamma and Dirichlet (with implicit gradients), binomial."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.errors import DTypeError, InvalidArgument
from ...core.op import Sample
from ...core.spec import Spec, broadcast_shapes
from ...core.tensor_type import Tensor
from ...runtime.public import explaining, public
from ..special.incomplete import beta_shift, gamma_shift
from .draws import Draw, OfParameter, common_value, each_of
from .generators import Generator
from .streams import rejecting

__all__ = ["binomial"]


def _assert_positive(name: str, x: Any) -> None:
    least = common_value(x)
    if least is None:
        least = x.min() if x.size else 1
    if not least > 0:
        raise InvalidArgument(f"{name}: the concentration must be positive, got {least}")


@functools.cache
def _tiny(dtype: Any) -> Any:
    """The least normal number of a dtype."""
    return np.finfo(dtype).tiny


def _as_positive(values: Any, like: Any) -> Any:
    """`values` in the dtype of `like`; what underflows becomes the least normal number."""
    return np.maximum(np.asarray(values).astype(like.dtype, copy=False), _tiny(like.dtype))


def _concentrations(cls: Any) -> Iterable[Sample]:
    values = np.linspace(0.1, 20.0, 6).reshape(2, 3)
    for dtype in (dt.float64, dt.float32):
        yield Sample(cls(1, 2), (values.astype(dtype.numpy),), dtype.name, gradients=False)
    yield Sample(cls(1, 2), (np.array([0.001, 1e6]),), "extremes", gradients=False)
    yield Sample(cls(1, 2), (np.zeros((0, 3)),), "empty", gradients=False)
    yield Sample(cls(1, 2), (values.T,), "strided", gradients=False)


class StandardGamma(OfParameter):
    """Numbers with the gamma distribution whose concentration the input gives, of rate 1.

    The sampler rejects, so its value jumps; its gradient is the draw's at a fixed probability.
    """

    samples = classmethod(_concentrations)
    core = (0,)

    def compute(self, xp: Any, x: Any) -> Any:
        """NumPy's sampler."""
        _assert_positive("standard_gamma", x)
        rng, concentration = self.rng(xp), common_value(x)
        if type(self.seed) is not int:
            return _as_positive(rng.standard_gamma(x.astype(np.float64)), x)
        if concentration is None:
            return _as_positive(each_of(rng.standard_gamma, x.astype(np.float64)), x)
        return _as_positive(rng.standard_gamma(concentration, x.shape), x)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """g times the implicit derivative."""
        return (g * gamma_shift(x, y),)

    def reference(self, x: Any) -> Any:
        """Reference values, computed one by one."""
        rng = self.fresh()
        values = [rng.standard_gamma(float(a)) for a in x.ravel()]
        return np.maximum(np.array(values).reshape(x.shape), np.finfo(x.dtype).tiny)


class StandardDirichlet(OfParameter):
    """Shares with the Dirichlet distribution whose concentrations the input's rows give."""

    samples = classmethod(_concentrations)
    core = (1,)

    def compute(self, xp: Any, x: Any) -> Any:
        """Gamma draws in proportion, by their logarithms: small concentrations underflow."""
        _assert_positive("dirichlet", x)
        if not x.size:
            return x.copy()
        wide, rng = x.astype(np.float64), self.rng(xp)
        if type(self.seed) is not int:  # PyTorch's generator
            draws = np.maximum(rng.standard_gamma(wide), np.finfo(np.float64).tiny)
            return _as_positive(draws / draws.sum(-1, keepdims=True), x)
        logs = np.log(each_of(rng.standard_gamma, wide + 1))
        logs -= rng.standard_exponential(x.shape) / wide
        logs -= np.maximum.reduce(logs, -1, keepdims=True)
        shares = np.exp(logs, out=logs)
        shares /= np.add.reduce(shares, -1, keepdims=True)
        return _as_positive(shares, x)

    def gradient(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """Implicit gradient: each share moves as a beta draw does, at the cost of the others in
        proportion.
        """
        rest = x.sum(-1, keepdim=True) - x
        return (beta_shift(x, rest, y) * (g - (y * g).sum(-1, keepdim=True)),)

    def reference(self, x: Any) -> Any:
        """Reference values, computed one by one."""
        rng = self.fresh()
        gammas = [rng.standard_gamma(float(a) + 1) for a in x.ravel()]
        clocks = [rng.standard_exponential() for _ in x.ravel()]
        logs = np.log(gammas).reshape(x.shape) - np.array(clocks).reshape(x.shape) / x
        from scipy import special

        return np.maximum(special.softmax(logs, -1), np.finfo(x.dtype).tiny) if x.size else x


class Binomial(Draw):
    """The number of successes among `x1` trials, each of probability `x2`."""

    differentiable = True
    core = (0,)

    def infer(self, spec1: Spec, spec2: Spec) -> Spec:
        """The broadcast shape; the dtype is the counts'."""
        if spec1.dtype is not spec2.dtype or spec1.dtype.category != 2:
            raise DTypeError(
                f"binomial: expected one floating-point dtype, got counts of {spec1.dtype} and "
                f"probabilities of {spec2.dtype}; convert with .to()"
            )
        return spec1.with_(shape=broadcast_shapes(spec1.shape, spec2.shape, op="binomial"))

    strict = True

    def compute(self, xp: Any, x1: Any, x2: Any) -> Any:
        """NumPy's sampler."""
        count, chance = common_value(x1), common_value(x2)
        least = count if count is not None else x1.min() if x1.size else 0
        if not least >= 0:
            raise InvalidArgument(f"binomial: counts must not be negative, got {least}")
        low, high = (chance, chance) if chance is not None else (0, 0)
        if chance is None and x2.size:
            low, high = x2.min(), x2.max()
        if not (low >= 0 and high <= 1):
            raise InvalidArgument(
                f"binomial: probabilities must lie in [0, 1], got {low} to {high}"
            )
        rng = self.rng(xp)
        if count is None or chance is None or type(self.seed) is not int:
            return np.asarray(rng.binomial(x1.astype(np.int64), x2)).astype(x1.dtype)
        shape = x1.shape if x1.shape == x2.shape else np.broadcast_shapes(x1.shape, x2.shape)
        return rng.binomial(int(count), chance, shape).astype(x1.dtype)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Zero: the value jumps or stays."""
        return (g.new_zeros(g.shape), g.new_zeros(g.shape))

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Each dtype, broadcast, 0-d, empty, certain and impossible successes."""
        counts = np.array([[3.0], [100.0]])
        chances = np.array([0.0, 0.3, 1.0])
        for dtype in (dt.float64, dt.float32):
            inputs = (counts.astype(dtype.numpy), chances.astype(dtype.numpy))
            yield Sample(cls(1, 2), inputs, dtype.name, gradients=False)
        yield Sample(cls(1, 2), (np.array(30.0), np.array(0.3)), "0-d", gradients=False)
        yield Sample(cls(1, 2), (counts, np.zeros((2, 0))), "empty", gradients=False)

    def reference(self, x1: Any, x2: Any) -> Any:
        """Reference values, computed one by one."""
        rng = self.fresh()
        counts, chances = np.broadcast_arrays(x1, x2)
        pairs = zip(counts.ravel(), chances.ravel(), strict=True)
        return np.array([float(rng.binomial(int(n), p)) for n, p in pairs]).reshape(counts.shape)


def standard_gamma(concentration: Any, generator: Generator | None = None) -> Any:
    """Gamma draws of rate 1, with implicit gradients (Figurnov et al., 2018)."""
    return rejecting(StandardGamma, generator, concentration)


def standard_dirichlet(concentration: Any, generator: Generator | None = None) -> Any:
    """Dirichlet draws over the last dimension, with implicit gradients."""
    return rejecting(StandardDirichlet, generator, concentration)


@explaining
@public(method=False)
def binomial(count: Tensor, prob: Tensor, *, generator: Generator | None = None) -> Tensor:
    """The number of successes among `count` trials, each of probability `prob`.

    Shapes: `count` and `prob` broadcast.
    Dtypes: one floating-point dtype, which the result has too; gradients are zero.
    Errors: InvalidArgument for negative counts and probabilities outside [0, 1].
    Source: https://docs.pytorch.org/docs/stable/generated/torch.binomial.html

    >>> ad.binomial(ad.tensor([10., 10.]), ad.tensor([0., 1.]))
    tensor([ 0., 10.])
    """
    return rejecting(Binomial, generator, count, prob)
