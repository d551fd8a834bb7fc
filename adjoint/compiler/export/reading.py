"""Reading of exported files: everything is checked, and nothing in them is trusted.

Ops are those of the registry, routines and optimizers those of adjoint, all by name, made of fields
of the types that they declare. Values are numbered in order, so that none can refer to a later one;
their shapes and dtypes are inferred anew and compared with the stored ones. Inputs and outputs of a
program are compared with the tensors of the file, above all those whose memory an optimizer's
machine code reads and writes.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.capture import symbol
from ...autograd.fusion import HandWritten, plan_for
from ...core import errors
from ...core.device import CPU
from ...core.dtype import bool_, dtype
from ...core.errors import CheckpointError
from ...core.op import Op
from ...core.spec import Spec, prod
from ...core.tensor_base import TensorBase
from ...core.tensor_type import Tensor
from ...io.stored_ops import checked, checked_shape, size_of
from ...ir.program import Node, Program, Value
from ...ops.random.draws import Draw
from ...ops.random.random import Generator
from ...runtime.fused import declared_with_routines
from ...runtime.tensors import wrap
from ..capture.backward import Backward, Cotangents
from ..capture.lifted_state import ScalarResult
from ..capture.random_state import CapturedGenerator, FunctionalDraw
from ..capture.returned_tensors import Returned
from ..capture.routine_ops import RoutineBackward, RoutineForward
from ..capture.step_capture import Update
from ..capture.trace import Assumptions, Effects, Trace, TraceInputs
from .file_checks import checked_dict, checked_list, is_class_of, short
from .forms import filled, sign
from .numbers import Computed, read_numbers
from .optimizers import assert_options, read_optimizer
from .scalers import read_scaler
from .schedules import read_schedule, step_of, takes
from .writing import OPS

if TYPE_CHECKING:
    from ...optim.elementwise import ElementwiseOptimizer
    from ...optim.lr_scheduler import LRScheduler

MAX_PARTS = 1 << 22  # of all ops, inputs and outputs of a file
MAX_VALUES = 16  # times the memory, for all values of a program: few are there at once
_NUMBER = bool | int | float | complex


def memory_of_machine() -> int:
    """Bytes of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        return 1 << 36


class Contents:
    """Content that the programs of a file share: tensors, optimizers, generators, routines."""

    def __init__(self, content: dict[str, Any], memory: int) -> None:
        self.memory = memory  # largest size of a value, in bytes
        self.left = MAX_PARTS
        self.tensors: list[Any] = checked_list(content["tensors"])
        for x in self.tensors:
            if not isinstance(x, TensorBase):
                raise CheckpointError(f"a tensor is a {type(x).__name__}")
        for n, g in checked_dict(content["gradients"]).items():
            x, gradient = self.leaf(n), self.tensor(g)
            if gradient.spec != x.spec or gradient._node is not None:
                raise CheckpointError(f"tensor {n} cannot have the gradient {g}")
            x.grad = gradient
        self.names = {
            checked(k, str): self.at(n) for k, n in checked_dict(content["names"]).items()
        }
        self.generators = [Generator().set_state(x) for x in checked_list(content["generators"])]
        optimizers = checked_list(content["optimizers"])
        self.optimizers = [read_optimizer(x, self.tensor) for x in optimizers]
        self.homes = {  # of tensors in states: optimizer, parameter and name
            n: (optimizer, self.tensor(p), name)
            for optimizer, each in zip(self.optimizers, optimizers, strict=True)
            for p, state in each["state"].items()
            for name, n in state.items()
        }
        scalers = checked_list(content.get("scalers", []))
        self.scalers = [read_scaler(x, self.tensor) for x in scalers]
        own = [each[name] for each in scalers for name in ("scale", "tracker")]
        if len(set(own)) < len(own) or not self.homes.keys().isdisjoint(own):
            raise CheckpointError("the state of a GradScaler is another one, too")
        schedules = checked_list(content.get("schedules", []))
        self.schedules = [read_schedule(x, self.optimizers) for x in schedules]
        self.numbers = read_numbers(content.get("numbers", []), self.optimizers)
        self.routines = [self._routine(x) for x in checked_list(content["routines"])]

    def at(self, n: object) -> int:
        """Check the number of a tensor."""
        if type(n) is not int or not 0 <= n < len(self.tensors):
            raise CheckpointError(f"it has no tensor {n!r:.40}")
        return n

    def tensor(self, n: object) -> Tensor:
        """The tensor with number `n`."""
        return self.tensors[self.at(n)]

    def wants(self, n: object) -> bool:
        """Whether the tensor with number `n` requires gradients."""
        return self.tensor(n)._node is not None

    def leaf(self, n: object) -> Tensor:
        """The tensor with number `n` as a leaf, which can have a gradient, also if it is frozen by
        now.
        """
        x = self.tensor(n)
        if x._leaf is None:
            x.requires_grad_(True).requires_grad_(False)
        return x

    def spend(self, parts: int) -> None:
        """Count parts of programs, up to a limit."""
        self.left -= parts
        if self.left < 0:
            raise CheckpointError(f"its programs have more than {MAX_PARTS} parts")

    def spec(self, written: Any) -> Spec:
        """Deserialize a shape and a dtype."""
        shape, kind = written
        spec = Spec(checked_shape(shape), checked(kind, dtype))
        if prod(spec.shape) * spec.dtype.itemsize > self.memory:
            raise CheckpointError(
                f"a value of shape {spec.shape} and {spec.dtype} takes more than the {self.memory} "
                "bytes that it may; pass memory=... if that is meant"
            )
        return spec

    def _routine(self, content: Any) -> HandWritten:
        declared = declared_with_routines().get(checked(content["name"], str))
        if declared is None:
            raise CheckpointError(f"there is no routine {content['name']!r:.80}")
        specs = [self.spec(each) for each in checked_list(content["specs"])]
        inputs = list(map(symbol, specs))
        args = checked(filled(content["arguments"], {"tensor": inputs}), tuple)
        tensors = [x for x in args if isinstance(x, TensorBase)]
        wants = [checked(each, bool) for each in checked_list(content["wants"])]
        if [id(x) for x in tensors] != [id(x) for x in inputs] or len(wants) != len(inputs):
            raise CheckpointError(f"the routine {content['name']!r:.80} takes other tensors")
        plan = plan_for(declared.function, declared.native, args, inputs, wants)
        if not isinstance(plan, HandWritten):
            raise CheckpointError(f"this machine has no routine {content['name']!r:.80}: {plan}")
        return plan

    # ---- replaced states -------------------------------------------------------------------------

    def current(self, n: Any) -> Tensor:
        """The tensor with number `n`, or the one that has replaced it in an optimizer's state."""
        tensor = self.tensor(n)
        home = self.homes.get(n)
        return tensor if home is None else home[0].state[home[1]].get(home[2], tensor)


class Text:
    """A program as it is stored, from which captures are made."""

    def __init__(self, contents: Contents, content: dict[str, Any]) -> None:
        self.contents = contents
        self.found = content
        self.grad = checked(content["grad"], bool)
        self.kinds = [contents.spec(each) for each in checked_list(content["kinds"])]
        self.states = checked_list(content["states"])
        self.specs = [self._kind(n) for n in checked_list(content["specs"])]
        self.numbers = self._numbers(content.get("numbers"))
        scalars = [] if self.numbers is None else self.numbers.specs
        count = len(self.specs) - len(self.states) - len(scalars)
        wanting = [checked(each, bool) for each in checked_list(content["wanting"])]
        if count < 0 or len(wanting) != count:
            raise CheckpointError(f"it has {count} arguments, of {len(wanting)} it says more")
        self.first = count + len(scalars)  # number of the first input that is a state
        if self.specs[count : self.first] != scalars:
            raise CheckpointError("its numbers are of other dtypes")
        self.examples = [
            symbol(spec).requires_grad_(wants)
            for spec, wants in zip(self.specs[:count], wanting, strict=True)
        ]
        self.args, self.kwargs = filled(content["arguments"], {"tensor": self.examples})
        checked(self.args, tuple), checked_dict(self.kwargs)
        key: list[Any] = []
        tensors: list[Any] = []
        sign((self.args, self.kwargs), self.grad, key, tensors)
        if [id(x) for x in tensors] != [id(x) for x in self.examples]:
            raise CheckpointError("its arguments are not in order")
        self.key = tuple(key)
        self.calls = [self._schedule(n) for n in checked_list(content.get("calls", []))]
        self.wants = [contents.wants(n) for _, n in self.states]
        self.captured()

    def _schedule(self, n: object) -> LRScheduler:
        if type(n) is not int or not 0 <= n < len(self.contents.schedules):
            raise CheckpointError(f"it has no schedule {n!r:.40}")
        return self.contents.schedules[n]

    def _numbers(self, content: Any) -> Computed | None:
        if content is None:
            return None
        self.contents.spend(size_of(list(checked_dict(content).values())))
        return Computed(content, self.contents.numbers)

    def _kind(self, n: object) -> Spec:
        if type(n) is not int or not 0 <= n < len(self.kinds):
            raise CheckpointError(f"it has no shape {n!r:.40}")
        return self.kinds[n]

    def captured(self) -> Trace:
        """A capture of the program, on the present tensors.

        Errors: CheckpointError for an invalid program.
        """
        return _ProgramReader(self.contents, self).captured()


class _ProgramReader:
    """Rebuilds the values, ops and nodes of a program, in order."""

    def __init__(self, contents: Contents, text: Text) -> None:
        self.contents, self.text, self.found = contents, text, text.found
        self.streams = self._streams()
        self.values: list[Value] = [Value(s, name=f"x{n}") for n, s in enumerate(text.specs)]
        self.nodes: list[Node] = []
        self.bytes = self.fixed_bytes = 0  # sizes of all values, and of constant ones

    def captured(self) -> Trace:
        """Rebuild the capture."""
        content, text = self.found, self.text
        count = text.first
        inputs = self.values[:]
        owners, tensors = self._states(inputs[count:])
        value_of = {id(x): value for x, value in zip(tensors, inputs[count:], strict=True)}
        self._read_nodes(value_of)
        program = Program(inputs, self.nodes, [self._value(n) for n in content["outputs"]])
        program.verify()
        histories = [checked(each, bool) for each in checked_list(content["histories"])]
        written = [self._place(n) for n in checked_list(content["written"])]
        leaves = [self._leaf(n) for n in checked_list(content["leaves"])]
        checks = [_error(*each) for each in checked_list(content["errors"])]
        step, results, sources, leading = self._backward(len(histories))
        kinds = [*(inputs[count + n].spec for n in written), *(x.spec for x in leaves)]
        ends = [*(inputs[n if kind == "argument" else count + n].spec for kind, n in sources)]
        outputs = program.outputs
        last = len(outputs) - len(checks)
        first = len(kinds) + len(histories)
        if len(set(written)) != len(written) or len(set(map(id, leaves))) != len(leaves):
            raise CheckpointError("it writes something twice")
        if (
            last - len(ends) != first
            or [y.spec for y in outputs[: len(kinds)]] != kinds
            or [y.spec for y in outputs[first:last]] != ends
            or any(prod(y.shape) != 1 or y.spec.dtype is not bool_ for y in outputs[last:])
        ):
            raise CheckpointError("its outputs are not what it says it writes and returns")
        expected = [outputs[len(kinds) + n].spec for n in results]
        if step is not None and [y.spec for y in step.outputs] != expected:
            raise CheckpointError("gradients of its results are not like these")
        states = [x if own is None else None for x, own in zip(tensors, owners, strict=True)]
        presence = [(self._leaf(n), checked(had, bool)) for n, had in content["presence"]]
        effects = Effects(
            written=written,
            leaves=leaves,
            dropped=[self._leaf(n) for n in checked_list(content["dropped"])],
            updates=[node for node in self.nodes if isinstance(node.op, Update)],
            options=0 if text.numbers is None else text.numbers.options,
            calls=[step_of(each) for each in text.calls],
        )
        returned = self._returned(histories, tensors)
        ends_of = [n if kind == "argument" else tensors[n] for kind, n in sources]
        assumptions = Assumptions(
            presence=presence,
            wants=text.wants if text.grad else [x._node is not None for x in tensors],
            alike=[],
            device=CPU,
            looked=[],
            ordered=[self._ordered(*each) for each in checked_list(content.get("ordered", []))],
            errors=checks,
        )
        return Trace(
            program,
            TraceInputs(count, states, owners, self.streams),
            effects,
            Backward(step, results, ends_of, leading),
            returned,
            assumptions,
        )

    # ---- values ----------------------------------------------------------------------------------

    def _place(self, n: object) -> int:
        """Check the number of a state."""
        if type(n) is not int or not 0 <= n < len(self.text.states):
            raise CheckpointError(f"it has no state {n!r:.40}")
        return n

    def _ordered(self, n: object, begins: object) -> tuple[int, bool]:
        """Check the number of an argument that must be row-major."""
        if type(n) is not int or not 0 <= n < len(self.text.examples):
            raise CheckpointError(f"it has no argument {n!r:.40}")
        return n, checked(begins, bool)

    def _leaf(self, n: object) -> Tensor:
        return self.contents.leaf(n)

    def _states(self, values: Sequence[Value]) -> tuple[list[Any], list[Any]]:
        """For each state the leaf whose gradient it is, or None; and its tensor."""
        owners: list[Any] = []
        tensors: list[Any] = []
        for value, (kind, n) in zip(values, self.text.states, strict=True):
            owner = self._leaf(n) if kind == "gradient" else None
            x = self.contents.current(n) if owner is None else owner._leaf.grad
            if kind not in ("gradient", "tensor", "constant") or x is None:
                raise CheckpointError(f"tensor {n} is no {kind!r:.40}")
            if x.spec != value.spec:
                raise CheckpointError(f"a state is {x.spec}, and {value.spec} in the program")
            if kind == "constant":
                value.array = x._data
            owners.append(owner)
            tensors.append(x)
        if len(set(map(id, tensors))) != len(tensors):
            raise CheckpointError("a tensor is two of its states")
        return owners, tensors

    def _streams(self) -> list[CapturedGenerator]:
        streams: list[CapturedGenerator] = []
        generators = self.contents.generators
        for n, count in checked_list(self.found["streams"]):
            if type(n) is not int or not 0 <= n < len(generators) or type(count) is not int:
                raise CheckpointError(f"it has no generator {n!r:.40}")
            stream = CapturedGenerator(generators[n], "")
            stream.count = count
            if not 0 <= count < 2**32 or any(s.generator is generators[n] for s in streams):
                raise CheckpointError(f"generator {n} draws {count!r:.40} times")
            streams.append(stream)
        return streams

    def _value(self, n: object) -> Value:
        value = self._input(n)
        if not isinstance(value, Value):
            raise CheckpointError(f"it gives a number, {value!r:.40}")
        return value

    def _input(self, n: object) -> Any:
        """The value with a number, or a Python number."""
        values = self.values if type(n) is int and n >= 0 else self.constants
        if type(n) is not int or not (n if n >= 0 else -1 - n) < len(values):
            raise CheckpointError(f"it reads value {n!r:.40} before there is one")
        return values[n if n >= 0 else -1 - n]

    def _read_nodes(self, value_of: dict[int, Value]) -> None:
        self.constants: list[Any] = []
        for kind, x in checked_list(self.found["constants"]):
            if kind == "number":
                self.constants.append(checked(OPS.read_field(x), _NUMBER))
            else:
                tensor = self.contents.tensor(x)
                self.constants.append(Value(self._known(tensor), array=tensor._data))
        ops = [(self._op(each), 1 + size_of(each)) for each in checked_list(self.found["ops"])]
        seen: set[str] = set()
        values = (x for x in (*self.values, *self.constants) if isinstance(x, Value))
        fixed = {x for x in values if x.array is not None}
        for k, input_numbers, kinds in checked_list(self.found["nodes"]):
            if type(k) is not int or not 0 <= k < len(ops):
                raise CheckpointError(f"it has no op {k!r:.40}")
            op, cost = ops[k]
            self.contents.spend(cost + len(input_numbers) + len(kinds))
            inputs = [self._input(n) for n in checked_list(input_numbers)]
            if len(checked_list(kinds)) != op.n_outputs:
                raise CheckpointError(f"{op.name} has {op.n_outputs} outputs, not {len(kinds)}")
            node = Node(op, inputs, [self.text._kind(n) for n in kinds])
            self._weigh(node, fixed)
            self._assert_given(node, value_of, seen)
            self.nodes.append(node)
            self.values += node.outputs

    def _weigh(self, node: Node, fixed: set[Value]) -> None:
        """Refuse values that take much more memory than there is. Values that depend on constants
        only (`fixed`, to which they are added) are computed once, and are live at the same time.
        """
        size = sum(prod(y.shape) * y.spec.dtype.itemsize for y in node.outputs)
        self.bytes += size
        if not node.op.drawn and fixed.issuperset(node.values):
            fixed.update(node.outputs)
            self.fixed_bytes += size
        memory = self.contents.memory
        if self.bytes > MAX_VALUES * memory or self.fixed_bytes > memory:
            raise CheckpointError(
                f"its values take {self.bytes} bytes, {self.fixed_bytes} of them for constants, "
                f"which is more than a program in {memory} bytes could have; pass memory=... if "
                "that is meant"
            )

    def _known(self, x: Any) -> Spec:
        spec: Spec = x.spec
        return self.contents.spec((tuple(spec.shape), spec.dtype))

    # ---- ops -------------------------------------------------------------------------------------

    def _op(self, written: Any) -> Op:
        kind = written[0] if type(written) is tuple and written else None
        if kind == "op":
            op = OPS.read(written)
            axes = getattr(op, "axes", ())
            if op.drawn or op.opaque or len(set(axes)) != len(axes):
                raise CheckpointError(f"{op.name} is no op of a program")
            return op
        if kind == "draw":
            _, stream, number, inner, *more = written
            draw = OPS.read(inner)
            if type(stream) is not int or not 0 <= stream < len(self.streams):
                raise CheckpointError(f"it draws from no stream {stream!r:.40}")
            of = self.streams[stream]
            if type(number) is not int or not 0 <= number < of.count or not isinstance(draw, Draw):
                raise CheckpointError(f"it draws {number!r:.40} of {of.count} times")
            names = checked_list(more[0]) if more else []
            floats = [type(name) is str and type(getattr(draw, name, 0)) is float for name in names]
            if not all(floats) or len(set(names)) < len(names):
                raise CheckpointError(f"{draw.name} is not drawn by {names!r:.80}")
            draw = replace(draw, seed=stream, draw=of.first + number)
            return FunctionalDraw(draw, self.streams, named=tuple(names))
        if kind == "cotangents":
            return Cotangents(checked(written[1], int))
        if kind == "ahead":
            return RoutineForward(self._routine(written[1]))
        if kind == "behind":
            _, n, gradients = written
            return RoutineBackward(
                self._routine(n), [checked(x, bool) for x in checked_list(gradients)]
            )
        if kind == "update":
            return self._update(*written[1:])
        raise CheckpointError(f"{kind!r:.40} is no kind of op")

    def _routine(self, n: object) -> HandWritten:
        routines = self.contents.routines
        if type(n) is not int or not 0 <= n < len(routines):
            raise CheckpointError(f"it has no routine {n!r:.40}")
        return routines[n]

    def _update(
        self, n: object, groups: Any, skips: object = False, options: object = None
    ) -> Update:
        optimizers = self.contents.optimizers
        if type(n) is not int or not 0 <= n < len(optimizers):
            raise CheckpointError(f"it has no optimizer {n!r:.40}")
        optimizer = optimizers[n]
        pairs = []
        for number, parameters in checked_list(groups):
            if type(number) is not int or not 0 <= number < len(optimizer.param_groups):
                raise CheckpointError(f"its optimizer has no group {number!r:.40}")
            group = optimizer.param_groups[number]
            own = {id(p) for p in group["params"]}
            chosen = [self._leaf(n) for n in checked_list(parameters)]
            if (
                not chosen
                or not own.issuperset(map(id, chosen))
                or len({*map(id, chosen)}) < len(chosen)
            ):
                raise CheckpointError("its optimizer has other parameters")
            pairs.append((group, chosen))
        if len({number for number, _ in groups}) != len(groups):
            raise CheckpointError("its optimizer steps twice at once")
        more = [self._option(optimizer, *each) for each in checked_list(options or [])]
        kept = [(group, name, group[name]) for group, name, _ in more]
        try:
            for group, name, x in more:  # other options may need other states
                group[name] = group[name] if type(x) is ScalarResult else x
            op = Update(optimizer, pairs)
        finally:
            for group, name, value in kept:
                group[name] = value
        op.skips, op.options = checked(skips, bool), more
        return op

    def _option(
        self, optimizer: ElementwiseOptimizer, g: object, name: Any, written: Any
    ) -> tuple[Any, str, Any]:
        """Deserialize an option of an optimizer's group, and its value in a step."""
        kind, x = written
        if type(g) is not int or not 0 <= g < len(optimizer.param_groups):
            raise CheckpointError(f"its optimizer has no group {g!r:.40}")
        group = optimizer.param_groups[g]
        numbers = self.text.numbers
        if type(group.get(checked(name, str))) not in (int, float):
            raise CheckpointError(f"there is no number in the option {name!r:.40}")
        if kind == "constant":
            assert_options(type(optimizer), {name: checked(x, int | float)})
            return group, name, x
        if kind != "number" or numbers is None or type(x) is not int:
            raise CheckpointError(f"an option is {written!r:.40}")
        if not 0 <= x < numbers.options:
            raise CheckpointError(f"there is no number {x!r:.40} that an option has")
        return group, name, ScalarResult(x)

    def _assert_given(self, node: Node, value_of: dict[int, Value], seen: set[str]) -> None:
        """Refuse inputs that the op itself does not check."""
        op: Any = node.op
        specs = [x.spec if isinstance(x, Value) else None for x in node.inputs]
        if isinstance(op, RoutineForward):
            expected = [*op.written.specs]
        elif isinstance(op, RoutineBackward):
            written = op.written
            if len(op.given) != len(written.differentiable_outputs):
                raise CheckpointError(f"{op.name} is given other gradients")
            pairs = zip(written.differentiable_outputs, op.given, strict=True)
            gradients = [written.outputs[i] for i, has in pairs if has]
            expected = [*written.specs, *written.outputs, *written.routine.kept, *gradients]
        elif isinstance(op, Update):
            if "cotangents" in seen:
                raise CheckpointError("an optimizer steps behind its results")
            seen.add("update")
            self._assert_columns(op, node, value_of)
            return
        elif isinstance(op, Cotangents):
            if seen:
                raise CheckpointError("its results have gradients twice, or behind a step")
            seen.add("cotangents")
            if len(specs) != op.n_outputs or None in specs:
                raise CheckpointError("its results are not those that have gradients")
            return
        else:
            kind: Any = type(op.draw if isinstance(op, FunctionalDraw) else op)
            named = len(op.named) if isinstance(op, FunctionalDraw) else 0
            least, most = _inputs_of(kind)
            if not least <= len(specs) - named <= most:
                raise CheckpointError(f"{op.name} is given {len(specs)} inputs")
            if any(x is None or x.shape != () for x in specs[len(specs) - named :]):
                raise CheckpointError(f"{op.name} is drawn by what is no number")
            return
        if specs != expected:
            raise CheckpointError(f"{op.name} is given {specs!r:.200}")

    def _assert_columns(self, op: Update, node: Node, value_of: dict[int, Value]) -> None:
        """Let an optimizer use its own parameters and states only, with their values at
        that point.
        """
        values = iter(node.inputs)
        for columns in op.columns:
            kinds: dict[Any, list[Any]] = {}
            for k, column in enumerate(columns):
                for p, x in zip(columns[0], column, strict=True):
                    value = next(values, None)
                    if not isinstance(value, Value) or value.shape != p._data.shape:
                        raise CheckpointError("an optimizer is given what is no state of its own")
                    if k != 1 and value_of.get(id(x)) is not value:
                        raise CheckpointError("an optimizer is given other states than its own")
                    if k == 1 and value.spec.dtype is not p.dtype:
                        raise CheckpointError("an optimizer is given gradients of another dtype")
                    kinds.setdefault((p.dtype, k), []).append(value.spec.dtype)
            if any(len(set(each)) != 1 for each in kinds.values()):
                raise CheckpointError("an optimizer is given states of several dtypes")
        if op.skips:
            skip = next(values, None)
            if not isinstance(skip, Value) or skip.shape != () or skip.spec.dtype is not bool_:
                raise CheckpointError("it is no boolean that lets an optimizer skip a step")
        if next(values, None) is not None:
            raise CheckpointError("an optimizer is given more than its states")
        for x, y in zip(op.written(), node.outputs, strict=True):
            value_of[id(x)] = y

    # ---- results ---------------------------------------------------------------------------------

    def _backward(
        self, count: int
    ) -> tuple[Any, tuple[int, ...], list[tuple[str, int]], list[frozenset[int]]]:
        """Deserialize the backward part: the node behind which gradients come in, the results (of
        `count`) that they belong to, their sources, and the results on which each source's gradient
        depends.
        """
        n, results, sources, leading = self.found["backward"]
        cotangents = [node for node in self.nodes if isinstance(node.op, Cotangents)]
        if n is None:
            if cotangents or any(map(checked_list, (results, sources, leading))):
                raise CheckpointError("it has gradients of nothing")
            return None, (), [], []
        if type(n) is not int or not 0 <= n < len(self.nodes) or not self.text.grad:
            raise CheckpointError(f"it has no node {n!r:.40}")
        good = all(type(k) is int and 0 <= k < count for k in checked_list(results))
        if cotangents != [self.nodes[n]] or not good or len(set(results)) != len(results):
            raise CheckpointError("it has gradients of other results")
        pairs: list[tuple[str, int]] = []
        for kind, k in checked_list(sources):
            candidates = self.text.examples if kind == "argument" else self.text.states
            if type(k) is not int or not 0 <= k < len(candidates):
                raise CheckpointError(f"it has no {kind!r:.40} {k!r:.40}")
            if kind == "argument":
                wants = candidates[k]._node is not None
            else:
                wants = candidates[k][0] == "tensor" and self.contents.wants(candidates[k][1])
            if not wants:
                raise CheckpointError(f"{kind!r:.40} {k} wants no gradient")
            pairs.append((kind, k))
        if not pairs or len(set(pairs)) != len(pairs):
            raise CheckpointError("its gradients lead nowhere")
        led = [checked_list(each) for each in checked_list(leading)]
        numbers = set(range(len(results)))
        if len(led) != len(pairs) or not all(
            type(k) is int and k in numbers for each in led for k in each
        ):
            raise CheckpointError("its gradients depend on other results")
        return self.nodes[n], tuple(results), pairs, list(map(frozenset, led))

    def _returned(self, histories: Sequence[bool], tensors: Sequence[Any]) -> Returned:
        made = [checked(each, bool) for each in checked_list(self.found["made"])]
        if len(made) != len(histories):
            raise CheckpointError("it returns its results in another order")
        computed = []
        for has, is_leaf in zip(histories, made, strict=True):
            y = wrap(_NOTHING).requires_grad_(has or is_leaf)
            computed.append(y.clone() if has else y)
        arguments = [wrap(_NOTHING) for _ in self.text.examples]
        numbers = [] if self.text.numbers is None else self.text.numbers.results
        by_kind: dict[str, Sequence[Any]] = {
            "tensor": computed, "argument": arguments, "state": tensors, "number": numbers
        }  # fmt: skip
        result = filled(self.found["returned"], by_kind)
        _, call_arguments = result
        for schedule, (args, kwargs) in zip(
            self.text.calls, checked_list(call_arguments), strict=True
        ):
            if not takes(schedule, checked(args, tuple), kwargs):
                name = type(schedule).__name__
                raise CheckpointError(f"{name} is stepped with other arguments")
        returned = Returned(result, {id(x): x for x in tensors}, arguments)
        for own, expected in ((returned.tensors, computed), (returned.numbers, numbers)):
            if [id(x) for x in own] != [id(x) for x in expected]:
                raise CheckpointError("it returns its results in another order")
        why = self.found["why"]
        returned.close(None if why is None else short(why))
        return returned


_NOTHING = np.zeros(0, np.float32)


@functools.lru_cache(maxsize=1024)
def _inputs_of(kind: type[Op]) -> tuple[int, int]:
    """Least and largest number of inputs of an op class: by the signature of `compute`, or by its
    samples where that takes any number.
    """
    _, _, *parameters = inspect.signature(kind.compute).parameters.values()
    if all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters):
        return sum(p.default is p.empty for p in parameters), len(parameters)
    if kind.joins or kind.samples.__func__ is Op.samples.__func__:  # type: ignore[attr-defined]
        return 1, MAX_PARTS
    counts = [len(sample.inputs) for sample in kind.samples()]
    return min(counts), max(counts)


def _error(name: object, message: object) -> Callable[[], Exception]:
    """A constructor of an exception of adjoint's."""
    kind: Any = vars(errors).get(checked(name, str))
    if name not in errors.__all__ or not is_class_of(kind, errors.AdjointError):
        raise CheckpointError(f"there is no error {name!r:.80}")
    return partial(kind, short(message))
