"""Kernels, composites and products bound to arrays that stay where they are.

A program that runs many times on the same memory need not look at its arrays again: what a call
has to know of them is worked out once, here. Whoever calls what is returned keeps the arrays alive.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ....core import policy
from ....core.arrays import CachedLaunch, address, addresses, signature
from ....core.errors import NotTraceable
from ....core.op import Op
from ....ir import compute as core_compute
from ....ir.compute import quietly
from ....ir.executable import find
from ...codegen import Compiled, Kernel
from ...codegen.run import KernelEntry
from ..gemm import gemm, products, small_systems
from ..onednn.plan import OneDnnPlan
from ..runtime.launch_list import Launch as Ready
from ..runtime.parallel_sections import Blocks
from ..runtime.pool import default_pool
from . import numpy_loops
from .composite import Composite
from .scratch import Scratch

Call = Callable[[], object]  # machine code, where that is all: `Ready`


def bound_kernel(
    compiled: Compiled,
    arrays: Sequence[Any],
    outs: Sequence[Any],
    scalars: Sequence[float] = (),
    shape: Sequence[int] | None = None,
    run: Any = None,
) -> list[Call]:
    """Calls that compute `outs` from `arrays` by a kernel when run one after another.

    Errors: as for a call of the kernel.
    """
    entry = compiled.entry(arrays, shape, outs)
    if isinstance(entry, KernelEntry):
        if not entry.overlaps(addresses((*arrays, *outs))):
            return [_bound_entry(entry, arrays, outs, scalars, run)]
    else:
        parts = entry.first.allocate()
        first = _bound_entry(entry.first, arrays, parts, scalars, run)
        given = entry.combined(parts, arrays)
        numbers = (*scalars, *entry.sizes)
        return [first, *bound_kernel(entry.second, given, outs, numbers, run=run)]
    options = {"out": tuple(outs), "scalars": scalars, "shape": shape, "run": run}
    return [functools.partial(compiled, *arrays, **options)]


def _bound_entry(
    entry: KernelEntry,
    arrays: Sequence[Any],
    outs: Sequence[Any],
    scalars: Sequence[float],
    run: Any,
) -> Ready:
    places = addresses((*arrays, *outs))
    words = entry.head + places + entry.pack(*scalars)
    first = len(entry.head) // 8
    pointers = range(first, first + len(places) // 8)
    shared = run is not None and entry.chunks > 1
    keeps = memory_of((*arrays, *outs))

    def blocks(rows: int, size: int) -> Blocks | None:
        planned = entry.in_blocks(rows, size)
        return (
            None if planned is None else Blocks(planned[0] + words[len(planned[0]) :], planned[1])
        )

    return Ready(
        entry.code, entry.chunks, words, pointers, shared, entry.quick, keeps,
        work=entry.work, spans=entry.spans, outputs=len(outs), rows=entry.rows, blocks=blocks,
    )  # fmt: skip


def memory_of(arrays: Sequence[Any]) -> list[Any]:
    """The owners of the arrays' memory, each once: calls that hold addresses keep nothing else
    alive.
    """
    owners = [x if x.base is None else x.base for x in arrays]
    return list({id(x): x for x in owners}.values())


def bound_copy(target: Any, source: Any) -> list[Call]:
    """Calls that copy the elements of an array into another of its shape and dtype, whatever their
    strides.
    """
    sizes = [size for size in target.shape if size != 1]
    kind = _MOVED.get(target.itemsize)
    if kind is None or source.dtype != target.dtype or source.shape != target.shape:
        return [functools.partial(np.copyto, target, source)]
    to, x = (a.reshape(sizes).view(kind) for a in (target, source))
    run = default_pool().run if to.size >= policy.PARALLEL else None
    return bound_kernel(_copying(len(sizes), kind), [x], [to], (), sizes, run)


_MOVED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}  # by bytes


@functools.cache
def _copying(rank: int, kind: str) -> Compiled:
    """A kernel that copies elements."""
    kernel = Kernel(rank)
    kernel.output(kernel.input(kind))
    return Compiled(kernel)


def dense(arrays: Sequence[Any]) -> tuple[list[Any], list[Call]]:
    """The arrays in row-major order, copies where need be, and the calls that copy them."""
    arranged: list[Any] = []
    calls: list[Call] = []
    for x in arrays:
        if type(x) is np.ndarray and not x.flags.c_contiguous:
            copy = np.ascontiguousarray(x)  # of its values, which some ops look at
            calls += bound_copy(copy, x)
            x = copy
        arranged.append(x)
    return arranged, calls


def bound_composite(
    composite: Composite, arrays: Sequence[Any], outs: Sequence[Any]
) -> tuple[list[Call], list[Any]]:
    """Calls that compute `outs` from `arrays` when run one after another, as often as wanted; and
    all memory that must be kept alive as long.

    Errors: NotTraceable for composites that gather.
    """
    if composite.gathers:
        raise NotTraceable("gathers")
    known = list(arrays)
    calls: list[Call] = []
    for stage, numbers, given, made in _stages(composite, known, outs):
        calls += bound_kernel(stage.compiled, given, made, numbers, stage.shape, stage.run)
    return calls, memory_of(known)


def may_overwrite(composite: Composite, arrays: Sequence[Any], outs: Sequence[Any]) -> bool:
    """Whether the kernels compute `outs` right where some of these are the memory of inputs."""
    if composite.gathers:
        return False
    written: list[Any] = []
    for stage, _, given, made in _stages(composite, list(arrays), outs):
        if any(x is not y and np.may_share_memory(x, y) for x in given for y in written):
            return False
        shared = {
            k for k, y in enumerate(made) if any(np.may_share_memory(x, y) for x in given)
        }  # fmt: skip
        if not shared <= stage.compiled.in_place:
            return False
        if shared:
            entry = stage.compiled.entry(given, stage.shape, made)
            if not isinstance(entry, KernelEntry) or entry.overlaps(addresses((*given, *made))):
                return False
        written += made
    return True


def _stages(
    composite: Composite, known: list[Any], outs: Sequence[Any]
) -> Iterator[tuple[Any, Sequence[float], list[Any], list[Any]]]:
    """Each kernel, its numbers, what it reads and what it writes, which is added to what is known;
    memory for what only later kernels read is made here.
    """
    for n, sizes in composite.squeezed:
        known[n] = known[n].reshape(sizes)
    results = {
        n: y.reshape(tuple(size for size in sizes if size != 1))
        for (n, sizes), y in zip(composite.outputs, outs, strict=True)
    }
    for stage, numbers in zip(composite.stages, composite.numbers, strict=True):
        given = [known[n] for n in stage.arguments]
        count = len(stage.compiled.kernel.outputs)
        made = [results.get(n) for n in range(len(known), len(known) + count)]
        if any(y is None for y in made):
            own = stage.compiled.entry(given, stage.shape).allocate()
            made = [y if out is None else out for y, out in zip(own, made, strict=True)]
        known += made
        yield stage, numbers, given, made


def bound_product(library: str, operands: Sequence[Any], out: Any, scratch: Scratch) -> list[Call]:
    """Calls that compute an op of that `library` (`Op.library`) into `out` when run one after
    another.
    """
    x, y, *bias = operands
    copied: list[Call] = []
    given = []
    for v, whole in zip((x, y), _are_at_hand(library, x, y), strict=True):
        if not whole and not v.flags.c_contiguous:
            copy, scratch = scratch.like(v)
            copied += bound_copy(copy, v)
            v = copy
        given.append(v)
    if copied:
        return [*copied, *bound_product(library, (*given, *bias), out, scratch)]
    if not out.flags.c_contiguous:
        within = product_into(library, operands, out)
        if within is not None:
            return [within]
    a, b = products.matrices(library, x, y)
    c = out if out.ndim == a.ndim else out.reshape(-1, out.shape[-1])
    if np.may_share_memory(c, out) and all(v.flags.c_contiguous for v in (c, *bias)):
        products.prepare(a, b, *bias)
        ready = products.ready_for(a, b, *bias)
        run = None if ready is None else ready.run
        plan = getattr(run, "__self__", None)
        if plan is None and products.is_little(a, b):  # also what eagerly is copied first
            plan = products.generated(a, b, *bias)
        if isinstance(plan, gemm.GemmPlan):
            return [plan.call((a, b, *bias), c)]
        if isinstance(plan, OneDnnPlan):
            instead = None if a.dtype == products.BFLOAT16 else products.by_numpy_into
            bound = plan.call(a, b, c, *bias, work=scratch(plan.work), instead=instead)
            if bound is not None:
                return [bound]
        if run is not None:
            return [functools.partial(run, a, b, c, *bias)]

    def compute() -> None:
        a, b = products.matrices(library, x, y)
        out[...] = products.matmul(a, b, None, *bias).reshape(out.shape)

    return [functools.partial(quietly, compute)]


def product_into(library: str, operands: Sequence[Any], out: Any, then: str = "") -> Call | None:
    """A call that computes an op of that `library` into an array that may have gaps between its
    rows, or lie by columns. `then` replaces the result by its part above 0 ("relu"), or adds it to
    what is there ("add"). None where only a copy of the result could be brought there.
    """
    x, y, *bias = operands
    if not all(_are_at_hand(library, x, y)):
        return None
    a, b = products.matrices(library, x, y)
    c = out if out.ndim == a.ndim else out.reshape(-1, out.shape[-1])
    if not np.may_share_memory(c, out) or not all(v.flags.c_contiguous for v in bias):
        return None
    generated = products.generated_into(a, b, c, *bias)
    if generated is None:
        return None
    plan, given, c = generated
    plan = plan.rectified() if then == "relu" else plan.adding() if then else plan
    return None if plan is None else plan.call(given, c)


def bound_products(
    each: Sequence[tuple[str, Sequence[Any]]], outs: Sequence[Any]
) -> tuple[list[Call], list[Any]]:
    """Calls that compute small products of two matrices, each of a `library` and its operands, into
    row-major arrays, when run one after another; and all memory that must be kept alive as long. No
    product reads another's result.
    """
    copied: dict[Any, Any] = {}
    calls: list[Call] = []
    alive: list[Any] = [*outs]
    parts: list[tuple[Any, ...]] = []
    for (library, (x, y, *bias)), out in zip(each, outs, strict=True):
        given = []
        for v, whole in zip((x, y), _are_at_hand(library, x, y), strict=True):
            if not whole:
                key = address(v), v.shape, v.strides
                if key not in copied:
                    [copied[key]], more = dense([v])
                    calls += more
                v = copied[key]
            given.append(v)
        a, b = products.matrices(library, *given)
        parts.append((a, b, out.reshape(-1, out.shape[-1]), *bias))
        alive += parts[-1]
    return [*calls, products.together(parts).call_at_places()], memory_of(alive)


def _are_at_hand(library: str, x: Any, y: Any) -> list[bool]:
    """For each operand of an op of that `library`, whether its matrix is a view of it that lies in
    memory as products take one: not if it was expanded.
    """
    a, b = products.matrices(library, x, y)
    if x.size and y.size and x.flags.c_contiguous and y.flags.c_contiguous:
        whole = not products.must_be_copied(a, b)  # rows or columns, and reshaped as views
        return [whole, whole]
    places = zip((a, b), (x, y), products.are_laid_out(a, b), strict=True)
    return [whole and np.may_share_memory(new, old) for new, old, whole in places]


def bound_op(op: Op, inputs: Sequence[Any], outs: Sequence[Any]) -> list[Call]:
    """Calls that compute an op of arrays and numbers into `outs` when run one after another: the
    machine code that eager execution launches, where there is some.
    """

    into = getattr(op, "compute_into", None)
    if into is not None:
        return [functools.partial(into, inputs, outs)]

    def compute() -> None:
        results = core_compute.compute(op, inputs)  # type: ignore[arg-type]
        for out, each in zip(outs, results if len(outs) > 1 else (results,), strict=True):
            np.copyto(out, each, casting="no")

    if op.gufunc and not small_systems.takes(op, inputs):
        loop = numpy_loops.bound(op, inputs, outs, compute)
        if loop is not None:
            return [loop]
    launch = _launcher_of(op, list(inputs))
    if launch is None or any(steps is not None for *_, steps in launch.outputs):
        copies, calls = dense(inputs)
        if calls and _launcher_of(op, copies) is not None:
            return [*calls, *bound_op(op, copies, outs)]
        return [compute]
    if any(n < 0 for n, _ in launch.views):
        return [compute]
    if [(y.shape, y.dtype, None) for y in outs] != list(launch.outputs):
        return [compute]
    if not all(y.flags.c_contiguous for y in outs):
        return [compute]
    arrays = [x for x in inputs if type(x) is np.ndarray]
    code, chunks, before, _, pool, quick = launch.rest
    places = [address(arrays[n]) + offset for n, offset in launch.views] + list(map(address, outs))
    words = before + struct.pack(f"{len(places)}q", *places) + launch.words_behind()
    first = len(before) // 8
    pointers = range(first, first + len(places))
    keeps = launch, inputs, outs
    return [Ready(code, chunks, words, pointers, pool is not None, quick, keeps, compute)]


def _launcher_of(op: Op, inputs: list[Any]) -> CachedLaunch | None:
    """The launcher that eager execution has for an op of such arrays, which may be any of their
    kind.
    """
    if small_systems.takes(op, inputs):  # these may hold zeros now, and would be refused
        if not all(x.flags.c_contiguous for x in inputs):
            return None
        inputs = small_systems.stand_ins(inputs)
    key = signature(op, inputs, False, [], None, True)
    for _ in range(2):  # some are launched by their address when they come a second time
        try:
            core_compute.compute(op, inputs)
        except Exception:  # of these values: what is computed for others is not known
            return None
        entry = None if key is None else find(key)
        launch = None if entry is None else entry.launch
        if type(launch) is functools.partial and launch.func is quietly:
            launch = launch.args[0]
        if type(launch) is CachedLaunch:
            return launch
    return None


def bound_routine(routine: Any, given: Sequence[Any], outs: Sequence[Any]) -> Call:
    """A call that computes `outs` from `given` by a composite's routine."""
    forward, arrays = routine.forward, list(given)

    def compute() -> None:
        results, _ = quietly(forward, arrays)
        for out, each in zip(outs, results, strict=True):
            np.copyto(out, each)

    return compute
