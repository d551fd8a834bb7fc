"""fully_shard: each rank keeps its rows of every parameter, and the whole only while it is used.

A module's parameters are gathered before its forward, and given back after it. What nodes have
saved of them stays there by name only: the version of a gathered tensor (`Gathered`) moves when its
memory is given back, so a gradient that wants it finds another count and asks the version, which
gathers again. The gathered tensors come from one node, whose gradient averages over the ranks and
leaves each rank its rows.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..autograd.engine import at_end, is_walking
from ..backends import numpy as backend
from ..core.errors import AutogradError, InvalidArgument, InvalidType, Unsupported
from ..core.missing_names import Unmade, refused
from ..core.mode import MODE
from ..core.op import Op
from ..nn.modules.module import Module
from ..runtime.node import Node, Version
from ..runtime.record import item
from ..runtime.tensors import wrap
from .collectives import row_as
from .data_parallel import assert_alike, sync
from .group import group_of
from .process_group import ProcessGroup
from .protocol import ReduceOp
from .transfer_buffers import assert_eager, reducing
from .work import Work

__all__ = ["fully_shard"]

__path__: list[str] = []  # PyTorch's is a package, whose modules are this one, too

_NAME = "fully_shard"


class _Unmade(Unmade):
    said = "distributed.fsdp", "fully_shard(module) serves"


class FSDPModule(_Unmade):
    """A module with what PyTorch's fully_shard adds to it."""


class FullyShardedDataParallel(_Unmade):
    """PyTorch's first version of sharded data parallelism."""


class CPUOffloadPolicy(_Unmade):
    """Parameters that wait on the host."""


class MixedPrecisionPolicy(_Unmade):
    """Parameters that travel in another dtype."""


class OffloadPolicy(_Unmade):
    """Policy that says where parameters wait."""


class CPUOffload(_Unmade):
    """Option of `FullyShardedDataParallel`: parameters kept on the host."""


class MixedPrecision(_Unmade):
    """Option of `FullyShardedDataParallel`: dtypes."""


class ShardingStrategy(_Unmade):
    """Option of `FullyShardedDataParallel`: which state is sharded."""


class StateDictType(_Unmade):
    """Option of `FullyShardedDataParallel`: kinds of state dict."""


class FullStateDictConfig(_Unmade):
    """Option of `FullyShardedDataParallel`: unsharded state dicts."""


transformer_auto_wrap_policy = refused(
    "distributed.fsdp", "transformer_auto_wrap_policy", "call fully_shard on each layer"
)
size_based_auto_wrap_policy = refused(
    "distributed.fsdp", "size_based_auto_wrap_policy", "call fully_shard on each layer"
)


def fully_shard(
    module: Any,
    *,
    mesh: Any = None,
    reshard_after_forward: bool | None = None,
    shard_placement_fn: Any = None,
    mp_policy: Any = None,
    offload_policy: Any = None,
    ignored_params: Iterable[Any] | None = None,
) -> Any:
    """Leave of the module's parameters each rank's rows only; returns the module.

    They are whole while its `forward` runs, and while their gradients are computed; between these
    they are what an optimizer changes: rows of the first dimension (`p.global_shape` says of how
    many), whose gradients are the means of all ranks'. Call it on each layer, and then on what
    holds them: parameters of a module that was sharded before are left out. While that one runs,
    and in backward, the next layer's parameters travel while this one computes. Rank 0's values
    are taken. What runs a layer again, as a checkpoint does, must call it (not its `forward`).

    `reshard_after_forward=False` keeps them whole until their gradients are there. `mesh` is a
    process group (None: all ranks). All ranks must run the same layers in the same order.

    Errors: InvalidArgument for parameters without dimensions, of modules that differ from rank to
        rank, or that a sharded and another module share; Unsupported for placements and policies.
    Source: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html

    >>> from adjoint.distributed.fsdp import fully_shard
    >>> ad.distributed.init_process_group("fake", rank=3, world_size=4)
    >>> model = fully_shard(ad.nn.Linear(8, 6))
    >>> model.weight.shape, model.weight.global_shape  # rows 6 and 7 of 6: none
    (adjoint.Size([0, 8]), (6, 8))
    >>> model(ad.ones(2, 8)).shape
    adjoint.Size([2, 6])
    >>> ad.distributed.destroy_process_group()
    """
    if not isinstance(module, Module):
        raise InvalidType(f"{_NAME}: expected a Module, but got {type(module).__name__}")
    for name, option in (
        ("shard_placement_fn", shard_placement_fn), ("mp_policy", mp_policy),
        ("offload_policy", offload_policy),
    ):  # fmt: skip
        if option is not None:
            raise Unsupported(f"{_NAME}: {name} is not served; leave it out")
    if mesh is not None and not isinstance(mesh, ProcessGroup):
        raise Unsupported(f"{_NAME}: a mesh of several dimensions is not served; give a group")
    if getattr(module, "_unit", None) is not None:
        raise InvalidArgument(f"{_NAME}: the module is sharded already")
    group = group_of(mesh, _NAME)
    ignored = {id(p) for p in ignored_params or ()}
    named = [(name, p) for name, p in module.named_parameters() if id(p) not in ignored]
    own = [(name, p) for name, p in named if not hasattr(p, "global_shape")]
    places = _places(module, [p for _, p in named])
    _assert_not_shared(module, named, own, places)
    for name, p in own:
        if not p.ndim:
            raise InvalidArgument(
                f"{_NAME}: parameter {name!r} has no dimension to shard; give it the shape (1,)"
            )
        if p.grad is not None:
            raise InvalidArgument(f"{_NAME}: parameter {name!r} has a gradient; clear it first")
        if type(p._data) is not np.ndarray:
            raise Unsupported(f"{_NAME}: parameters on {p.device} are not served yet; use the CPU")
    assert_alike(group, own, _NAME)
    sync(group, [p for _, p in own], 0, caller=_NAME)
    shards = [Shard(name, p, group, places[id(p)]) for name, p in own]
    unit = Unit(module, group, shards, reshard_after_forward is not False)
    object.__setattr__(module, "_unit", unit)
    module.register_forward_pre_hook(unit.enter, prepend=True)
    module.register_forward_hook(unit.leave, always_call=True)
    return module


def _places(module: Any, parameters: Sequence[Any]) -> dict[int, list[tuple[Any, str]]]:
    """Modules that hold each parameter, and its name there."""
    found: dict[int, list[tuple[Any, str]]] = {id(p): [] for p in parameters}
    for each in module.modules():
        for name, p in each._parameters.items():
            if id(p) in found:
                found[id(p)].append((each, name))
    return found


def _assert_not_shared(
    module: Any, named: list[tuple[str, Any]], own: list[Any], places: dict[int, Any]
) -> None:
    """Refuse parameters of a sharded part that stand outside of it, too."""
    mine = {id(p) for _, p in own}
    for name, p in named:
        if id(p) not in mine and len(places[id(p)]) != p.division.places:
            raise InvalidArgument(
                f"{_NAME}: parameter {name!r} is shared with a module outside of the sharded one "
                "that has it; shard what holds both, and not this part"
            )


class Layout(NamedTuple):
    """Layout of a sharded parameter, besides its `global_shape`."""

    first: int  # the row of the whole with which it begins
    group: ProcessGroup
    places: int  # where it stands in modules

    def norm(self, parameters: Sequence[Any], norm_type: float) -> Any:
        """The norm of all ranks' gradients of such parameters, taken together as one vector; all
        ranks ask for it. For the order 0, which is no norm, refused.
        """
        order = float(norm_type)
        if not order > 0:
            raise Unsupported(f"clip_grad_norm_: order {order} of sharded gradients; use 2 or inf")
        if any(p.division.group is not self.group for p in parameters):
            raise Unsupported("clip_grad_norm_: parameters sharded over different groups")
        norms = [np.abs(p.grad._data).astype(np.float64) for p in parameters if p.grad is not None]
        if order == np.inf:
            row = np.array([max((x.max() for x in norms if x.size), default=0.0)])
            row[np.isnan(row)] = np.inf  # some engines' maximum would lose it
            op = ReduceOp.MAX
        else:
            row = np.array([sum(float((x**order).sum()) for x in norms)])
            op = ReduceOp.SUM
        group = self.group
        what = "clip_grad_norm_: all_reduce of a norm"
        group.assert_usable(what)
        group.compare(what)
        Work(group, what, group.engine.all_reduce(row, op)).wait()
        total = row[0] if order == np.inf else row[0] ** (1 / order)
        return wrap(np.array(total, parameters[0]._data.dtype))


class Shard:
    """The rows that this rank has of a parameter."""

    def __init__(
        self, name: str, p: Any, group: ProcessGroup, places: list[tuple[Any, str]]
    ) -> None:
        data = p._data
        self.name = name
        self.parameter = p
        self.shape = data.shape  # of the whole
        self.rows = -(-data.shape[0] // group.size())  # of a rank; the last ones may have fewer
        self.size = self.rows * int(np.prod(data.shape[1:], dtype=np.int64))  # with what they lack
        self.places = [(weakref.ref(owner), name) for owner, name in places]
        first = min(group.rank() * self.rows, data.shape[0])
        mine = data[first : first + self.rows].copy()
        p._show(mine)
        if p._changes is None:
            p._changes = Version()  # which tells of its changes
        p.global_shape = self.shape
        p.division = Layout(first, group, len(places))

    def stand_in(self, value: Any) -> None:
        """Replaces the parameter in its modules: by the whole, or by the parameter again."""
        for reference, name in self.places:
            owner = reference()
            if owner is not None:
                owner._parameters[name] = value

    def stamp(self) -> tuple[int, int]:
        """A value that differs once the parameter has changed."""
        p = self.parameter
        return p._changes.count, id(p._data)


class Bundle:
    """The shards of one dtype, which travel as one row."""

    def __init__(self, unit: Unit, shards: list[Shard]) -> None:
        self.unit = weakref.ref(unit)
        self.group = unit.group
        self.shards = shards
        self.size = sum(shard.size for shard in shards)
        self.dtype = shards[0].parameter._data.dtype

    def begin(self) -> tuple[Any, Work]:
        """Begins to gather all ranks' rows: the memory for them, and the work to wait for."""
        group = self.group
        mine, start = np.zeros(self.size, self.dtype), 0
        for shard in self.shards:
            data = shard.parameter._data
            if data.dtype != self.dtype or data.shape[1:] != shard.shape[1:]:
                raise InvalidArgument(
                    f"{_NAME}: parameter {shard.name!r} is now {data.dtype} {data.shape}, and was "
                    f"sharded as {self.dtype} with rows of {shard.shape[1:]}; convert the module "
                    "before it is sharded"
                )
            mine[start : start + data.size] = data.reshape(-1)
            start += shard.size
        what = f"{_NAME}: all_gather of {self.size} {self.dtype.name}"
        group.assert_usable(what)
        group.compare(what)
        whole = np.empty(group.size() * self.size, self.dtype)
        return whole, Work(group, what, group.engine.all_gather(whole, mine))

    def arrays(self, whole: Any) -> list[Any]:
        """The parameters of all ranks' rows."""
        rows, found, start = whole.reshape(self.group.size(), self.size), [], 0
        for shard in self.shards:
            part = rows[:, start : start + shard.size]
            count = self.group.size() * shard.rows
            found.append(part.reshape(count, *shard.shape[1:])[: shard.shape[0]])
            start += shard.size
        return found

    def averaged(self, gradients: Sequence[Any]) -> list[Any]:
        """This rank's rows of the mean of each gradient over all ranks; None where no rank has that
        gradient. The averaged row ends in flags, which tell for each gradient whether a rank has
        it.
        """
        group, count = self.group, len(self.shards)
        whole = np.zeros((group.size(), self.size + count), self.dtype)
        start = 0
        for i, (shard, g) in enumerate(zip(self.shards, gradients, strict=True)):
            if g is not None:
                whole[:, self.size + i] = 1
                _spread(g._data, whole[:, start : start + shard.size], shard)
            start += shard.size
        mine = np.empty(self.size + count, self.dtype)
        engine = group.engine
        what = f"{_NAME}: reduce_scatter of {mine.size} {self.dtype.name}"
        group.assert_usable(what)
        group.compare(what)
        pending, finish = reducing(
            group, mine, ReduceOp.AVG, _NAME,
            lambda row, op: engine.reduce_scatter(row, row_as(whole.reshape(-1), row.dtype), op),
        )  # fmt: skip
        Work(group, what, pending, finish).wait()
        found: list[Any] = []
        start = 0
        for i, shard in enumerate(self.shards):
            p = shard.parameter
            part = mine[start : start + p._data.size].reshape(p._data.shape)
            found.append(wrap(part) if mine[self.size + i].real > 0 else None)
            start += shard.size
        return found


def _spread(g: Any, rows: Any, shard: Shard) -> None:
    """Put a whole gradient where its ranks' parts are to be; the last ones may be shorter."""
    if not shard.rows:
        return
    full = shard.shape[0] // shard.rows
    rows[:full] = g[: full * shard.rows].reshape(full, shard.size)
    rest = g[full * shard.rows :]
    if rest.size:
        rows[full, : rest.size] = rest.reshape(-1)


class Gather(Op, abstract=True):
    """The whole parameters of a bundle, of its shards."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.n_outputs = len(bundle.shards)  # type: ignore[misc]

    def gradient(self, g: Any) -> tuple[Any, ...]:
        """The means of all ranks', of which each rank gets its rows."""
        assert_eager(_NAME)
        if MODE.get().grad:
            raise AutogradError(
                f"{_NAME}: backward(create_graph=True) would need the averages' own gradient, "
                "which is not served; compute it on a module that is not sharded"
            )
        unit = self.bundle.unit()
        found = self.bundle.averaged(g)
        if unit is not None:
            unit.free()
        return tuple(found)


class Gathered(Version):
    """The version of a whole parameter, whose memory can be given back and gathered again."""

    def __init__(self, unit: Unit, number: int, stamp: tuple[int, int]) -> None:
        super().__init__()
        self.unit = unit
        self.number = number  # of the shard
        self.stamp = stamp  # of the shard when it was gathered
        self.tensor: Any = None  # a weak reference to it
        self.away = False
        self.is_written = False  # by a forward: gathered again, it would be another

    def holders(self) -> list[Any]:
        """The tensors that show the memory."""
        references = [self.tensor, *(self.views or ())]
        return [x for reference in references if (x := reference()) is not None]

    def put_away(self) -> None:
        """Give the memory back: what shows it is numbers that are none, until it is gathered."""
        if self.away:
            return
        self.away = True
        self.is_written = self.count != 0
        if not self.is_written:
            self.changed_by = "fully_shard"
        self.count += 1
        for x in self.holders():
            data = x._data
            nothing = np.nan if data.dtype.kind in "fcV" else 0
            x._data = np.broadcast_to(np.array(nothing).astype(data.dtype), data.shape)

    def recover(self) -> None:
        """Gather the parameter again, if the shard has not changed."""
        if not self.away or self.is_written:
            return
        if self.unit.shards[self.number].stamp() != self.stamp:
            self.changed_by = "a change of the sharded parameter since the forward"
            return
        array = self.unit.brought_for_backward()[self.number]
        for x in self.holders():
            part = array
            for op in () if x._view is None else x._view.ops:
                part = op.compute(backend, part)
            x._data = part
        self.count -= 1
        self.away = False
        self.unit.shown.append(weakref.ref(self))


class _Here(threading.local):
    """Sharded modules that run in this thread, or wait in it."""

    def __init__(self) -> None:
        self.depth = 0  # sharded modules whose forward runs
        self.last: Unit | None = None  # whose forward began last
        self.waiting: list[Unit] = []  # gathered ahead of their use, or for a gradient


_here = _Here()


class Unit:
    """The parameters that are gathered and given back as one: a module's."""

    def __init__(
        self, module: Any, group: ProcessGroup, shards: list[Shard], gives_back: bool
    ) -> None:
        self.group = group
        self.gives_back = gives_back  # after forward
        by_dtype: dict[Any, list[Shard]] = {}
        for shard in shards:
            by_dtype.setdefault(shard.parameter._data.dtype, []).append(shard)
        self.bundles = [Bundle(self, each) for each in by_dtype.values()]
        self.shards = [shard for bundle in self.bundles for shard in bundle.shards]
        self.depth = 0  # of its forward, which may call itself
        self.under_way: list[tuple[Any, Work]] | None = None
        self.arrays: list[Any] | None = None  # the whole parameters, while they are here
        self.stamps: list[tuple[int, int]] = []  # of the shards that those are of
        self.shown: list[Any] = []  # weak references to the versions that show them
        self.before: Unit | None = None  # whose forward began before its own the last time
        self.after: Unit | None = None

    def __deepcopy__(self, memo: Any) -> Any:
        raise Unsupported(
            f"{_NAME}: a sharded module is not copied, as its ranks gather together; copy it "
            "before it is sharded, or load a checkpoint into another"
        )

    # ---- memory ----

    def start(self) -> None:
        """Starts gathering the whole parameters."""
        stamps = [shard.stamp() for shard in self.shards]
        if stamps != self.stamps:
            self.free()
        if self.under_way is None and self.arrays is None:
            self.stamps = stamps
            self.under_way = [bundle.begin() for bundle in self.bundles if bundle.size]

    def bring(self) -> list[Any]:
        """The whole parameters, gathered where they are not yet."""
        self.start()
        if self.arrays is None:
            wholes = iter(self.under_way or ())
            self.under_way, self.arrays = None, []
            for bundle in self.bundles:
                whole = np.empty(0, bundle.dtype)
                if bundle.size:
                    whole, work = next(wholes)
                    work.wait()
                self.arrays += bundle.arrays(whole)
        return self.arrays

    def brought_for_backward(self) -> list[Any]:
        """The whole parameters, for backward; also starts gathering those that backward will want
        next.
        """
        arrays = self.bring()
        _here.waiting.append(self)
        if self.before is not None and self.before.arrays is None:
            self.before.start()
            _here.waiting.append(self.before)
        if is_walking():
            at_end(_give_back)
        return arrays

    def free(self) -> None:
        """Give the memory back."""
        for _, work in self.under_way or ():
            work.wait()
        self.under_way = self.arrays = None
        self.stamps = []
        shown, self.shown = self.shown, []
        for reference in shown:
            version = reference()
            if version is not None:
                version.put_away()

    # ---- around forward ----

    def enter(self, module: Any, args: Any) -> None:
        """Forward begins: the module's parameters are whole."""
        assert_eager(_NAME)
        self.depth += 1
        _here.depth += 1
        if self.depth > 1:
            return
        if not is_walking():  # a checkpoint may run a part again
            last, _here.last = _here.last, self
            self.before = last
            if last is not None:
                last.after = self
        arrays = self.bring()
        grad = MODE.get().grad
        number = 0
        for bundle in self.bundles:
            parents = tuple(
                [s.parameter._node if s.parameter.requires_grad else None for s in bundle.shards]
            )
            node = None
            if grad and any(parent is not None for parent in parents):
                node = Node(Gather(bundle), parents, (), None, (), None)
            for i, (shard, parent) in enumerate(zip(bundle.shards, parents, strict=True)):
                array = arrays[number]
                version = Gathered(self, number, self.stamps[number])
                y = None if node is None or parent is None else item(node, i, array)
                whole = wrap(array, y, version)
                version.tensor = weakref.ref(whole)
                self.shown.append(weakref.ref(version))
                shard.stand_in(whole)
                number += 1
        following = self.after
        if following is not None and following.arrays is None and not is_walking():
            following.start()
            _here.waiting.append(following)

    def leave(self, module: Any, args: Any, output: Any) -> None:
        """Forward is over: the module's parameters are shards again."""
        if not self.depth:
            return  # it has failed before it began
        self.depth -= 1
        _here.depth -= 1
        if not self.depth:
            for shard in self.shards:
                shard.stand_in(shard.parameter)
            if self.gives_back or not MODE.get().grad:
                self.free()
        if not _here.depth:
            _here.last = None
            if not is_walking():
                _give_back(unless_whole=True)


def _give_back(unless_whole: bool = False) -> None:
    """Frees parameters that were gathered for gradients, or ahead of a use that has not come."""
    waiting, _here.waiting = _here.waiting, []
    for unit in waiting:
        if not unit.depth and (unit.arrays is None or not unless_whole):
            unit.free()
