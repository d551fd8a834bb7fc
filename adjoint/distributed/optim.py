"""ZeroRedundancyOptimizer: each rank keeps and computes its share of an optimizer's state.

Where a step treats every element alike, the parameters of a group form one row, and each rank steps
on a range of it: on views of the parameters' own memory. Other optimizers step on whole
parameters, each on one rank. In the end the ranks give one another what they have changed.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..autograd.modes import enable_grad
from ..core.errors import (
    CheckpointError,
    DistributedError,
    InvalidArgument,
    InvalidType,
    Unsupported,
)
from ..nn.parameter import Parameter
from ..optim.lbfgs import LBFGS
from ..optim.optimizer import Optimizer
from ..runtime.tensors import wrap
from ..runtime.writes import announce
from ..tensor import Tensor
from .data_parallel import assert_alike
from .group import group_of
from .objects import gather_object
from .process_group import ProcessGroup
from .transfer_buffers import assert_eager
from .work import Work

__all__ = ["ZeroRedundancyOptimizer"]

_NAME = "ZeroRedundancyOptimizer"


class Piece(NamedTuple):
    """The elements of a parameter that this rank updates: some, or all."""

    number: int  # of the parameter, among all
    start: int  # of the elements, in the parameter's memory
    stop: int
    tensor: Any  # shows them
    place: int = 0  # where they stand in what this rank sends


class FlatRow:
    """Parameters of one group and dtype, one after the other, of which each rank has a range."""

    def __init__(self, numbers: list[int], parameters: list[Any], group: ProcessGroup) -> None:
        self.numbers = numbers
        self.parameters = parameters
        sizes = [p._data.size for p in parameters]
        self.starts = [0, *np.cumsum(sizes).tolist()]
        self.share = -(-self.starts[-1] // group.size())
        self.begin = min(group.rank() * self.share, self.starts[-1])
        self.end = min(self.begin + self.share, self.starts[-1])
        self.size = group.size() * self.share
        self.memory: Any = None  # where the parameters lie, if they lie there in a row
        self.pieces: list[Piece] = []  # of this rank's range; rank 0 has what has no elements
        for number, p, start in zip(numbers, parameters, self.starts, strict=False):
            low, high = max(self.begin - start, 0), min(self.end - start, p._data.size)
            if not p._data.size and group.rank() == 0:
                low = high = 0
            elif low >= high:
                continue
            place = start + low - self.begin
            self.pieces.append(Piece(number, low, high, _part(p, low, high), place))

    def gather_memory(self) -> None:
        """Moves the parameters into one row of memory."""
        self.memory = np.zeros(self.size, self.parameters[0]._data.dtype)
        for p, start in zip(self.parameters, self.starts, strict=False):
            place = self.memory[start : start + p._data.size].reshape(p._data.shape)
            place[...] = p._data
            p._show(place)

    def begin_exchange(self, group: ProcessGroup) -> tuple[Any, Work]:
        """Begins to gather all ranks' ranges: the memory for them, and the work to wait for."""
        mine = np.zeros(self.share, self.parameters[0]._data.dtype)
        for piece in self.pieces:
            data = piece.tensor._data
            mine[piece.place : piece.place + data.size] = data
        whole = np.empty(self.size, mine.dtype) if self.memory is None else self.memory
        what = f"{_NAME}: all_gather of {mine.size} {mine.dtype.name}"
        group.assert_usable(what)
        group.compare(what)
        return whole, Work(group, what, group.engine.all_gather(whole, mine))


def _part(p: Any, start: int, stop: int) -> Any:
    """A parameter of its own that shows some elements of `p`."""
    return Parameter(wrap(_flat(p._data)[start:stop]))


def _flat(data: Any) -> Any:
    if type(data) is not np.ndarray:
        raise Unsupported(f"{_NAME}: parameters on other devices than the CPU are not served yet")
    if not data.flags.c_contiguous:
        raise InvalidArgument(
            f"{_NAME}: a parameter of shape {data.shape} is not contiguous, so no range of it can "
            "be shown; set p.data = p.data.contiguous() first"
        )
    return data.reshape(-1)


class ZeroRedundancyOptimizer(Optimizer):
    """`optimizer_class`, of whose state each rank has one share (Rajbhandari et al., 2020: ZeRO-1).

    Gradients must be there as a whole on all ranks, as DistributedDataParallel gives them. An
    optimizer whose step treats every element alike (SGD, Adam, AdamW, ...) keeps on each of n ranks
    1/n of its state, to the element. Others (Muon, Adafactor, a user's own with `step`) keep the
    state of whole parameters, each on one rank; a step that looks at all parameters at once, as
    LBFGS's does, is refused. `parameters_as_bucket_view`: the parameters lie in the memory that is
    received, so nothing is copied.

    Errors: InvalidArgument for LBFGS, and parameters that differ from rank to rank or are not
        contiguous; Unsupported for `overlap_with_ddp`.
    Source: https://docs.pytorch.org/docs/stable/distributed.optim.html

    >>> ad.distributed.init_process_group("fake", rank=0, world_size=4)
    >>> p = ad.nn.Parameter(ad.ones(8))
    >>> optimizer = ad.optim.ZeroRedundancyOptimizer([p], ad.optim.AdamW, lr=0.1)
    >>> p.sum().backward()
    >>> optimizer.step()
    >>> sum(x.numel() for x in optimizer.optim.state[optimizer.optim.param_groups[0]["params"][0]]
    ...     .values() if x.ndim)  # two of 8 elements for all ranks
    4
    >>> ad.distributed.destroy_process_group()
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
            raise InvalidType(f"{_NAME}: expected an optimizer's class, got {optimizer_class!r}")
        if overlap_with_ddp:
            raise Unsupported(f"{_NAME}: overlap_with_ddp is not served; leave it out")
        if issubclass(optimizer_class, LBFGS):
            raise InvalidArgument(
                f"{_NAME}: a step of LBFGS is made of all parameters at once, so ranks cannot each "
                "compute a part of it; use LBFGS itself, or another optimizer"
            )
        self.process_group = group_of(process_group, _NAME)
        self.cuts = optimizer_class.by_element and optimizer_class.step is Optimizer.step
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self.rows: list[FlatRow] = []
        self.owners: list[int] = []  # of whole parameters: a rank for each
        self._loads = [(0, rank) for rank in range(0 if self.cuts else self.process_group.size())]
        self.pieces: list[list[Piece]] = []  # by group
        self._consolidated: dict[str, Any] | None = None
        self._class = optimizer_class
        self.optim: Any = None  # steps on this rank's pieces
        whole = optimizer_class(params, **defaults)  # refuses what it would refuse alone
        super().__init__(whole.param_groups, whole.defaults)
        named = [(f"parameter {i}", p) for i, p in enumerate(self._parameters())]
        assert_alike(self.process_group, named, _NAME)
        groups = [self._shared(group) for group in self.param_groups]
        self.optim = optimizer_class(groups, **defaults)
        self.state = self.optim.state

    def _shared(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group of this rank's pieces, with the same options."""
        first = sum(len(other["params"]) for other in self.param_groups[: len(self.pieces)])
        numbered = list(enumerate(group["params"], first))
        pieces: list[Piece] = []
        if self.cuts:
            by_dtype: dict[Any, list[tuple[int, Any]]] = {}
            for number, p in numbered:
                _flat(p._data)
                by_dtype.setdefault(p._data.dtype, []).append((number, p))
            for members in by_dtype.values():
                row = FlatRow([n for n, _ in members], [p for _, p in members], self.process_group)
                if self.parameters_as_bucket_view:
                    row.gather_memory()
                self.rows.append(row)
                pieces += row.pieces
        else:
            mine = self.process_group.rank()
            owners = {}
            for number, p in sorted(numbered, key=lambda each: -each[1]._data.size):
                load, owner = self._loads[0]
                owners[number] = owner
                heapq.heapreplace(self._loads, (load + p._data.size, owner))
            for number, p in numbered:
                self.owners.append(owners[number])
                if owners[number] == mine:
                    pieces.append(Piece(number, 0, p._data.size, p))
        self.pieces.append(pieces)
        return {**_options(group), "params": [piece.tensor for piece in pieces]}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own, on all ranks alike.

        Source: https://docs.pytorch.org/docs/stable/distributed.optim.html
        """
        super().add_param_group(param_group)
        if self.optim is not None:
            self.optim.add_param_group(self._shared(self.param_groups[-1]))

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Change the parameters once by their gradients, on all ranks.

        Errors: DistributedError where ranks do not answer.
        Source: https://docs.pytorch.org/docs/stable/distributed.optim.html
        """
        assert_eager(_NAME)
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._consolidated = None
        self._note_step()
        parameters = list(self._parameters())
        changing = [p.grad is not None for p in parameters]
        for group, local, pieces in zip(
            self.param_groups, self.optim.param_groups, self.pieces, strict=True
        ):
            local.update(_options(group))
            if self.cuts:
                for piece in pieces:
                    self._show(piece, parameters[piece.number])
        self.optim.step(**kwargs)
        if self.cuts:
            for pieces in self.pieces:
                for piece in pieces:
                    piece.tensor.grad = None
            self._exchange_ranges(parameters, changing)
        else:
            self._exchange_parameters(parameters, changing)
        return loss

    def _show(self, piece: Piece, p: Any) -> None:
        """Points a piece to the current memory of the parameter and its gradient."""
        memory, shown = _flat(p._data)[piece.start : piece.stop], piece.tensor._data
        if memory.shape != shown.shape or memory.dtype != shown.dtype:
            raise InvalidArgument(
                f"{_NAME}: parameter {piece.number} is now {p.dtype} {tuple(p.shape)}, and was "
                "another when the optimizer was made; make the optimizer again"
            )
        piece.tensor._data = memory
        if p.grad is not None:
            piece.tensor.grad = wrap(p.grad._data.reshape(-1)[piece.start : piece.stop])

    def _exchange_ranges(self, parameters: list[Any], changing: list[bool]) -> None:
        if self.process_group.size() == 1:
            _bump([p for p, changes in zip(parameters, changing, strict=True) if changes])
            return
        for row in self.rows:  # moved since, by p.data = ...
            if row.memory is not None and any(
                not np.may_share_memory(row.memory, p._data) for p in row.parameters if p.numel()
            ):
                row.gather_memory()
        under_way = [(row, *row.begin_exchange(self.process_group)) for row in self.rows]
        for row, whole, work in under_way:
            work.wait()
            chosen = []
            for number, p, start in zip(row.numbers, row.parameters, row.starts, strict=False):
                if changing[number]:
                    chosen.append((p, whole[start : start + p._data.size]))
            versions = announce([p for p, _ in chosen], _NAME)
            if row.memory is None:
                for p, values in chosen:
                    p._data[...] = values.reshape(p._data.shape)
            for version in versions:
                version.bump(_NAME)

    def _exchange_parameters(self, parameters: list[Any], changing: list[bool]) -> None:
        group = self.process_group
        under_way = []
        for p, owner, changes in zip(parameters, self.owners, changing, strict=True):
            if changes and group.size() > 1:
                what = f"{_NAME}: broadcast of {p.dtype} {tuple(p.shape)} (from {owner})"
                group.assert_usable(what)
                group.compare(what)
                row = _flat(p._data)
                under_way.append((p, owner, Work(group, what, group.engine.broadcast(row, owner))))
        for p, owner, work in under_way:
            work.wait()
            if owner != group.rank():
                _bump([p])

    # ---- state dicts -------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring all of the state to rank `to`, whose `state_dict` gives it; all ranks call this.

        Errors: Unsupported on the engine `fake`, where there are no other ranks to ask.
        Source: https://docs.pytorch.org/docs/stable/distributed.optim.html
        """
        group = self.process_group
        root = group.place(to, f"{_NAME}.consolidate_state_dict")
        if group.name() == "fake" and group.size() > 1:
            raise Unsupported(f"{_NAME}: the engine 'fake' has no other ranks' state to collect")
        local = {}
        for pieces in self.pieces:
            for piece in pieces:
                if piece.tensor in self.optim.state:
                    state = self.optim.state[piece.tensor]
                    local[piece.number] = [piece.start, dict(state)]
        everyones: list[Any] | None = [None] * group.size() if group.rank() == root else None
        gather_object(local, everyones, group=group, group_dst=root)
        if everyones is None:
            self._consolidated = None
            return
        found: dict[int, dict[str, Any]] = {}
        for number, p in enumerate(self._parameters()):
            parts = [theirs[number] for theirs in everyones if number in theirs]
            if parts:
                found[number] = self._joined(p, [state for _, state in sorted(parts, key=_first)])
        count = iter(range(len(list(self._parameters()))))
        groups = [
            {**group, "params": [next(count) for _ in group["params"]]}
            for group in self.param_groups
        ]
        self._consolidated = {"state": found, "param_groups": groups}

    def _is_cut(self, name: str, value: Any) -> bool:
        """Whether a state is divided among the ranks."""
        return self.cuts and isinstance(value, Tensor) and is_of_elements(self._class, name)

    def _joined(self, p: Any, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """The state of a whole parameter."""
        whole = {}
        for name, value in parts[0].items():
            if self._is_cut(name, value):
                row = np.concatenate([part[name]._data.reshape(-1) for part in parts])
                value = wrap(row.reshape(p._data.shape))
            whole[name] = value
        return whole

    def state_dict(self) -> dict[str, Any]:
        """The state dict that `optimizer_class` alone would give, on the rank of
        `consolidate_state_dict`.

        Errors: DistributedError where that was not called since the last step, or brought the
            state to another rank.
        Source: https://docs.pytorch.org/docs/stable/distributed.optim.html
        """
        if self._consolidated is None:
            if self.process_group.size() > 1:
                raise DistributedError(
                    f"{_NAME}: Optimizer state has not been consolidated on this rank. Please call "
                    "`consolidate_state_dict(to=...)` on all ranks beforehand if you meant to save "
                    "the global state; distributed.checkpoint.save stores each rank's share"
                )
            self.consolidate_state_dict()
        result = dict(self._consolidated or {})
        for hook in self._hooks["after_save"].values():
            result = hook(self, result) or result
        return result

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over this rank's share of a whole optimizer's state dict; all ranks get the same.

        Errors: CheckpointError where the groups or shapes do not match.
        Source: https://docs.pytorch.org/docs/stable/distributed.optim.html
        """
        saved = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in saved]
        if sizes != [len(group["params"]) for group in self.param_groups]:
            raise CheckpointError(
                f"{_NAME}: the state dict is of groups of {sizes} parameters, the optimizer has "
                f"{[len(group['params']) for group in self.param_groups]}"
            )
        keys = [key for group in saved for key in group["params"]]
        parameters = list(self._parameters())
        state: dict[int, dict[str, Any]] = {}
        groups: list[dict[str, Any]] = []
        count = 0
        for group, pieces in zip(saved, self.pieces, strict=True):
            groups.append({**group, "params": list(range(count, count + len(pieces)))})
            for piece in pieces:
                values = state_dict["state"].get(keys[piece.number])
                if values is not None:
                    state[count] = self._share(piece, parameters[piece.number], values)
                count += 1
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        self.state = self.optim.state
        self._consolidated = None
        for mine, group in zip(self.param_groups, saved, strict=True):
            mine.update(copy.deepcopy(_options(group)))

    def _share(self, piece: Piece, p: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a parameter's state that belongs to a piece of it."""
        share = {}
        for name, value in values.items():
            if self._is_cut(name, value):
                if value._data.size != p._data.size:
                    raise CheckpointError(
                        f"{_NAME}: {name} of parameter {piece.number} has shape "
                        f"{tuple(value.shape)}, the parameter {tuple(p.shape)}"
                    )
                value = wrap(value._data.reshape(-1)[piece.start : piece.stop])
            share[name] = value
        return share

    def state_bytes(self) -> int:
        """Number of bytes of state that this rank keeps."""
        return sum(
            value._data.nbytes
            for state in self.optim.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        )


def is_of_elements(optimizer: Any, name: str) -> bool:
    """Whether a state of an optimizer (or of a class of them) lies as the parameter does."""
    return name not in getattr(optimizer, "scalars", ("step",))


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in group.items() if k not in ("params", "param_names")}


def _first(part: Any) -> int:
    return int(part[0])


def _bump(tensors: list[Any]) -> None:
    """Bumps the versions of tensors that were changed."""
    for version in announce(tensors, _NAME):
        version.bump(_NAME)
