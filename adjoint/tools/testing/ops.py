"""The samples of every op, and the checks that an op has to pass on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...autograd.gradcheck import gradcheck, gradgradcheck
from ...backends import numpy
from ...core.dtype import LOW_PRECISION
from ...core.op import REGISTRY, Op, Sample
from ...core.spec import Spec
from ...ir.compute import quietly
from ...ops.create.exchange import from_numpy
from ...runtime.dispatch import apply
from ...tensor import Tensor
from .comparison import assert_close


def samples(op: type[Op] | None = None) -> Iterator[tuple[type[Op], Sample]]:
    """Every op class with each of its samples; those of one class where `op` is given.

    Errors: AssertionError for an op without samples.

    >>> from adjoint.ops.elementwise.functions import Tanh
    >>> len(list(ad.testing.samples(Tanh))) > 5
    True
    """
    for name, each in sorted(REGISTRY.items()):
        if op is None or each is op:
            found = list(each.samples())
            assert found, f"{name} has no samples: add a classmethod `samples` that yields Sample"
            for sample in found:
                yield each, sample


def check_op(op: type[Op], *, gradients: bool = True) -> int:
    """Check a primitive on all its samples, and return how many there were.

    Each is checked for its value (against `reference`, where there is one), its inferred spec,
    inputs left alone, and first and second derivatives against central differences.

    Errors: AssertionError or GradcheckError naming the sample that fails.

    >>> from adjoint.ops.elementwise.functions import Tanh
    >>> ad.testing.check_op(Tanh) > 5
    True
    """
    count = 0
    for i, (_, sample) in enumerate(samples(op)):
        try:
            check_sample(sample, gradients=gradients)
        except AssertionError as error:
            raise AssertionError(f"{op.__name__}, sample {sample.label or i}: {error}") from error
        except Exception as error:
            error.args = (f"{op.__name__}, sample {sample.label or i}: {error}", *error.args[1:])
            raise
        count += 1
    assert count, f"{op.__name__} is not registered: is it declared with abstract=True?"
    return count


def check_sample(sample: Sample, *, gradients: bool = True) -> None:
    """Check one sample of a primitive; see `check_op`.

    >>> from adjoint.ops.elementwise.functions import Tanh
    >>> ad.testing.check_sample(next(iter(Tanh.samples())))
    """
    op = sample.op
    inputs = [_tensor(x) for x in sample.inputs]
    before = [x.detach().numpy().copy() if isinstance(x, Tensor) else x for x in inputs]
    result = _tuple(apply(op, *inputs))
    if not any(isinstance(x, Tensor) and x.dtype in LOW_PRECISION for x in inputs):
        quietly(op.compute, numpy, *[x._data if isinstance(x, Tensor) else x for x in inputs])
    specs = op.infer(*(x.spec if isinstance(x, Tensor) else x for x in inputs))
    expected_specs = (specs,) if isinstance(specs, Spec) else tuple(specs)
    found_specs = tuple(y.spec for y in result)
    assert found_specs == expected_specs, (
        f"infer says {expected_specs}, compute gives {found_specs}"
    )
    for i, (x, old) in enumerate(zip(inputs, before, strict=True)):
        if isinstance(x, Tensor):
            same = np.array_equal(x.detach().numpy(), old, equal_nan=old.dtype.kind in "fc")
            assert same, f"compute changed input {i}"
    if sample.reference and type(op).reference is not Op.reference:
        for y, expected in zip(result, _tuple(op.reference(*sample.inputs)), strict=True):
            tolerance = sample.tolerance
            assert_close(
                y.detach().numpy(),
                np.asarray(expected),
                rtol=tolerance,
                atol=tolerance,
                equal_nan=True,
                check_dtype=False,
            )
    if gradients and sample.gradients and op.differentiable:
        _check_gradients(op, inputs)


def _check_gradients(op: Op, inputs: list[Any]) -> None:
    wide = (np.dtype(np.float64), np.dtype(np.complex128))
    floats = [x for x in inputs if isinstance(x, Tensor) and x.dtype.category >= 2]
    if not floats or any(x._data.dtype not in wide for x in floats):
        return

    def function(*values: Any) -> tuple[Any, ...]:
        found = _tuple(apply(op, *values))
        return tuple(y for y in found if y.requires_grad and y._data.dtype in wide)

    leaves = [
        x.detach().requires_grad_() if isinstance(x, Tensor) and x.dtype.category >= 2 else x
        for x in inputs
    ]
    if function(*leaves):
        gradcheck(function, leaves)
        gradgradcheck(function, leaves)


def _tensor(x: Any) -> Any:
    return from_numpy(x) if isinstance(x, np.ndarray) else x


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
