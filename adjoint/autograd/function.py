"""`autograd.Function`: operations that users write as a pair of forward and backward."""

from __future__ import annotations

import functools
import inspect
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import config
from ..core.argument_repr import argument_repr
from ..core.errors import AutogradError, InvalidArgument, InvalidType, ShapeError, Unsupported
from ..core.mode import MODE, switched
from ..core.op import Op
from ..core.overrides import ask_again
from ..core.spec import Spec
from ..core.tensor_base import TensorBase
from ..core.tensor_type import Tensor
from ..runtime.node import RELEASED, Node, Packed, Version, View, assert_unchanged
from ..runtime.record import item, note_place, pack, version_count
from ..runtime.tensors import wrap, zeros
from ..runtime.views import alias, register_view
from ..runtime.writes import rebase
from .batching import Batched, BatchLevel
from .dual import Dual, DualLevel, followed, local_products
from .engine import run_backward, unbroadcast
from .forward_level import IN_FORWARD, ForwardLevel, at_once, looks
from .graph_function import record_function, record_opaque, state_of
from .levels import Level, entered, innermost, outside
from .modes import enable_grad, no_grad

if TYPE_CHECKING:
    from ..runtime.cells import GraphState
    from .protocols import BackendArray

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class FunctionCtx:
    """Context that a Function's forward passes to its backward: saved tensors, flags, free
    attributes.

    Source: https://docs.pytorch.org/docs/stable/autograd.html#context-method-mixins
    """

    needs_input_grad: tuple[bool, ...]  # per argument of forward

    __repr__ = argument_repr

    def __init__(self) -> None:
        self.needs_input_grad = ()
        self.materialize_grads = True
        self.to_save: tuple[Any, ...] = ()
        self.saved_for_forward: tuple[Any, ...] = ()
        self._pushes = False  # whether `jvp` runs
        self.dirty_tensors: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self._are_tensors: list[bool] = []  # per argument of forward, those in lists one by one
        self._form: list[int | None] = []  # per argument: how many a list of tensors has
        self._node: Any = None  # a weak reference, once forward has run

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep inputs, outputs or intermediate tensors (or None) for `saved_tensors`.

        Errors: InvalidType for anything else, where a gradient is wanted; keep that as an attribute
        of ctx. AutogradError for a second call, of which PyTorch keeps the tensors and drops those
        of the first.
        """
        if self.to_save and config.CALLED == "adjoint":
            raise AutogradError(
                f"save_for_backward: called a second time; the {len(self.to_save)} tensor(s) of "
                "the first call would be lost: give all of them in one call"
            )
        self.to_save = tensors

    def assert_savable(self) -> None:
        """Refuse to save what is no tensor, now that a gradient is wanted."""
        for i, x in enumerate(self.to_save):
            if x is not None and not isinstance(x, TensorBase):
                raise InvalidType(
                    f"save_for_backward can only save variables, but argument {i} is of type "
                    f"{type(x).__name__}; keep it as an attribute of ctx"
                )

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep inputs, outputs or intermediate tensors (or None) for `saved_tensors` in `jvp`.

        Errors: InvalidType for anything else; keep that as an attribute of ctx.
        """
        for i, x in enumerate(tensors):
            if x is not None and not isinstance(x, TensorBase):
                raise InvalidType(
                    f"save_for_forward can only save variables, but argument {i} is of type "
                    f"{type(x).__name__}; keep it as an attribute of ctx"
                )
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Declare the inputs that forward changed in place; each must be returned."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Declare outputs that have no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs without a gradient."""
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors given to `save_for_backward`; in `jvp`, those given to `save_for_forward`.

        Errors: AutogradError where one was changed in place since, or a backward has already
        used and released them.
        """
        if self._pushes:
            return self.saved_for_forward
        node = None if self._node is None else self._node()
        return () if node is None else node.saved_tensors

    saved_variables = saved_tensors


class FunctionNode(Node):
    """The Node of one call of a Function."""

    __slots__ = ("ctx", "outputs")

    ctx: FunctionCtx
    outputs: tuple[Any, ...]  # shape, dtype, device of each output; None if it is no tensor
    # `saved` holds (tensor, version when saved, output number or None) for each saved tensor.

    def name(self) -> str:
        """The Function's name, as PyTorch writes it."""
        return f"{self.op.function.__name__}Backward"  # type: ignore[attr-defined]

    @property
    def runs_undefined(self) -> bool:  # type: ignore[override]
        """Whether backward runs, with zeros, even if no gradient arrives, as in PyTorch."""
        return self.ctx.materialize_grads

    def values(self) -> tuple[Any, ...]:
        """The node itself: saved tensors are checked when backward asks for them."""
        return (self,)

    def release(self) -> None:
        """Drop the saved tensors."""
        if self.saved:
            self.saved = RELEASED

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors, checked: see FunctionCtx."""
        if self.saved is RELEASED:
            raise AutogradError(
                f"{self.name()}: Trying to backward through the graph a second time (or directly "
                "access saved tensors after they have already been freed). Pass retain_graph=True "
                "to the first backward"
            )
        return tuple(None if entry is None else self._unpack(*entry) for entry in self.saved)

    def _unpack(self, tensor: Any, version: int, output: int | None) -> Tensor:
        if isinstance(tensor, Packed):
            tensor = tensor.unpack()
        else:
            assert_unchanged(self.name(), tensor, version)
        if output is None:
            return tensor
        node = self if self.op.n_outputs == 1 else item(self, output, tensor._data)
        return wrap(tensor._data, node, tensor._changes)

    def __getattr__(self, name: str) -> Any:
        if name in ("ctx", "outputs"):
            raise AttributeError(name)
        return getattr(self.ctx, name)


class CustomFunction(Op, abstract=True):
    """The op of a Function, whose gradient rule is the user's backward."""

    def __init__(self, function: type[Function], n_outputs: int) -> None:
        self.function = function
        self.n_outputs = n_outputs  # type: ignore[misc]

    def gradient(self, g: Any, x: FunctionNode) -> tuple[Any, ...]:
        """`backward(ctx, *g)`, checked; `x` is the node."""
        node: FunctionNode = x
        ctx = node.ctx
        incoming = [None] * self.n_outputs if g is None else [g] if self.n_outputs == 1 else g
        if ctx.materialize_grads:
            incoming = [
                zeros(*output) if each is None and output is not None else each
                for each, output in zip(incoming, node.outputs, strict=True)
            ]
        return _checked(node, _gradients(self.function, ctx, *incoming))


def _gradients(function: type[Function], ctx: FunctionCtx, *incoming: Any) -> tuple[Any, ...]:
    """The gradients returned by backward, one for each argument of forward; a single one needs no
    tuple.
    """
    results = ask_again(_rule(function), ctx, *incoming)
    count = len(ctx._form)
    if not isinstance(results, tuple):
        one = (
            count == 1
            and ctx._form[0] is not None
            and results
            and isinstance(results[0], TensorBase)
        )
        results = tuple(results) if isinstance(results, list) and not one else (results,)
    if len(results) > count and all(each is None for each in results[count:]):
        results = results[:count]
    if len(results) != count:
        raise AutogradError(
            f"function {function.__name__}Backward returned an incorrect number of gradients "
            f"(expected {count}, got {len(results)}); return one for each argument of forward, "
            "None for what is no tensor"
        )
    return tuple(_spread(function, results, ctx._form))


def _spread(
    function: type[Function], gradients: tuple[Any, ...], form: list[int | None]
) -> list[Any]:
    """The gradients of all arguments, with those of lists flattened."""
    flat: list[Any] = []
    for i, (g, count) in enumerate(zip(gradients, form, strict=True)):
        if count is None:
            flat.append(g)
        elif g is None:
            flat += (None,) * count
        elif isinstance(g, (list, tuple)) and len(g) == count:
            flat += g
        else:
            got = f"{len(g)} of them" if isinstance(g, (list, tuple)) else f"a {type(g).__name__}"
            raise AutogradError(
                f"function {function.__name__}Backward: argument {i} of forward is a list of "
                f"{count}, so its gradient is a list of {count}, or None; got {got}"
            )
    return flat


class _FunctionCall:
    """A call of a Function with its arguments flattened: tensors in lists and tuples stand one by
    one.
    """

    def __init__(
        self, function: type[Function], args: Sequence[Any], options: dict[str, Any]
    ) -> None:
        self.function = function
        self.options = options  # arguments by keyword only
        self.__name__ = function.__name__
        self.kinds = [type(x) if _holds_tensors(x) else None for x in args]
        self.form = [len(x) if _holds_tensors(x) else None for x in args]
        self.args: list[Any] = []
        for x, count in zip(args, self.form, strict=True):
            self.args += [x] if count is None else x

    def apply(self, *flat: Any) -> Any:
        """`Function.apply` on flattened arguments."""
        return self.function.apply(*self.given(flat), **self.options)

    def given(self, flat: Iterable[Any]) -> tuple[Any, ...]:
        """Flattened arguments in their original structure."""
        rest = iter(flat)
        args = []
        for kind, count in zip(self.kinds, self.form, strict=True):
            if count is None:
                args.append(next(rest))
            else:
                items = list(itertools.islice(rest, count))
                args.append(kind._make(items) if hasattr(kind, "_make") else kind(items))  # type: ignore[union-attr, misc]
        return tuple(args)


def _holds_tensors(x: object) -> bool:
    return isinstance(x, (list, tuple)) and any(isinstance(y, TensorBase) for y in x)


def _rule(function: type[Function]) -> Callable[..., Any]:
    ours = function.vjp is not Function.vjp
    if ours and function.backward is not Function.backward:
        raise AutogradError(
            f"{function.__name__}: Implementing both 'backward' and 'vjp' for a custom Function is "
            "not allowed. You should only implement one of them."
        )
    return function.vjp if ours else function.backward


def _checked(node: FunctionNode, returned: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients that backward returned, each checked and converted to its parent's shape and
    dtype.
    """
    name = node.name()
    checked = []
    for i, (g, parent) in enumerate(zip(returned, node.parents, strict=True)):
        if g is not None and not isinstance(g, TensorBase):
            raise AutogradError(
                f"{name}: expected Variable or None (got {type(g).__name__}) as gradient {i}"
            )
        if g is not None and not node.ctx._are_tensors[i]:
            raise AutogradError(
                f"function {name} returned a gradient different than None at position {i + 1}, but "
                "the corresponding forward input was not a Variable"
            )
        if g is not None and parent is not None:
            g = unbroadcast(g, parent, node, i)
        checked.append(g)
    return tuple(checked)


class Function:
    """Base class of operations with a hand-written gradient: subclass it, then call `apply`.

    `forward(ctx, *args)` computes with what tensors hold, recording nothing; `backward(ctx, *g)`
    gets one gradient per output and returns one per argument (None where there is none). It is
    itself differentiable unless marked `once_differentiable`. Alternatively `forward(*args)` goes
    with `setup_context(ctx, inputs, output)`.

    Unlike in PyTorch, tensors in an argument that is a list or tuple have gradients, too: backward
    returns a list for it, or None; and a list that forward returns is one of outputs.

    Errors: AutogradError for a wrong number, kind or shape of gradients; InvalidType where forward
    returns tensors in a container within its results, which would come back without a history.
    Source: https://docs.pytorch.org/docs/stable/autograd.html#function

    >>> class Double(ad.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = ad.ones(1, requires_grad=True)
    >>> Double.apply(x).backward()
    >>> x.grad
    tensor([2.])
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise AutogradError(
            f"{type(self).__name__}: a Function is not instantiated; write static methods forward "
            f"and backward and call {type(self).__name__}.apply(...)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The value of the operation; to be overridden."""
        raise Unsupported("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Fill ctx after a forward that does not take it; to be overridden."""
        raise Unsupported("setup_context is not implemented.")

    if TYPE_CHECKING:  # one of any arguments is overridden by one that names the gradients

        @staticmethod
        def backward(*args: Any, **kwargs: Any) -> Any:
            """The vector-Jacobian product; to be overridden."""

    else:

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            """The vector-Jacobian product; to be overridden."""
            raise Unsupported(
                "You must implement either the backward or vjp method for your custom "
                "autograd.Function to use it with backward mode AD."
            )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Alternative name of `backward`."""
        raise Unsupported("vjp is not implemented; override backward or vjp")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The Jacobian-vector product, given the tangents of forward's arguments (None for those
        that are no tensors); to be overridden. `func.jvp` transposes backward where it is not.
        """
        raise Unsupported(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @staticmethod
    def vmap(info: VmapInfo, in_dims: Any, *args: Any) -> Any:
        """The results for a batch, and the dimensions of them that hold the examples. To be
        overridden (or `generate_vmap_rule` set) where forward does not run on batches as it is, or
        where gradients flow through it from outside of the vmap. `info` has `batch_size` and
        `randomness`.
        """
        raise Unsupported("vmap is not implemented; override vmap, or set generate_vmap_rule")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward on `args` and record backward; keywords take their place in the signature."""
        separate = cls.setup_context is not Function.setup_context
        if kwargs or separate:
            args, kwargs = _positional(cls, args, kwargs, separate)
        call = _FunctionCall(cls, args, kwargs)
        flat = call.args
        level = innermost(flat)
        if isinstance(level, ForwardLevel):
            return _with_tangents(cls, level, call, flat, args, kwargs)
        if level is not None:
            result = _at_level(cls, level, call, flat)
            if result is not NotImplemented:
                return result
        return _applied(cls, FunctionCtx(), call, args, kwargs)


def _applied(
    cls: type[Function],
    ctx: FunctionCtx,
    call: _FunctionCall,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    then: Callable[[Sequence[Any]], None] = lambda ys: None,
) -> object:
    """The results of forward, with backward recorded; `then` receives the tensors before any of
    them is saved.
    """
    separate = cls.setup_context is not Function.setup_context
    flat = call.args
    adopt = getattr(MODE.get().executor, "adopt", None)
    if adopt is not None:  # whose nodes are not those of tensors from outside
        adopt(flat)
    parents = tuple(x._node if isinstance(x, TensorBase) else None for x in flat)
    ctx._form = call.form
    requires = iter([parent is not None for parent in parents])
    ctx.needs_input_grad = tuple(
        any(list(itertools.islice(requires, 1 if count is None else count))) for count in call.form
    )
    ctx._are_tensors = [isinstance(x, TensorBase) for x in flat]
    state = state_of(flat)
    reads = 0 if state is None else state.reads
    drew = [] if state is None else _draws(state, flat)
    with no_grad():
        if separate:
            result = cls.forward(*args, **kwargs)
            cls.setup_context(ctx, args, result)
        else:
            result = cls.forward(ctx, *args, **kwargs)
    several = isinstance(result, (tuple, list))
    raw = tuple(result) if several else (result,)
    wants = any(ctx.needs_input_grad) and MODE.get().grad
    if wants:
        _assert_no_containers(cls, raw)
    _assert_dirty_returned(cls, ctx, raw)
    if state is not None:
        if state.reads == reads:
            ys = record_function(state, cls, ctx, functools.partial(_gradients, cls), flat, raw)
        else:
            if _draws(state, flat) != drew:
                raise Unsupported(
                    f"{cls.__name__}: its forward reads values and draws random numbers, which a "
                    "Graph would draw again where the value was only released; draw outside, and "
                    "pass the numbers to it, or write forward in operations on tensors"
                )
            ys = record_opaque(state, call, flat, raw)
    else:
        node = _new_node(cls, ctx, parents, raw) if wants else None
        ys = tuple(_output(node, i, y, flat, ctx, cls) for i, y in enumerate(raw))
        then(ys)
        if node is not None:
            _save(node, raw, ys)
    return (list(ys) if isinstance(result, list) else ys) if several else ys[0]


def _draws(state: GraphState, args: Sequence[Any]) -> list[int]:
    """How many draws the generators have made from which a Function with these arguments may draw
    in a graph.
    """
    from ..ops.random.generators import Generator, default_generator  # when arrays can be made

    graph = state.owner()
    own = None if graph is None else graph.generator
    given = [x for x in args if isinstance(x, Generator)]
    return [g.draws for g in (default_generator, own, *given) if g is not None]


class VmapInfo(NamedTuple):
    """Information about the batch that a Function's `vmap` receives."""

    batch_size: int
    randomness: str


def _at_level(cls: type[Function], level: Level, call: _FunctionCall, flat: list[Any]) -> object:
    """`apply` on arguments at the level of a function transform; NotImplemented where forward runs
    on them unchanged.
    """
    if isinstance(level, DualLevel):
        return _of_duals(cls, level, call, flat)
    inner = [x._data.inner if level.at(x) else x for x in flat]
    assert isinstance(level, BatchLevel)
    own = any(level.at(x) and x._node is not None for x in flat)
    beyond = any(isinstance(x, TensorBase) and x._node is not None for x in inner)
    beyond = beyond and MODE.get().grad
    if own and beyond:
        raise Unsupported(
            f"{cls.__name__}: gradients of a custom Function both inside and outside of vmap; "
            "write it as ops"
        )
    ruled = cls.vmap is not Function.vmap
    if own or not (beyond or ruled):
        return NotImplemented
    flags = [level.at(x) and not x._data.whole for x in flat]
    if ruled:
        dims = tuple(0 if flag else None for flag in flags)
        info = VmapInfo(level.size, level.randomness)
        with outside(level):
            both = cls.vmap(info, dims, *inner)
        if not isinstance(both, tuple) or len(both) != 2:
            raise InvalidArgument(
                f"{cls.__name__}: Expected the vmap staticmethod to have two returns, an output "
                f"and out_dims, got {both!r:.80}"
            )
        returned, out = both
        ys = returned if isinstance(returned, (tuple, list)) else (returned,)
        places = out if isinstance(out, (tuple, list)) else (out,) * len(ys)
        results = [
            wrap(level.lift(y) if dim is None else Batched(level, y.movedim(dim, 0)))
            for y, dim in zip(ys, places, strict=True)
        ]
        return tuple(results) if isinstance(returned, (tuple, list)) else results[0]
    if not cls.generate_vmap_rule:
        raise Unsupported(
            f"You tried to vmap over {cls.__name__}, through which gradients flow from outside, "
            "but it does not have vmap support. Please override and implement the vmap "
            "staticmethod or set generate_vmap_rule=True"
        )
    with outside(level):
        returned = _InBatch.apply(call, level, flags, *inner)
    ys = returned if isinstance(returned, tuple) else (returned,)
    results = [wrap(Batched(level, y)) for y in ys]
    return tuple(results) if isinstance(returned, tuple) else results[0]


def _of_duals(
    cls: type[Function], level: DualLevel, call: _FunctionCall, flat: list[Any]
) -> object:
    """`apply` on arguments of `func.jvp`: tangents by `jvp`, or by backward, transposed."""
    inner = [x._data.inner if level.at(x) else x for x in flat]
    tangents = [x._data.tangent if level.at(x) else None for x in flat]
    own = MODE.get().grad and any(level.at(x) and x._node is not None for x in flat)
    ruled = cls.jvp is not Function.jvp
    ctx = FunctionCtx()
    if not own and not ruled:
        with outside(level):
            outputs, ts = local_products(call.apply, inner, tangents, MODE.get().grad)
        if not isinstance(outputs, tuple):
            return wrap(Dual(level, outputs, ts)) if isinstance(outputs, TensorBase) else outputs
        pairs = zip(outputs, ts, strict=True)
        return tuple(wrap(Dual(level, y, t)) if isinstance(y, TensorBase) else y for y, t in pairs)

    def push(ys: Sequence[Any]) -> None:
        with outside(level):
            if ruled:
                pushed = _pushed(cls, ctx, call, inner, tangents, ys)
                ts = [t._data.inner if level.at(t) else t for t in pushed]
            else:
                _, pushed = local_products(call.apply, inner, tangents, MODE.get().grad)
                ts = list(pushed) if isinstance(pushed, (tuple, list)) else [pushed]
        for y, t in zip(ys, ts, strict=True):
            if isinstance(y, TensorBase):
                dual = Dual(level, y._data.inner if level.at(y) else wrap(y._data), t)
                if any(y is x for x in flat):  # it was written to
                    level.put(y, wrap(dual))
                else:
                    y._data = dual

    return _applied(cls, ctx, call, call.given(flat), call.options, push)


def _with_tangents(
    cls: type[Function],
    level: ForwardLevel,
    call: _FunctionCall,
    flat: list[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> object:
    """`apply` on dual tensors: forward on the primals, and `jvp` for the tangents."""
    ctx = FunctionCtx()
    looking = looks()
    tangents = [x._data.tangent if looking and level.at(x) else None for x in flat]
    if not looking:
        return _applied(cls, ctx, call, args, kwargs)

    def push(ys: Sequence[Any]) -> None:
        ts = _pushed(cls, ctx, call, flat, tangents, ys)
        for y, t in zip(ys, ts, strict=True):
            if isinstance(y, TensorBase):
                level.give(y, t, flat, tangents)

    with at_once(cls.__name__), switched(True, variable=IN_FORWARD):
        return _applied(cls, ctx, call, args, kwargs, push)


def _pushed(
    cls: type[Function],
    ctx: FunctionCtx,
    call: _FunctionCall,
    flat: Sequence[Any],
    tangents: Sequence[Any],
    ys: Sequence[Any],
) -> list[Any]:
    """The tangents of forward's results by `jvp`; None for zero."""
    filled = [
        zeros(tuple(x._data.shape), x._data.dtype, x.device)
        if t is None
        and ctx.materialize_grads
        and isinstance(x, TensorBase)
        and x._data.dtype.kind in "fcV"
        else t
        for x, t in zip(flat, tangents, strict=True)
    ]
    ctx._pushes = True
    try:
        made = cls.jvp(ctx, *call.given(filled))
    finally:
        ctx._pushes = False
    ts = list(made) if isinstance(made, (tuple, list)) else [made]
    if len(ts) != len(ys):
        raise AutogradError(
            f"{cls.__name__}: Function's jvp returned an invalid number of forward gradients "
            f"(expected {len(ys)} but got {len(ts)})"
        )
    for i, (y, t) in enumerate(zip(ys, ts, strict=True)):
        if t is not None and not isinstance(t, TensorBase):
            raise AutogradError(
                f"{cls.__name__}: expected Variable or None (got {type(t).__name__}) for grad "
                f"output {i} of jvp"
            )
        if not isinstance(y, TensorBase) or y._data.dtype.kind not in "fcV":
            ts[i] = None
        elif t is not None and t._data.shape != y._data.shape:
            raise ShapeError(
                f"{cls.__name__}: jvp: Trying to set a forward gradient that has a different size "
                "than that of the original Tensor, this is not supported. Tensor is of size "
                f"{list(y.shape)} while the given forward gradient is of size {list(t.shape)}."
            )
        elif t is not None and t._data.dtype != y._data.dtype:
            ts[i] = t.to(y.dtype)  # type: ignore[attr-defined]
    return ts


class _InBatch(Function):
    """A Function applied to all entries of a batch: its forward and backward run in a vmap of their
    own.
    """

    @staticmethod
    def forward(
        ctx: Any, call: _FunctionCall, level: BatchLevel, flags: Sequence[bool], *inner: Any
    ) -> Tensor | tuple[Tensor, ...]:
        """All entries at once, with the nodes that backward will walk."""
        ctx.level = BatchLevel(level.size, level.randomness)
        ctx.xs = [
            wrap(Batched(ctx.level, wrap(x._data, None, x._changes), whole=not flag))
            if isinstance(x, TensorBase)
            else x
            for x, flag in zip(inner, flags, strict=True)
        ]
        with entered(ctx.level), enable_grad():
            ctx.xs = [
                followed(x) if isinstance(x, TensorBase) and x._data.dtype.kind in "fcV" else x
                for x in ctx.xs
            ]
            outputs = call.apply(*ctx.xs)
        ctx.ys = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        results = [
            y._data.inner.expand(level.size, *y.shape) if y._data.whole else y._data.inner
            for y in ctx.ys
        ]
        return tuple(results) if isinstance(outputs, (tuple, list)) else results[0]

    @staticmethod
    def backward(ctx: Any, *gs: Any) -> tuple[Any, ...]:
        """The gradients of all entries; summed, for inputs that the entries share."""
        if MODE.get().grad and any(g is not None and g._node is not None for g in gs):
            raise AutogradError("vmap of a custom Function: its gradient has no gradient itself")
        with entered(ctx.level):
            roots = [
                (y._node, wrap(Batched(ctx.level, g)))
                for y, g in zip(ctx.ys, gs, strict=True)
                if y._node is not None and g is not None
            ]
            nodes = [getattr(x, "_node", None) for x in ctx.xs]
            targets = [node for node in nodes if node is not None]
            reached = run_backward(
                roots, retain_graph=True, create_graph=False, targets=targets, accumulate=False
            )
        gradients: list[Any] = []
        for x, node in zip(ctx.xs, nodes, strict=True):
            g = reached.get(node)
            if g is None:
                gradients.append(None)
                continue
            each = g._data.inner if ctx.level.at(g) else g
            many = ctx.level.at(g) and not g._data.whole
            if x._data.whole:
                each = each.sum(0) if many else each * ctx.level.size
            elif not many:
                each = each.expand(ctx.level.size, *each.shape)
            gradients.append(each)
        return None, None, None, *gradients


def _positional(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], separate: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Forward's arguments (without ctx) in the order of its signature, defaults included; and those
    that can only be passed by keyword.
    """
    try:
        bound = inspect.signature(cls.forward).bind(*(() if separate else (None,)), *args, **kwargs)
    except TypeError as error:
        raise InvalidType(f"{cls.__name__}.apply: {error}") from None
    bound.apply_defaults()
    held = [k for k, x in bound.kwargs.items() if isinstance(x, TensorBase) or _holds_tensors(x)]
    if held:
        raise InvalidType(
            f"{cls.__name__}.apply: forward's arguments {held} can only be given by keyword, so "
            "backward has no place for their gradients; make them positional"
        )
    return bound.args if separate else bound.args[1:], bound.kwargs


def _assert_no_containers(cls: type[Function], raw: tuple[Any, ...]) -> None:
    for i, y in enumerate(raw):
        items = tuple(y.values()) if isinstance(y, dict) else y
        if _holds_tensors(items):
            raise InvalidType(
                f"{cls.__name__}: result {i} of forward is a {type(y).__name__} that holds "
                "tensors, which would come back without gradients; return a tuple or list of "
                "tensors, and build the rest around it outside of apply"
            )


def _assert_dirty_returned(cls: type[Function], ctx: FunctionCtx, raw: tuple[Any, ...]) -> None:
    for x in ctx.dirty_tensors:
        if not any(x is y for y in raw):
            raise AutogradError(
                f"{cls.__name__}: Some elements marked as dirty during the forward method were not "
                "returned as output. The inputs that are modified inplace must all be outputs of "
                "the Function."
            )


def _new_node(
    cls: type[Function], ctx: FunctionCtx, parents: tuple[Any, ...], raw: tuple[Any, ...]
) -> FunctionNode:
    only = raw[0]._data if len(raw) == 1 and isinstance(raw[0], TensorBase) else None
    node = FunctionNode(
        CustomFunction(cls, len(raw)),
        parents,
        (),
        None,
        () if only is None else only.shape,
        None if only is None else only.dtype,
    )
    node.ctx = ctx
    node.outputs = tuple(
        (y._data.shape, y._data.dtype, y.device) if isinstance(y, TensorBase) else None for y in raw
    )
    ctx._node = weakref.ref(node)
    if MODE.get().anomaly:
        note_place(node)
    return node


def _output(
    node: FunctionNode | None,
    index: int,
    y: Any,
    args: list[Any],
    ctx: FunctionCtx,
    cls: type[Function],
) -> object:
    """The value that `apply` returns for output `index` of forward."""
    if not isinstance(y, TensorBase):
        return y
    history = None
    if node is not None and not any(y is x for x in ctx.non_differentiable):
        history = item(node, index, y._data)
        if history is not None and len(node.outputs) == 1:
            history = node
    if any(y is x for x in ctx.dirty_tensors):
        if MODE.get().grad and y._node is not None and y._node is y._leaf:
            raise AutogradError(
                f"{cls.__name__}: a leaf Variable that requires grad has been used in an in-place "
                "operation."
            )
        rebase(y, history, cls.__name__)
        return y
    if any(y is x for x in args):
        view = y._view
        base = y if view is None else view.base
        y = alias(y)
    elif y._view is not None:
        view, base = y._view, y._view.base
    else:
        y._node = history
        return y
    opaque = Opaque(
        f"Output {index} of {cls.__name__} is a view and is being modified inplace (or its base "
        "is). This view was created inside a custom Function (or because an input was returned "
        "as-is), whose backward a write would override; clone the output of the custom Function"
    )
    y._view = View(base, view, opaque, opaque.reason)
    y._node = history
    register_view(y)
    return y


def _save(node: FunctionNode, raw: tuple[Any, ...], ys: tuple[Any, ...]) -> None:
    """Store in `node` the tensors that forward saved; its own outputs without their history."""
    saved: list[Any] = []
    hooks = MODE.get().saved_hooks
    node.ctx.assert_savable()
    for x in node.ctx.to_save:
        if x is None:
            saved.append(None)
            continue
        output = None
        for i, y in enumerate(raw):
            if y is x and ys[i] is x:
                output = i
        if output is not None:
            if x._changes is None:
                x._changes = Version()
            kept = wrap(x._data, None, x._changes)
        else:
            kept = x
        version = version_count(x)
        saved.append((kept if hooks is None else pack(kept, hooks), version, output))
    node.saved = tuple(saved)
    node.ctx.to_save = ()
    node.ctx.dirty_tensors = node.ctx.non_differentiable = ()


class Opaque(Op, abstract=True):
    """The view op of a custom Function: writes cannot be followed through it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def infer(self, spec: Spec) -> Spec:
        """The input's spec."""
        return spec

    def compute(self, xp: Any, x: BackendArray) -> BackendArray:
        """The input array."""
        return x

    def gradient(self, g: Tensor) -> tuple[Any, ...]:
        """Raises AutogradError with the reason."""
        raise AutogradError(self.reason)


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a backward as not differentiable itself; differentiating its results is an error.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.function.once_differentiable.html

    >>> class Double(ad.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @ad.autograd.function.once_differentiable
    ...     def backward(ctx, g):
    ...         return g * 2
    """

    @functools.wraps(function)
    def wrapper(ctx: FunctionCtx, *args: Any) -> object:
        with no_grad():
            returned = function(ctx, *args)
        parents = tuple(x._node for x in args if isinstance(x, TensorBase) and x._node is not None)
        if not MODE.get().grad or not parents:
            return returned
        refusal = Opaque(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )
        several = isinstance(returned, (tuple, list))
        results = []
        for y in returned if several else (returned,):
            if isinstance(y, TensorBase) and y._data.dtype.kind in "fcV":
                y = wrap(y._data, None, y._changes)
                y._node = Node(refusal, parents, (), None, y._data.shape, y._data.dtype)
            results.append(y)
        return tuple(results) if several else results[0]

    return wrapper
