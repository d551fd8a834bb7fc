"""Exported functions, called: programs that have their own state, without the code that they were
captured from.
"""

from __future__ import annotations

import copy
import os
import struct
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..autograd.modes import no_grad
from ..backends import native
from ..compiled.capture import CAPTURING
from ..compiled.explained import explanation
from ..compiled.step import Compiled
from ..core.errors import AdjointError, CheckpointError, DeviceError, InvalidArgument, Unsupported
from ..core.mode import MODE, observed
from ..graph.lazy import concrete
from ..inference.explained import Explanation, Timer
from ..io import checkpoint
from ..nn.modules.module import Module
from ..nn.parameter import Parameter
from ..version import __version__
from .checks import checked_list, short
from .forms import by_position, described, sign
from .reading import Contents, Text, memory_of_machine
from .scalers import assert_settings, settings_of
from .writing import VERSION, Table, state_of

_STRANGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)


class _Always:
    """Guards of a program that no Python belongs to any more."""

    def hold(self) -> bool:
        """They do."""
        return True

    def difference(self) -> str:
        """There is none."""
        return ""


class ExportedProgram:
    """A function or a training step as a program with its own state: what `ad.export.load` gives.

    It is called like the function, with arguments of the exported shapes, dtypes and constants;
    each call changes the state that the function's would change: weights, statistics, the states
    and step counts in `optimizers`, the numbers that `generators` have drawn. `optimizers` are
    optimizers as always, whose learning rate may be set, and may be scheduled. `schedulers` are
    those that each call steps, `scalers` scale its losses, and `numbers` are those that the
    function sets, by the names that its Python finds them by; they may be set.
    """

    def __init__(self, found: dict[str, Any], memory: int) -> None:
        self._found = found
        self._contents = contents = Contents(found, memory)
        self.name = short(found["name"])
        self.version = short(found["version"])  # of adjoint that wrote it
        self.optimizers: list[Any] = contents.optimizers
        self.schedulers: list[Any] = contents.schedules
        self._counts = [[len(g["params"]) for g in o.param_groups] for o in self.optimizers]
        self.generators: list[Any] = contents.generators
        self.scalers: list[Any] = contents.scalers
        own = (each.holder for each in contents.numbers if each.option is None)
        self.numbers: dict[str, Any] = next(own, {})
        self._settings = [settings_of(each) for each in self.scalers]
        self._positional = [short(x) for x in checked_list(found["positional"])]
        self._begin()

    def _begin(self) -> None:
        """As it is before the first call, with the state that it has."""
        texts = checked_list(self._found["programs"])
        self._texts = [Text(self._contents, each) for each in texts]
        self._compiled: dict[int, Compiled] = {}  # by the place of their text
        self._turn = threading.RLock()  # of calls that change numbers

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedProgram:
        made = object.__new__(type(self))
        memo[id(self)] = made
        with self._turn:
            for name, x in vars(self).items():
                if name not in ("_texts", "_compiled", "_turn"):
                    setattr(made, name, copy.deepcopy(x, memo))
        made._begin()
        return made

    def __repr__(self) -> str:
        return f"<exported {self.name}: {'; '.join(self.signatures)}>"

    @property
    def signatures(self) -> list[str]:
        """The arguments that it takes, in words."""
        found = (described(t.args, t.kwargs, lambda x: x.spec) for t in self._texts)
        return list(dict.fromkeys(found))

    # ---- calls -----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function would return; its state changes as the function's would.

        Errors: InvalidArgument for arguments that were not exported; Unsupported where ops are
        recorded (lazy, Graph, compile), without native code, where the state is of another form
        than it was, and for numbers by which Python would go another way; those of the program's
        checks. All leave the state as it was, but for those of a schedule's step.
        """
        observer = MODE.get().observer
        if observer is not None:
            return observed(f"Compiled#{self.name}", self._run, args, kwargs, observer)
        return self._run(args, kwargs, None)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Call it once more, and say what its program does; see `ad.compile`'s `explain`."""
        timer = Timer()
        place, tensors = self._found_for(args, kwargs)
        self._once(place, tensors, timer)
        compiled = self._compiled[place]
        found: Explanation = explanation(self.name, compiled, timer.seconds, ["loaded"])
        return found

    def _run(self, args: Any, kwargs: Any, observer: Any) -> Any:
        place, tensors = self._found_for(args, kwargs)
        return self._once(place, tensors, observer)

    def _once(self, place: int, tensors: list[Any], observer: Any) -> Any:
        """A call of the program at a place."""
        numbers = self._texts[place].numbers
        try:
            if numbers is None and not self._texts[place].calls:
                return self._fitting(place).run(tensors, observer)[0]
            with self._turn:
                compiled = self._fitting(place)
                if numbers is None:
                    found, calls = compiled.run(tensors, observer)
                else:
                    more, given, left = numbers.of_a_call(self.name)
                    found, calls = compiled.run([*tensors, *more], observer, given)
                    numbers.set(left)
                for call in calls:
                    call()
                return found
        except AdjointError:
            raise
        except _STRANGE as error:  # as above
            raise CheckpointError(
                f"export: {self.name} is no program: {type(error).__name__}: {error}"
            ) from error

    def _found_for(self, args: Any, kwargs: Any) -> tuple[int, list[Any]]:
        """The place of the program for arguments, and the tensors among these."""
        mode = MODE.get()
        if mode.executor is not None:
            raise Unsupported(
                f"export: {self.name} is a program already, of which no op can be recorded; call "
                "it outside of lazy(), Graph and compile"
            )
        args, kwargs = by_position(self._positional, args, kwargs)
        grad = mode.grad and not mode.inference
        key: list[Any] = []
        tensors: list[Any] = []
        sign((args, kwargs), grad, key, tensors)
        fitting = [n for n, text in enumerate(self._texts) if text.key == tuple(key)]
        if not fitting:
            known = "; or ".join(self.signatures)
            got = described(args, kwargs, lambda x: x.spec)
            raise InvalidArgument(
                f"export: {self.name} was exported for {known}; it was called with {got}; export "
                "it with an example of these, too"
            )
        with CAPTURING:  # another thread's tensors may hold symbols
            for x in tensors:
                concrete(x)
        if not all(type(x._data) is np.ndarray for x in tensors):
            raise DeviceError(
                f"export: {self.name} takes tensors in the host's memory; move to cpu"
            )
        return min(fitting, key=lambda n: self._texts[n].grad is not grad), tensors

    def _fitting(self, place: int) -> Compiled:
        """The program, compiled for the state of now."""
        found = self._compiled.get(place)
        for optimizer, counts in zip(self.optimizers, self._counts, strict=True):
            if [len(group["params"]) for group in optimizer.param_groups] != counts:
                raise Unsupported(
                    f"export: the optimizer {type(optimizer).__name__} of {self.name} has other "
                    "parameters than it was exported with; export the function again"
                )
        for scaler, settings in zip(self.scalers, self._settings, strict=True):
            assert_settings(scaler, settings, self.name)
        if found is not None and not found.difference():
            return found
        reason = native.reason_off()
        if reason is not None:
            raise Unsupported(f"export: no native code: {reason}")
        with CAPTURING:
            why = "" if found is None else found.difference()
            try:
                found = Compiled(self._texts[place].captured(), _Always())  # type: ignore[arg-type]
                why = found.difference()
            except AdjointError as error:
                raise Unsupported(
                    f"export: the state of {self.name} is not what it was: {why}: {error}"
                    if why
                    else f"export: {self.name} cannot be compiled: {error}"
                ) from error
            except _STRANGE as error:  # what only a file made by hand can provoke
                raise CheckpointError(
                    f"export: {self.name} is no program: {type(error).__name__}: {error}"
                ) from error
            if why:
                raise Unsupported(
                    f"export: the state of {self.name} is not of the form in which it was exported:"
                    f" {why}; put it back, or export the function again"
                )
            for node in found.captured.updates:
                node.op.optimizer._has_stepped = True  # type: ignore[attr-defined]
            self._compiled[place] = found
            return found

    # ---- state -----------------------------------------------------------------------------------

    def named_parameters(self) -> dict[str, Any]:
        """Those tensors of the state that want gradients, by name."""
        return {name: x for name, x in self._named().items() if x.requires_grad}

    def parameters(self) -> list[Any]:
        """Those tensors of the state that want gradients, each once: for an optimizer."""
        return list({id(x): x for x in self.named_parameters().values()}.values())

    def _named(self) -> dict[str, Any]:
        contents = self._contents
        return {name: contents.tensors[n] for name, n in contents.names.items()}

    def state_dict(self) -> dict[str, Any]:
        """Weights and buffers by their names in the model, to be read by its `load_state_dict`.

        Optimizers and generators have their own, in `optimizers` and `generators`.
        """
        return {name: x.detach() for name, x in self._named().items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over values of weights and buffers.

        Errors: CheckpointError where names or shapes differ, which changes nothing.
        """
        named = self._named()
        wrong = [f"missing {name!r}" for name in named if name not in state_dict]
        wrong += [f"unexpected {name!r}" for name in state_dict if name not in named]
        for name, x in named.items():
            if name in state_dict and state_dict[name].shape != x.shape:
                given = tuple(state_dict[name].shape)
                wrong.append(f"{name!r} of shape {given} for {tuple(x.shape)}")
        if wrong:
            raise CheckpointError(f"load_state_dict: {self.name}: {', '.join(wrong)}")
        with no_grad():
            for name, x in named.items():
                x.copy_(state_dict[name])

    def module(self) -> Module:
        """A module of the same names that calls this program and shares its state."""
        return ProgramModule(self)

    # ---- files -----------------------------------------------------------------------------------

    def save(self, f: Any) -> None:
        """Write it to a file, with the state of now."""
        contents = self._contents
        table = Table([contents.current(n) for n in range(len(contents.tensors))])
        graded = {
            n
            for text in self._texts
            for n in (
                *text.found["leaves"], *text.found["dropped"],
                *(n for kind, n in text.states if kind == "gradient"),
            )
        }  # fmt: skip
        leaves = [contents.tensor(n) for n in sorted(graded)]
        state = state_of(
            table, leaves, self.optimizers, self.generators, self.scalers, contents.numbers,
            self.schedulers,
        )  # fmt: skip
        checkpoint.save({**self._found, **state}, f)


class ProgramModule(Module):
    """An exported program as a module: parameters and buffers are the program's own."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.__dict__["program"] = program
        for path, x in program._named().items():
            *parents, name = path.split(".")
            place: Module = self
            for part in parents:
                if part not in place._modules:
                    place.add_module(part, Module())
                place = place._modules[part]  # type: ignore[assignment]
            if isinstance(x, Parameter):
                place.register_parameter(name, x)
            else:
                place.register_buffer(name, x)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The program's call."""
        return self.program(*args, **kwargs)


def opened(f: Any, memory: int | None) -> ExportedProgram:
    """What a file holds; see `adjoint.export.load`."""
    name = repr(os.fspath(f)) if isinstance(f, (str, os.PathLike)) else repr(f)
    found = checkpoint.load(f, "cpu")
    if not isinstance(found, dict) or "adjoint.export" not in found:
        raise CheckpointError(
            f"export.load: {name} holds no exported function; adjoint.load reads other files"
        )
    if found["adjoint.export"] != VERSION or type(found["adjoint.export"]) is not int:
        raise CheckpointError(
            f"export.load: {name} has version {found['adjoint.export']!r:.40} of exported "
            f"functions, written by adjoint {found.get('version')!r:.40}; this adjoint, "
            f"{__version__}, reads version {VERSION}: export the function again"
        )
    try:
        return ExportedProgram(found, memory_of_machine() if memory is None else memory)
    except (DeviceError, MemoryError):
        raise
    except RecursionError:
        raise CheckpointError(f"export.load: {name} is nested too deeply") from None
    except Exception as error:  # what only a file made by hand can provoke
        raise CheckpointError(
            f"export.load: {name} cannot be understood: {type(error).__name__}: {error}"
        ) from error
