"""Functional transforms: jacobian, hessian and their products with vectors.

Source: https://docs.pytorch.org/docs/stable/autograd.html#functional-higher-level-api
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..core.errors import AutogradError, InvalidType, ShapeError, Unsupported
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..ops.shape.joining import stack
from ..runtime.public import naming
from ..runtime.tensors import wrap, zeros
from .dual import Dual, DualLevel, followed
from .gradients import grad
from .levels import DERIVING, Leveled, entered
from .modes import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

SomeTensors: TypeAlias = Tensor | tuple[Tensor, ...] | list[Tensor]  # one, or several


@naming
def vjp(
    func: Callable[..., Any],
    inputs: SomeTensors,
    v: SomeTensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """`func(*inputs)` and the product of `v` with its Jacobian.

    Shapes: `v` is shaped like the output; it may be None for an output of one element.
    Errors: AutogradError where `strict` and an output does not depend on an input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.functional.vjp.html

    >>> x = ad.tensor([1., 2.])
    >>> ad.autograd.functional.vjp(lambda x: x * x, x, ad.ones(2))[1]
    tensor([2., 4.])
    """
    with enable_grad():
        call = _TransformedCall("vjp", func, inputs, create_graph, strict)
        vs = call.vectors(v, call.ys, "output of the user-provided function")
        products = call.gradients(call.ys, vs, create_graph)
    return call.outputs(), call.like_inputs(products)


@naming
def jvp(
    func: Callable[..., Any],
    inputs: SomeTensors,
    v: SomeTensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """`func(*inputs)` and the product of its Jacobian with `v`, by differentiating twice.

    Shapes: `v` is shaped like `inputs`; it may be None for an input of one element.
    Errors: AutogradError where `strict` and an output does not depend on an input.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.functional.jvp.html

    >>> x = ad.tensor([1., 2.])
    >>> ad.autograd.functional.jvp(lambda x: x * x, x, ad.tensor([1., 0.]))[1]
    tensor([2., 0.])
    """
    with enable_grad():
        call = _TransformedCall("jvp", func, inputs, create_graph, strict)
        vs = call.vectors(v, call.xs, "input to the user-provided function")
        us = [_zeros(y).requires_grad_() for y in call.ys]
        rows = call.gradients(call.ys, us, True)  # linear in `us`: their derivative is the product
        live = [(row, vector) for row, vector in zip(rows, vs, strict=True) if row._node]
        columns: Sequence[Any] = [None] * len(us)
        if live:
            columns = grad(
                [row for row, _ in live],
                us,
                [vector for _, vector in live],
                create_graph=create_graph,
                allow_unused=True,
            )
        products = []
        for i, (product, y) in enumerate(zip(columns, call.ys, strict=True)):
            if product is None and strict:
                raise AutogradError(
                    f"jvp: The output {i} of the user-provided function is independent of the "
                    "inputs. This is not allowed in strict mode."
                )
            products.append(_zeros(y) if product is None else product)
    return call.outputs(), tuple(products) if call.tuple_out else products[0]


@naming
def jacobian(
    func: Callable[..., Any],
    inputs: SomeTensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of `func` at `inputs`, one row per backward; by the "forward-mode" strategy one
    column per call of `func`, for few inputs and many outputs.

    Shapes: output's shape followed by input's; a tuple per input, and one per output, where those
    are tuples. `vectorize` changes nothing here but what PyTorch refuses.
    Errors: AutogradError where `strict` and an output does not depend on an input, and for `strict`
    with `vectorize`; Unsupported for the forward-mode strategy without `vectorize`, or with
    `create_graph`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.functional.jacobian.html

    >>> ad.autograd.functional.jacobian(lambda x: x * x, ad.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    _assert_strategy("jacobian", "strategy", strategy, strict, vectorize)
    if strategy == "forward-mode":
        if create_graph:
            raise Unsupported(
                "jacobian: create_graph=True and strategy='forward-mode'; use 'reverse-mode', or "
                "adjoint.func.jacfwd"
            )
        return _by_columns(func, inputs)
    with enable_grad():
        call = _TransformedCall("jacobian", func, inputs, create_graph, strict)
        blocks = []
        for i, y in enumerate(call.ys):
            rows: list[Any] = [[] for _ in call.xs]
            for j in range(y.numel()):
                basis = _zeros(y)
                basis._data.reshape(-1)[j] = 1
                gradients = call.gradients([y], [basis], create_graph, i)
                for row, g in zip(rows, gradients, strict=True):
                    row.append(g)
            blocks.append(
                tuple(
                    stack(row).reshape(*y.shape, *x.shape)
                    if row
                    else x.new_zeros((*y.shape, *x.shape))
                    for row, x in zip(rows, call.xs, strict=True)
                )
            )
    result = tuple(block if call.tuple_in else block[0] for block in blocks)
    return result if call.tuple_out else result[0]


@naming
def hessian(
    func: Callable[..., Any],
    inputs: SomeTensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function of one element.

    Shapes: input's shape twice; a tuple of tuples for several inputs.
    Errors: AutogradError where the output has several elements, or `strict` finds it independent
    of an input, and for `strict` with `vectorize`; Unsupported for the forward-mode strategy
    (forward over reverse, one column per gradient) without `vectorize`, or with `create_graph`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.functional.hessian.html

    >>> ad.autograd.functional.hessian(lambda x: (x * x * x).sum(), ad.tensor([1., 2.]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    _assert_strategy(
        "hessian", "outer_jacobian_strategy", outer_jacobian_strategy, strict, vectorize
    )
    several = isinstance(inputs, (tuple, list))
    if outer_jacobian_strategy == "forward-mode":
        if create_graph:
            raise Unsupported(
                "hessian: create_graph=True and outer_jacobian_strategy='forward-mode'; use "
                "'reverse-mode', or adjoint.func.hessian"
            )
        return _by_columns(lambda *xs: _gradient(func, xs, several), inputs)

    def gradient(*xs: Any) -> Tensor | tuple[Tensor, ...]:
        def checked(*values: Any) -> Tensor:
            return _assert_scalar("hessian", func(*values))

        rows = jacobian(checked, xs, create_graph=True, strict=strict)
        rows = tuple(row.reshape(x.shape) for row, x in zip(rows, xs, strict=True))
        return rows if several else rows[0]

    return jacobian(gradient, inputs, create_graph=create_graph, strict=strict)


@naming
def vhp(
    func: Callable[..., Any],
    inputs: SomeTensors,
    v: SomeTensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a function of one element, and the product of `v` with its Hessian.

    Shapes: `v` is shaped like `inputs`; it may be None for an input of one element.
    Errors: AutogradError where the output has several elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.functional.vhp.html

    >>> x = ad.tensor([1., 2.])
    >>> ad.autograd.functional.vhp(lambda x: (x * x * x).sum(), x, ad.ones(2))[1]
    tensor([ 6., 12.])
    """
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


@naming
def hvp(
    func: Callable[..., Any],
    inputs: SomeTensors,
    v: SomeTensors | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The value of a function of one element, and the product of its Hessian with `v`.

    The Hessian is symmetric, so this is `vhp` under another name.

    Shapes: `v` is shaped like `inputs`; it may be None for an input of one element.
    Errors: AutogradError where the output has several elements.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.functional.hvp.html

    >>> x = ad.tensor([1., 2.])
    >>> ad.autograd.functional.hvp(lambda x: (x * x * x).sum(), x, ad.ones(2))[1]
    tensor([ 6., 12.])
    """
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)


def _hessian_product(
    name: str,
    func: Callable[..., Any],
    inputs: SomeTensors,
    v: SomeTensors | None,
    create_graph: bool,
    strict: bool,
) -> tuple[Any, Any]:
    with enable_grad():
        call = _TransformedCall(name, func, inputs, create_graph, strict)
        _assert_scalar(name, call.outputs())
        vs = call.vectors(v, call.xs, "input to the user-provided function")
        first = call.gradients(call.ys, [None], True)
        products = call.gradients(first, vs, create_graph, None)
    return call.outputs(), call.like_inputs(products)


class _TransformedCall:
    """One call of the user's function on private copies of the inputs, whose gradients nobody else
    sees.
    """

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        inputs: SomeTensors,
        create_graph: bool,
        strict: bool,
    ) -> None:
        if DERIVING.get() and not create_graph:
            raise AutogradError(
                f"{name}: inside of func.{DERIVING.get()}, which would take the result for a "
                "constant; pass create_graph=True, or use the transforms of adjoint.func (grad, "
                "vjp, jacrev, jacfwd, hessian)"
            )
        self.name = name
        self.strict = strict
        self.create_graph = create_graph
        self.tuple_in = isinstance(inputs, (tuple, list))
        self.xs = [self._input(i, x) for i, x in enumerate(inputs if self.tuple_in else (inputs,))]
        result = func(*self.xs)
        self.tuple_out = isinstance(result, (tuple, list))
        self.ys = list(result if self.tuple_out else (result,))
        for i, y in enumerate(self.ys):
            if not isinstance(y, TensorBase):
                raise InvalidType(
                    f"{name}: The outputs of the user-provided function given to {name} must be "
                    f"either a Tensor or a tuple of Tensors but the value at index {i} has type "
                    f"{type(y).__name__}"
                )
            if strict and y._node is None:
                raise AutogradError(
                    f"{name}: Output {i} of the user-provided function does not require gradients. "
                    "The outputs must be computed in a differentiable manner from the input when "
                    "running in strict mode."
                )

    def _input(self, i: int, x: object) -> Tensor:
        if not isinstance(x, TensorBase):
            raise InvalidType(
                f"{self.name}: The inputs given to {self.name} must be either a Tensor or a tuple "
                f"of Tensors but the value at index {i} has type {type(x).__name__}"
            )
        given: Any = x
        if self.create_graph and x._node is not None:
            return given.view_as(given)
        if self.create_graph and isinstance(x._data, Leveled):  # `detach` would drop its tangent
            return given.view_as(given).requires_grad_()
        return given.detach().requires_grad_()

    def gradients(
        self, ys: Sequence[Any], vs: Sequence[Any], create_graph: bool, output: int | None = 0
    ) -> list[Any]:
        """The gradients of the inputs, zeros where there is none (refused where `strict`)."""
        live = [(y, v) for y, v in zip(ys, vs, strict=True) if y._node is not None]
        gradients: Sequence[Any] = [None] * len(self.xs)
        if live:
            gradients = grad(
                [y for y, _ in live],
                self.xs,
                [v for _, v in live],
                retain_graph=True,
                create_graph=create_graph,
                allow_unused=True,
            )
        for i, g in enumerate(gradients):
            if g is None and self.strict:
                what = "The gradient" if output is None else f"Output {output}"
                raise AutogradError(
                    f"{self.name}: {what} of the user-provided function is independent of input "
                    f"{i}. This is not allowed in strict mode."
                )
        return [_zeros(x) if g is None else g for g, x in zip(gradients, self.xs, strict=True)]

    def vectors(self, v: SomeTensors | None, like: Sequence[Any], what: str) -> list[Any]:
        """The user's `v` as a list that matches `like`."""
        if v is None:
            if len(like) != 1 or like[0].numel() != 1:
                raise AutogradError(
                    f"{self.name}: The vector v can only be None if the {what} is a single Tensor "
                    "with a single element."
                )
            return [like[0].new_ones(like[0].shape)]
        vs = list(v) if isinstance(v, (tuple, list)) else [v]
        if len(vs) != len(like):
            raise AutogradError(
                f"{self.name}: v is a tuple of invalid length: should be {len(like)} but got "
                f"{len(vs)}."
            )
        for i, (vector, x) in enumerate(zip(vs, like, strict=True)):
            if not isinstance(vector, TensorBase):
                raise InvalidType(
                    f"{self.name}: v[{i}] must be a Tensor but has type {type(vector).__name__}"
                )
            if vector._data.shape != x._data.shape:
                raise ShapeError(
                    f"{self.name}: v has invalid size: should be {tuple(x.shape)} but got "
                    f"{tuple(vector.shape)} (entry {i})"
                )
        if not self.create_graph:
            vs = [vector.detach() for vector in vs]
        return vs

    def outputs(self) -> Tensor | tuple[Tensor, ...]:
        """The function's results; without history unless the caller wants a graph."""
        ys = self.ys if self.create_graph else [y.detach() for y in self.ys]
        return tuple(ys) if self.tuple_out else ys[0]

    def like_inputs(self, values: Sequence[Any]) -> Tensor | tuple[Tensor, ...]:
        """One value per input, as a tuple where the inputs were a tuple."""
        return tuple(values) if self.tuple_in else values[0]


def _zeros(x: Tensor) -> Tensor:
    return zeros(tuple(x.shape), x._data.dtype, x.device)


def _assert_scalar(name: str, y: Tensor | tuple[Tensor, ...]) -> Tensor:
    if not isinstance(y, TensorBase):
        raise InvalidType(
            f"{name}: The function given to {name} should return a single Tensor, got "
            f"{type(y).__name__}"
        )
    if y._data.size != 1:
        raise AutogradError(
            f"{name}: The Tensor returned by the function given to {name} should contain a single "
            f"element, got shape {tuple(y.shape)}"
        )
    return y


def _gradient(
    func: Callable[..., Any], inputs: Sequence[Any], several: bool
) -> Tensor | tuple[Tensor, ...]:
    """The gradient of a function of one element, also of duals."""
    with enable_grad():
        xs = [followed(x) for x in inputs]
        y = _assert_scalar("hessian", func(*xs))
        gradients: Sequence[Any] = [None] * len(xs)
        if y._node is not None:
            gradients = grad(y, xs, allow_unused=True)
    rows = tuple(_zeros(x) if g is None else g for g, x in zip(gradients, xs, strict=True))
    return rows if several else rows[0]


def _by_columns(func: Callable[..., Any], inputs: SomeTensors) -> Any:
    """The Jacobian by forward mode: `func` is called once for each element of the inputs."""
    several = isinstance(inputs, (tuple, list))
    call = _TransformedCall("jacobian", func, inputs, False, False)
    xs = [x.detach() for x in call.xs]
    columns: list[list[Any]] = [[] for _ in call.ys]  # of each output, by input
    for n, x in enumerate(xs):
        parts: list[list[Any]] = [[] for _ in call.ys]
        for j in range(x.numel()):
            basis = _zeros(x)
            basis._data.reshape(-1)[j] = 1
            for column, t in zip(parts, _pushed(func, xs, n, basis), strict=True):
                column.append(t)
        for y, blocks, column in zip(call.ys, columns, parts, strict=True):
            made = stack(column, -1) if column else y.new_zeros((*y.shape, 0))
            blocks.append(made.reshape(*y.shape, *x.shape))
    result = tuple(tuple(blocks) if several else blocks[0] for blocks in columns)
    return result if call.tuple_out else result[0]


def _pushed(func: Callable[..., Any], xs: Sequence[Any], place: int, tangent: Tensor) -> list[Any]:
    """The tangent of each output of `func` where one input has a tangent."""
    level = DualLevel()
    duals = [wrap(Dual(level, x, tangent if n == place else None)) for n, x in enumerate(xs)]
    try:
        with entered(level):
            result = func(*duals)
        ys = result if isinstance(result, (tuple, list)) else (result,)
        moved = [y._data.tangent if level.at(y) else None for y in ys]
        plain = [y._data.inner if level.at(y) else y for y in ys]
        return [_zeros(y) if t is None else t for y, t in zip(plain, moved, strict=True)]
    finally:
        level.closed = True


def _assert_strategy(
    name: str, argument: str, strategy: str, strict: bool, vectorize: bool
) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AutogradError(
            f"{name}: Expected {argument} to be either 'reverse-mode' or 'forward-mode', got "
            f"{strategy!r}"
        )
    if strict and (vectorize or strategy == "forward-mode"):
        raise AutogradError(
            f"{name}: strict=True is not supported together with vectorize=True or "
            "'forward-mode'; leave one out"
        )
    if strategy == "forward-mode" and not vectorize:
        raise Unsupported(
            f"{name}: {argument}='forward-mode' is only implemented for vectorize=True; add it, "
            "or use 'reverse-mode'"
        )
