"""Capture of a function or module as a static graph, by running it on symbols."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...autograd import fusion
from ...autograd.capture import CaptureRecorder, program_of, recording, symbol
from ...autograd.recording import execute_lazily
from ...core.device import device, device_of
from ...core.errors import DeviceError, InvalidArgument, InvalidType, Unsupported
from ...core.op import Op
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...core.tree import TreeSpec, parts_of
from ...ir.compute import spec_of
from ...ir.program import Program, Value
from ...nn import Module
from ...runtime import fused
from ...runtime.fused import Declared
from ...runtime.lazy import LazyValue, concrete
from ...runtime.node import Item
from ..capture.module_places import ModulePlaces

if TYPE_CHECKING:
    from ...autograd.protocols import BackendArray


class FrozenSource:
    """The function or module of a frozen program, as it was when it was frozen.

    A module is copied, in eval mode, into the host's own memory. Tensors that a function uses
    besides its inputs are copied when they are first seen.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.names: dict[int, str] = {}
        self._kept: dict[int, tuple[Any, Value]] = {}
        self.is_module = isinstance(function, Module)
        self.place: Any = None  # device of a module: of inputs and results
        if isinstance(function, Module):
            try:
                function = copy.deepcopy(function)
            except (TypeError, RecursionError, AttributeError) as error:
                raise InvalidArgument(
                    f"freeze: {type(function).__name__} cannot be copied ({error}); give a "
                    "function that calls it"
                ) from error
            function.eval()
            self.place = _to_host(function)
            state = {**dict(function.named_buffers()), **dict(function.named_parameters())}
            self.names = {id(concrete(x)): name for name, x in state.items()}
        elif not callable(function):
            raise InvalidType(
                f"freeze: expected a module or a function, got {type(function).__name__}"
            )
        self.function = function

    @property
    def title(self) -> str:
        """Name of the program."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def known(self, data: BackendArray) -> Value:
        """The constant for an array that the function uses; the same one in each capture."""
        array = data.array if isinstance(data, LazyValue) else data
        kept = self._kept.get(id(array))
        if kept is None:
            if device_of(array).type != "cpu":
                raise DeviceError(
                    f"freeze: {self.title} has tensors on {device_of(array)}; give it as .cpu()"
                )
            own = array if self.is_module else array.copy()
            value = Value(spec_of(own), array=own, name=self.names.get(id(array), ""))
            kept = self._kept[id(array)] = (array, value)
        return kept[1]


def _to_host(module: Module) -> device | None:
    """Move a module that is in PyTorch's memory on the host into ours. Returns its device before,
    or None if it was here.

    Errors: DeviceError for one in other memory, which a program would copy in each call.
    """
    tensors = [*module.parameters(), *module.buffers()]
    devices = {x.device for x in tensors if x.device.type != "cpu"}
    if not devices:
        return None
    other = next((device for device in devices if device.type != "torch"), None)
    if other is not None or any(x.device.type == "cpu" for x in tensors):
        raise DeviceError(
            f"freeze: {type(module).__name__} has tensors on "
            f"{', '.join(sorted({str(x.device) for x in tensors}))}; frozen programs run on the "
            "CPU: give it as .cpu()"
        )
    module.cpu()
    return devices.pop()


def _whole(
    function: Callable[..., Any], native: str, args: tuple[Any, ...]
) -> tuple[Op, tuple[Any, ...]] | None:
    """A composite as one op, with its inputs; None where there is no routine for it."""
    if not fused.pays(args):
        return None
    inputs = tuple(x for x in args if isinstance(x, TensorBase))
    op = fusion.plan_for(function, native, args, inputs, [False] * len(inputs))
    return None if isinstance(op, str) else (op, inputs)


class _Recorder(CaptureRecorder):
    """Records composites whole, and the modules in whose calls ops are recorded."""

    def __init__(self) -> None:
        super().__init__(_whole)
        self.module_places = ModulePlaces()
        self._paths: dict[int, tuple[str, object]] = {}  # by ids of values, kept alive

    def call_module(
        self, module: Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """Call a module, which is noted as that of what it records."""
        return self.module_places.call(module, args, kwargs)

    def __call__(self, op: Op, inputs: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """The lazy tensor of a recorded op."""
        return self._noted(super().__call__(op, inputs))

    def composite(self, declared: Declared, args: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        """The lazy tensor of a composite recorded as one op, if there is a routine for it."""
        made = super().composite(declared, args)
        return made if made is NotImplemented else self._noted(made)

    def _noted(self, made: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        for y in made if isinstance(made, tuple) else (made,):
            value = y._data
            if isinstance(value, LazyValue) and type(value.op) is Item:
                value = value.inputs[0]
            self._paths[id(value)] = self.module_places.path, value
        return made

    def path_of(self, value: object) -> str:
        """The module that recorded a value."""
        return self._paths.get(id(value), ("", None))[0]


def capture(
    source: FrozenSource, specs: Sequence[Spec], whole: bool = True, form: TreeSpec | None = None
) -> tuple[Program, TreeSpec]:
    """Trace `source.function` on inputs of these specs, in a call of this form. With `whole`,
    composites that have routines are one node each.

    Errors: Unsupported where the function reads values, or draws random numbers; InvalidType where
    it returns something else than tensors, and numbers beside them, in tuples, lists, dicts and
    dataclasses.
    """
    inputs = list(map(symbol, specs))
    symbols = [x._data for x in inputs]
    reads = (
        f"freeze: {source.title} reads values of its input (item, bool, int, numpy, or "
        "indexing by a mask), on which a static graph cannot depend; use where() and gather()"
    )
    recorder = _Recorder() if whole else None
    with recording(reads, executor=recorder or execute_lazily):
        function = source.function
        args, kwargs = (inputs, {}) if form is None else form.unflatten(inputs)
        result = function(*args, **kwargs)
    results, results_form = parts_of(result, "freeze: the result has", constants=True)
    module = None if recorder is None else recorder.path_of
    values = [y._data for y in results]
    program = program_of(symbols, values, source.known, module=module)
    for node in program.nodes:
        if node.op.drawn:
            raise Unsupported(
                f"freeze: {source.title} draws random numbers ({node.op.name}), of which a static "
                "graph would keep one draw for ever; give them as an input"
            )
    return program, results_form
