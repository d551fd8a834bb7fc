"""Calling a kernel at the cost of a C function: what a call needs is worked out once.

A launcher (`core.arrays.CachedLaunch`) is for arrays of certain shapes, strides and dtypes; given
others, it returns None, and the caller asks in the general way. Arguments that are no arrays are
passed over: the caller knows that these numbers are the kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ....core.arrays import CachedLaunch as Kernel
from ....core.errors import NotTraceable
from ....core.spec import prod
from ...codegen import Compiled
from ...codegen.run import QUICK, KernelEntry, Pair, code_of, packer
from .pool import default_pool

# (*arrays) -> array, tuple of arrays, or None; with `numbered(scalars)`, where it has some
LaunchFunction: TypeAlias = Any
View: TypeAlias = "tuple[int, int]"  # of which input, and how many bytes from its first element


def launcher(
    compiled: Compiled,
    given: Sequence[np.ndarray],
    shapes: Sequence[tuple[int, ...]],
    *,
    arrays: Sequence[np.ndarray] | None = None,
    views: Sequence[View] | None = None,
    scalars: Sequence[float] = (),
    shape: Sequence[int] | None = None,
    parallel: bool = False,
    outs: Sequence[np.ndarray] | None = None,
    entry: KernelEntry | Pair | None = None,
) -> LaunchFunction | None:
    """A launcher of `compiled` for arrays like `given`; None where there can be none.

    `shapes` are those of the outputs, which may have more or fewer dimensions of size 1 than the
    kernel's own. `arrays` are what the kernel gets: of each `views` says what it is a view of; else
    they are views of `given`, in order, from their first element on. `outs` are row-major outputs,
    where the kernel is to write such ones however its inputs lie. `entry` is the prepared call,
    where there is one already.
    """
    arrays = given if arrays is None else arrays
    views = [(n, 0) for n in range(len(given))] if views is None else views
    if entry is None:
        entry = compiled.entry(arrays, shape, outs)
    if isinstance(entry, Pair):
        return _pair(entry, given, arrays, views, shapes, scalars, parallel)
    outputs: list[Any] = [(shape, compiled.dtype(k)) for k, shape in enumerate(shapes)]
    if not entry.row_major:
        made = [y.reshape(shape) for y, shape in zip(entry.allocate(), shapes, strict=True)]
        outputs = [(y.shape, y.dtype, y.strides) for y in made]
    return _single(entry, given, views, outputs, scalars, parallel)


def fitting(
    compiled: Compiled,
    given: Sequence[np.ndarray],
    shapes: Sequence[tuple[int, ...]],
    space: Sequence[int],
    *,
    arrays: Sequence[np.ndarray] | None = None,
    views: Sequence[View] | None = None,
    scalars: Sequence[float] = (),
    parallel: bool = False,
) -> LaunchFunction | None:
    """`launcher` for arrays that are known to fit the kernel and a space of these sizes; None where
    it is not as simple as that.
    """
    planned = compiled.bound(given if arrays is None else arrays, space)
    if planned is None:
        return None
    kernel = compiled.kernel
    code, pack = code_of(kernel, planned.layout), packer(kernel)
    outputs = [(shape, compiled.dtype(k)) for k, shape in enumerate(shapes)]
    quick = compiled.cost * prod(space) < QUICK
    made = bare(
        code.address, planned.chunks, given, outputs, planned.head, pack(*scalars), parallel, quick,
        views,
    )  # fmt: skip
    made.keeps, made.pack = code, pack
    return made


def row_major(
    compiled: Compiled,
    given: Sequence[np.ndarray],
    shapes: Sequence[tuple[int, ...]],
    space: Sequence[int],
    *,
    arrays: Sequence[Sequence[int]] | None = None,
    views: Sequence[View] | None = None,
    scalars: Sequence[float] = (),
    parallel: bool = False,
) -> LaunchFunction | None:
    """`fitting` for row-major arrays, of which `arrays` are the shapes."""
    shaped = [x.shape for x in given] if arrays is None else arrays
    planned = compiled.row_major(shaped, space)
    if planned is None:
        return None
    plan, (chunks, elements, *words) = planned
    kernel = compiled.kernel
    reads = None if views is None else tuple(views)
    like = plan.launchers.get(reads)
    if like is None:
        layout = plan.layout
        assert layout is not None
        code = code_of(kernel, layout)
        outputs = [(shape, compiled.dtype(k)) for k, shape in enumerate(shapes)]
        pack = packer(kernel)
        like = plan.launchers[reads] = bare(
            code.address, chunks, given, outputs, plan.head(*words), pack(*scalars), False, True,
            views,
        )  # fmt: skip
        like.keeps, like.pack = code, pack
    pool = default_pool().entry() if parallel and chunks > 1 else None
    return like.resized(
        given, shapes, chunks, plan.head(*words), like.pack(*scalars), pool,
        compiled.cost * elements < QUICK,
    )  # fmt: skip


def _single(
    entry: KernelEntry,
    given: Sequence[np.ndarray],
    views: Sequence[View],
    outputs: Sequence[tuple[Any, ...]],
    scalars: Sequence[float],
    parallel: bool,
) -> LaunchFunction | None:
    if not outputs:
        return None
    made = bare(
        entry.address, entry.chunks, given, outputs, entry.head, entry.pack(*scalars), parallel,
        entry.quick, views,
    )  # fmt: skip
    made.keeps = entry.code  # of which the launcher only has the address
    made.pack = entry.pack
    return made


def bare(
    address: int,
    chunks: int,
    given: Sequence[np.ndarray],
    outputs: Sequence[tuple[Any, ...]],
    before: bytes,
    after: bytes,
    parallel: bool,
    quick: bool,
    views: Sequence[View] | None = None,
    spans: Sequence[tuple[int, int, bool]] = (),
) -> Kernel:
    """A launcher of machine code whose words are `before`, the addresses of the elements of `views`
    (None: the inputs) and of the outputs, `after`, and one in which it refuses the inputs.
    """
    views = [(n, 0) for n in range(len(given))] if views is None else views
    pool = default_pool().entry() if parallel and chunks > 1 else None
    return Kernel(address, chunks, given, outputs, before, after, pool, quick, views, spans)


def writer(
    compiled: Compiled,
    given: Sequence[np.ndarray],
    arrays: Sequence[np.ndarray],
    places: Sequence[int],
    out: np.ndarray,
    shape: Sequence[int] | None,
    parallel: bool,
) -> Kernel:
    """A launcher of an elementwise kernel of one output that writes it over the first of `given`,
    which is seen as `out`; its scalars are to be set. The kernel gets `arrays`, which are the given
    ones at these `places`.

    Errors: NotTraceable where elements would be written before they are read.
    """
    if not _is_apart_in_itself(out):
        raise NotTraceable("an array whose elements may share memory")
    entry = compiled.entry(arrays, shape, [out])
    if isinstance(entry, Pair):
        raise NotTraceable("a reduction")
    spans = entry.written_spans()
    if any(n == 0 and not same for n, (_, _, same) in zip(places, spans)):  # noqa: B905
        raise NotTraceable("elements that are read after others are written")
    views = [(n, 0) for n in (*places, 0)]
    numbers = compiled.kernel.scalars
    made = bare(
        entry.address, entry.chunks, given, (), entry.head, entry.pack(*[0] * len(numbers)),
        parallel, entry.quick, views, spans,
    )  # fmt: skip
    made.keeps = entry.code  # of which the launcher only has the address
    made.pack = entry.pack
    return made


def _is_apart_in_itself(out: np.ndarray) -> bool:
    """Whether no two elements share memory, as far as one sees it from the strides."""
    if out.flags.c_contiguous:
        return True
    reach = int(out.itemsize)
    steps = zip(map(abs, out.strides), out.shape, strict=True)
    for step, size in sorted(pair for pair in steps if pair[1] > 1):
        if step < reach:
            return False
        reach += step * (size - 1)
    return bool(out.size)


def rebased(
    launch: LaunchFunction, given: Sequence[np.ndarray], views: Sequence[View]
) -> LaunchFunction | None:
    """The launcher that takes arrays like `given`, and gives `launch` these `views` of them; None
    where `launch` is no machine code, or takes views itself.
    """
    made = launch.rebased(given, views) if type(launch) is Kernel else None
    if made is not None:
        made.keeps = launch.keeps  # type: ignore[attr-defined]
    return made


def _pair(
    pair: Pair,
    given: Sequence[np.ndarray],
    arrays: Sequence[np.ndarray],
    views: Sequence[View],
    shapes: Sequence[tuple[int, ...]],
    scalars: Sequence[float],
    parallel: bool,
) -> LaunchFunction | None:
    """The launcher of a reduction in two steps."""
    parts = pair.first.allocate()
    outputs = [(x.shape, x.dtype) for x in parts]
    first = _single(pair.first, given, views, outputs, scalars, parallel)
    further = [views[k] for k in pair.positions]
    second = launcher(
        pair.second,
        [*parts, *(given[n] for n, _ in further)],
        shapes,
        arrays=[*(x.transpose(pair.order) for x in parts), *(arrays[k] for k in pair.positions)],
        views=[
            *((k, 0) for k in range(len(parts))),
            *((k, offset) for k, (_, offset) in enumerate(further, len(parts))),
        ],
        scalars=(*scalars, *pair.sizes),
        parallel=parallel,
    )
    if first is None or second is None:
        return None
    return _Pair(first, second, len(parts) > 1, [n for n, _ in further], pair.sizes)


class _Pair:
    """The launchers of a reduction in two steps, of which the second also gets the inputs at some
    places.
    """

    def __init__(
        self, first: Any, second: Any, several: bool, further: Sequence[int], sizes: Sequence[int]
    ) -> None:
        self.first = first
        self.second = second
        self.several = several
        self.further = further
        self.sizes = sizes

    def numbered(self, numbers: Sequence[float]) -> _Pair:
        """The launcher for other scalars."""
        first = self.first.numbered(numbers)
        second = self.second.numbered((*numbers, *self.sizes))
        return _Pair(first, second, self.several, self.further, self.sizes)

    def __call__(self, *operands: Any) -> Any:
        """Launches both kernels; None where the first refuses the operands."""
        parts = self.first(*operands)
        if parts is None:
            return None
        parts = parts if self.several else (parts,)
        if self.further:
            arrays = [x for x in operands if type(x) is np.ndarray]
            parts = (*parts, *[arrays[n] for n in self.further])
        return self.second(*parts)
