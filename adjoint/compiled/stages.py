"""What passes make of a compiled function's program: it before them, and after each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import InvalidArgument
from ..core.tensor_base import TensorBase
from ..inference.drawing import snapshot
from ..inference.schedule import Schedule
from ..nn.modules.module import Module
from ..optim.optimizer import Optimizer
from ..program.listing import listing
from ..program.program import Program
from ..program.rewriting import watching
from ..view.page import stages_to_html
from ..view.snapshot import Snapshot
from .capture import Captured


class Stage(NamedTuple):
    """A program after a pass. `print` it."""

    name: str  # of the pass; "captured" is before all
    part: int  # parts lie between the steps of optimizers; -1: the whole
    before: int  # nodes
    changes: int
    program: Program
    schedule: Schedule | None  # of what runs

    @property
    def nodes(self) -> int:
        """How many there are now."""
        return len(self.program.nodes)

    @property
    def title(self) -> str:
        """Which one it is, in words."""
        where = f"part {self.part}: " if self.part >= 0 else ""
        return f"{where}{self.name}"

    def snapshot(self) -> Snapshot:
        """The picture: nodes of a kernel are in its box."""
        return snapshot(self.title, self.program, self.schedule)

    def __str__(self) -> str:
        return f"{self.title}: {self.before} -> {self.nodes} nodes\n{listing(self.program)}"


class Stages:
    """The program of a compiled function before and after each pass: `stages`, in order. A program
    in parts (of what comes before an optimizer's step, and after it) passes part by part. `print`
    it for a table; `draw` it.
    """

    def __init__(self, title: str, stages: Sequence[Stage]) -> None:
        self.title = title
        self.stages = list(stages)

    @property
    def changed(self) -> list[Stage]:
        """Those that differ from the one before."""
        return [each for each in self.stages if each.changes or each.name in (CAPTURED, RUNS)]

    def __getitem__(self, name: str) -> Stage:
        """The first stage after the pass of that name that changed something; else the first.

        Errors: InvalidArgument names those that there are.
        """
        found = [each for each in self.stages if each.name == name]
        if not found:
            names = ", ".join(dict.fromkeys(each.name for each in self.stages))
            raise InvalidArgument(f"graph: no stage {name!r}; there are {names}")
        return next((each for each in found if each.changes), found[0])

    def draw(self, path: Any, stage: str = "") -> Path:
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
            runs = [each for each in self.stages if each.name == RUNS] or self.stages
            found = (self[stage] if stage else max(runs, key=lambda x: x.nodes)).snapshot()
            text = found.to_svg() if path.suffix == ".svg" else found.to_dot()
        path.write_text(text, encoding="utf-8")
        return path

    def __str__(self) -> str:
        width = max(len(each.title) for each in self.stages)
        lines = [f"{self.title}: {len(self.stages)} stages", f"  {'':{width}}  changes  nodes"]
        for each in self.stages:
            count = str(each.changes or "--") if each.name not in (CAPTURED, RUNS) else ""
            lines.append(f"  {each.title:{width}}  {count:>7}  {each.nodes:5}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Stages {self.title!r}: {len(self.stages)}>"


CAPTURED, RUNS = "captured", "runs"


def name_inputs(captured: Captured, function: Callable[..., Any], objects: Sequence[Any]) -> None:
    """Call a program's inputs what users call them: arguments by number, and states by the modules
    and optimizers among the `objects` that a function was given, or uses by name.
    """
    used: dict[str, Any] = {}
    if isinstance(function, Module):
        used[""] = function
    else:
        code = inspect.unwrap(getattr(function, "__func__", function))
        if inspect.isfunction(code):
            found = inspect.getclosurevars(code)
            used = {**found.globals, **found.nonlocals}
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
    count = captured.arguments
    for n, value in enumerate(captured.program.inputs[:count]):
        value.name = f"argument {n}"
    for value, x, owner in zip(
        captured.program.inputs[count:], captured.states, captured.owners, strict=True
    ):
        if owner is not None:
            value.name = f"{names[id(owner)]}.grad" if id(owner) in names else "a gradient"
        else:
            value.name = names.get(id(x), "" if value.array is not None else "a tensor")


def stages_of(title: str, program: Program, compiled: Callable[[], Any]) -> Stages:
    """Those through which a program passes in `compiled()`, which makes a `Compiled` of it."""
    found = [Stage(CAPTURED, -1, len(program.nodes), 0, program.copied(), None)]
    parts: list[Program] = []
    before: list[int] = []

    def watch(name: str, graph: Program, made: int | None) -> None:
        if made is None:
            if graph is not program and not any(graph is each for each in parts):
                parts.append(graph)
                found.append(
                    Stage(CAPTURED, len(parts) - 1, len(graph.nodes), 0, graph.copied(), None)
                )
            before.append(len(graph.nodes))
            return
        part = next((n for n, each in enumerate(parts) if each is graph), -1)  # the whole program
        found.append(Stage(name, part, before.pop(), made, graph.copied(), None))

    with watching(watch):
        made = compiled()
    for part in made.parts:
        n = next(n for n, each in enumerate(parts) if each is part.graph)
        last = max(k for k, each in enumerate(found) if each.part == n)
        nodes = len(part.graph.nodes)
        found.insert(last + 1, Stage(RUNS, n, nodes, 0, part.graph, part.schedule))
    empty = {x.part for x in found[1:] if x.name == CAPTURED and not x.nodes}
    return Stages(title, [each for each in found if each.part not in empty])
