"""Streams: the numbers of a generator's next draw, where it counts and where it follows PyTorch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...backends import numpy as backend
from ...core import dtype as dt
from ...core import policy
from ...core.device import CPU
from ...core.device import device as Device  # noqa: N812 - the parameters here are called device
from ...core.errors import AdjointError, DTypeError, Unsupported
from ...core.mode import MODE, observed
from ...core.op import Op
from ...core.symbolic_scalar import SymbolicNumber
from ...core.tensor_type import Tensor
from ...ir import compute as core_compute
from ...ir.compute import quietly
from ...runtime import repeats
from ...runtime.cells import any_graph
from ...runtime.dispatch import apply
from ...runtime.fused import drawing_for
from ...runtime.lazy import LazyValue
from ...runtime.public import FUNCTIONS
from ...runtime.tensors import fresh
from ..create.allocation import finish, names_on
from ..elementwise.pointwise import Elementwise
from ..promotion import cast
from ..shape.movement import Permute
from ..shape.sizes import is_of_graph
from .draws import (
    Beside,
    Draw,
    DrawnFor,
    Exponential,
    Followed,
    Normal,
    Once,
    Uniform,
    assert_weights,
    memory_order,
)
from .generators import (
    Generator,
    default_generator,
    drawing_now,
    next_draw,
    not_of_counters,
    torch_generator,
)

__all__: list[str] = []

T = TypeVar("T")


def followed(
    generator: Generator, place: Device, method: str, args: tuple[Any, ...],
    shape: Sequence[int], d: dt.dtype, like: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor drawn from PyTorch's generator by a method of `Twister`, in the order of memory of
    `like`.
    """
    if drawing_for[0] and _drawn_now():
        raise not_of_counters()
    data = getattr(like, "_data", None)
    usual = like is None or (type(data) is np.ndarray and data.flags.c_contiguous)
    if usual and place is CPU and MODE.get().plain:
        generator.draws += 1
        made: Tensor = fresh(generator.twister.draw(method, args, shape, d, None))
        return made
    order = _order(data) if data is not None and tuple(data.shape) == tuple(shape) else None
    shape = tuple(int(n) for n in shape)
    args = tuple(x.value() if type(x) is SymbolicNumber else x for x in args)
    executor = MODE.get().executor
    if executor is None:
        generator.draws += 1
        array = observed(method, generator.twister.draw, method, args, shape, d, order)
        return finish(array, place)
    note = getattr(executor, "note_draw", None)
    if note is None:
        result = _drawn_once(
            generator, lambda once: Followed(once, 0, method, args, shape, d, order)
        )
    else:
        seed, draw = note(generator)
        result = apply(Followed(seed, draw, method, args, shape, d, order))
    return result if place is CPU else result.to(place)  # type: ignore[no-any-return]


def _order(data: Any) -> tuple[int, ...] | None:
    """The dimensions of an array as they are in memory, the slowest first; of a recorded value, as
    they will be where only permutations and elementwise operations tell; None: row-major.
    """
    turned: list[tuple[int, ...]] = []
    while type(data) is LazyValue and data.op is not None:
        if isinstance(data.op, Permute):
            turned.append(data.op.axes)
        elif not isinstance(data.op, Elementwise):
            return _turned(None, turned, len(data.shape))
        alike = [x for x in data.inputs if getattr(x, "ndim", None) == len(data.shape)]
        if not alike:
            return _turned(None, turned, len(data.shape))
        data = alike[0]
    if type(data) is LazyValue:
        data = data.array
    return _turned(memory_order(data) if type(data) is np.ndarray else None, turned, 0)


def _as_new(input: Any) -> Any:
    """`input` for the order of memory of a new tensor like it; None where that is row-major."""
    order = _order(input._data)
    return None if order is None or list(order) == sorted(order) else input


def _turned(
    order: tuple[int, ...] | None, turned: Sequence[tuple[int, ...]], ndim: int
) -> tuple[int, ...] | None:
    """An order behind permutations, the last of which is the first of `turned`."""
    for axes in reversed(turned):
        order = tuple(axes.index(n) for n in (order or range(len(axes))))
    return order


def _drawn_once(generator: Generator, make: Callable[[Any], Any], *inputs: Any) -> Any:
    """Result of an op that draws from PyTorch's generator: now, also where others are recorded."""
    once = Once(generator.twister)
    generator.draws += 1
    y = apply(make(once), *inputs)
    reason = None
    if not once.done:
        try:
            y.detach().numpy()  # where others are recorded it is computed now
        except AdjointError as error:
            reason = error
    if not once.done:
        raise Unsupported(
            "random numbers of PyTorch's generator come one after another: they cannot be recorded "
            "here; call random.follow_torch(False), or draw outside"
        ) from reason
    return y


def rejecting(kind: Any, generator: Generator | None, *inputs: Any) -> Any:
    """Result of the sampler `kind` for these inputs, which draws as many numbers as their values
    need.
    """
    own = torch_generator(generator, inputs[0].device)
    if own is None:
        return drawn_from(kind, generator, inputs)
    if hasattr(MODE.get().executor, "note_draw"):
        raise Unsupported(
            f"compile: {kind.__name__} takes as many of the numbers of PyTorch's generator as "
            "values say; draw outside of the function, or call random.follow_torch(False)"
        )
    arrays = few_plain(inputs)
    if arrays is not None:
        own.draws += 1
        return _computed(kind(Once(own.twister), 0), inputs, arrays)
    return _drawn_once(own, lambda once: kind(once, 0), *inputs)


def few_plain(inputs: Sequence[Any]) -> list[Any] | None:
    """The arrays of parameters, where nothing but the numbers is to be computed:
    a few of them, of one wide dtype and shape, of which no gradient is wanted; else None.
    """
    mode = MODE.get()
    if not mode.plain:
        return None
    arrays = [x._data for x in inputs]
    first = arrays[0]
    if type(first) is not np.ndarray or first.size > policy.LARGE or first.dtype.char not in "fd":
        return None
    for x, data in zip(inputs, arrays, strict=True):
        if data is not first and (
            type(data) is not np.ndarray or data.dtype != first.dtype or data.shape != first.shape
        ):
            return None
        if mode.grad and x._node is not None:
            return None
    return arrays


def drawn_plainly(own: Generator, method: str, like: Any) -> Any:
    """An array drawn from PyTorch's generator, of the shape, dtype and order of memory of a few
    plain numbers.
    """
    own.draws += 1
    d = dt.float64 if like.dtype == np.float64 else dt.float32
    return own.twister.draw(method, (), like.shape, d, memory_order(like))


def _computed(op: Any, inputs: Sequence[Any], arrays: list[Any]) -> Any:
    """The result of such an op; an error is that of the usual way."""
    try:
        return fresh(quietly(op.compute, backend, *arrays))
    except AdjointError:
        return apply(op, *inputs)


_made_for = threading.local()  # `tensors`: for which the draws are that are being made


def draw_for(tensors: Sequence[Any], make: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Result of `make(*args, **kwargs)`, which draws for these tensors: in a graph each new value
    of one has new numbers.
    """
    if not (any_graph[0] and _is_recorded(tensors)):
        return make(*args, **kwargs)
    before = _drawn_now()
    try:
        drawing_for[0] += 1
        _made_for.tensors = (*map(_outside, tensors), *before)
        return make(*args, **kwargs)
    finally:
        _made_for.tensors = before
        drawing_for[0] -= 1


def graphs_exist() -> bool:
    """Whether a graph was ever made: draws for tensors need not ask before."""
    return any_graph[0]


def _drawn_now() -> tuple[Any, ...]:
    """The tensors for which this thread draws."""
    tensors: tuple[Any, ...] = getattr(_made_for, "tensors", ())
    return tensors


def _outside(x: Any) -> Any:
    """The tensor that `x` is outside of all function transforms."""
    while _is_transformed(x._data):
        x = x._data.inner
    return x


def _is_transformed(data: object) -> bool:
    return isinstance(data, LazyValue) and data.rises and data.kept is None


def _is_recorded(tensors: Sequence[Any]) -> bool:
    tensors = [*map(_outside, tensors)]
    if any(isinstance(x._data, LazyValue) and x._data.rises for x in tensors):
        return False  # of another layout, which has rules of its own for draws
    executor: Any = MODE.get().executor
    while hasattr(executor, "level"):  # a function transform's
        executor = executor.outer
    if executor is not None:
        return hasattr(executor, "generator")  # a Graph's
    return any(map(is_of_graph, tensors))


def drawn_from(
    kind: Callable[..., Op], generator: Generator | None, inputs: Sequence[Any], *fields: Any
) -> Any:
    """Result of the draw `kind` from parameters that are tensors."""
    if generator is None and not any_graph[0]:
        arrays = few_plain(inputs)
        if arrays is not None:
            return _computed(kind(*default_generator.next_draw(), *fields), inputs, arrays)
    others = _drawn_now()
    if not (any_graph[0] and _is_recorded((*inputs, *others))):
        return apply(kind(*next_draw(generator), *fields), *inputs)
    outside = [*map(_outside, inputs)]
    drawing = _of_graph((*outside, *others)) if generator is None else drawing_now(generator)
    if any(all(x is not each for each in outside) for x in others):
        inputs = [apply(Beside(len(others)), inputs[0], *others), *inputs[1:]]
    known = _have_values([*map(_outside, inputs)])
    y: Any = apply(kind(*(drawing.next_draw() if known else (0, 0)), *fields), *inputs)
    recorded = _outside(y)
    if is_of_graph(recorded):
        cell = recorded._data
        if not hasattr(cell.op, "renumbered"):
            raise Unsupported(
                f"{kind.__name__}: a function transform draws for a tensor of a Graph what the "
                "graph could not draw anew for another value; draw outside of the transform, and "
                "give it the numbers"
            )
        last = cell.state.stamp() if known else repeats.never
        repeats.attach(cell, repeats.NewNumbers(last, drawing))
    return y


def _of_graph(tensors: Sequence[Any]) -> Generator:
    """The generator of the graph in which draws for these tensors are recorded."""
    for x in tensors:
        graph = x._data.state.owner() if is_of_graph(x) else None
        if graph is not None and graph.generator is not None:
            own: Generator = graph.generator
            return own
    return drawing_now(None)


def _have_values(tensors: Sequence[Any]) -> bool:
    """Whether these tensors can be computed from what their graph's inputs have been given."""
    cells = [x._data for x in tensors if is_of_graph(x)]
    return not cells or repeats.has_values(cells[0].state, cells)


def drawn(
    kind: Callable[..., Draw], generator: Generator | None, place: Device, *fields: Any
) -> Tensor:
    """Result of `kind` for a new seed and draw, these fields, and a device."""
    if drawing_for[0] and (tensors := _drawn_now()):
        return _drawn_for(tensors, kind, generator, place, fields)
    plain = MODE.get().plain
    if place.type == "meta":  # of which no element is drawn
        number = 0, 0
    elif plain and generator is None:
        number = default_generator.next_draw()
    else:
        number = next_draw(generator)
    if plain and place is CPU and core_compute.accelerate is not None:
        known = core_compute.draws.find((kind, fields))
        found = None if known is None else known(*number)
        if found is not None:
            return fresh(found)  # type: ignore[no-any-return]
    y: Any = apply(kind(*number, *fields, place))
    if not plain and is_of_graph(recorded := _outside(y)):
        repeats.note_kept_draw(recorded._data)
    made: Tensor = y
    return made


def _drawn_for(
    tensors: tuple[Any, ...], kind: Callable[..., Any], generator: Any, place: Device, fields: Any
) -> Tensor:
    """A draw that a graph makes for these tensors, on the device of the first."""
    at = tensors[0].device

    def made(seed: int, draw: int) -> DrawnFor:
        drawing = kind(seed, draw, *fields, at)
        shape = tuple(tensors[0].shape)
        return DrawnFor(drawing, shape == tuple(drawing.shape) and "shape" in vars(drawing))

    y = drawn_from(made, generator, tensors)
    result: Tensor = y if place == at else y.to(place)
    return result


def _assert_kind(name: str, d: dt.dtype, categories: tuple[int, ...] = (2,)) -> None:
    if d.category not in categories:
        head = name.removesuffix("_kernel_cpu")
        raise DTypeError(f'{head}: "{name}" not implemented for {d}; use a floating-point dtype')


def draw_uniform(
    shape: tuple[int, ...],
    d: dt.dtype,
    generator: Generator | None,
    place: Device = CPU,
    like: Any = None,
    low: float = 0.0,
    high: float = 1.0,
) -> Tensor:
    """Uniform numbers of [low, high); complex dtypes have them in both parts of [0, 1)."""
    _assert_kind("uniform", d, (2, 3))
    if (own := torch_generator(generator, place)) is not None:
        return followed(own, place, "uniform", (float(low), float(high)), shape, d, like)
    if d.is_complex and place.type == "meta":
        return finish(names_on(place).empty(shape, d.numpy), place)
    if d.is_complex:
        pairs = drawn(Uniform, generator, place, (*shape, 2), d.to_real())
        return finish(pairs._data.view(d.numpy)[..., 0], place)
    values = drawn(Uniform, generator, place, shape, d)
    return values if (low, high) == (0.0, 1.0) else values * (high - low) + low


def draw_exponential(
    shape: Sequence[int], *, dtype: dt.dtype, device: Device = CPU, like: Any = None
) -> Tensor:
    """Standard exponential numbers."""
    _assert_kind("exponential_", dtype)
    if (own := torch_generator(None, device)) is not None:
        return followed(own, device, "exponential", (1.0,), shape, dtype, like)
    return drawn(Exponential, None, device, tuple(shape), dtype)


def draw_normal(
    shape: tuple[int, ...],
    d: dt.dtype,
    generator: Generator | None,
    place: Device = CPU,
    like: Any = None,
    mean: float = 0.0,
    std: float = 1.0,
) -> Tensor:
    """Normal numbers."""
    _assert_kind("normal_kernel_cpu", d, (2, 3))
    if (own := torch_generator(generator, place)) is not None:
        return followed(own, place, "normal", (mean, std), shape, d, like)
    values = drawn(Normal, generator, place, shape, d)
    return values if (mean, std) == (0.0, 1.0) else values * std + mean


def followed_multinomial(own: Generator, input: Any, count: int, replacement: bool) -> Any:
    """Multinomial draws as PyTorch makes them: the first clocks that ring, or places among the
    running totals.
    """
    input = input.detach()
    if type(input._data) is np.ndarray:
        assert_weights(input._data, count, replacement)
    if not replacement or count == 1:
        clocks: Any = followed(
            own, input.device, "exponential", (), tuple(input.shape), input.dtype, input
        )
        speeds = input / clocks
        return speeds.argmax(-1, keepdim=True) if count == 1 else speeds.topk(count).indices
    totals = input.cumsum(-1)
    if few_plain((input,)) is not None and input.ndim == 1:
        edges = totals._data / totals._data[-1:]
        points = drawn_plainly(own, "uniform", np.empty(count))
        return fresh(edges.astype(np.float64).searchsorted(points))
    totals = cast(totals / totals[..., -1:], dt.float64)
    shape = (*input.shape[:-1], count)
    points = followed(own, input.device, "uniform", (), shape, dt.float64)
    return FUNCTIONS["searchsorted"](totals, points)
