"""Exported programs: they are called like the function, and have their own state, without the code
that they were captured from.
"""

from __future__ import annotations

import copy
import os
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.modes import no_grad
from ...backends import native
from ...core import fork_safety
from ...core.errors import AdjointError, CheckpointError, DeviceError, InvalidArgument, Unsupported
from ...core.mode import MODE, observed
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.version import __version__
from ...io import checkpoint
from ...nn.modules.module import Module
from ...nn.parameter import Parameter
from ...runtime.lazy import concrete
from ..capture.step_capture import CAPTURING
from ..freeze.performance_report import Explanation, Timer
from ..report.explanation import explanation
from ..run.step import CompiledStep
from .file_checks import checked_list, short
from .forms import by_position, described, sign
from .reading import Contents, Text, memory_of_machine
from .scalers import assert_settings, settings_of
from .writing import VERSION, Table, state_of

if TYPE_CHECKING:
    from ...autograd.protocols import StepObserver

_STRANGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)


class _Always:
    """Guards of an exported program, which depends on no Python state: they always hold."""

    def hold(self) -> bool:
        """Always true."""
        return True

    def difference(self) -> str:
        """Always empty."""
        return ""


class ExportedProgram:
    """A function or a training step as a program with its own state, as `ad.export.load` returns
    it.

    It is called like the function, with arguments of the exported shapes, dtypes and constants;
    each call changes the state that the function's would change: weights, statistics, the states
    and step counts in `optimizers`, the numbers that `generators` have drawn. `optimizers` are
    optimizers as always, whose learning rate may be set, and may be scheduled. `schedulers` are
    those that each call steps, `scalers` scale its losses, and `numbers` are those that the
    function sets, by the names that its Python finds them by; they may be set.
    """

    def __init__(self, content: dict[str, Any], memory: int) -> None:
        self._found = content
        self._contents = contents = Contents(content, memory)
        self.name = short(content["name"])
        self.version = short(content["version"])  # version of adjoint that wrote it
        self.optimizers: list[Any] = contents.optimizers
        self.schedulers: list[Any] = contents.schedules
        self._counts = [[len(g["params"]) for g in o.param_groups] for o in self.optimizers]
        self.generators: list[Any] = contents.generators
        self.scalers: list[Any] = contents.scalers
        own = (each.holder for each in contents.numbers if each.option is None)
        self.numbers: dict[str, Any] = next(own, {})
        self._settings = [settings_of(each) for each in self.scalers]
        self._positional = [short(x) for x in checked_list(content["positional"])]
        self._begin()

    def _begin(self) -> None:
        """Set up the state before the first call."""
        texts = checked_list(self._found["programs"])
        self._texts = [Text(self._contents, each) for each in texts]
        self._compiled: dict[int, CompiledStep] = {}  # by number of their text
        self._turn = fork_safety.lock()  # for calls that change numbers

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
        """Descriptions of the arguments that it takes."""
        descriptions = (described(t.args, t.kwargs, lambda x: x.spec) for t in self._texts)
        return list(dict.fromkeys(descriptions))

    def inputs(self) -> list[tuple[str, Spec]]:
        """Name and spec of each argument, as it was first exported.

        Errors: Unsupported where it takes arguments by name only, or others than tensors.
        """
        text = self._texts[0]
        if text.kwargs or not all(isinstance(x, TensorBase) for x in text.args):
            raise Unsupported(
                f"export: {self.name} takes more than tensors in order: {self.signatures[0]}; call "
                "it from Python"
            )
        names = [*self._positional, *(f"argument {n}" for n in range(len(text.args)))]
        return [(name, x.spec) for name, x in zip(names, text.args, strict=False)]

    # ---- calls -----------------------------------------------------------------------------------

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the program, with the function's result and its changes of state.

        Errors: InvalidArgument for arguments that were not exported; Unsupported where ops are
        recorded (lazy, Graph, compile), without native code, where the state is of another form
        than it was, and for numbers by which Python would go another way; those of the program's
        checks. All leave the state as it was, but for those of a schedule's step.
        """
        observer = MODE.get().observer
        if observer is not None:
            return observed(f"Compiled#{self.name}", self._run, args, kwargs, observer)
        return self._run(args, kwargs, None)

    def explain(self, *args: object, **kwargs: object) -> Explanation:
        """Call it once more and report what its program does; see `ad.compile`'s `explain`."""
        timer = Timer()
        number, tensors = self._found_for(args, kwargs)
        self._once(number, tensors, timer)
        compiled = self._compiled[number]
        report: Explanation = explanation(self.name, compiled, timer.seconds, ["loaded"])
        return report

    def _run(
        self, args: tuple[object, ...], kwargs: dict[str, object], observer: StepObserver | None
    ) -> Any:
        number, tensors = self._found_for(args, kwargs)
        return self._once(number, tensors, observer)

    def _once(self, number: int, tensors: list[Any], observer: StepObserver | None) -> Any:
        """Run one of the programs on tensors."""
        numbers = self._texts[number].numbers
        try:
            if numbers is None and not self._texts[number].calls:
                return self._fitting(number).run(tensors, observer)[0]
            with self._turn:
                compiled = self._fitting(number)
                if numbers is None:
                    result, calls = compiled.run(tensors, observer)
                else:
                    more, run_numbers, left = numbers.of_a_call(self.name)
                    result, calls = compiled.run([*tensors, *more], observer, run_numbers)
                    numbers.set(left)
                for call in calls:
                    call()
                return result
        except AdjointError:
            raise
        except _STRANGE as error:  # as above
            raise CheckpointError(
                f"export: {self.name} is no program: {type(error).__name__}: {error}"
            ) from error

    def _found_for(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[int, list[Any]]:
        """Number of the program for these arguments, and the tensors among them."""
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
            exported_for = "; or ".join(self.signatures)
            got = described(args, kwargs, lambda x: x.spec)
            raise InvalidArgument(
                f"export: {self.name} was exported for {exported_for}; it was called with {got}; "
                "export it with an example of these, too"
            )
        with CAPTURING:  # another thread's tensors may hold symbols
            for x in tensors:
                concrete(x)
        if not all(type(x._data) is np.ndarray for x in tensors):
            raise DeviceError(
                f"export: {self.name} takes tensors in the host's memory; move to cpu"
            )
        return min(fitting, key=lambda n: self._texts[n].grad is not grad), tensors

    def _fitting(self, number: int) -> CompiledStep:
        """The executable of a program whose guards hold for the present state, compiled anew if
        need be.
        """
        compiled = self._compiled.get(number)
        for optimizer, counts in zip(self.optimizers, self._counts, strict=True):
            if [len(group["params"]) for group in optimizer.param_groups] != counts:
                raise Unsupported(
                    f"export: the optimizer {type(optimizer).__name__} of {self.name} has other "
                    "parameters than it was exported with; export the function again"
                )
        for scaler, settings in zip(self.scalers, self._settings, strict=True):
            assert_settings(scaler, settings, self.name)
        if compiled is not None and not compiled.difference():
            return compiled
        reason = native.unusable()
        if reason is not None:
            raise Unsupported(f"export: no native code: {reason}")
        with CAPTURING:
            why = "" if compiled is None else compiled.difference()
            try:
                compiled = CompiledStep(self._texts[number].captured(), _Always())  # type: ignore[arg-type]
                why = compiled.difference()
            except AdjointError as error:
                raise Unsupported(
                    f"export: the state of {self.name} is not what it was: {why}: {error}"
                    if why
                    else f"export: {self.name} cannot be compiled: {error}"
                ) from error
            except _STRANGE as error:  # only for a file that was made by hand
                raise CheckpointError(
                    f"export: {self.name} is no program: {type(error).__name__}: {error}"
                ) from error
            if why:
                raise Unsupported(
                    f"export: the state of {self.name} is not of the form in which it was exported:"
                    f" {why}; put it back, or export the function again"
                )
            for node in compiled.captured.effects.updates:
                node.op.optimizer._has_stepped = True  # type: ignore[attr-defined]
            self._compiled[number] = compiled
            return compiled

    # ---- state -----------------------------------------------------------------------------------

    def named_parameters(self) -> dict[str, Any]:
        """Tensors of the state that require gradients, by name."""
        return {name: x for name, x in self._named().items() if x.requires_grad}

    def parameters(self) -> list[Any]:
        """Tensors of the state that require gradients, each once: for an optimizer."""
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
                shape = tuple(state_dict[name].shape)
                wrong.append(f"{name!r} of shape {shape} for {tuple(x.shape)}")
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
        """Write the program to a file, with its present state."""
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
            module: Module = self
            for part in parents:
                if part not in module._modules:
                    module.add_module(part, Module())
                module = module._modules[part]  # type: ignore[assignment]
            if isinstance(x, Parameter):
                module.register_parameter(name, x)
            else:
                module.register_buffer(name, x)

    def forward(self, *args: object, **kwargs: object) -> Any:
        """Call the program."""
        return self.program(*args, **kwargs)


def opened(f: Any, memory: int | None) -> ExportedProgram:
    """Load the program of a file; see `adjoint.export.load`."""
    name = repr(os.fspath(f)) if isinstance(f, (str, os.PathLike)) else repr(f)
    content = checkpoint.load(f, "cpu")
    if not isinstance(content, dict) or "adjoint.export" not in content:
        raise CheckpointError(
            f"export.load: {name} holds no exported function; adjoint.load reads other files"
        )
    if content["adjoint.export"] != VERSION or type(content["adjoint.export"]) is not int:
        raise CheckpointError(
            f"export.load: {name} has version {content['adjoint.export']!r:.40} of exported "
            f"functions, written by adjoint {content.get('version')!r:.40}; this adjoint, "
            f"{__version__}, reads version {VERSION}: export the function again"
        )
    try:
        return ExportedProgram(content, memory_of_machine() if memory is None else memory)
    except (DeviceError, MemoryError):
        raise
    except RecursionError:
        raise CheckpointError(f"export.load: {name} is nested too deeply") from None
    except Exception as error:  # only for a file that was made by hand
        raise CheckpointError(
            f"export.load: {name} cannot be understood: {type(error).__name__}: {error}"
        ) from error
