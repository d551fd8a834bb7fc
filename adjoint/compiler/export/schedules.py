"""Schedules in files: a class's name, an optimizer's number, and the schedule's attributes.

    "class"  of adjoint.optim.lr_scheduler    "optimizer"  its number    "state"  attributes
    "parts"  schedules of which it is made, without optimizers of their own

A schedule that is read is compared with one that the class itself makes with these settings, for a
copy of the optimizer: it must have the same attributes, of the same types.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.errors import AdjointError, CheckpointError, Unsupported
from ...core.symbolic_scalar import SymbolicNumber
from ...core.tensor_base import TensorBase
from ...io.stored_ops import checked
from ...optim import lr_scheduler
from ...optim.lr_scheduler import LRScheduler
from ..guards.slot_values import now
from ..guards.slots import GuardSource
from .file_checks import checked_dict, checked_list

if TYPE_CHECKING:
    from ...optim.optimizer import Optimizer

MAX_DEPTH = 8  # schedules within one another
_LARGEST = 1 << 63  # of an int
_OFTEN = 1 << 16  # most repetitions of one milestone
_FUNCTIONS = ("LambdaLR", "MultiplicativeLR")  # classes that call a user's function
_KINDS = frozenset(lr_scheduler.__all__) - {"LRScheduler", *_FUNCTIONS}
_APART = ("optimizer", "_schedulers")  # attributes that are no plain values


# ---- writing -------------------------------------------------------------------------------------


def scheduled(call: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> LRScheduler:
    """The schedule that is stepped by a call after each run.

    Errors: Unsupported for other calls, and for steps with arguments, but for a metric.
    """
    schedule = call.args[0] if isinstance(call, functools.partial) and call.args else None
    if not isinstance(schedule, LRScheduler) or step_of(schedule).func is not call.func:
        raise Unsupported(f"export: the function calls {call!r:.80}; call it outside")
    if not takes(schedule, args, kwargs):
        what = "a metric, a tensor or a number" if _takes_metric(schedule) else "none"
        raise Unsupported(
            f"export: the function steps a {type(schedule).__name__} with other arguments than "
            f"{what}; step it between calls of what is loaded"
        )
    return schedule


def step_of(schedule: LRScheduler) -> functools.partial[Any]:
    """The call after each run that steps a schedule."""
    return functools.partial(inspect.unwrap(type(schedule).step), schedule)


def takes(schedule: LRScheduler, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether the schedule of a file can be stepped with these arguments."""
    kinds = all(isinstance(x, TensorBase) or type(x) in (SymbolicNumber, int, float) for x in args)
    return kinds and len(args) == _takes_metric(schedule) and kwargs == {}


def _takes_metric(schedule: LRScheduler) -> bool:
    return isinstance(schedule, lr_scheduler.ReduceLROnPlateau)


def written_schedule(schedule: LRScheduler, optimizers: Sequence[Any]) -> dict[str, Any]:
    """Serialize a schedule of one of these optimizers.

    Errors: Unsupported for schedules that no file can hold.
    """
    numbers = [n for n, each in enumerate(optimizers) if each is schedule.optimizer]
    if not numbers:
        raise Unsupported(
            f"export: the function steps a schedule of {type(schedule.optimizer).__name__}, and "
            "takes no step of that, or one that is written with operations on tensors, for which "
            "rates are constant; step it between calls, or export a step of another optimizer"
        )
    content = {"optimizer": numbers[0], **_written(schedule)}
    try:
        read_schedule(content, optimizers)
    except (AdjointError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise Unsupported(
            f"export: {type(schedule).__name__}, a schedule that no file can hold: {error}"
        ) from error
    return content


def _written(schedule: LRScheduler) -> dict[str, Any]:
    name, attributes = type(schedule).__name__, vars(schedule)
    calls = name in _FUNCTIONS or attributes.get("_scale_fn_custom") is not None
    if getattr(lr_scheduler, name, None) is not type(schedule) or calls:
        what = "calls a Python function" if calls else "is none of adjoint.optim.lr_scheduler's"
        raise Unsupported(
            f"export: the function steps a {name}, which {what}, and no file can hold it; use "
            "another schedule, set the rate by arithmetic, or step it between calls of what is "
            "loaded"
        )
    state = {key: value for key, value in attributes.items() if key not in _APART}
    state = {key: dict(x) if isinstance(x, Counter) else x for key, x in state.items()}
    parts = [_written(part) for part in attributes.get("_schedulers", ())]
    return {"class": name, "state": state, "parts": parts}


def assert_unread(slots: Sequence[GuardSource], schedules: Sequence[Any]) -> None:
    """Refuse a function that reads state which the steps of its schedules change: it would be
    constant.

    Errors: Unsupported.
    """
    parts = [part for each in schedules for part in parts_of(each)]
    part_of = {id(vars(part)): part for part in parts}
    cycles = any(getattr(part, "cycle_momentum", False) for part in parts)
    for slot in slots:
        schedule, name = part_of.get(id(slot.holder)), slot.key
        if schedule is not None:
            settings = inspect.signature(type(schedule)).parameters.keys() - {"last_epoch"}
            what = f"{name} of a {type(schedule).__name__}"
            reads = name not in settings
        else:
            what = f"options of an optimizer, of which {name} is no float"
            reads = type(now(slot)) is not float and (name == "lr" or cycles)
        if reads:
            raise Unsupported(
                f"export: the function reads {what}, and a schedule's step changes it; read it in "
                'what is loaded, after the call, or return the option "lr", a float'
            )


def parts_of(schedule: LRScheduler) -> list[Any]:
    """A schedule with all schedules that it is made of."""
    within = vars(schedule).get("_schedulers", ())
    return [schedule, *(each for part in within for each in parts_of(part))]


# ---- reading -------------------------------------------------------------------------------------


def read_schedule(content: object, optimizers: Sequence[Any]) -> LRScheduler:
    """Deserialize a schedule of one of these optimizers.

    Errors: CheckpointError for an invalid content, and those of its class.
    """
    n = checked_dict(content)["optimizer"]
    if type(n) is not int or not 0 <= n < len(optimizers):
        raise CheckpointError(f"there is no optimizer {n!r:.40}")
    optimizer = optimizers[n]
    if any(type(group.get("lr")) not in (int, float) for group in optimizer.param_groups):
        raise CheckpointError("a schedule of a learning rate that is no number")
    like = copy.copy(optimizer)
    like.param_groups = [dict(group) for group in optimizer.param_groups]
    schedule, _ = _read(content, optimizer, like, MAX_DEPTH)
    for group, other in zip(optimizer.param_groups, like.param_groups, strict=True):
        if not all(name in group and _is_like(group[name], x) for name, x in other.items()
                   if name != "params" and name not in optimizer.defaults):  # fmt: skip
            raise CheckpointError("an optimizer lacks options that its schedule reads")
    return schedule


def _read(
    content: Any, optimizer: Optimizer, like: Optimizer, depth: int
) -> tuple[LRScheduler, LRScheduler]:
    """Deserialize a schedule. Returns it, and the one that its class makes for the optimizer
    `like`.
    """
    name, state = checked(content["class"], str), checked_dict(content["state"])
    if name not in _KINDS or depth == 0:
        raise CheckpointError(f"there is no schedule {name!r:.80}, or it is nested too deeply")
    kind: Any = getattr(lr_scheduler, name)
    pairs = [_read(each, optimizer, like, depth - 1) for each in checked_list(content["parts"])]
    others = [other for _, other in pairs]
    more = _MORE[name](state, others) if name in _MORE else {}
    if pairs and "schedulers" not in more:
        raise CheckpointError(f"{name} is not made of others")
    for key, p in inspect.signature(kind).parameters.items():
        if key in state and key not in ("last_epoch", *more):
            more[key] = _setting(key, state[key], p.default)
    made = kind(optimizer=like, **more)
    attributes = {key: x for key, x in vars(made).items() if key not in _APART}
    if attributes.keys() != state.keys():
        raise CheckpointError(
            f"{name} has no attributes {sorted(attributes.keys() ^ state.keys())}"
        )
    schedule: Any = object.__new__(kind)
    schedule.optimizer = optimizer
    for key, x in attributes.items():
        value = state[key]
        if not _is_like(value, x):
            raise CheckpointError(f"{key} of {name} is {value!r:.80}")
        setattr(schedule, key, Counter(value) if isinstance(x, Counter) else value)
    if pairs:
        schedule._schedulers = [part for part, _ in pairs]
    return schedule, made


def _setting(name: str, value: Any, default: object) -> Any:
    """Check an argument of a schedule's class: a number, unless its default is a text or a
    boolean.
    """
    good = type(value) is type(default) if type(default) in (bool, str) else _is_like(value, 0)
    if not good and not (name == "milestones" and type(value) is dict):
        raise CheckpointError(f"{name} is {value!r:.80}")
    return value


# Settings that are no attributes, or are called otherwise.
_MORE: dict[str, Callable[..., dict[str, Any]]] = {
    "OneCycleLR": lambda state, _: {"max_lr": 1.0, "three_phase": len(state["phases"]) == 3},
    "CyclicLR": lambda state, _: {"base_lr": 0.1, "max_lr": 1.0},
    "SequentialLR": lambda state, parts: {
        "schedulers": parts,
        "milestones": [checked(n, int) for n in checked_list(state["_milestones"])],
    },
    "ChainedScheduler": lambda state, parts: {"schedulers": parts},
}  # fmt: skip


def _is_like(value: Any, like: Any) -> bool:
    """Whether a value is allowed for an attribute for which the class makes `like`."""
    if isinstance(like, Counter):
        counts = value.items() if type(value) is dict else ((None, None),)
        return all(_is_like(key, 0) and type(n) is int and 0 <= n <= _OFTEN for key, n in counts)
    if type(like) in (int, float):
        return type(value) is float or (type(value) is int and abs(value) < _LARGEST)
    if type(like) in (list, tuple):
        same = type(value) is type(like) and len(value) == len(like)
        return same and all(map(_is_like, value, like))
    return type(value) is type(like) and type(like) in (bool, str, type(None)) and value == like
