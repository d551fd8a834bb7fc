"""Inspection of graphs: drawings, the interactive page, and `summary`.

Importing this costs nothing: what draws is imported when it is used.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ...tensor import Tensor
from .. import Graph

if TYPE_CHECKING:
    from pathlib import Path

    from .. import Log
    from .origins import Observation
    from .snapshot import Snapshot
    from .table import Summary

__all__ = ["graph", "observe", "summary"]


def graph(input: Tensor, model: Any = None, title: str = "graph", **modules: Any) -> Snapshot:
    """Snapshot of the recorded operations that led to this tensor: `.nodes`, `.edges`, `.to_dot()`,
    `.to_svg()` and `.save_html(path)`. Of a lazy tensor that is not computed yet: the operations
    that will run.

    Parameters of `model` (a Module) are shown with the names that they have in it; modules given by
    keyword (`G=generator`), and their parameters, with that name before. What ran inside
    `adjoint.view.observe()` is shown with its module, source line and time.

    Errors: InvalidType for a keyword that is no Module.

    >>> w = ad.tensor(2.0, requires_grad=True)
    >>> (w * 3).exp().graph()
    <Snapshot 'graph': 3 nodes, 2 edges>
    """
    from .graphs import snapshot_of

    return snapshot_of(input, title, None, model, modules)


def _snapshot(
    graph: Graph, log: Log | None = None, title: str = "graph", **modules: Any
) -> Snapshot:
    """Snapshot of all nodes of a Graph; with a `log` of its events, their times. Modules given by
    keyword are shown with that name.

    >>> graph = ad.Graph()
    >>> y = graph.input(1.0, name="x") + 1
    >>> [(node.title, node.state) for node in graph.snapshot().nodes]
    [('x', 'fresh'), ('add', 'never')]
    """
    from .graphs import snapshot_of

    return snapshot_of(graph, title, log, None, modules)


def _to_dot(graph: Graph) -> str:
    """The graph in Graphviz's language; see `Snapshot.to_dot`."""
    return _snapshot(graph).to_dot()


def _to_svg(graph: Graph) -> str:
    """The drawing by Graphviz; see `Snapshot.to_svg`."""
    return _snapshot(graph).to_svg()


def _save_html(
    graph: Graph, path: Any, log: Log | None = None, title: str = "graph", **modules: Any
) -> Path:
    """Write the interactive page, one file that needs no network; returns its path.

    With `log`, a `graph.events()` that has seen nodes run, it shows their times; modules given by
    keyword with that name.

    >>> graph = ad.Graph()
    >>> y = graph.input(1.0) + 1
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     graph.save_html(folder + "/graph.html").name
    'graph.html'
    """
    return _snapshot(graph, log, title, **modules).save_html(path)


def _repr_mimebundle_(graph: Graph, **_: Any) -> dict[str, str]:
    """The bundle that notebooks show: the graph as it stands."""
    from .notebook import of_graph

    return of_graph(graph, _snapshot(graph))


Tensor.graph = graph  # type: ignore[attr-defined]
for _name, _function in {
    "snapshot": _snapshot, "to_dot": _to_dot, "to_svg": _to_svg, "save_html": _save_html,
    "_repr_mimebundle_": _repr_mimebundle_,
}.items():  # fmt: skip
    setattr(Graph, _name, _function)


def observe(keep_values: bool = False) -> AbstractContextManager[Observation]:
    """Context manager that notes, for each node made in the block, its module, source line and
    time.

    Drawings made later show them. It costs some tens of microseconds for each op and call of
    a module. Values are shown while something holds them; with `keep_values`, nodes hold their own.

    >>> model = ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.ReLU())
    >>> with ad.view.observe():
    ...     y = model(ad.ones(1, 2))
    >>> [node.module for node in y.graph().nodes if node.kind == "op"]
    ['Sequential.0', 'Sequential.1']
    """
    from .origins import observing

    return observing(keep_values)


def summary(model: Any, *inputs: Any, **named_inputs: Any) -> Summary:
    """The layers of `model` with output shapes, parameters and multiply-adds, as a table to print.

    The model is called once with the inputs, on a copy in evaluation mode; a tuple of ints stands
    for zeros of that shape. Multiply-adds are those of matrix products and convolutions, counted
    as they run. The model itself, its buffers and the random state stay as they are.

    Errors: InvalidArgument where the model cannot be copied.

    >>> print(ad.summary(ad.nn.Linear(3, 2), (4, 3)))
    layer   class   output  parameters  trainable  multiply-adds
    (model) Linear  (4, 2)           8          8             24
    <BLANKLINE>
    total: 8 parameters, 8 trainable, 24 multiply-adds
    """
    from .table import summarize

    return summarize(model, inputs, named_inputs)
