"""`load`: a PNNX file as a Module: a static graph of inference, for batches of any size."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from ...core.errors import (
    AdjointError,
    CheckpointError,
    InvalidArgument,
    InvalidType,
    ShapeError,
    Unsupported,
)
from ...io.imported import FAULTS, ImportedGraph, last_uses, needed, refuse, refusing, several
from ...io.source import Source, opened
from ...io.zip_archive import Archive
from ...nn import Module
from ...tensor import Tensor
from . import operators as _operators  # noqa: F401 - enters them
from .batch import Batch, batch_of, shapes_of
from .expression import compiled
from .layers import make_layer, make_own
from .names import converted
from .order import sorted_operators
from .step import TABLE, GraphStep
from .text import TEXT, Operator, read_operators
from .weights import Weights

T = TypeVar("T")
Makes = Callable[..., Module]  # a class of modules, or a function that returns one
# operators that may give numbers or lists, which other operators take as parameters
NUMBERS = {"pnnx.Expression", "pnnx.SliceIndexes", "Tensor.size", "Tensor.dim", "aten::numel"}
BY_VALUE = {"torch.masked_select"}  # whose shapes depend on values
KEPT = 16  # shapes of inputs for which something is remembered
LEVELS = "convert with optlevel=1 or 2, which is pnnx's default"
CONSTANT = "pnnx_fold"  # how pnnx names what it has computed of constants


def load(
    param_path: Any, bin_path: Any = None, *, operators: Mapping[str, Makes] | None = None
) -> PnnxModule:
    """Read a PNNX model, its `.pnnx.param` and its `.pnnx.bin`, as a Module.

    Its layers are ours, under their names in PyTorch's module, and run in the graph's topological
    order. Sizes that pnnx froze for the traced batch follow the batch that the module is called
    with. Inputs and outputs are those of the traced module, in order; several outputs come as a
    tuple. A loaded module is in eval mode.

    Shapes: two paths, or files open for reading bytes. One path stands for both files: that of the
    text, that of the weights, or what their names have in common (`net.pnnx`, `net`).
    `operators` has the modules that pnnx kept whole (`moduleop=models.yolo.Detect`): a class, or a
    function that returns a module, by the name in the file. It is called for each of them, gets the
    weights of the file, and runs for each batch as it is.
    Errors: CheckpointError for a file that is malformed, or weights that are not the module's;
    Unsupported names an operator that is not there; InvalidType for `operators` of other things.
    Source: https://github.com/Tencent/ncnn/tree/master/tools/pnnx

    >>> import io
    >>> text = b'''7767517
    ... 3 2
    ... pnnx.Input      in   0 1 x        #x=(1,2)f32
    ... pnnx.Expression e    1 1 x y      expr=mul(add(@0,1),2)
    ... pnnx.Output     out  1 0 y
    ... '''
    >>> ad.pnnx.load(io.BytesIO(text))(ad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[ 4.,  6.],
            [ 8., 10.]])
    """
    if bin_path is None and isinstance(param_path, (str, os.PathLike)):
        param_path, bin_path = _pair(Path(os.fsdecode(param_path)))
    with _opened(param_path) as source:
        if source.size > TEXT:
            raise CheckpointError(f"pnnx.load: {source.name} has {source.size} bytes of text")
        name = source.name
        steps = _read(name, lambda: read_operators(source.read(0, source.size)))
    own = dict(operators or {})
    for kind in own:
        if kind in TABLE:
            raise InvalidArgument(
                f"pnnx.load: operators has {kind!r}, which is known; put another layer in its "
                "place when the model is loaded (model.name = ...)"
            )
    if bin_path is None:
        return _read(name, lambda: PnnxModule(steps, own=own))
    with _opened(bin_path) as source:
        return _read(f"{name}, {source.name}", lambda: PnnxModule(steps, _archive(source), own))


def _pair(path: Path) -> tuple[Path, Path | None]:
    """Paths of the text and of the weights, from one of them."""
    if path.suffix == ".bin":
        return path.with_suffix(".param"), path
    if not path.exists() and path.suffix != ".param":
        for end in (".param", ".pnnx.param"):
            if path.with_name(path.name + end).is_file():
                path = path.with_name(path.name + end)
                break
    beside = path.with_suffix(".bin")
    return path, beside if path.suffix == ".param" and beside.is_file() else None


def _opened(f: Any) -> Any:
    if not hasattr(f, "read") and not isinstance(f, (str, os.PathLike)):
        raise InvalidType(f"pnnx.load: expected paths or file objects, got {type(f).__name__}")
    if not hasattr(f, "read") and Path(os.fspath(f)).is_dir():
        raise CheckpointError(f"pnnx.load: {os.fspath(f)!r} is a directory")
    return opened(f)


def _archive(source: Source) -> Archive:
    try:
        archive = Archive(source)
    except CheckpointError as error:
        if "twice" in str(error):
            raise CheckpointError(f"{error}; was it written with optlevel=0? {LEVELS}") from error
        raise
    archive.assert_stored()
    return archive


def _read(name: str, read: Callable[[], T]) -> T:
    """The result of `read`; its errors name the file."""
    try:
        with refusing("an operator"):
            return read()
    except (CheckpointError, Unsupported) as error:
        raise type(error)(f"pnnx.load: {name}: {error}") from error.__cause__


class PnnxModule(ImportedGraph):
    """The graph of a PNNX file.

    Errors: those of `pnnx.load`.
    Source: https://github.com/Tencent/ncnn/tree/master/tools/pnnx#the-pnnxparam-format

    >>> import io
    >>> text = b'7767517\\n3 2\\npnnx.Input a 0 1 0\\nnn.ReLU act 1 1 0 1\\npnnx.Output b 1 0 1'
    >>> ad.pnnx.load(io.BytesIO(text))
    PnnxModule(
      0 -> 1, 1 nodes
      (act): ReLU()
    )
    """

    def __init__(
        self, operators: list[Operator], archive: Archive | None = None,
        own: Mapping[str, Makes] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__("pnnx")
        ends = {kind: [op for op in operators if op.kind == kind] for kind in _ENDS}
        self._traced: list[tuple[tuple[int | None, ...], str] | None] = []  # of the inputs
        self.input_types: list[Any] = []  # (shape, dtype) of each input, None where not known
        for op in sorted(ends["pnnx.Input"], key=_place):
            self.input_names += op.outputs
            self._traced += [op.shapes.get(name) for name in op.outputs]
            self.input_types += [op.shapes.get(name) for name in op.outputs]
        for op in sorted(ends["pnnx.Output"], key=_place):
            self.output_names += op.inputs
        for op in operators:
            if (op.kind == "pnnx.Output" and op.outputs) or (op.kind in _GIVEN and op.inputs):
                raise CheckpointError(f"{op.label} reads or writes what such an operator cannot")
        if not self.output_names:
            raise CheckpointError(f"the graph has no output{_reason(operators)}")
        order = needed(sorted_operators(operators), self.output_names)
        known = {*TABLE, *_ENDS, *own}
        unknown = [op for op in order if op.kind not in known]
        if unknown:
            kinds = list(dict.fromkeys(op.kind[:60] for op in unknown))
            raise Unsupported(
                f"operators that are not supported: {', '.join(kinds[:8])} (the first is called "
                f"{unknown[0].name[:60]!r}){_reason(operators) or _remedy(unknown[0])}"
            )
        _keep_keys(operators)
        order = needed(order, self.output_names)
        numbers = {name for op in operators if op.kind in NUMBERS for name in op.outputs}
        weights = Weights(archive)
        steps = []
        for op in order:
            if op.kind == "pnnx.Attribute":
                self._keep_constant(op, weights.of(op))
            elif op.kind not in _ENDS:
                steps.append(self._step_of(op, weights.of(op), numbers, own.get(op.kind)))
        self._steps = steps
        self._drops = last_uses(steps, self.output_names)
        self._shapes: dict[Any, dict[str, Any]] = {}  # of all values, by those of the inputs
        self._plans: dict[Any, list[Any]] = {}  # how to run other batches, by the inputs' shapes
        self.eval()

    def _keep_constant(self, op: Operator, weights: dict[str, Tensor]) -> None:
        """A tensor that no layer has: a parameter, or a buffer where pnnx computed it."""
        if len(weights) != 1 or len(op.outputs) != 1:
            raise CheckpointError(f"{op.label} has {len(weights)} tensors, not one")
        ((key, tensor),) = weights.items()
        name = op.outputs[0]
        is_buffer = op.name.startswith(CONSTANT) or not tensor.dtype.is_floating_point
        self._register(f"{op.name}.{key}", tensor, is_buffer)
        self._places[name] = self._places.pop(f"{op.name}.{key}")

    def _step_of(
        self, op: Operator, weights: dict[str, Tensor], numbers: set[str], own: Makes | None
    ) -> GraphStep:
        with refusing(op.label):
            layer: Module | None = None
            path: tuple[str, ...] = ()
            params = converted(op.params)
            if own is not None or op.kind.startswith("nn."):
                layer = _made(op, params, weights, own)
                parent, path, leaf = self._parent(op.name)
                parent.add_module(leaf, layer)
                path = (*path, leaf)
            elif weights:
                raise CheckpointError(f"{op.label} has weights, and is no layer")
            if isinstance(params.get("expr"), str):
                params["expr"] = compiled(params["expr"], len(op.inputs))
            step = GraphStep(
                op.kind, op.inputs, op.outputs, params, _keys(op), op.name, layer, path
            )
            step.numbers = any(step.keys) and not numbers.isdisjoint(op.inputs)
            step.declared = {name: shape for name, (shape, _) in op.shapes.items()}
            return step

    # ---- running -----------------------------------------------------------------------------

    def forward(self, *args: Any, **named: Any) -> Any:
        """The outputs for these inputs, in the graph's order. Inputs are tensors or arrays, which
        may be given by their names.

        Shapes: as traced, but for the size of the batch.
        Errors: InvalidArgument for other inputs than the graph's; Unsupported where what the file
        has frozen does not tell how it goes with the batch; those of the operations.

        >>> import io
        >>> text = b'7767517\\n3 2\\npnnx.Input a 0 1 0\\nF.tanh t 1 1 0 1\\npnnx.Output b 1 0 1'
        >>> ad.pnnx.load(io.BytesIO(text)).forward(ad.zeros(2))
        tensor([0., 0.])
        """
        args = tuple(self._tensors(args, named))
        self._take_layers()
        batch = batch_of(self._sizes(), args)
        if batch is None:
            try:
                return self._compute(args)
            except ShapeError as error:
                raise ShapeError(f"{error}{self._difference(args)}") from error
        key = (batch.traced, *((tuple(x.shape), x.dtype) for x in args))
        plan = self._plans.get(key)
        values = self._start(args)
        if plan is None:
            batch.begin(self._traced_shapes(batch, args), self.input_names)
        for i, (step, drops) in enumerate(zip(self._steps, self._drops, strict=True)):
            if plan is None:
                inputs = [values[name] for name in step.inputs]
                values.update(batch.run(step, inputs, self._step))
            else:
                step, repeats = plan[i]
                inputs = batch.repeated(step, [values[name] for name in step.inputs], repeats)
                values.update(zip(step.outputs, self._step(step, inputs), strict=False))
            for name in drops:
                values.pop(name, None)
        if plan is None and batch.lasting:
            _remember(self._plans, key, batch.plan)
        return self._results(values)

    def _take_layers(self) -> None:
        """Makes steps run the current layers; plans of former ones are dropped."""
        for step in self._steps:
            if step.layer is not None:
                layer = self._at(step.path)
                if layer is not step.layer:
                    step.layer = layer
                    step.declared = {}
                    self._shapes.clear()
                    self._plans.clear()

    def _sizes(self) -> list[tuple[int | None, ...] | None]:
        """The shapes of the inputs as they were traced, as far as they are known."""
        return [None if known is None else known[0] for known in self._traced]

    def _difference(self, args: Sequence[Any]) -> str:
        """Description of the inputs' difference from the traced ones."""
        sizes = self._sizes()
        if None in sizes or sizes == [tuple(x.shape) for x in args]:
            return ""
        return f"; the file was traced for inputs of {', '.join(map(str, sizes))}"

    def _step(self, step: GraphStep, inputs: list[Any]) -> tuple[Any, ...]:
        step.training = self.training
        try:
            bound, given = step.bound(inputs) if step.numbers else (step, inputs)
            found = several(bound.call(bound, *given))
        except InvalidType as error:  # an argument that the operator does not take, mostly
            raise CheckpointError(f"pnnx: {step.label}: {error}") from error
        except FAULTS as error:
            refuse(f"pnnx: {step.label}", error)
        if len(found) < len(step.outputs):
            raise CheckpointError(
                f"pnnx: {step.label} gives {len(found)} values, not {len(step.outputs)}"
            )
        if step.declared:
            _check(step, inputs, found)
        return found

    def _traced_shapes(self, batch: Batch, args: Sequence[Any]) -> dict[str, Any]:
        """The shape that every value had for the traced inputs: recorded once for these."""
        key = (batch.traced, tuple(x.dtype for x in args))
        if key not in self._shapes:
            _remember(self._shapes, key, shapes_of(self, args, batch.traced))
        return self._shapes[key]

    @property
    def operators(self) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
        """Kind, name, operands read and operands written of every operator, in topological order.

        >>> import io
        >>> text = b'7767517\\n3 2\\npnnx.Output b 1 0 1\\nF.tanh t 1 1 0 1\\npnnx.Input a 0 1 0'
        >>> ad.pnnx.load(io.BytesIO(text)).operators
        [('F.tanh', 't', ('0',), ('1',))]
        """
        return [(step.kind, step.name, step.inputs, step.outputs) for step in self._steps]

    def extra_repr(self) -> str:
        """Inputs, outputs and how many operators.

        >>> import io
        >>> text = b'7767517\\n3 2\\npnnx.Input a 0 1 0\\nF.tanh t 1 1 0 1\\npnnx.Output b 1 0 1'
        >>> ad.pnnx.load(io.BytesIO(text)).extra_repr()
        '0 -> 1, 1 nodes'
        """
        return self._summary()


def _keep_keys(operators: list[Operator]) -> None:
    """Give dicts their keys, which pnnx writes as operands, by their text."""
    made = {name: op for op in operators for name in op.outputs}
    for op in operators:
        if op.kind == "prim::DictConstruct":
            texts = [made[name].params.get("expr") for name in op.inputs[::2] if name in made]
            if len(texts) * 2 != len(op.inputs) or not all(isinstance(t, str) for t in texts):
                raise CheckpointError(f"{op.label} has no key for each of its values")
            op.params = {"keys": tuple(texts)}
            op.inputs = op.inputs[1::2]


def _reason(operators: list[Operator]) -> str:
    """The reason why operators of this file may be unknown, where its form tells."""
    kinds = {op.kind for op in operators}
    if "Input" in kinds or not any("." in kind or "::" in kind for kind in kinds):
        return "; this is a file of ncnn: read the one called .pnnx.param beside it"
    if not kinds.isdisjoint(("prim::Constant", "prim::NumToTensor")):
        return f"; this is a file of optlevel=0: {LEVELS}"
    return ""


def _remember(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Keep a value, and not too many."""
    if len(table) >= KEPT:
        table.clear()
    table[key] = value


def _remedy(op: Operator) -> str:
    """What to do about a module that pnnx kept whole: one whose kind is a path of Python's."""
    if not re.fullmatch(r"(?!F\.|nn\.|torch\.|Tensor\.|pnnx\.)[A-Za-z_]\w*(\.\w+)+", op.kind):
        return ""
    name = op.kind[:60]
    return f"; where it is a module of yours, load(..., operators={{{name!r}: the class}})"


def _made(
    op: Operator, params: dict[str, Any], weights: dict[str, Tensor], own: Makes | None
) -> Module:
    """The layer of an operator; what a layer says of its arguments is the file's fault."""
    if own is not None:
        return make_own(op, params, weights, own)
    try:
        return make_layer(op, params, weights)
    except CheckpointError:
        raise
    except AdjointError as error:
        raise CheckpointError(f"{op.label}: {error}") from error


def _check(step: GraphStep, inputs: list[Any], found: tuple[Any, ...]) -> None:
    """Once for every step: of inputs as the file has them, it must give outputs as the file has."""
    for name, x in zip(step.inputs, inputs, strict=True):
        if not isinstance(x, Tensor) or step.declared.get(name) != tuple(x.shape):
            return
    declared, step.declared = step.declared, {}
    if step.kind in BY_VALUE:
        return
    for name, x in zip(step.outputs, found, strict=False):
        sizes = declared.get(name, (None,))
        if isinstance(x, Tensor) and None not in sizes and sizes != tuple(x.shape):
            raise CheckpointError(
                f"pnnx: {step.label} gives {tuple(x.shape)} where the file has {sizes}: pnnx has "
                "not written all of this operator, such as the shapes of constant indices; convert "
                "the model with optlevel=1 or with inputshape2"
            )


_GIVEN = {"pnnx.Input", "pnnx.Attribute"}  # what reads nothing
_ENDS = {"pnnx.Input", "pnnx.Output", "pnnx.Attribute"}  # what is no step


def _place(op: Operator) -> int:
    """The number in `pnnx_input_3`: the place among the arguments, whatever the file's order."""
    found = re.fullmatch(r"pnnx_(?:in|out)put_(\d{1,6})", op.name)
    return int(found[1]) if found else 0


def _keys(op: Operator) -> tuple[str, ...]:
    """The argument that each input is."""
    keys = [""] * len(op.inputs)
    for key, operand in op.arguments.items():
        places = [i for i, name in enumerate(op.inputs) if name == operand and not keys[i]]
        if not places:
            raise CheckpointError(f"{op.label}: more arguments than inputs called {operand[:60]!r}")
        keys[places[0]] = key
    if op.kind.startswith("Tensor.") and keys:
        keys[0] = ""  # of a method, the tensor
    return tuple(keys)
