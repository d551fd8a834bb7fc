"""Fourier transforms as three ops, whose adjoints are among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.op import Op, Sample
from ...core.spec import Spec
from ...core.tensor_type import Tensor
from ...runtime.dispatch import apply
from ..samples import array, strided

__all__: list[str] = []


# The adjoint of a transform is the other direction with the same factor, which the other direction
# calls by this name.
ADJOINT_NORM = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


@dataclass(eq=False, repr=False)
class Fourier(Op):
    """The complex transform over `axes`, forward or inverse."""

    axes: tuple[int, ...]
    inverse: bool = False
    norm: str = "backward"
    linear = True

    def infer(self, x: Spec) -> Spec:
        """The input's spec."""
        return x

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's transform."""
        function = xp.fft.ifftn if self.inverse else xp.fft.fftn
        return function(x, axes=self.axes, norm=self.norm)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The transform of g in the other direction, with the same factor."""
        return (apply(Fourier(self.axes, not self.inverse, ADJOINT_NORM[self.norm]), g),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Directions, norms, axes, strided."""
        for inverse in (False, True):
            for norm in ADJOINT_NORM:
                x = array((2, 5), dt.complex128)
                yield Sample(cls((1,), inverse, norm), (x,), f"{norm}-{inverse}")
        yield Sample(cls((0, 2)), (array((2, 3, 4), dt.complex128),), "axes")
        yield Sample(cls((1,)), (array((2, 4), dt.complex64),), "complex64")
        yield Sample(cls((0,)), (strided(array((3, 4), dt.complex128)),), "strided")
        yield Sample(cls((1,)), (array((0, 4), dt.complex128),), "empty")

    def reference(self, x: Any) -> Any:
        """Reference value by the matrix of each axis."""
        for axis in self.axes:
            matrix = _matrix(x.shape[axis], self.inverse, self.norm)
            x = np.moveaxis(np.tensordot(x, matrix, (axis, 0)), -1, axis)
        return x


def _matrix(n: int, inverse: bool, norm: str) -> Any:
    turns = np.outer(np.arange(n), np.arange(n)) / n
    scaled = (norm == "forward") != inverse
    factor = n**-0.5 if norm == "ortho" else 1 / n if scaled else 1
    return np.exp((2j if inverse else -2j) * np.pi * turns) * factor


def _weigh(g: Any, axis: int, n: int, factor: float) -> Any:
    """`g` with the frequencies that stand for two (all but 0 and n/2) times `factor`."""
    weights = np.full(n // 2 + 1, factor)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    shape = [1] * g.ndim
    shape[axis] = -1
    return g * g.new_tensor(weights.reshape(shape), dtype=g.dtype.to_real())


@dataclass(eq=False, repr=False)
class RealFourier(Op):
    """The transform of real data over one axis: frequencies 0 to n/2."""

    axis: int
    norm: str = "backward"
    linear = True

    def infer(self, x: Spec) -> Spec:
        """Complex, n // 2 + 1 along the axis."""
        shape = list(x.shape)
        shape[self.axis] = shape[self.axis] // 2 + 1
        return x.with_(shape=tuple(shape), dtype=x.dtype.to_complex())

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's transform."""
        return xp.fft.rfft(x, axis=self.axis, norm=self.norm)

    def gradient(self, g: Tensor, spec: Spec) -> tuple[Any, ...]:
        """The inverse counts middle frequencies twice; here each counts once."""
        n = spec.shape[self.axis]
        op = InverseRealFourier(self.axis, n, ADJOINT_NORM[self.norm])
        return (apply(op, _weigh(g, self.axis, n, 0.5)),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Even and odd lengths, norms, axes."""
        for n in (1, 2, 5, 6):
            yield Sample(cls(1), (array((2, n)),), f"n{n}")
        for norm in ADJOINT_NORM:
            yield Sample(cls(0, norm), (array((4, 2)),), norm)
        yield Sample(cls(1), (array((2, 4), dt.float32),), "float32")
        yield Sample(cls(1), (array((0, 4)),), "empty")

    def reference(self, x: Any) -> Any:
        """Half of the complex transform."""
        full = Fourier((self.axis,), False, self.norm).reference(x)
        return np.take(full, range(x.shape[self.axis] // 2 + 1), self.axis)


@dataclass(eq=False, repr=False)
class InverseRealFourier(Op):
    """Real data of length n from its frequencies 0 to n/2, whose ends count as real."""

    axis: int
    n: int
    norm: str = "backward"
    linear = True

    def infer(self, x: Spec) -> Spec:
        """Real, n along the axis."""
        shape = list(x.shape)
        shape[self.axis] = self.n
        return x.with_(shape=tuple(shape), dtype=x.dtype.to_real())

    def compute(self, xp: Any, x: Any) -> Any:
        """The backend's transform."""
        return xp.fft.irfft(x, n=self.n, axis=self.axis, norm=self.norm)

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """The transform, with middle frequencies counted twice."""
        found = apply(RealFourier(self.axis, ADJOINT_NORM[self.norm]), g)
        return (_weigh(found, self.axis, self.n, 2.0),)

    @classmethod
    def samples(cls) -> Iterable[Sample]:
        """Even and odd lengths, norms, axes."""
        for n in (1, 2, 5, 6):
            yield Sample(cls(1, n), (array((2, n // 2 + 1), dt.complex128),), f"n{n}")
        for norm in ADJOINT_NORM:
            yield Sample(cls(0, 4, norm), (array((3, 2), dt.complex128),), norm)
        yield Sample(cls(1, 4), (array((2, 3), dt.complex64),), "complex64")
        yield Sample(cls(1, 4), (array((0, 3), dt.complex128),), "empty")

    def reference(self, x: Any) -> Any:
        """The complex inverse of the conjugate-symmetric completion."""
        x = np.moveaxis(x, self.axis, -1).copy()
        x[..., 0] = x[..., 0].real
        if self.n % 2 == 0:
            x[..., -1] = x[..., -1].real
        rest = np.conj(x[..., 1 : (self.n + 1) // 2][..., ::-1])
        full = np.concatenate([x, rest], -1)
        result = Fourier((full.ndim - 1,), True, self.norm).reference(full)
        return np.moveaxis(result.real, -1, self.axis)
