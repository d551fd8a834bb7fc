"""Draw docs/images/ratios.svg of the table in docs/measurements/compiled_steps.md.

    python docs/build_chart.py

One bar a workload: how many times as fast the compiled step is as its best peer; points for each of
the peers. The axis is logarithmic. A test holds the drawing to the table.
"""

from __future__ import annotations

import html
import math
import pathlib
import re

HERE = pathlib.Path(__file__).parent
PAGE = HERE / "measurements" / "compiled_steps.md"
CHART = HERE / "images" / "ratios.svg"

NAMES = {
    "pointwise": "pointwise, 1 Mi elements", "MLP 784": "MLP 784-256-256-10",
    "ResNet": "ResNet, 32 images", "LSTM": "LSTM, 50 steps", "GPT": "GPT, 4 layers",
    "100 products": "100 products of 4x4", "a chain": "a chain of 100 products",
    "MLP 64": "MLP 64-32-10", "DQN": "DQN update", "char-LSTM": "char-LSTM, a loop of cells",
    "PINN": "PINN, second derivatives",
}  # fmt: skip
PEERS = {"PyTorch": "a", "torch.compile": "b", "JAX jit": "c"}
LEFT, WIDTH, ROW, TOP, TICKS = 180, 560, 26, 62, (0.5, 1, 2, 5, 10, 20, 50)

HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" \
font-family="system-ui, sans-serif" font-size="13">
<title>{title}</title>
<style>
text {{ fill: #333 }} .dim {{ fill: #777 }} .bar {{ fill: #3b6fd1; opacity: .85 }} \
.grid {{ stroke: #9995; stroke-width: 1 }} .one {{ stroke: #777; stroke-width: 1.5 }}
.a {{ fill: #e4572e }} .b {{ fill: #b8860b }} .c {{ fill: #2a9d5c }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} .dim {{ fill: #aaa }} }}
</style>
"""


def ratios(text: str) -> dict[str, dict[str, float]]:
    """Of each workload in the table, how many times as fast we are as each peer."""
    table = re.findall(r"^```text\n(.*?)^```", text, re.S | re.M)[0]
    found: dict[str, dict[str, float]] = {}
    for block in table.split("\n\n"):
        name = next((NAMES[key] for key in NAMES if block.startswith(key)), None)
        if name is not None:
            peers = "|".join(map(re.escape, PEERS))
            rows = re.findall(rf"^  ({peers}) .* s +([\d.]+) x \(", block, re.M)
            found[name] = {peer: float(ratio) for peer, ratio in rows}
    return found


def place(ratio: float) -> float:
    """Where on the axis a ratio lies."""
    low, high = math.log(TICKS[0]), math.log(TICKS[-1])
    return round(LEFT + WIDTH * (math.log(min(ratio, TICKS[-1])) - low) / (high - low), 1)


def chart(found: dict[str, dict[str, float]]) -> str:
    """The drawing."""
    title = "A training step by ad.compile: how many times as fast as each peer, two CPU threads"
    bottom = TOP + ROW * len(found)
    lines = [HEAD.format(width=LEFT + WIDTH + 40, height=bottom + 24, title=title)]
    lines.append(f'<text x="{LEFT}" y="18" font-weight="600">{title}</text>')
    x = LEFT
    for peer, kind in PEERS.items():
        lines.append(f'<circle class="{kind}" cx="{x + 5}" cy="38" r="5"/>')
        lines.append(f'<text class="dim" x="{x + 15}" y="42">{peer}</text>')
        x += 120
    lines.append(f'<rect class="bar" x="{x}" y="33" width="16" height="10"/>')
    lines.append(f'<text class="dim" x="{x + 22}" y="42">the best of them</text>')
    for tick in TICKS:
        kind = "one" if tick == 1 else "grid"
        at = place(tick)
        lines.append(f'<path class="{kind}" d="M{at} {TOP - 8}V{bottom}"/>')
        lines.append(
            f'<text class="dim" x="{at}" y="{bottom + 16}" text-anchor="middle">{tick:g} x</text>'
        )
    for i, (name, row) in enumerate(found.items()):
        y = TOP + ROW * i
        best, one = min(row.values()), place(1)
        start, end = sorted((one, place(best)))
        lines.append(
            f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect class="bar" x="{start}" y="{y}" width="{round(end - start, 1)}" height="17"/>'
        )
        for peer, ratio in row.items():
            lines.append(
                f'<circle class="{PEERS[peer]}" cx="{place(ratio)}" cy="{y + 8.5}" r="4.5">'
                f"<title>{html.escape(f'{ratio:g} times as fast as {peer}')}</title></circle>"
            )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    CHART.write_text(chart(ratios(PAGE.read_text())))
