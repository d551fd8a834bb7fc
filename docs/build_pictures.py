"""Draw what notebooks and browsers show of adjoint's objects, in the light and the dark scheme.

    python docs/build_pictures.py FOLDER     ten objects, NAME.light.png and NAME.dark.png of each

It needs a Chromium (`apt-get install chromium`). docs/images has copies of those that pages show.
"""

from __future__ import annotations

import pathlib
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import adjoint as ad  # noqa: E402
from adjoint import nn  # noqa: E402
from adjoint.view.graphs import Watched  # noqa: E402
from adjoint.view.live import Feed, LiveServer  # noqa: E402
from tests.reactive.view.chromium import Browser  # noqa: E402

CELL = """<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<style>body {{ font: 14px sans-serif; margin: 16px }} table {{ border-collapse: collapse }}
td, th {{ padding: 4px 8px; text-align: right; white-space: nowrap }}</style>
<script>function arrange() {{}}</script>{}"""


def model() -> nn.Module:
    """A small network, always the same."""
    ad.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def in_notebooks() -> Iterator[tuple[str, object]]:
    """What a cell ends with, by the picture's name."""
    net = model()
    x, target = ad.randn(16, 3), ad.randn(16, 1)
    with ad.view.observe():
        loss = (net(x) - target).square().mean()
    yield "notebook_graph", loss.graph(net)
    graph = ad.Graph()
    price = graph.input(3.0, name="price")
    total = price * 4 + graph.input(1.0, name="fee")
    total.item()
    price.set(4.0)
    yield "notebook_reactive", graph
    step = ad.compile(lambda x, y: (net(x) - y).square().mean())
    step(x, target)
    yield "notebook_stages", step.graph(x, target)
    blocks = nn.Sequential(*(nn.TransformerEncoderLayer(32, 2, 64) for _ in range(3)))
    parts = {"embed": nn.Embedding(50, 32), "blocks": blocks, "head": nn.Linear(32, 50)}
    large = nn.Sequential(OrderedDict(parts)).eval()
    yield "notebook_frozen", ad.inference.freeze(large, ad.zeros(8, 16, dtype=ad.int64))
    yield "notebook_summary", ad.summary(net, x)
    yield "notebook_explanation", step.explain(x, target)
    with ad.profiler.profile() as profile:
        net(x)
    yield "notebook_profile", profile.key_averages()
    deep = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(700)))
    with ad.view.observe():
        y = deep(ad.ones(1, 8))
    yield "notebook_large", y.graph(deep)


def pages(folder: pathlib.Path, stack: ExitStack) -> Iterator[tuple[str, str]]:
    """Addresses of all that is drawn, by the picture's name."""
    for name, value in in_notebooks():
        bundle = value._repr_mimebundle_()  # type: ignore[attr-defined]
        shown = bundle.get("text/html") or bundle.get("image/svg+xml") or bundle["text/plain"]
        file = folder / f"{name}.html"
        file.write_text(CELL.format(shown))
        yield name, file.as_uri()
    net = model()
    step = ad.compile(lambda x: net(x).square().mean())
    file = folder / "page_compiled.html"
    step.graph(ad.ones(16, 3)).draw(file)
    yield "page_compiled", file.as_uri()
    graph, feed = ad.Graph(), Feed()
    rate = graph.input(2.0, name="rate")
    costs = [graph.input(float(n), name=f"cost{n}") for n in range(3)]
    total = sum(cost * rate for cost in costs)
    total.item()
    costs[0].set(5.0)
    names = {"graph": graph, "rate": rate, "total": total}
    server = stack.enter_context(LiveServer(Watched(names, None, feed, "costs"), feed))
    yield "page_live", server.url


def main() -> int:
    """The command."""
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    browser = Browser("--window-size=1000,640")
    with ExitStack() as stack:
        stack.callback(browser.close)
        for name, address in pages(folder, stack):
            for scheme in ("light", "dark"):
                feature = {"name": "prefers-color-scheme", "value": scheme}
                browser.call("Emulation.setEmulatedMedia", features=[feature])
                browser.open(address)
                time.sleep(4)  # frames within the page have been drawn
                browser.screenshot(folder / f"{name}.{scheme}.png")
                print(f"{name}.{scheme}.png", *browser.errors, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
