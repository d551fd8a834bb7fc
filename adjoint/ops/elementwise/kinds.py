"""The bases of elementwise ops that take no integers."""

from __future__ import annotations

from ..samples import ALL_FLOATS, unary_samples
from .pointwise import ANALYTIC, FLOATING, Elementwise


class Floating(Elementwise, abstract=True):
    """The base of functions of floating-point numbers."""

    kinds = FLOATING


class Analytic(Elementwise, abstract=True):
    """The base of functions of floating-point and complex numbers."""

    kinds = ANALYTIC
    samples = unary_samples(dtypes=ALL_FLOATS)
