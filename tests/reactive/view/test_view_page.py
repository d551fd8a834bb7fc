"""The interactive page: what is embedded, the layers, and how it behaves in a real browser."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.view.layout import LONGEST_OF_LEAF, WIDEST, crossings, layout
from adjoint.view.page import page_data, to_html
from adjoint.view.snapshot import Edge, NodeInfo, Snapshot

from . import chromium

HOSTILE = '</script><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'\\\u2028'


def random_snapshot(count, seed=0, modules=True):
    """Ops with one to three inputs, in blocks and layers, with parameters beside them."""
    draw = random.Random(seed)
    nodes, edges = [NodeInfo(0, "input", "x", "input", shape=(4, 4), dtype="float32")], []
    while len(nodes) < count:
        i = len(nodes)
        path = f"Net.block{i // 40}.layer{i // 8 % 5}" if modules else ""
        if draw.random() < 0.2 and i + 1 < count and nodes[-1].kind == "op":
            nodes.append(NodeInfo(i, "parameter", f"w{i}", "parameter", shape=(4, 4)))
            continue
        op = draw.choice(["add", "mul", "tanh", "mat_mul", "sum"])
        nodes.append(NodeInfo(i, op, module=path, shape=(4, 4), dtype="float32"))
        sources = [max(0, i - 1 - int(draw.expovariate(0.4))) for _ in range(draw.randint(1, 3))]
        sources += [i - 1] if nodes[i - 1].kind == "parameter" else []
        edges.extend(Edge(source, i, position) for position, source in enumerate(sources))
    return Snapshot(nodes, edges, f"{count} nodes")


def embedded(html):
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL).group(1))


# ---- without a browser ---------------------------------------------------------------------------


def test_the_page_is_one_file_without_references():
    html = to_html(random_snapshot(50))
    assert "@@" not in html
    addresses = set(re.findall(r"https?://[^\s\"')]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name of elements, not an address
    assert not re.search(r"<(link|img|iframe)\b|\bsrc=|url\(|@import", html)
    assert "connect-src 'none'" in html and "default-src 'none'" in html


def test_hostile_names_stay_text():
    node = NodeInfo(1, HOSTILE, HOSTILE, attributes={HOSTILE: HOSTILE}, source=HOSTILE)
    node.module = HOSTILE
    html = to_html(Snapshot([node], [], HOSTILE))
    assert html.count("<script") == 2 and html.count("</script>") == 2
    assert "<img" not in html
    found = embedded(html)["nodes"][0]
    assert found["op"] == found["label"] == found["source"] == HOSTILE
    assert found["attributes"] == {HOSTILE: HOSTILE}


def test_values_without_json_form():
    nodes = [
        NodeInfo(0, "a", value=lambda: ad.tensor([float("nan"), float("inf"), 1.0]).numpy()),
        NodeInfo(1, "b", gradient=lambda: ad.tensor([float("inf")]).numpy()),
    ]
    found = embedded(to_html(Snapshot(nodes, [])))["nodes"]
    assert found[0]["statistics"]["nan"] == found[0]["statistics"]["infinite"] == 1
    assert found[1]["gradient"] == "inf"


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize("count", [1, 2, 30, 700])
def test_layers(count, modules):
    """Each node stands once, each edge leads downward from group to group, one layer a step."""
    snapshot = random_snapshot(count, count, modules)
    groups = layout(snapshot)
    stands = [item for group in groups for row in group.layers for item in row]
    assert len(stands) == len(set(stands))
    assert sorted(i for i in stands if 0 <= i < count) == list(range(count))
    assert sorted(i - count for i in stands if i >= count) == list(range(1, len(groups)))
    assert groups[0].size == count
    ways = defaultdict(set)  # (source node, item) -> items reached from it
    for g, group in enumerate(groups):
        row_of = {item: r for r, row in enumerate(group.layers) for item in row}
        assert all(sum(item >= 0 for item in row) <= WIDEST for row in group.layers)
        for port in group.entries.values():
            assert row_of[port] == 0
        for port in group.exits.values():
            assert row_of[port] == len(group.layers) - 1
        for a, b, sources in group.segments:
            step = row_of[b] - row_of[a]
            assert step == 1 or step > LONGEST_OF_LEAF
            for source in sources:
                ways[source, a].add(b)
        for source, port in group.exits.items():
            ways[source, port].add(count + g)
        for source, port in group.entries.items():
            ways[source, count + g].add(port)
    for edge in snapshot.edges:  # following the source's segments leads to the target
        reached, waiting = set(), [edge.source]
        while waiting:
            for item in ways[edge.source, waiting.pop()]:
                if item not in reached:
                    reached.add(item)
                    waiting.append(item)
        assert edge.target in reached


def test_ordering_removes_crossings():
    """Two rows joined crosswise: 45 crossings as given, none after."""
    tops = [NodeInfo(i, "a") for i in range(10)]
    joins = [NodeInfo(10 + i, "b") for i in range(10)]
    edges = [Edge(i, 19 - i, 0) for i in range(10)]
    (group,) = layout(Snapshot([*tops, *joins], edges))
    below = {a: [b] for a, b, _ in group.segments}
    assert crossings([list(range(10)), list(range(10, 20))], below) == 45
    assert crossings(group.layers, below) == 0


def test_a_long_level_is_put_into_parts():
    groups = layout(random_snapshot(2000, modules=False))
    assert len(groups) > 20
    assert all(sum(item >= 0 for row in g.layers for item in row) <= 120 for g in groups)


def test_wide_layers_are_spread_over_several():
    nodes = [*(NodeInfo(i, "input", kind="input") for i in range(100)), NodeInfo(100, "stack")]
    (group,) = layout(Snapshot(nodes, [Edge(i, 100, i) for i in range(100)]))
    real = [sum(item >= 0 for item in row) for row in group.layers]
    assert sum(real) == 101 and max(real) <= WIDEST
    ends = {b for _, b, _ in group.segments}
    assert 100 in ends and all(len(row) <= 100 for row in group.layers)


def test_modules_that_run_twice_make_no_cycle():
    """a -> b -> a as boxes: the layers still exist, with one edge turned round."""
    nodes = [NodeInfo(i, "op", module=path) for i, path in enumerate(["a", "b", "a"])]
    groups = layout(Snapshot(nodes, [Edge(0, 1, 0), Edge(1, 2, 0)]))
    assert [len(row) for row in groups[0].layers] == [1, 1]


def test_parameters_stand_in_the_module_that_reads_them():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2)))
    with ad.view.observe():
        y = model(ad.ones(1, 3))
    snapshot = y.graph(model)
    groups = {g.path: g for g in layout(snapshot)}
    names = {path: {snapshot.nodes[i].title for i in g.nodes} for path, g in groups.items()}
    assert names["Sequential.0"] == {"0.weight", "0.bias", "input", "linear"}
    assert names["Sequential.1.0"] == {"1.0.weight", "1.0.bias", "linear"}


def test_the_page_takes_little_work_for_many_nodes():
    """Places for long edges stay in proportion, also of a value that all steps read."""
    nodes = [NodeInfo(0, "input", "w", "input")]
    edges = []
    for i in range(1, 3000):
        nodes.append(NodeInfo(i, "mul"))
        edges += [Edge(i - 1, i, 0), Edge(0, i, 1)]
    data = page_data(Snapshot(nodes, edges))
    assert sum(len(row) for g in data["groups"] for row in g["layers"]) < 5 * len(nodes)


# ---- in a browser --------------------------------------------------------------------------------

in_browser = pytest.mark.skipif(chromium.PROGRAM is None, reason="Debian's chromium is missing")


@pytest.fixture(scope="module")
def browser():
    made = chromium.Browser()
    yield made
    made.close()


def open_page(browser, snapshot, tmp_path):
    browser.open(snapshot.save_html(tmp_path / "graph.html").as_uri())
    assert browser.errors == []


def assert_drawn_well(browser):
    """No two boxes of one group overlap, all are inside theirs, every line ends below its start."""
    boxes = browser.run("boxes.map(b => [b.item, home[b.item] ?? groups[b.item - count].parent, "
                        "b.x, b.y, b.w, b.h, b.open])")  # fmt: skip
    by_group = defaultdict(list)
    for item, group, *rest in boxes:
        by_group[group].append((item, *rest))
    places = {item: rest for item, _, *rest in boxes}
    count = browser.run("count")
    for group, members in by_group.items():
        members.sort(key=lambda b: b[2])
        for i, (item, x, y, w, h, _) in enumerate(members):
            for other, x2, y2, w2, h2, _ in members[i + 1 :]:
                if y2 >= y + h:
                    break
                assert x2 >= x + w - 0.01 or x2 + w2 <= x + 0.01, (item, other)
                assert h2 > 0
            if group > 0:
                gx, gy, gw, gh, _ = places[count + group]
                assert gx <= x and x + w <= gx + gw and gy < y and y + h < gy + gh, (item, group)
    drawn = "lines.filter(l => !l.long && !l.turned).map(l => l.points.map(p => p[1]))"
    heights = browser.run(drawn)  # those from one column to the next go round below
    assert heights and all(each == sorted(each) for each in heights)


@in_browser
@pytest.mark.parametrize("modules", [True, False])
def test_drawing(browser, tmp_path, modules):
    open_page(browser, random_snapshot(300, 3, modules), tmp_path)
    assert_drawn_well(browser)
    browser.run("unfoldAll()")
    assert browser.run("boxes.filter(b => b.item < count).length") == 300
    assert_drawn_well(browser)
    browser.run("foldAll()")
    assert_drawn_well(browser)
    assert browser.errors == []


@in_browser
def test_nothing_is_fetched(browser, tmp_path):
    open_page(browser, random_snapshot(20), tmp_path)
    assert [url for url in browser.requests if not url.startswith("file:")] == []


@in_browser
def test_five_thousand_nodes(browser, tmp_path):
    """Folded at first, so that labels are legible; all of them can be unfolded and reached."""
    open_page(browser, random_snapshot(5000), tmp_path)
    assert browser.run("boxes.length") < 200
    assert browser.run("12 * view.scale") > 4
    browser.run("unfoldAll()")
    assert browser.run("boxes.filter(b => b.item < count).length") == 5000
    assert_drawn_well(browser)
    browser.run("paint(performance.now())")
    overlapping = """plates.some((p, i) => plates.slice(i + 1).some(q => p.x < q.x + q.w &&
        q.x < p.x + p.w && p.y < q.y + q.h && q.y < p.y + p.h))"""
    assert browser.run("plates.length") > 5 and browser.run(overlapping) is False


@in_browser
def test_folding_by_click(browser, tmp_path):
    open_page(browser, random_snapshot(200), tmp_path)
    browser.run("foldAll()")
    where = "(g => [(g.x + g.w / 2) * view.scale + view.x, (g.y + {dy}) * view.scale + view.y])"
    assert browser.run("boxes.length") < 10
    item = browser.run("boxes.find(b => isGroup(b.item) && !b.open).item")
    x, y = browser.run(where.format(dy="g.h / 2") + f"(box.get({item}))")
    browser.click(x, y)
    assert browser.run(f"isOpen({item})")
    x, y = browser.run(where.format(dy=8) + f"(box.get({item}))")
    browser.click(x, y)
    assert not browser.run(f"isOpen({item})")
    browser.key("e")
    assert browser.run("boxes.filter(b => b.item < count).length") == 200


@in_browser
def test_search_and_panel(browser, tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with ad.view.observe(keep_values=True):
        loss = model(ad.randn(5, 3)).square().mean()
    loss.backward(retain_graph=True)
    open_page(browser, loss.graph(model), tmp_path)
    browser.run("foldAll()")
    browser.key("/")
    browser.call("Input.insertText", text="2.weight")
    assert browser.run("$('count').textContent") == "1 found"
    browser.key("Enter")
    text = browser.run("$('panel').innerText")
    for part in ("2.weight", "parameter", "(2, 4)", "float32", "fresh", "gradient norm", "mean"):
        assert part in text
    assert browser.run("$('panel').querySelectorAll('svg rect').length") == 24
    browser.run("$('panel').querySelector('ul button').click()")  # its reader
    text = browser.run("$('panel').innerText")
    assert "linear" in text and "test_view_page.py" in text and "model(ad.randn(5, 3))" in text
    assert "Sequential.2" in text and "µs" in text
    browser.run("search('4x2'); search('2x4')")
    assert browser.run("hits.map(i => nodes[i].label)") == ["2.weight"]
    browser.key("Escape")
    browser.run("select(null)")
    assert browser.run("$('panel').hidden")
    path = (tmp_path / "graph.html").as_uri()
    browser.call("Page.navigate", url="about:blank")
    browser.open(f"{path}#node={loss.graph().nodes[-1].id}")
    assert browser.run("nodes[selected].op") == "mean"


@in_browser
def test_selecting_shows_the_way_to_far_readers(browser, tmp_path):
    """A weight that every step reads: its lines are drawn only while it is selected."""
    nodes = [NodeInfo(0, "input", "w", "input")]
    edges = []
    for i in range(1, 60):
        nodes.append(NodeInfo(i, "mul"))
        edges += [Edge(i - 1, i, 0), Edge(0, i, 1)]
    open_page(browser, Snapshot(nodes, edges), tmp_path)
    assert browser.run("lines.filter(l => l.long).length") > 40
    assert browser.run("pathsOf(0).size") >= 59
    last = "[...pathsOf(59)].map(l => [l.a, l.b])"
    assert sorted(browser.run(last)) == [[0, 59], [58, 59]]


@in_browser
def test_hostile_names_in_the_browser(browser, tmp_path):
    nodes = [
        NodeInfo(i, HOSTILE, HOSTILE, attributes={HOSTILE: HOSTILE}, module=HOSTILE, source=HOSTILE)
        for i in range(3)
    ]
    open_page(browser, Snapshot(nodes, [Edge(0, 1, 0), Edge(1, 2, 0)], HOSTILE), tmp_path)
    browser.run("unfoldAll(); show(1); search('img')")
    assert browser.run("window.hacked === undefined && document.images.length === 0")
    assert HOSTILE.split("\\")[0] in browser.run("$('panel').innerText")
    assert browser.run("hits.length") == 3
    assert browser.errors == []


@in_browser
def test_both_color_schemes(browser, tmp_path):
    open_page(browser, random_snapshot(20), tmp_path)
    papers = []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.call("Emulation.setEmulatedMedia", features=features)
        browser.wait(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        papers.append(browser.run("readColors(), colors.paper"))
    assert papers[0] != papers[1]
    browser.call("Emulation.setEmulatedMedia", features=[])


@in_browser
@pytest.mark.parametrize(("op", "word"), [("output", "output"), ("detach", "detached")])
def test_the_legend_calls_ends_by_what_they_are(browser, tmp_path, op, word):
    nodes = [NodeInfo(0, "input", "x", "input"), NodeInfo(1, op, "y", "boundary")]
    open_page(browser, Snapshot(nodes, [Edge(0, 1, 0)]), tmp_path)
    assert browser.run("[...$('legend').children].map(x => x.innerText)")[1:2] == [word]
