"""`autograd.backward` and `autograd.grad`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..core.errors import AutogradError, InvalidArgument, InvalidType
from ..core.mode import MODE
from ..core.overrides import ABSENT, FOLLOWED, leading, overridden, unusual
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.public import naming
from ..runtime.tensors import wrap
from . import refreshing
from .batching import Batched, BatchLevel
from .engine import roots_of, run_backward
from .levels import entered
from .protocols import SomeTensors
from .refreshing import is_of_graph

__all__ = ["backward", "grad"]


def _sequence(value: SomeTensors | None) -> list[Any]:
    return [value] if isinstance(value, TensorBase) or value is None else list(value)


def _matching(gradients: SomeTensors | None, count: int, name: str) -> list[Any]:
    if gradients is None:
        return [None] * count
    sequence = _sequence(gradients)
    if len(sequence) != count:
        raise AutogradError(f"{name}: got {count} tensors and {len(sequence)} gradients")
    return sequence


@naming
def backward(
    tensors: SomeTensors,
    grad_tensors: SomeTensors | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: SomeTensors | None = None,
    inputs: SomeTensors | None = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves they depend on.

    Shapes: each of `grad_tensors` has the shape of its tensor; ones where None. `grad_variables`
    is its older name.
    Errors: AutogradError for tensors without history, a second backward without `retain_graph`,
    or saved tensors that were changed in place.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html

    >>> x = ad.tensor(3.0, requires_grad=True)
    >>> ad.autograd.backward(x * x)
    >>> x.grad
    tensor(6.)
    """
    if FOLLOWED:
        options = unusual(
            retain_graph=(retain_graph, None), create_graph=(create_graph, False),
            grad_variables=(grad_variables, None), inputs=(inputs, None),
        )  # fmt: skip
        if overridden(backward, leading(tensors, grad_tensors), options) is not ABSENT:
            return
    if grad_variables is not None:
        if grad_tensors is not None:
            raise AutogradError("backward: got grad_tensors and grad_variables, its older name")
        warnings.warn("backward: grad_variables is now grad_tensors", FutureWarning, stacklevel=2)
        grad_tensors = grad_variables
    outputs = _sequence(tensors)
    if any(map(is_of_graph, outputs)):
        retain = create_graph if retain_graph is None else retain_graph
        targets = None if inputs is None else _sequence(inputs)
        for y, g in zip(outputs, _matching(grad_tensors, len(outputs), "backward"), strict=True):
            refreshing.backward(y, g, retain, targets)
        return
    roots = roots_of(outputs, _matching(grad_tensors, len(outputs), "backward"), "backward")
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run_backward(roots, retain_graph=retain, create_graph=create_graph)
        return
    targets = _sequence(inputs)
    if not targets:
        raise AutogradError("backward: inputs argument cannot be empty")
    _assert_differentiable(targets, "backward")
    reached = run_backward(
        roots, retain_graph=retain, create_graph=create_graph, targets=[x._node for x in targets]
    )
    for x in targets:
        if x._node is not x._leaf and x._node in reached and not x.retains_grad:
            g = reached[x._node] if create_graph else reached[x._node].detach()
            x.grad = g if x.grad is None else x.grad + g


def _assert_differentiable(inputs: Sequence[Any], name: str) -> None:
    for i, x in enumerate(inputs):
        if not isinstance(x, TensorBase):
            raise InvalidType(f"{name}: input {i} is a {type(x).__name__}, not a tensor")
        if x._node is None:
            raise AutogradError(
                f"{name}: One of the differentiated Tensors does not require grad (input {i}, "
                f"shape {tuple(x.shape)}); call requires_grad_() before computing with it"
            )
    note = getattr(MODE.get().executor, "note_targets", None)
    if note is not None:  # a capture's, in which it matters which tensors are the same
        note()


@naming
def grad(
    outputs: SomeTensors,
    inputs: SomeTensors,
    grad_outputs: SomeTensors | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`; `.grad` is not touched.

    Shapes: one result per input, of its shape; None for one that the outputs do not depend on,
    where `allow_unused` (zeros where `materialize_grads`). `only_inputs` is an older switch,
    which can only be on.
    Errors: AutogradError for tensors without history, or an unused input without `allow_unused`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html

    >>> x = ad.tensor(3.0, requires_grad=True)
    >>> (g,) = ad.autograd.grad(x**3, x, create_graph=True)
    >>> g.item(), ad.autograd.grad(g, x)[0].item()
    (27.0, 18.0)
    """
    if FOLLOWED:
        options = unusual(
            retain_graph=(retain_graph, None), create_graph=(create_graph, False),
            only_inputs=(only_inputs, True), allow_unused=(allow_unused, None),
            is_grads_batched=(is_grads_batched, False),
            materialize_grads=(materialize_grads, False),
        )  # fmt: skip
        said = overridden(grad, leading(outputs, inputs, grad_outputs), options)
        if said is not ABSENT:
            return said  # type: ignore[no-any-return]
    if not only_inputs:
        warnings.warn(
            "grad: only_inputs=False has no effect; autograd.backward adds the gradients of all "
            "leaves to their .grad",
            FutureWarning,
            stacklevel=2,
        )
    if allow_unused is None:
        allow_unused = materialize_grads
    elif materialize_grads and not allow_unused:
        raise InvalidArgument(
            "grad: Expected allow_unused to be True or not passed when materialize_grads=True, "
            "got allow_unused=False"
        )
    ys = _sequence(outputs)
    xs = _sequence(inputs)
    if not xs:
        raise AutogradError("grad: grad requires non-empty inputs.")
    _assert_differentiable(xs, "grad")
    if is_grads_batched:
        return _batched(ys, xs, grad_outputs, create_graph, allow_unused)
    seeds = _matching(grad_outputs, len(ys), "grad")
    if any(map(is_of_graph, ys)):
        gradients = refreshing.grad(ys, xs, seeds)
        create_graph = True  # gradients of a graph are nodes of it
    else:
        reached = run_backward(
            roots_of(ys, seeds, "grad"),
            retain_graph=create_graph if retain_graph is None else retain_graph,
            create_graph=create_graph,
            targets=[x._node for x in xs],
            accumulate=False,
        )
        gradients = [reached.get(x._node) for x in xs]
    results = []
    for i, (x, g) in enumerate(zip(xs, gradients, strict=True)):
        if g is None and not allow_unused:
            raise AutogradError(
                f"grad: One of the differentiated Tensors appears to not have been used in the "
                f"graph (input {i}, shape {tuple(x.shape)}). Set allow_unused=True if this is the "
                "desired behavior."
            )
        if g is None and materialize_grads:
            g = x.new_zeros(x.shape)
        elif g is not None and not create_graph and g._node is not None:
            g = g.detach()
        results.append(g)
    return tuple(results)


def _batched(
    ys: list[Any],
    xs: list[Any],
    grad_outputs: SomeTensors | None,
    create_graph: bool,
    allow_unused: bool,
) -> tuple[Any, ...]:
    """One vector-Jacobian product per entry of the leading dimension of `grad_outputs`, at once."""
    batches = _matching(grad_outputs, len(ys), "grad")
    level = BatchLevel(len(batches[0]), "error")
    seeds = [None if b is None else wrap(Batched(level, b)) for b in batches]
    with entered(level):
        gradients = grad(ys, xs, seeds, True, create_graph, allow_unused=allow_unused)
    results = []
    for g in gradients:
        if g is not None:
            whole = not level.at(g) or g._data.whole
            g = g._data.inner if level.at(g) else g
            g = g.expand(level.size, *g.shape) if whole else g
        results.append(g)
    return tuple(results)
