"""What notebooks show of graphs and tables: the interactive page where it is small, else a static
picture. Nothing is computed or refreshed for it: values are not looked at.
"""

from __future__ import annotations

import html
from collections.abc import Callable

from ...core import policy
from .layout import layout
from .page import page_data, page_of
from .snapshot import Snapshot

__all__ = ["of_graph", "of_page", "of_text"]

_WIDE, _HIGH, _GAP = 150, 40, 22  # of a box, and between boxes, in pixels
_ACROSS = 6  # boxes beside each other, whose text can be read in a notebook
_MOST = 24  # characters of a title in a box


def of_graph(shown: object, snapshot: Snapshot) -> dict[str, str]:
    """The bundle of an object (by MIME type) whose picture is a snapshot: its page without values,
    or, where that is long, a picture of the folded graph.
    """
    if len(snapshot.nodes) << 6 > policy.PAGE_INLINE:  # a node is more than 64 bytes of a page
        return _still(shown, snapshot)
    data = {**page_data(snapshot, details=False), "live": False}
    return of_page(shown, snapshot, page_of(snapshot.title, data))


def of_page(shown: object, snapshot: Snapshot, page: str) -> dict[str, str]:
    """The bundle of an object that has a page; `snapshot` is what stands for a long one."""
    if len(page) > policy.PAGE_INLINE:
        return _still(shown, snapshot)
    frame = (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" title="{_short(shown)}" '
        'style="width:100%;height:420px;border:1px solid #8886;border-radius:8px"></iframe>'
    )
    return {"text/plain": repr(shown), "text/html": frame}


def of_text(shown: object, text: str) -> dict[str, str]:
    """The bundle of an object that is a table."""
    style = "overflow-x:auto;line-height:1.35;font-size:12px"
    return {"text/plain": text, "text/html": f'<pre style="{style}">{html.escape(text)}</pre>'}


def _short(shown: object) -> str:
    return html.escape(repr(shown)[:200])


def _still(shown: object, snapshot: Snapshot) -> dict[str, str]:
    note = f"{shown!r}: too large to unfold here; save_html(path) or draw(path) writes the page"
    frame = '<div style="max-height:420px;overflow:auto">'
    text = (
        f"<div>{frame}{folded_svg(snapshot)}</div><p><small>{html.escape(note)}</small></p></div>"
    )
    return {"text/plain": repr(shown), "text/html": text}


def folded_svg(snapshot: Snapshot) -> str:
    """A picture of the outermost modules (of those in it, where it is one) and the values between
    them, as SVG without programs.
    """
    groups = layout(snapshot)
    outermost, count = groups[0], len(snapshot.nodes)
    while len(outermost.groups) == 1 and groups[outermost.groups[0]].size * 2 > outermost.size:
        outermost = groups[outermost.groups[0]]  # one module that has nearly all
    rows = [[item for item in layer if item >= 0] for layer in outermost.layers]
    rows = [row[i : i + _ACROSS] for row in rows for i in range(0, len(row), _ACROSS)]
    width = max((len(row) for row in rows), default=1) * (_WIDE + _GAP) + _GAP
    places: dict[int, tuple[float, float]] = {}
    for y, row in enumerate(rows):
        left = (width - len(row) * (_WIDE + _GAP) + _GAP) / 2
        for x, item in enumerate(row):
            places[item] = left + x * (_WIDE + _GAP), _GAP + y * (_HIGH + 2 * _GAP)

    def title(item: int) -> tuple[str, str]:
        if item >= count:
            group = groups[item - count]
            return group.name, f"{group.size:,} node{'s' if group.size != 1 else ''}"
        node = snapshot.nodes[item]
        return node.title, "" if node.shape is None else str(node.shape)

    return _drawn(places, outermost.segments, title, width, len(rows) * (_HIGH + 2 * _GAP) + _GAP)


def _drawn(
    places: dict[int, tuple[float, float]],
    segments: list[tuple[int, int, tuple[int, ...]]],
    title: Callable[[int], tuple[str, str]],
    width: float,
    height: float,
) -> str:
    """The boxes and the lines between them."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'style="max-width:{width}px;width:100%" fill="none" stroke="currentColor" '
        'font-family="sans-serif" font-size="12">'
    ]
    after: dict[int, list[int]] = {}
    for a, b, _ in segments:
        after.setdefault(a, []).append(b)
    for a, (x, y) in places.items():
        reached = list(after.get(a, ()))
        for b in reached:  # a long edge goes over places that are no boxes
            if b in places:
                to_x, to_y = places[b]
                parts.append(
                    f'<path opacity=".5" d="M{x + _WIDE / 2:.0f} {y + _HIGH}'
                    f'L{to_x + _WIDE / 2:.0f} {to_y:.0f}"/>'
                )
            else:
                reached += [each for each in after.get(b, ()) if each not in reached]
    for item, (x, y) in places.items():
        name, detail = (html.escape(text[:_MOST]) for text in title(item))
        middle = x + _WIDE / 2
        parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDE}" height="{_HIGH}" rx="6"/>'
            f'<g stroke="none" fill="currentColor" text-anchor="middle">'
            f'<text x="{middle:.0f}" y="{y + 17:.0f}">{name}</text>'
            f'<text x="{middle:.0f}" y="{y + 32:.0f}" opacity=".6">{detail}</text></g>'
        )
    return "".join([*parts, "</svg>"])
