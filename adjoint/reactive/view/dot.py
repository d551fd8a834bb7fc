"""A snapshot in Graphviz's language, and as SVG drawn by Graphviz."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from ...core.errors import Unsupported
from .layout import module_paths
from .snapshot import NodeInfo, Snapshot

GREY = "#b8bec6"
_STYLES = {
    "op": 'shape=box style="rounded,filled" fillcolor="#ffffff"',
    "parameter": 'shape=ellipse style=filled fillcolor="#ffe9b8"',
    "frozen": 'shape=ellipse style=filled fillcolor="#dce9f2"',
    "input": 'shape=invhouse style=filled fillcolor="#cdeccd"',
    "constant": 'shape=plaintext fontcolor="#566270"',
    "boundary": f'shape=box style="rounded,dashed" color="{GREY}" fontcolor="{GREY}"',
}


def quoted(text: str) -> str:
    """A string of Graphviz's language: nothing in it is read as an escape or as HTML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " else " " for c in escaped) + '"'


def _label(*lines: str) -> str:
    """A label of several lines."""
    return '"' + "\\n".join(quoted(line)[1:-1] for line in lines if line) + '"'


def to_dot(snapshot: Snapshot) -> str:
    """The snapshot in Graphviz's language; modules become clusters."""
    lines = [
        f"digraph {quoted(snapshot.title)} {{",
        "  rankdir=TB",
        '  node [fontname="Helvetica" fontsize=11 color="#7d8794"]',
        '  edge [color="#7d8794" arrowsize=0.6]',
        *_clusters(snapshot),
    ]
    for edge in snapshot.edges:
        source, target = snapshot.nodes[edge.source], snapshot.nodes[edge.target]
        dashed = "boundary" in (source.kind, target.kind)
        style = f' [style=dashed color="{GREY}"]' if dashed else ""
        lines.append(f"  n{edge.source} -> n{edge.target}{style}")
    return "\n".join([*lines, "}"]) + "\n"


def _clusters(snapshot: Snapshot) -> Iterator[str]:
    """Node statements within nested clusters, in one pass over the nodes sorted by path."""
    paths = [tuple(path.split(".")) if path else () for path in module_paths(snapshot)]
    order = sorted(range(len(snapshot.nodes)), key=paths.__getitem__)
    opened: tuple[str, ...] = ()
    number = 0
    for i in order:
        parts = paths[i]
        common = 0
        while common < min(len(parts), len(opened)) and parts[common] == opened[common]:
            common += 1
        for depth in range(len(opened), common, -1):
            yield "  " * depth + "}"
        for depth in range(common, len(parts)):
            number += 1
            indent = "  " * (depth + 1)
            yield f"{indent}subgraph cluster_{number} {{"
            yield f'{indent}  label={quoted(parts[depth])} fontname="Helvetica" color="{GREY}"'
        opened = parts
        yield "  " * (len(parts) + 1) + _statement(i, snapshot.nodes[i])
    for depth in range(len(opened), 0, -1):
        yield "  " * depth + "}"


def _statement(i: int, node: NodeInfo) -> str:
    shape = "" if node.shape is None else f"{node.shape} {node.dtype}".rstrip()
    stale = node.state == "stale"
    label = _label(
        node.title, shape, "frozen" if node.kind == "frozen" else "", "stale" if stale else ""
    )
    marked = ' color="#d9730d" penwidth=2' if stale else ""
    return f"n{i} [label={label} {_STYLES[node.kind]}{marked}]"


def to_svg(snapshot: Snapshot) -> str:
    """The drawing by Graphviz's `dot`."""
    program = shutil.which("dot")
    if program is None:
        raise Unsupported(
            "to_svg: Graphviz's program `dot` is not installed; install it (Debian: apt-get "
            "install graphviz, macOS: brew install graphviz), or use save_html, which needs nothing"
        )
    run = subprocess.run(
        [program, "-Tsvg"], input=to_dot(snapshot).encode(), capture_output=True, check=False
    )
    if run.returncode:
        raise Unsupported(f"to_svg: Graphviz failed: {run.stderr.decode(errors='replace').strip()}")
    return run.stdout.decode()
