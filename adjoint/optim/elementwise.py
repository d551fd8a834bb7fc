"""The base of optimizers whose step treats every element alike, and how their step is run."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..core import dispatch_log, policy
from ..core.device import is_device_array, namespace_of
from ..core.dtype import LOW_PRECISION, float32, float64, get_default_dtype
from ..core.errors import AdjointError
from ..core.mode import MODE
from ..ir import compute
from ..ir.variants import Variants
from ..ops.create.creation import tensor
from ..ops.create.like import zeros_like
from ..ops.elementwise.complex import view_as_real
from ..runtime.tensors import wrap
from ..runtime.writes import announce
from ..tensor import Tensor
from .formula import Formula, formula_of
from .optimizer import Group, Optimizer, State
from .options import as_float

__all__ = ["ElementwiseOptimizer"]

_PLAIN = (np.dtype(np.float32), np.dtype(np.float64))


class _Batch(NamedTuple):
    """Parameters of one group, of one dtype, that have the same numbers."""

    group: dict[str, Any]
    numbers: Any
    parameters: list[Any]
    states: list[dict[str, Any]]


class ElementwiseOptimizer(Optimizer):
    """Base of optimizers whose step is a formula of each element of a parameter and its gradient.

    A subclass names its state tensors in `zeros` (or defines `begin`) and gives the formula in
    `change`; numbers that all elements share come from `numbers`. Complex parameters are seen as
    real ones with a last dimension of 2, as in PyTorch.

    Args:
        params: Parameters to change: an iterable of tensors, of pairs (name, tensor), or of groups.
        defaults: Options of the groups that do not give them.

    >>> class Signs(ElementwiseOptimizer):
    ...     def change(self, group, numbers, state, p, g): p.add_(g.sign(), alpha=-group["lr"])
    >>> p = ad.nn.Parameter(ad.tensor([1.0, -1.0]))
    >>> (p * p).sum().backward()
    >>> Signs([p], {"lr": 0.5}).step()
    >>> p.tolist()
    [0.5, -0.5]
    """

    _read_by_name: ClassVar[tuple[str, ...] | None] = ("param_groups", "state")
    by_element: ClassVar[bool] = True
    takes_sparse: ClassVar[bool | None] = False
    scalars: ClassVar[tuple[str, ...]] = ("step",)  # of the state: one number for all elements
    _kernels: dict[Any, Variants] | None = None  # of the formula, by names and dtypes
    _small_steps = 0
    _many: ClassVar[dict[Any, bool]] = {}  # formulas that run for many tensors at once

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__dict__.keys().isdisjoint(("update", "update_groups", "step")):
            cls._read_by_name = None  # programs record its own code
            cls.by_element = bool(cls.__dict__.get("by_element", False))

    def begin(self, p: Any, group: Group) -> State:
        """Make the state that `p` has before its first step."""
        return {"step": new_scalar(0.0), **{name: zeros_like(p) for name in self.zeros}}

    def begins_alike(self, group: Group, state: State) -> bool:
        """Whether a first step, from what `begin` gives, is computed as all later ones are."""
        return "step" in state

    def complete(self, group: Group, states: list[State]) -> None:
        """Add to states that began with other options what the present ones need."""

    def numbers(self, group: Group, state: State, step: float) -> Any:
        """Compute what the formula needs besides the elements, mostly numbers.

        It is called once a step for all parameters with the same `scalars` in their state. `step`
        is this step's number; where the state does not count steps, 1 for the first and 2 for any
        other.
        """
        return step

    def change(self, group: Group, numbers: Any, state: State, p: Any, g: Any) -> None:
        """The formula: change `p`, and the tensors of `state`, in place.

        It says what happens to each element, by its arguments alone: they may be blocks of the
        whole, or symbols, when it is compiled.
        """
        raise NotImplementedError(f"{type(self).__name__} must define change, or update")

    def update(self, group: Group, parameters: list[Any]) -> None:
        """Apply the formula to each parameter."""
        self._change_all(self._batches(group, parameters))

    def update_groups(self, groups: list[tuple[dict[str, Any], list[Any]]]) -> None:
        """Apply the formula to all parameters of all groups at once."""
        if type(self).update is not ElementwiseOptimizer.update:
            super().update_groups(groups)
            return
        capture = getattr(MODE.get().executor, "update", None)
        if capture is not None:
            capture(self, groups)
            return
        batches: list[_Batch] = []
        for group, parameters in groups:
            batches += self._batches(group, parameters)
        self._change_all(batches)

    def _batches(self, group: dict[str, Any], parameters: list[Any]) -> list[_Batch]:
        """The parameters, with those together that have the same numbers; their steps counted."""
        states, fresh = [], []
        for p in parameters:
            state = self.state.get(p)
            fresh.append(not state)
            if not state:
                state = self.begin(p, group)
                if state:
                    self.state[p] = state
            states.append(state)
        if not states:
            return []
        self.complete(group, states)
        names = [name for name in self.scalars if name in states[0]]
        keys = list(
            zip(
                [p._data.dtype for p in parameters],
                fresh,
                *[_numbers_in(states, name) for name in names],
                strict=True,
            )
        )
        if not self._shares_numbers(states[0], parameters[0]):
            keys = [(*key, i) for i, key in enumerate(keys)]
        if keys.count(keys[0]) == len(keys):
            numbers = self._count(group, states, names, fresh[0])
            return [_Batch(group, numbers, parameters, states)]
        together: dict[Any, tuple[list[Any], list[Any]]] = {}
        for key, p, state in zip(keys, parameters, states, strict=True):
            members = together.setdefault(key, ([], []))
            members[0].append(p)
            members[1].append(state)
        return [
            _Batch(group, self._count(group, members[1], names, key[1]), *members)
            for key, members in together.items()
        ]

    def _count(
        self, group: dict[str, Any], states: list[Any], names: list[str], fresh: bool
    ) -> Any:
        """The numbers of parameters that have the same ones; their step is counted."""
        state = states[0]
        step = advance(state) if "step" in state else 1.0 if fresh else 2.0
        numbers = self.numbers(group, state, step)
        for name in names if len(states) > 1 else ():
            _assign([other[name] for other in states[1:]], state[name]._data.item())
        return numbers

    def _shares_numbers(self, state: dict[str, Any], p: Any) -> bool:
        """Whether `numbers` can depend on nothing of the state but its scalars."""
        return all(name in self.scalars or _is_like(value, p) for name, value in state.items())

    def _change_all(self, batches: list[_Batch]) -> None:
        """Apply the formula, by kernels where it can be."""
        mode = MODE.get()
        plain = mode.plain and not mode.grad
        first = batches[0].parameters[0]._data if batches else None
        if plain and is_device_array(first) and getattr(namespace_of(first), "has_routines", False):
            batches = [batch for batch in batches if not self._change_many(batch)]
        elif plain and batches and self._is_worth_a_kernel(batches):
            batches = self._change_by_kernels(batches)
        for group, numbers, parameters, states in batches:
            for p, state in zip(parameters, states, strict=True):
                self._change_one(plain, group, numbers, state, p)

    # ---- by kernels --------------------------------------------------------------------------

    def _is_worth_a_kernel(self, batches: list[_Batch]) -> bool:
        """Whether to compile the formula: large parameters, or many steps."""
        if compute.accelerate is None:
            return False
        if self._kernels is not None:
            return True
        self._small_steps += 1
        if self._small_steps <= policy.OPTIMIZER_PATIENCE:
            size = sum(p._data.size for batch in batches for p in batch.parameters)
            if size <= compute.LARGE:
                return False
        self._kernels = {}
        return True

    def _change_by_kernels(self, batches: list[_Batch]) -> list[_Batch]:
        """Run as few kernels as there are; returns what is left to do otherwise."""
        left: list[_Batch] = []
        runs: dict[Formula, list[tuple[_Batch, list[list[Any]], list[float]]]] = {}
        for batch in batches:
            group, numbers, parameters, states = batch
            names = tuple(name for name in states[0] if name not in self.scalars)
            try:
                columns = [parameters, [p.grad for p in parameters]]
                columns += [[state[name] for state in states] for name in names]
                dtypes = tuple([column[0]._data.dtype for column in columns])
            except (AttributeError, KeyError):  # a state of another kind
                left.append(batch)
                continue
            found: Any = "no array of the host"
            if type(parameters[0]._data) is np.ndarray:
                found = self.formula_for(group, numbers, names, dtypes)
            reason = found if isinstance(found, str) else ""
            if dispatch_log.on:
                what = f"{type(self).__name__}.step of {', '.join(map(str, dtypes))}"
                way = "op by op" if reason else "one kernel for all parameters"
                dispatch_log.said(what, way, reason)
            if reason:
                left.append(batch)
            else:
                runs.setdefault(found[0], []).append((batch, columns, found[1]))
        for formula, parts in runs.items():
            columns = parts[0][1]
            for _, more, _ in parts[1:]:
                columns = [x + y for x, y in zip(columns, more, strict=True)]
            arrays = [[x._data for x in column] for column in columns]
            watched = [version for n in formula.written for version in announce(columns[n], "step")]
            undone = set(formula.run(arrays, [(len(c[0]), values) for _, c, values in parts]))
            for version in watched:
                version.bump("step")
            begin = 0
            for batch, own, _ in parts if undone else ():
                rest = [i for i in range(len(own[0])) if begin + i in undone]
                begin += len(own[0])
                chosen = [batch.parameters[i] for i in rest], [batch.states[i] for i in rest]
                left.append(_Batch(batch.group, batch.numbers, *chosen))
        return left

    def formula_for(
        self, group: dict[str, Any], numbers: Any, names: tuple[str, ...], dtypes: tuple[Any, ...]
    ) -> tuple[Formula, Any] | str:
        """The kernel of the formula for a group's options and `numbers`, on states of these names,
        with the values of its scalars; the reason, where there is none.
        """
        if self._kernels is None:
            self._kernels = {}
        family = self._kernels.setdefault((names, dtypes), Variants())
        make = functools.partial(formula_of, self._decay_and_change, group, numbers, names, dtypes)
        found: tuple[Formula, Any] | str = family.find_or_make((group, numbers), make)
        return found

    # ---- on other devices --------------------------------------------------------------------

    def _change_many(self, batch: _Batch) -> bool:
        """Apply the formula to all parameters of a batch at once, each of its operations as a few
        kernels; False, with nothing done, where it uses more than those.
        """
        from ..backends.torch.many import Many

        group, numbers, parameters, states = batch
        names = [name for name in states[0] if name not in self.scalars]
        columns = [parameters, [p.grad for p in parameters]]
        columns += [[state[name] for state in states] for name in names]
        for column in columns:
            for x, p in zip(column, parameters, strict=True):
                if not isinstance(x, Tensor) or type(x._data) is not type(p._data):
                    return False
                if x._data.dtype not in _PLAIN or x._data.shape != p._data.shape:
                    return False
        options = {**group, "numbers": numbers, "params": None}
        key = (type(self), *names, *(_outline(value) for value in options.values()))
        if key not in self._many:
            first = [Many.like(column[0]._data.tensor.dtype) for column in columns]
            self._many[key] = self._is_possible(group, numbers, first, names)
        if not self._many[key]:
            return False
        many = [Many([x._data.tensor for x in column]) for column in columns]
        watched = announce([x for column in (columns[0], *columns[2:]) for x in column], "step")
        self._decay_and_change(
            group, numbers, dict(zip(names, many[2:], strict=True)), many[0], many[1]
        )
        for version in watched:
            version.bump("step")
        return True

    def _is_possible(
        self, group: dict[str, Any], numbers: Any, columns: list[Any], names: list[str]
    ) -> bool:
        """Whether the formula runs on these, which have no memory."""
        try:
            self._decay_and_change(
                group, numbers, dict(zip(names, columns[2:], strict=True)), columns[0], columns[1]
            )
        except (AttributeError, TypeError, KeyError, AdjointError):
            return False
        return True

    # ---- op by op ----------------------------------------------------------------------------

    def _change_one(
        self, plain: bool, group: dict[str, Any], numbers: Any, state: dict[str, Any], p: Any
    ) -> None:
        like = {name: value for name, value in state.items() if self._is_state_of(p, name, value)}
        if (
            plain
            and p._data.size >= 2 * policy.OPTIMIZER_BLOCK
            and _is_plain(p, p.grad, *like.values())
        ):
            watched = announce([p, *like.values()], "step")
            try:
                self._change_blocks(group, numbers, like, p)
            finally:
                for version in watched:
                    version.bump("step")
        else:
            self._change_whole(group, numbers, state, like, p)

    def _is_state_of(self, p: Any, name: str, value: Any) -> bool:
        return name not in self.scalars and _is_like(value, p)

    def _change_whole(
        self,
        group: dict[str, Any],
        numbers: Any,
        state: dict[str, Any],
        like: dict[str, Any],
        p: Any,
    ) -> None:
        if MODE.get().grad:  # differentiable: what the graph saved must stay
            like = {name: value.clone() for name, value in like.items()}
            state.update(like)
        g = p.grad
        if p.is_complex():
            like = {name: view_as_real(value) for name, value in like.items()}
            self._decay_and_change(
                group, numbers, {**state, **like}, view_as_real(p), view_as_real(g)
            )
        elif p.dtype in LOW_PRECISION:
            wide = {name: value.float() for name, value in like.items()}
            q = p.float()
            self._decay_and_change(group, numbers, {**state, **wide}, q, g.float())
            p.copy_(q)
            for name, value in like.items():
                value.copy_(wide[name])
        else:
            self._decay_and_change(group, numbers, state, p, g)

    def _decay_and_change(
        self, group: dict[str, Any], numbers: Any, state: dict[str, Any], p: Any, g: Any
    ) -> None:
        weight_decay = group.get("weight_decay", 0)
        if group.get("maximize"):
            g = -g
        if weight_decay:
            if group.get("decoupled_weight_decay"):
                p.mul_(1 - as_float(group["lr"]) * weight_decay)
            else:
                g = g.add(p, alpha=weight_decay)
        self.change(group, numbers, state, p, g)

    def _change_blocks(
        self, group: dict[str, Any], numbers: Any, like: dict[str, Any], p: Any
    ) -> None:
        """Change large parameters block by block."""
        flat, flat_g = p._data.reshape(-1), p.grad._data.reshape(-1)
        states = {name: value._data.reshape(-1) for name, value in like.items()}
        for i in range(0, flat.size, policy.OPTIMIZER_BLOCK):
            block = slice(i, i + policy.OPTIMIZER_BLOCK)
            parts = {name: wrap(array[block]) for name, array in states.items()}
            self._decay_and_change(group, numbers, parts, wrap(flat[block]), wrap(flat_g[block]))


def _outline(value: Any) -> Any:
    """Reduce an option to what a formula may decide by: signs of numbers, kinds of other values."""
    if isinstance(value, tuple):
        return tuple(map(_outline, value))
    if isinstance(value, (bool, str, type(None))):
        return value
    return (value > 0) - (value < 0) if isinstance(value, (int, float)) else type(value)


def _is_like(value: Any, p: Any) -> bool:
    return isinstance(value, Tensor) and value._data.shape == p._data.shape and value is not p


def _is_plain(*tensors: Any) -> bool:
    """Whether all hold memory that can be cut into blocks."""
    dtype = tensors[0]._data.dtype
    if dtype not in _PLAIN:
        return False
    for each in tensors:
        data = each._data
        if type(data) is not np.ndarray or data.dtype != dtype:
            return False
        flags = data.flags
        if not (flags.c_contiguous and flags.writeable):
            return False
    return True


def _numbers_in(states: list[dict[str, Any]], name: str) -> list[float]:
    """The values of a state that is one number."""
    for state in states:
        value = state[name]
        if not isinstance(value, Tensor):  # as checkpoints of older versions have it
            state[name] = new_scalar(float(value))
    return [state[name]._data.item() for state in states]


def _assign(xs: list[Any], value: float) -> None:
    """Set states that are one number."""
    plain = []
    for x in xs:
        data = x._data
        if type(data) is np.ndarray and data.flags.writeable and not x._node:
            plain.append(x)
        else:
            x.fill_(value)
    watched = announce(plain, "step")
    for x in plain:
        x._data.fill(value)
    for version in watched:
        version.bump("step")


def new_scalar(value: float) -> Any:
    """A state of one number, in the host's memory, where it is read: float64 where that is the
    default dtype, float32 otherwise.
    """
    double = get_default_dtype() == float64
    return tensor(value, dtype=float64 if double else float32, device="cpu")


def advance(state: dict[str, Any]) -> float:
    """Count one step in `state` and return their number."""
    count = state["step"]
    if not isinstance(count, Tensor):  # as checkpoints of older versions have it
        count = state["step"] = new_scalar(float(count))
    value = float(count.item()) + 1
    _assign([count], value)
    return value
