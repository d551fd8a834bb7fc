"""`freeze` and `Program`: a module or a function as a static graph that runs by itself."""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import fork_safety, policy
from ...core.device import CPU, device, host_array, transfer
from ...core.errors import DeviceError, InvalidType, Unsupported
from ...core.faces import load
from ...core.mode import MODE, are_known, observed
from ...core.progress import progress
from ...core.spec import Spec
from ...core.tensor_base import TensorBase
from ...core.tree import TreeSpec
from ...ir import program as form
from ...ir.compute import spec_of
from ...runtime.cells import Cell, warn_of_plain
from ...runtime.lazy import concrete
from ...runtime.tensors import wrap
from ..passes.basic_passes import Folds
from ..passes.pipelines import Settings, run_pipeline
from ..schedule.schedule import Schedule
from ..schedule.workspace import Workspace
from .inputs import Inputs
from .performance_report import Explanation, Timer, peaks, rows_of
from .static_capture import FrozenSource, capture

if TYPE_CHECKING:
    from ...backends.native.onednn.fused_layers import Packing

LONG = 150  # nodes from which a progress bar shows, on a terminal


@dataclass(eq=False)
class Memory:
    """Bytes of a program's intermediate values and constants."""

    planned: int
    without_reuse: int
    constants: int


class _Planned:
    """A frozen program planned for inputs of certain shapes and dtypes."""

    def __init__(self, program: Program, specs: tuple[Spec, ...], form: TreeSpec) -> None:
        self.specs = specs
        self.form = form
        graph, self.results = program._simplified(specs, whole=True, form=form)
        self.graph = graph
        run_pipeline("frozen plan", graph, Settings(packed=program._packing is not None))
        with _bar(len(graph.nodes)) as tell:
            self.schedule = Schedule(graph, program._packing, tell)
        self.free: list[Workspace] = []

    def run(self, arrays: list[Any], device: device | None = None) -> Any:
        """Run on arrays: the result in the function's structure, on `device`."""
        try:
            workspace = self.free.pop()
        except IndexError:
            with _bar(len(self.schedule.steps)) as tell:
                workspace = Workspace(self.schedule, tell)
        try:
            observer = MODE.get().observer
            results = workspace.run(arrays, observer)
            if observer is not None:
                observer.made(results)
        finally:
            self.free.append(workspace)
        if device is not None:
            results = [transfer(each, device) for each in results]
        return self.results.unflatten(map(wrap, results))


@contextlib.contextmanager
def _bar(count: int) -> Iterator[Callable[[], object]]:
    """Context with a function to call once for each of `count` items, which moves a progress bar if
    there are many.
    """
    if count < LONG:
        yield lambda: None
        return
    with progress(total=count) as bar:
        yield lambda: bar.update(1)


class Program:
    """A frozen computation; call it with inputs as you would call what it was made from.

    The first call with other shapes or dtypes plans anew; the plans used last are kept. Results
    are new tensors without history. Several threads may call it at once.

    Shapes: any that the module or function takes.
    Errors: those of the operations; InvalidArgument for a call that the function does not take.

    >>> model = ad.nn.Sequential(ad.nn.Linear(2, 3), ad.nn.ReLU())
    >>> program = ad.inference.freeze(model, ad.ones(4, 2))
    >>> program(ad.ones(5, 2)).shape
    adjoint.Size([5, 3])
    """

    def __init__(
        self, function: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        self._source = FrozenSource(function)
        self._inputs = Inputs(function, self._source.title)
        self._folds = Folds()
        self._packing = _packing()
        self._plans: collections.OrderedDict[Any, _Planned] = collections.OrderedDict()
        self._lock = fork_safety.lock()
        self._threads = _thread_count()
        self.input_names = getattr(function, "input_names", None)
        self._place = self._source.place
        self._form, examples = self._inputs.read(args, kwargs)
        self._examples = tuple(spec_of(_array(x, self._place)) for x in examples)
        # Whether a call with as many tensors by position has the examples' structure.
        self._plain = not kwargs and all(map(_is_array, args))
        self._first = self._recent = self._planned(self._examples, self._form)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the program: the result of the module or function for these inputs.

        Errors: Unsupported in a function that is being captured.
        """
        if not are_known():
            raise Unsupported(
                f"compile: the function calls a frozen program, of {self._source.title}, which "
                "computes with values; call the module or function that it was made of, whose "
                "program is then a part of this one, or call the program outside"
            )
        return observed("inference.Program", self._run, inputs, named)

    def _run(self, inputs: Sequence[Any], named: dict[str, Any]) -> Any:
        form = self._form
        plain = self._plain and not named and len(inputs) == len(self._examples)
        if not (plain and all(map(_is_array, inputs))):
            form, inputs = self._inputs.read(tuple(inputs), named)
        arrays = []
        key: list[Any] = [form.key(), self._threads()]
        for x in inputs:
            array = x._data if isinstance(x, TensorBase) else x
            if type(array) is not np.ndarray or self._place is not None:
                array = _array(x, self._place)
            arrays.append(array)
            key += (array.shape, array.dtype.num)
        planned = self._plans.get(tuple(key))
        if planned is None:
            planned = self._planned(tuple(map(spec_of, arrays)), form)
        elif planned is not self._recent:
            self._recent = self._planned(planned.specs, planned.form)
        if self._place is None:
            return planned.run(arrays)
        return planned.run(arrays, self._place)

    def _planned(self, specs: tuple[Spec, ...], form: TreeSpec) -> _Planned:
        """The plan for inputs of these specs, made if it is new."""
        key: list[Any] = [form.key(), self._threads()]
        for spec in specs:
            key += (spec.shape, spec.dtype.numpy.num)
        name = tuple(key)
        with self._lock:
            plan = self._plans.get(name)
            if plan is None:
                plan = self._plans[name] = _Planned(self, specs, form)
                while len(self._plans) > policy.FROZEN_PLANS:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(name)
        return plan

    def _simplified(
        self, specs: tuple[Spec, ...], whole: bool = False, form: TreeSpec | None = None
    ) -> tuple[form.Program, TreeSpec]:
        """The simplified graph for inputs of these specs, in the registry's ops; with `whole` also
        in composites that have routines.
        """
        with self._lock:
            graph, rebuild = capture(self._source, specs, whole, form or self._form)
            run_pipeline("frozen", graph, Settings(folds=self._folds))
            return graph, rebuild

    # ---- inspection ------------------------------------------------------------------------------

    @property
    def graph(self) -> form.Program:
        """The graph that runs for inputs like the examples."""
        return self._first.graph

    @property
    def nodes(self) -> list[Any]:
        """The nodes that run for inputs like the examples, in order; views among them.

        >>> program = ad.inference.freeze(lambda x: (x * 2 + 1).exp(), ad.ones(3))
        >>> len(program.nodes)  # one kernel
        1
        """
        return list(self._first.graph.nodes)

    @property
    def steps(self) -> list[Any]:
        """The steps that run for inputs like the examples, with how each is computed."""
        return list(self._first.schedule.steps)

    @property
    def buffers(self) -> list[tuple[int, int]]:
        """Offset and size in bytes of each intermediate value in the arena."""
        schedule = self._first.schedule
        pairs = zip(schedule.layout.offsets, schedule.buffers, strict=True)
        return [(offset, buffer.size) for offset, buffer in pairs]

    @property
    def memory(self) -> Memory:
        """Bytes for inputs like the examples: of the arena, of the same buffers without reuse, and
        of the constants.
        """
        constants = sum(x.array.nbytes for x in self.graph.constants())
        return Memory(*_memory(self._first.schedule), constants)

    def __str__(self) -> str:
        from ..schedule.listing import listing

        return listing(self._source.title, self._first.schedule, self.memory)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from ...reactive.view.notebook import of_graph
        from ..report.pictures import snapshot

        schedule = self._first.schedule
        return of_graph(self, snapshot(self._source.title, schedule.graph, schedule))

    def __repr__(self) -> str:
        shapes = ", ".join(str(spec.shape) for spec in self._examples)
        count = len(self.nodes)
        return f"<Program {self._source.title}: {count} node{'s'[: count != 1]} for {shapes}>"

    def explain(self, *inputs: Any, **named: Any) -> Explanation:
        """Call the program and report its layers, kernels and copies with operations, bytes, time
        and share of the machine's measured peak, and memory. Each step is timed alone (the fastest
        of some calls), which takes longer than a call.

        Errors: those of a call.

        >>> program = ad.inference.freeze(ad.nn.Linear(2, 3), ad.ones(4, 2))
        >>> [row.name for row in program.explain(ad.ones(4, 2)).rows]
        ['linear']
        """
        from ...backends.native.runtime.launch_list import LaunchList as Calls

        form, inputs_read = self._inputs.read(inputs, named)
        arrays = [_array(x, self._place) for x in inputs_read]
        schedule = self._planned(tuple(map(spec_of, arrays)), form).schedule
        space = Workspace(schedule, lambda: None, apart=True)
        taken = []
        for _ in range(policy.EXPLAINED):
            timer = Timer()
            space.run(arrays, timer)
            taken.append(timer.seconds)
        native = [
            type(call) is Calls
            for call in space.calls
            for _ in range(len(call) if type(call) is Calls else 1)
        ]
        least = map(min, zip(*taken, strict=True))
        none = [0] * len(native)
        rows = rows_of(zip(space.steps_by_call, native, least, none, strict=True))
        memory = _memory(schedule)
        return Explanation(self._source.title, rows, (), (), *memory, (), peaks(CPU))

    def draw(self, path: str | os.PathLike[str]) -> Path:
        """Draw the graph: `.html` is the interactive page, `.svg` and `.dot` are Graphviz's.

        Errors: InvalidArgument for another suffix; Unsupported for `.svg` without Graphviz.
        """
        from ..report.pictures import draw

        return draw(self._source.title, self._first.schedule, Path(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the simplified graph (constants and batch normalization folded) as an ONNX file,
        with the first dimension of the inputs left open where it can be.

        Errors: those of `onnx.export`.
        """
        load("interop.onnx.export_program").export(self, path)  # it stands on this room


def _memory(schedule: Schedule) -> tuple[int, int]:
    """Bytes of the arena, and of the same buffers without reuse."""
    from ..schedule.buffers import aligned

    return schedule.layout.size, sum(aligned(buffer.size) for buffer in schedule.buffers)


def _thread_count() -> Callable[[], int]:
    """A function that gives the number of threads, on which plans depend."""
    from ...backends import native

    if native.reason_off() is not None:
        return lambda: 1
    from ...backends.native.runtime.pool import default_pool

    pool = default_pool()
    return lambda: pool.num_threads


def _packing() -> Packing | None:
    """Cache of weights in oneDNN's layouts; None where oneDNN is not used."""
    from ...backends import native

    if native.reason_off() is not None:
        return None
    try:
        from ...backends.native.onednn import api as onednn
        from ...backends.native.onednn.fused_layers import Packing
    except (ImportError, OSError):
        return None
    return None if onednn.unavailable() else Packing()


def _array(x: object, device: device | None) -> np.ndarray:
    """The array of an input; if it is a tensor, it must be on `device` (None: the CPU)."""
    if isinstance(x, TensorBase):
        expected = CPU if device is None else device
        if x.device != expected:
            raise DeviceError(
                f"program: an input is on {x.device}, what was frozen on {expected}; move it with "
                f".to({str(expected)!r})"
            )
        array = concrete(x)
        if isinstance(x._data, Cell):
            warn_of_plain(x._data, "a frozen program")
        if device is not None:
            return host_array(array, {})
        return array.array if not isinstance(array, np.ndarray) else array
    converted = np.asarray(x)
    if converted.dtype.kind not in "biufcV":
        raise InvalidType(f"program: an input is an array of {converted.dtype}; give numbers")
    return converted


def _is_array(x: object) -> bool:
    return isinstance(x, (TensorBase, np.ndarray))


def freeze(module: Callable[..., Any], *example_inputs: Any, **named_inputs: Any) -> Program:
    """A module's or a function's computation as a static graph, for inference only.

    It is traced once on symbols with the shapes of the example inputs, a module in eval mode.
    Constant expressions are folded, scales and shifts of channels (batch normalization) are folded
    into the layers before them, elementwise ops are fused to few kernels, activations are fused
    into layers, and intermediate values share one arena. The program keeps its own copy of the
    parameters.

    A program is called as the module is, with inputs in order or by name, and returns what the
    module returns. Tensors and arrays, also those in lists, tuples, dicts and dataclasses, are its
    inputs, of the dtypes that they have; numbers and lists of numbers in the place of an example's
    tensor are of that one's dtype. All else (numbers, strings, None) is as in the module's own
    Python: with other values, as with other shapes and dtypes, the module is captured again.

    Shapes: example inputs as for a call of the module.
    Errors: Unsupported where the computation reads values of its inputs or draws random numbers.

    >>> program = ad.inference.freeze(ad.nn.Linear(3, 2), ad.ones(1, 3))
    >>> program(ad.ones(1, 3)).requires_grad
    False
    """
    return Program(module, example_inputs, named_inputs)
