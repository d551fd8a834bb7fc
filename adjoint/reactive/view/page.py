"""The interactive page: one HTML file with its style, its script and the graph's data."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from math import isfinite
from typing import Any

from .layout import describe, layout
from .snapshot import SAMPLE, NodeInfo, Snapshot

READ_AT_MOST = 20_000_000  # elements, of all nodes together, that statistics read


def to_html(snapshot: Snapshot, live: bool = False) -> str:
    """The page; a live page asks its server for details and follows the graph."""
    return page_of(snapshot.title, {**page_data(snapshot, details=not live), "live": live})


def stages_to_html(title: str, snapshots: Sequence[Snapshot]) -> str:
    """A page with one graph at several stages, from which the user chooses; the last is shown
    first.
    """
    stages = [page_data(each) for each in snapshots]
    return page_of(title, {**stages[-1], "title": title, "live": False, "stages": stages})


def page_of(title: str, data: dict[str, Any]) -> str:
    """The page with this data (see `page_data`), and whether it is `live`."""
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    connects = "self" if data["live"] else "none"
    policy = (  # no text of the graph could run as a program, even if it became markup
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        f"connect-src '{connects}'; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(title),
        "STYLE": _asset("page.css"),
        "SCRIPT": script,
        "DATA": to_json(data),
    }
    page = _asset("page.html")
    pieces = page.split("@@")  # text, name, text, name, ..., text
    return "".join(parts[p] if i % 2 else p for i, p in enumerate(pieces))


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def to_json(data: Any) -> str:
    """JSON text that cannot end a script element, whatever strings it contains."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(snapshot: Snapshot, details: bool = True) -> dict[str, Any]:
    """The data that the page draws: nodes, edges and the groups' layers."""
    groups = layout(snapshot)
    sample = max(256, min(SAMPLE, READ_AT_MOST // max(1, len(snapshot.nodes))))
    return {
        "title": snapshot.title,
        "nodes": [
            {**brief(node), **(detail(node, sample) if details else {})} for node in snapshot.nodes
        ],
        "edges": [list(edge) for edge in snapshot.edges],
        "groups": [
            {
                "name": group.name,
                "path": group.path,
                "parent": group.parent,
                "size": group.size,
                "detail": text,
                "layers": group.layers,
                "segments": group.segments,
                "entries": list(group.entries.items()),
                "exits": list(group.exits.items()),
            }
            for group, text in zip(groups, describe(snapshot, groups), strict=True)
        ],
    }


def brief(node: NodeInfo) -> dict[str, Any]:
    """The facts by which every node is drawn and searched; unknown ones are left out."""
    facts = {
        "id": node.id,
        "op": node.op,
        "label": node.label,
        "kind": node.kind,
        "module": node.module,
        "shape": "" if node.shape is None else str(node.shape),
        "dtype": node.dtype,
        "state": node.state,
        "version": node.version,
        "time": None if node.time_us is None else round(node.time_us, 1),
        "runs": node.runs,
        "source": node.source,
        "attributes": node.attributes,
    }
    return {name: fact for name, fact in facts.items() if fact not in (None, "", {})}


def detail(node: NodeInfo, sample: int = SAMPLE) -> dict[str, Any]:
    """The facts that must be computed from the node's value and gradient."""
    facts: dict[str, Any] = {}
    statistics = node.statistics(sample)
    if statistics is not None:
        facts["statistics"] = dataclasses.asdict(statistics)
    norm = node.grad_norm()
    if norm is not None:
        facts["gradient"] = norm if isfinite(norm) else repr(norm)  # JSON has no infinity
    return facts
