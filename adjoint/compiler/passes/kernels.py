"""Fusion of elementwise ops and reductions into kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ...backends import native
from ...core import dispatch_log
from ...core.errors import AdjointError, NotTraceable, Unsupported
from ...core.op import Op
from ...core.spec import Spec
from ...core.symbolic_sizes import Filling, all_known, is_size
from ...ir.compute import compute
from ...ir.partition import regions
from ...ir.program import Node, Program, Value, modules_of, take_apart
from ...ir.rewriting import rewriting
from .accumulate import running_sums
from .basic_passes import sort
from .fusion_roles import is_cheap, role
from .rematerialize import recompute, recompute_behind

if TYPE_CHECKING:
    from ...autograd.protocols import BackendArray


class Kernel(Op, abstract=True):
    """A fused group of ops, on the inputs of the group; equal only to itself."""

    library = "always"
    written_stays = False  # see `recompute`
    late: Callable[[], Program] | None = None  # its program, where that in `program` has symbols
    across: list[set[Value]] | None = None  # where it is final: see `barrier_free._across`

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        checked: Collection[Value] = (),
        again: Collection[Node] = (),
    ) -> None:
        """`checked`: inputs whose values are checked before the kernel runs, if it refuses some.
        `again`: nodes that rematerialize values.

        Errors: NotTraceable for a group that is no kernel.
        """
        self.name_ = "_".join(node.op.name for node in nodes[:3]) + ("_..." if nodes[3:] else "")
        self.program = Program(inputs, nodes, outputs)
        self.again = tuple(k for k, node in enumerate(nodes) if node in again)
        self.specs = tuple(y.spec for y in outputs)
        self.n_outputs = len(outputs)  # type: ignore[misc]
        self.composite = self.written()
        if self.composite.gathers or any(
            inputs[n] not in checked for _, _, n in self.composite.guards
        ):
            raise NotTraceable("what an index picks")

    def written(self) -> Any:
        """Generate the kernel's code; equal kernels share one program."""
        from ...backends.native.lowering.composite import composite_of

        composite, self.program = composite_of(self.program)
        return composite

    def resized(self, fill: Callable[[Any], Any]) -> Kernel:
        """A node's op with the same kernels for other sizes."""
        values = [*self.program.inputs, *(y for node in self.program.nodes for y in node.outputs)]
        if all(all_known(x.spec.shape) for x in values):
            return self
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made.specs = fill(self.specs)
        composite = self.composite
        made.composite = composite.sized(fill, [fill(x) for x in composite.sources])
        return made

    @property
    def shown(self) -> Program:
        """The program in which all sizes are known: for reports. Others look at no sizes of it."""
        return self.program if self.late is None else self.late()

    @property
    def name(self) -> str:
        """Name after the first ops."""
        return self.name_

    def infer(self, *specs: Spec) -> Spec | tuple[Spec, ...]:
        """Specs of the group's outputs."""
        return self.specs if len(self.specs) > 1 else self.specs[0]

    def compute(self, xp: Any, *arrays: Any) -> BackendArray | tuple[BackendArray, ...]:
        """Compute one op after another, without fusion."""
        values = dict(zip(self.program.inputs, arrays, strict=True))
        for node in self.program.nodes:
            args = [values[x] if isinstance(x, Value) else x for x in node.inputs]
            values[node.output] = compute(node.op, args)
        outputs = tuple(values[y] for y in self.program.outputs)
        return outputs if len(outputs) > 1 else outputs[0]


def assert_refused(nodes: Sequence[Node], inputs: Sequence[Value]) -> None:
    """Check that it is not for symbolic sizes only that nodes are no kernel: known ones would give
    another program.

    Errors: Unsupported.
    """
    from ...backends.native.lowering.composite import composite_of

    symbols: list[Any] = [n for x in inputs for n in x.spec.shape if is_size(n)]
    if not symbols:
        return
    fill = Filling(symbols[0].arithmetic.values)
    outputs = [y for node in nodes for y in node.outputs]
    try:
        composite_of(program_of_sizes(Program(inputs, nodes, outputs), fill))
    except (NotTraceable, AdjointError):
        return
    raise Unsupported(f"{nodes[0].op.name} is a kernel for known sizes only")


def program_of_sizes(program: Program, fill: Callable[[Any], Any]) -> Program:
    """A copy of a program whose sizes are symbols, with those that `fill` has."""
    now: dict[Any, Any] = {x: Value(fill(x.spec), name=x.name) for x in program.inputs}
    nodes = []
    for node in program.nodes:
        inputs = [now.get(x, x) if type(x) is Value else fill(x) for x in node.inputs]
        nodes.append(Node(fill(node.op), inputs, [fill(y.spec) for y in node.outputs]))
        nodes[-1].module = node.module
        now.update(zip(node.outputs, nodes[-1].outputs, strict=True))
    inputs, outputs = ([now[x] for x in each] for each in (program.inputs, program.outputs))
    return Program(inputs, nodes, outputs)


@rewriting
def fuse_kernels(
    graph: Program,
    checked: bool = False,
    said: list[tuple[str, str]] | None = None,
    again: bool = False,
    kind: type[Kernel] = Kernel,
) -> int:
    """Fuse groups of elementwise ops and reductions into kernels; returns how many kernels there
    are, plus how many values are rematerialized. `checked`: the values of inputs, and of views of
    them, are checked before the program runs, where a kernel refuses some. `said` gets the ops that
    begin another kernel, with the reasons. `again`: rematerialize values where less memory is live
    then. `kind` is the class of kernels.
    """
    if kind is Kernel and not native.load():
        return 0
    shown = _shown(graph) if checked else set()
    sums = running_sums(graph) if again else {}
    groups, cuts = regions(graph, role, sums)
    made = 0
    copies: list[Node] = []
    if again:
        made = recompute(graph, groups, is_cheap, copies, kind.written_stays)
    copied = set(copies)
    if said is not None:
        each = [(node.op.name, reason) for node, reason in cuts]
        shared = {pair: pair for pair in each}
        said += [shared[pair] for pair in each]
    if dispatch_log.on:
        for node, reason in cuts:
            what = dispatch_log.named(node.op.name, [x.spec for x in node.values])
            dispatch_log.said(what, "cut from the kernel of an input", reason)
    changes: dict[Value, Value] = {}
    replacement: dict[Node, list[Node]] = {}  # the last node of a group -> the kernel's node
    gone: set[Node] = set()
    kept: set[Node] = set()  # by kernels, which others have copies of
    users = graph.users()
    outputs = set(graph.outputs)
    stack = list(reversed(groups))
    while stack:
        nodes = stack.pop()
        members = set(nodes)
        inputs = list(dict.fromkeys(
            x for node in nodes for x in node.values if x.node not in members))  # fmt: skip
        results = [
            node.output for node in nodes
            if node.output in outputs or any(u not in members for u in users[node.output])
        ]  # fmt: skip
        try:
            op = kind(nodes, inputs, results, shown, copied)
        except (NotTraceable, AdjointError) as error:
            assert_refused(nodes, inputs)
            if dispatch_log.on:
                names = "_".join(node.op.name for node in nodes)
                what = dispatch_log.named(names, [x.spec for x in inputs])
                dispatch_log.said(what, "several kernels" if nodes[1:] else "its op", error)
            if len(nodes) > 1:
                half = len(nodes) // 2
                stack += [nodes[half:], nodes[:half]]
            continue
        kernel = Node(op, inputs, op.specs)
        kernel.module = modules_of(nodes)
        changes.update(zip(results, kernel.outputs, strict=True))
        gone |= members
        kept.update(op.program.nodes)
        replacement[nodes[-1]] = [kernel]
        made += 1
    graph.nodes = [
        n for node in graph.nodes for n in (replacement.get(node, ()) if node in gone else (node,))
    ]
    graph.replace(changes)
    sort(graph)
    take_apart(gone - kept)
    return made


def _shown(graph: Program) -> set[Value]:
    """The inputs of a program, and views of them."""
    shown = set(graph.inputs)
    for node in graph.nodes:
        if node.op.view and node.inputs[0] in shown:
            shown.update(node.outputs)
    return shown


@rewriting
def keep_less(graph: Program, first: int, moving: Collection[Value]) -> int:
    """Let kernels of the nodes from number `first` on rematerialize results of cheap ops before, if
    fewer bytes must be kept for them; returns how many values. The memory of values that are
    `moving` may be overwritten in between.
    """
    if not native.load():
        return 0
    later = set(graph.nodes[first:])
    groups, _ = regions(graph, lambda node: role(node) if node in later else "before")
    return len(recompute_behind(graph, groups, later, is_cheap, moving=moving))
