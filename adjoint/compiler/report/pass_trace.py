"""Dump of a compiled function's program: as captured, and after each pass."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...core import policy
from ...core.errors import InvalidArgument
from ...core.tensor_base import TensorBase
from ...ir.listing import listing
from ...ir.program import Program
from ...ir.rewriting import watching
from ...nn.modules.module import Module
from ...optim.optimizer import Optimizer
from ...reactive.view.page import stages_to_html
from ...reactive.view.snapshot import Snapshot
from ..capture.trace import Trace
from ..schedule.schedule import Schedule
from .pictures import snapshot


class PassResult(NamedTuple):
    """The program after one pass. `print` it."""

    name: str  # name of the pass; "captured" is the program before all passes
    part: int  # number of the segment between optimizers' steps; -1: the whole program
    before: int  # nodes
    changes: int
    program: Program
    schedule: Schedule | None  # of the program that runs

    @property
    def nodes(self) -> int:
        """Number of nodes after the pass."""
        return len(self.program.nodes)

    @property
    def title(self) -> str:
        """Name of the stage, in words."""
        where = f"part {self.part}: " if self.part >= 0 else ""
        return f"{where}{self.name}"

    def snapshot(self) -> Snapshot:
        """Picture of the program, with the nodes of a kernel in its box."""
        return snapshot(self.title, self.program, self.schedule)

    def __str__(self) -> str:
        return f"{self.title}: {self.before} -> {self.nodes} nodes\n{listing(self.program)}"


class PassTrace:
    """The program of a compiled function before and after each pass: `stages`, in order. A program
    in segments (before and after an optimizer's step) goes through the passes segment by segment.
    `print` it for a table; `draw` it.
    """

    def __init__(self, title: str, stages: Sequence[PassResult]) -> None:
        self.title = title
        self.stages = list(stages)

    @property
    def changed(self) -> list[PassResult]:
        """Stages that differ from the one before."""
        return [each for each in self.stages if each.changes or each.name in (CAPTURED, RUNS)]

    def __getitem__(self, name: str) -> PassResult:
        """The first stage after the pass of that name that changed something; else the first.

        Errors: InvalidArgument names those that there are.
        """
        same_name = [each for each in self.stages if each.name == name]
        if not same_name:
            names = ", ".join(dict.fromkeys(each.name for each in self.stages))
            raise InvalidArgument(f"graph: no stage {name!r}; there are {names}")
        return next((each for each in same_name if each.changes), same_name[0])

    def draw(self, path: str | os.PathLike[str], stage: str = "") -> Path:
        """Draw it: `.html` is the interactive page, where one chooses a stage; `.svg` and `.dot`
        are Graphviz's, of the named `stage`, or else of the largest part as it runs.

        Errors: InvalidArgument for another suffix or stage; Unsupported for `.svg` without
        Graphviz.
        """
        path = Path(path)
        if path.suffix not in (".svg", ".dot", ".html"):
            raise InvalidArgument(
                f"draw: {path.name!r}: the suffix says what to draw: .svg, .dot or .html"
            )
        if path.suffix == ".html":
            shown = self.changed if not stage else [self[stage]]
            text = stages_to_html(self.title, [each.snapshot() for each in shown])
        else:
            picture = (self[stage] if stage else self._largest).snapshot()
            text = picture.to_svg() if path.suffix == ".svg" else picture.to_dot()
        path.write_text(text, encoding="utf-8")
        return path

    def __str__(self) -> str:
        width = max(len(each.title) for each in self.stages)
        lines = [f"{self.title}: {len(self.stages)} stages", f"  {'':{width}}  changes  nodes"]
        for each in self.stages:
            count = str(each.changes or "--") if each.name not in (CAPTURED, RUNS) else ""
            lines.append(f"  {each.title:{width}}  {count:>7}  {each.nodes:5}")
        return "\n".join(lines)

    @property
    def _largest(self) -> PassResult:
        """The largest part of the program as it runs."""
        runs = [each for each in self.stages if each.name == RUNS] or self.stages
        return max(runs, key=lambda each: each.nodes)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from ...reactive.view.notebook import of_graph, of_page

        last = self._largest.snapshot()
        if sum(each.nodes for each in self.changed) << 6 > policy.PAGE_INLINE:
            return of_graph(self, last)
        shown = [each.snapshot() for each in self.changed]
        return of_page(self, last, stages_to_html(self.title, shown))

    def __repr__(self) -> str:
        return f"<Stages {self.title!r}: {len(self.stages)}>"


CAPTURED, RUNS = "captured", "runs"


def name_inputs(captured: Trace, function: Callable[..., Any], objects: Sequence[Any]) -> None:
    """Name a program's inputs for users: arguments by number, states by the modules and optimizers
    that are among the `objects` of the call, or that the function refers to.
    """
    used: dict[str, Any] = {}
    if isinstance(function, Module):
        used[""] = function
    else:
        code = inspect.unwrap(getattr(function, "__func__", function))
        if inspect.isfunction(code):
            variables = inspect.getclosurevars(code)
            used = {**variables.globals, **variables.nonlocals}
        owner = getattr(function, "__self__", None)
        used.update({} if owner is None else {"self": owner, **getattr(owner, "__dict__", {})})
    used.update((type(x).__name__.lower(), x) for x in objects)
    names: dict[int, str] = {}
    for name, x in used.items():
        if isinstance(x, Module):
            for path, y in (*x.named_parameters(), *x.named_buffers()):
                names.setdefault(id(y), f"{name}.{path}".lstrip("."))
        elif isinstance(x, TensorBase):
            names.setdefault(id(x), name)
    for name, x in used.items():
        if isinstance(x, Optimizer):
            for p, state in x.state.items():
                of = names.get(id(p), "a parameter")
                names.update((id(y), f"{name}: {key} of {of}") for key, y in state.items())
    count = captured.inputs.arguments
    for n, value in enumerate(captured.program.inputs[:count]):
        value.name = f"argument {n}"
    for value, x, owner in zip(
        captured.program.inputs[count:], captured.inputs.states, captured.inputs.owners, strict=True
    ):
        if owner is not None:
            value.name = f"{names[id(owner)]}.grad" if id(owner) in names else "a gradient"
        else:
            value.name = names.get(id(x), "" if value.array is not None else "a tensor")


def stages_of(title: str, program: Program, compiled: Callable[[], Any]) -> PassTrace:
    """Record the stages through which a program passes in `compiled()`, which makes a `Compiled` of
    it.
    """
    stages = [PassResult(CAPTURED, -1, len(program.nodes), 0, program.copied(), None)]
    parts: list[Program] = []
    before: list[int] = []

    def watch(name: str, graph: Program, made: int | None) -> None:
        if made is None:
            if graph is not program and not any(graph is each for each in parts):
                parts.append(graph)
                stages.append(
                    PassResult(CAPTURED, len(parts) - 1, len(graph.nodes), 0, graph.copied(), None)
                )
            before.append(len(graph.nodes))
            return
        part = next((n for n, each in enumerate(parts) if each is graph), -1)  # the whole program
        stages.append(PassResult(name, part, before.pop(), made, graph.copied(), None))

    with watching(watch):
        made = compiled()
    for part in made.parts:
        n = next(n for n, each in enumerate(parts) if each is part.graph)
        last = max(k for k, each in enumerate(stages) if each.part == n)
        nodes = len(part.graph.nodes)
        stages.insert(last + 1, PassResult(RUNS, n, nodes, 0, part.graph, part.schedule))
    empty = {x.part for x in stages[1:] if x.name == CAPTURED and not x.nodes}
    return PassTrace(title, [each for each in stages if each.part not in empty])
