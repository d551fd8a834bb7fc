"""Trace of a function: what a capture has recorded, in parts that the other rooms read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ...ir.program import Node, Program
    from .backward import Backward
    from .random_state import CapturedGenerator
    from .returned_tensors import Returned


class TraceInputs(NamedTuple):
    """Tensors and generators that a program reads: first its arguments, then the states."""

    arguments: int
    states: list[Any]  # tensors that it reads or writes; None for gradients
    owners: list[Any]  # for each state the leaf whose gradient it is, or None
    streams: list[CapturedGenerator]  # from which it draws


class Effects(NamedTuple):
    """Changes that a run makes besides what it returns. The first outputs are the new values of
    `written`, then the gradients of `leaves`.
    """

    written: list[int]  # numbers of states, and ~n of arguments
    leaves: list[Any]  # tensors whose gradients it sets
    dropped: list[Any]  # leaves that have no gradient afterwards
    updates: list[Node]  # steps of optimizers
    options: int  # how many numbers of a run are optimizers' options: the first
    calls: list[Callable[..., Any]]  # to be made after each run, with the last of what is returned


class Assumptions(NamedTuple):
    """Conditions under which the program does what the function does."""

    presence: list[tuple[Any, bool]]  # leaves that are to have a gradient before, or none
    wants: list[bool]  # for each state whether it wanted a gradient
    alike: list[tuple[Any, Any]]  # pairs of tensors that show the same memory
    device: Any  # of all tensors
    looked: list[tuple[Any, Any]]  # tensors whose values Python has read, and these values
    ordered: list[tuple[int, bool]]  # inputs that must be row-major; whether also begin a storage
    errors: list[Callable[[], Exception]]  # for each of the last outputs, raised where it is true


class Trace(NamedTuple):
    """The program of a captured function, and how its inputs and outputs relate to tensors and
    arguments.
    """

    program: Program
    inputs: TraceInputs
    effects: Effects
    gradients: Backward  # of the returned ones, from outside; outputs behind them
    outputs: Returned  # return value, rebuilt from the outputs behind the effects
    assumptions: Assumptions
