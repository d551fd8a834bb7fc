"""Derivatives of functions as functions: reverse mode by the tape, forward mode by dual values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.dual import ENABLED, Dual, DualLevel, followed
from ...autograd.engine import run_backward, seed
from ...autograd.levels import DERIVING, current, entered, recording_beyond
from ...autograd.modes import enable_grad
from ...core.errors import AutogradError, InvalidArgument, InvalidType, ShapeError, Unsupported
from ...core.mode import MODE, switched
from ...core.tensor_base import TensorBase
from ...ops.shape.joining import stack
from ...runtime.cells import Cell
from ...runtime.node import Leaf
from ...runtime.public import naming
from ...runtime.tensors import wrap
from ..utils._pytree import tree_flatten, tree_map, tree_unflatten
from .arguments import assert_real, outputs_of, places_of, replaced, with_aux
from .batches import vmap

__all__ = [
    "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "vjp",
]  # fmt: skip


# ---- reverse mode --------------------------------------------------------------------------------


class _Reverse:
    """One run of a function whose derivative by some of its arguments will be asked."""

    def __init__(self, name: str, func: Any, primals: Any, call: Callable[[Any], Any]) -> None:
        self.name = name
        self.leaves, self.form = tree_flatten(primals)
        self.place = current()
        self.inside = MODE.get()  # where it was asked: whether the derivative has one itself
        for x in self.leaves:
            if not isinstance(x, TensorBase):
                raise InvalidType(
                    f"{name}: Expected all leaves of the inputs to be Tensors, got a "
                    f"{type(x).__name__}; pass it by another argument (argnums), or close over it"
                )
            if x._data.dtype.kind not in "fcV":
                raise AutogradError(
                    f"{name}: only Tensors of floating point and complex dtype can require "
                    f"gradients, got {x.dtype}; convert with .float() first"
                )
        with enable_grad(), switched(name, variable=DERIVING):
            self.xs = [followed(x) for x in self.leaves]
            self.nodes = [x._node for x in self.xs]
            values = [x._data for x in self.xs]
            self.result = call(tree_unflatten(self.xs, self.form))
        if any(type(getattr(y, "_node", None)) is Cell for y in tree_flatten(self.result)[0]):
            raise Unsupported(
                f"{name}: the function was recorded in a Graph, whose gradients are nodes of their "
                "own; use autograd.grad(y, x) there, or call this outside of the graph"
            )
        for leaf, x, value in zip(self.leaves, self.xs, values, strict=True):
            if x._data is not value:  # it was written to
                leaf.copy_(x._data.inner)

    def gradients(self, ys: Sequence[Any], seeds: Sequence[Any], again: bool) -> list[Any]:
        """The gradients of the arguments for cotangents of `ys`, zeros where there are none; with
        `again`, another call may follow.
        """
        follows = self.inside.grad and (
            self.is_connected(ys) or any(x is not None and x._node is not None for x in seeds)
        )
        roots = [
            (y._node, seed(y, g, self.name))
            for y, g in zip(ys, seeds, strict=True)
            if y._node is not None
        ]
        reached: dict[Any, Any] = {}
        if roots:
            with recording_beyond(self.place):
                reached = run_backward(
                    roots,
                    retain_graph=again or follows,
                    create_graph=follows,
                    targets=self.nodes,
                    accumulate=False,
                )
        found = []
        for node, x in zip(self.nodes, self.xs, strict=True):
            g = reached.get(node)
            if g is None:
                g = x.new_zeros(x.shape)
            elif g._node is not None and not follows:
                g = wrap(g._data)
            found.append(g)
        return found

    def rows(self, y: Any, chunk_size: int | None) -> list[Any]:
        """The gradients of the arguments for each element of `y`, `chunk_size` at a time; one at a
        time without `vmap`, whose limits then hold for no gradient.
        """
        count = y._data.size
        basis = y.detach().new_zeros((count, count)).fill_diagonal_(1).reshape(count, *y.shape)

        def pull(g: Any) -> list[Any]:
            return self.gradients([y], [g], True)

        if chunk_size != 1:
            return list(vmap(pull, chunk_size=chunk_size)(basis))
        return [stack(list(each)) for each in zip(*map(pull, basis.unbind()), strict=True)]

    def is_connected(self, ys: Sequence[Any]) -> bool:
        """Whether `ys` depend on more tensors with a history than those made here."""
        own = set(self.nodes)
        if any(parent is not None for node in self.nodes for parent in node.parents):
            return True
        first = min([node.order for node in self.nodes], default=0)
        stack = [y._node for y in ys if y._node is not None]
        seen = set(stack)
        while stack:
            node = stack.pop()
            if node in own:
                continue
            if type(node) is Leaf or node.order < first:
                return True
            for parent in node.parents:
                if parent is not None and parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
        return False

    def value(self, y: Any) -> Any:
        """An output as the caller sees it: with history only where that leads further."""
        if not isinstance(y, TensorBase) or y._node is None:
            return y
        if self.inside.grad and self.is_connected([y]):
            return y
        return wrap(y._data, None, y._changes)


@naming
def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`func(*primals)`, and a function from cotangents of its outputs to those of `primals`.

    With `has_aux`, `func` returns a pair, of which the second is handed on as a third result.

    Shapes: cotangents have the structure and shapes of the output.
    Errors: InvalidType for outputs that are no tensors; InvalidArgument for cotangents of another
    structure.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.vjp.html

    >>> y, pull = ad.func.vjp(ad.sin, ad.zeros(2))
    >>> pull(ad.ones(2))
    (tensor([1., 1.]),)
    """
    run = _Reverse("vjp", func, primals, lambda xs: func(*xs))
    result, aux = with_aux("vjp", run.result, has_aux)
    ys, form = outputs_of("vjp", func, result)

    def pull(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        seeds, other = tree_flatten(given)
        if other != form and not (len(ys) == len(seeds) == 1):
            raise InvalidArgument(
                f"vjp: Expected pytree structure of cotangents to be the same as pytree structure "
                f"of outputs to the function. cotangents: {other}, primal output: {form}"
            )
        run.inside = MODE.get()
        found = run.gradients(ys, seeds, True)
        return tree_unflatten(found, run.form)

    value = tree_unflatten([run.value(y) for y in ys], form)
    return (value, pull, tree_map(run.value, aux)) if has_aux else (value, pull)


@naming
def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `func`, which returns one number, and its value.

    `argnums` says by which arguments; with `has_aux`, `func` returns a pair whose second comes back
    beside the value.

    Errors: InvalidArgument for arguments that there are not; AutogradError for an output that is
    not one number.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.grad_and_value.html

    >>> ad.func.grad_and_value(lambda x: (x * x).sum())(ad.tensor([1., 2.]))
    (tensor([2., 4.]), tensor(5.))
    """

    @functools.wraps(func)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        return _grad_and_value("grad_and_value", func, argnums, has_aux, args, kwargs)

    return differentiated


def _grad_and_value(
    name: str, func: Any, argnums: Any, has_aux: bool, args: tuple[Any, ...], kwargs: Any
) -> Any:
    places = places_of(name, argnums, len(args))
    given = tuple(args[i] for i in places)
    run = _Reverse(name, func, given, lambda xs: func(*replaced(args, places, xs), **kwargs))
    y, aux = with_aux(name, run.result, has_aux)
    if not isinstance(y, TensorBase):
        raise InvalidArgument(
            f"{name}: Expected f(*args) to return a Tensor, got {type(y)}"
            + ("" if has_aux else "; with has_aux=True it may return a pair")
        )
    if y._data.ndim:
        raise AutogradError(
            f"{name}: Expected f(*args) to return a scalar Tensor, got tensor with {y._data.ndim} "
            "dims. Maybe you wanted to use the vjp or jacrev APIs instead? "
            f"(shape {tuple(y.shape)})"
        )
    found = tree_unflatten(run.gradients([y], [None], False), run.form)
    gradient = found[0] if isinstance(argnums, int) else found
    value = run.value(y)
    return gradient, (value, tree_map(run.value, aux)) if has_aux else value


@naming
def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the gradient of `func`, which returns one number.

    `argnums` says by which arguments (a tuple gives a tuple); with `has_aux`, `func` returns a pair
    whose second comes back beside the gradient.

    Errors: those of `grad_and_value`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.grad.html

    >>> ad.func.grad(ad.func.grad(lambda x: x**3))(ad.tensor(2.0))
    tensor(12.)
    """

    @functools.wraps(func)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        gradient, value = _grad_and_value("grad", func, argnums, has_aux, args, kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return differentiated


@naming
def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func` by reverse mode: a product for each element of
    the output, `chunk_size` of them at a time.

    Shapes: for each output, its shape followed by that of the argument.
    Errors: those of `vjp`; InvalidArgument for arguments that there are not.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.jacrev.html

    >>> ad.func.jacrev(lambda x: x * x)(ad.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise InvalidArgument("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        places = places_of("jacrev", argnums, len(args))
        given = tuple(args[i] for i in places)
        assert_real("jacrev", "inputs", given)
        run = _Reverse(
            "jacrev", func, given, lambda xs: func(*replaced(args, places, xs), **kwargs)
        )
        result, aux = with_aux("jacrev", run.result, has_aux)
        ys, form = outputs_of("jacrev", func, result)
        assert_real("jacrev", "outputs", ys)
        blocks = []
        for y in ys:
            count = y._data.size
            rows = (
                run.rows(y, chunk_size)
                if y._node is not None and count
                else [x.new_zeros((count, *x.shape)) for x in run.leaves]
            )
            each = [
                row.reshape(*y.shape, *x.shape) for row, x in zip(rows, run.leaves, strict=True)
            ]
            found = tree_unflatten(each, run.form)
            blocks.append(found[0] if isinstance(argnums, int) else found)
        jacobians = tree_unflatten(blocks, form)
        return (jacobians, tree_map(run.value, aux)) if has_aux else jacobians

    return jacobian


# ---- forward mode --------------------------------------------------------------------------------


@naming
def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """`func(*primals)`, and the product of its Jacobian with `tangents`, in one pass forward.

    With `has_aux`, `func` returns a pair, of which the second is handed on as a third result. With
    `strict`, an output that does not depend on an input is an error.

    Shapes: tangents have the structure and shapes of the primals; both are tuples.
    Errors: InvalidArgument for other structures; ShapeError for other shapes.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.jvp.html

    >>> ad.func.jvp(ad.sin, (ad.zeros(2),), (ad.tensor([1., 2.]),))
    (tensor([0., 0.]), tensor([1., 2.]))
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise InvalidArgument(
            f"jvp: Expected primals to be a tuple, and tangents, got {type(primals).__name__} and "
            f"{type(tangents).__name__}. E.g. it should be valid to call jvp(f, (x,), (t,))"
        )
    xs, form = tree_flatten(primals)
    ts, other = tree_flatten(tangents)
    if form != other:
        raise InvalidArgument(
            f"jvp: Expected primals and tangents to have the same python structure. For example, "
            f"if primals is a tuple of 3 tensors, tangents also must be. Got primals with "
            f"structure {form} and tangents with structure {other}"
        )
    if not xs:
        raise InvalidArgument("jvp: Expected primals to have at least one Tensor, got none")
    level = DualLevel()
    duals = []
    for i, (x, t) in enumerate(zip(xs, ts, strict=True)):
        if not isinstance(x, TensorBase) or not isinstance(t, TensorBase):
            raise InvalidArgument(
                f"jvp: primals and tangents must only contain Tensors, entry {i} is a "
                f"{type(x).__name__} with a {type(t).__name__}"
            )
        if x._data.shape != t._data.shape:
            raise ShapeError(
                f"jvp: the tangent of entry {i} has shape {tuple(t.shape)}, the primal "
                f"{tuple(x.shape)}; both must be equal"
            )
        if x._data.dtype != t._data.dtype:
            t = t.to(x.dtype)  # type: ignore[attr-defined]
        duals.append(wrap(Dual(level, x, t)))
    try:
        given = [x._data for x in duals]
        switches = switched("jvp", variable=DERIVING), switched(True, variable=ENABLED)
        with entered(level), switches[0], switches[1]:  # whatever is switched off outside
            result = func(*tree_unflatten(duals, form))
        for x, dual, value in zip(xs, duals, given, strict=True):
            if dual._data is not value:  # it was written to
                x.copy_(dual._data.inner)
        result, aux = with_aux("jvp", result, has_aux)
        ys, shape = outputs_of("jvp", func, result)
        values, products = [], []
        for i, y in enumerate(ys):
            here = level.at(y)
            value = y._data.inner if here else y
            t = y._data.tangent if here else None
            if t is None and strict:
                raise AutogradError(
                    f"jvp: The output of f, entry {i}, is independent of the inputs. This is not "
                    "allowed in strict mode."
                )
            values.append(value)
            products.append(value.new_zeros(value.shape) if t is None else t)
        out = tree_unflatten(values, shape), tree_unflatten(products, shape)
        primal = functools.partial(_primal, level)
        return (*out, tree_map(primal, aux)) if has_aux else out
    finally:
        level.closed = True


class _Constants:
    """Arguments beside those that a derivative is taken by: duals without a tangent, so that the
    function may write duals to them.
    """

    def __init__(self, args: Sequence[Any]) -> None:
        here = current()
        assert here is not None
        self.leaves, form = tree_flatten(list(args))
        self.values = [
            here.level.lift(x) if isinstance(x, TensorBase) else None for x in self.leaves
        ]
        self.inside = [
            x if value is None else wrap(value)
            for x, value in zip(self.leaves, self.values, strict=True)
        ]
        self.args: list[Any] = tree_unflatten(self.inside, form)

    def write_back(self) -> None:
        """Write to the caller's tensors what the function wrote to those that stood for them."""
        for x, y, value in zip(self.leaves, self.inside, self.values, strict=True):
            if value is not None and y._data is not value:
                x.copy_(y._data.inner)


def _primal(level: DualLevel, y: Any) -> Any:
    return y._data.inner if level.at(y) else y


@naming
def jacfwd(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func` by forward mode: a product for each element of
    the arguments, all at once.

    Shapes: for each output, its shape followed by that of the argument.
    Errors: those of `jvp`; InvalidArgument for arguments that there are not.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.jacfwd.html

    >>> ad.func.jacfwd(lambda x: x * x)(ad.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        places = places_of("jacfwd", argnums, len(args))
        given = tuple(args[i] for i in places)
        xs, form = tree_flatten(given)
        assert_real("jacfwd", "inputs", xs)
        counts = [x._data.size for x in xs]
        total = sum(counts)

        def called(*leaves: Any) -> Any:
            others = _Constants([None if i in places else x for i, x in enumerate(args)])
            given = tree_unflatten(leaves, form)
            result = func(*replaced(others.args, places, given), **kwargs)
            others.write_back()
            return result

        def push(*tangents: Any) -> Any:
            return jvp(called, tuple(xs), tangents, has_aux=has_aux)[1:]

        basis = []
        start = 0
        for x, count in zip(xs, counts, strict=True):
            rows = x.detach().new_zeros((total, count))
            rows[start : start + count].fill_diagonal_(1)
            basis.append(rows.reshape(total, *x.shape))
            start += count
        found, *aux = vmap(push, randomness=randomness)(*basis)
        ys, shape = tree_flatten(found)
        assert_real("jacfwd", "outputs", ys)
        blocks = []
        for y in ys:
            each = []
            for x, part in zip(xs, y.split(counts) if counts else (), strict=True):
                each.append(part.movedim(0, -1).reshape(*y.shape[1:], *x.shape))
            row = tree_unflatten(each, form)
            blocks.append(row[0] if isinstance(argnums, int) else row)
        jacobians = tree_unflatten(blocks, shape)
        return (jacobians, tree_map(lambda a: a[0], aux[0])) if has_aux else jacobians

    return jacobian


@naming
def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that gives the second derivatives of `func`: forward mode over reverse mode.

    Shapes: output's shape, then the argument's twice.
    Errors: those of `jacfwd` and `jacrev`.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.hessian.html

    >>> ad.func.hessian(lambda x: (x**3).sum())(ad.tensor([1., 2.]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`func(*primals)`, and the function from tangents to the product of its Jacobian there with
    them: the vector-Jacobian product of one run, transposed.

    Errors: InvalidArgument for tangents of another structure.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.linearize.html

    >>> y, push = ad.func.linearize(ad.sin, ad.zeros(2))
    >>> push(ad.tensor([1., 2.]))
    tensor([1., 2.])
    """
    run = _Reverse("linearize", func, primals, lambda xs: func(*xs))
    ys, form = outputs_of("linearize", func, run.result)
    with enable_grad():
        us = [followed(y.detach().new_zeros(y.shape)) for y in ys]
        roots = [(y._node, u) for y, u in zip(ys, us, strict=True) if y._node is not None]
        rows = run_backward(
            roots, retain_graph=True, create_graph=True, targets=run.nodes, accumulate=False
        )

    def push(*tangents: Any) -> Any:
        ts, other = tree_flatten(tangents)
        if other != run.form:
            raise InvalidArgument(
                f"linearize: Expected the tangents {other} to have the same structure as the "
                f"primals {run.form}"
            )
        for i, (x, t) in enumerate(zip(run.leaves, ts, strict=True)):
            if x._data.shape != t._data.shape or x._data.dtype != t._data.dtype:
                raise ShapeError(
                    f"linearize: tangent {i} is {tuple(t.shape)} {t.dtype}, the primal "
                    f"{tuple(x.shape)} {x.dtype}; both must be equal"
                )
        live = [
            (rows[node]._node, t)
            for node, t in zip(run.nodes, ts, strict=True)
            if node in rows and rows[node]._node is not None
        ]
        follows = MODE.get().grad and (run.is_connected(ys) or any(t._node is not None for t in ts))
        found: dict[Any, Any] = {}
        if live:
            with recording_beyond(run.place):
                found = run_backward(
                    live,
                    retain_graph=True,
                    create_graph=follows,
                    targets=[u._node for u in us],
                    accumulate=False,
                )
        products = []
        for u in us:
            t = found.get(u._node)
            if t is None:
                t = u.new_zeros(u.shape)
            products.append(t if follows else wrap(t._data))
        return tree_unflatten(products, form)

    return tree_unflatten([run.value(y) for y in ys], form), push


@naming
def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func`, which may write to tensors: transforms take it as it is, so nothing is to be removed.

    Errors: InvalidArgument for another `remove` than "mutations" and "mutations_and_views".
    Source: https://docs.pytorch.org/docs/stable/generated/torch.func.functionalize.html

    >>> ad.func.functionalize(lambda x: x.clone().add_(1))(ad.zeros(2))
    tensor([1., 1.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise InvalidArgument(
            "functionalize: expected remove='mutations' or 'mutations_and_views', got "
            f"remove={remove!r}"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped
