"""The stories of docs/architecture.md: through which files an execution passes.

Each runs warm, with the core interpreted, under a tracer; a file more than the page says fails.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import adjoint as ad

ROOT = Path(ad.__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()

STORIES = {
    "eager": """
a, b = ad.randn(4, 4, requires_grad=True), ad.randn(4, 4, requires_grad=True)
g = ad.ones(4, 4)
def story():
    (a + b).backward(g)
""",
    "lazy": """
a, b = ad.randn(4, 4), ad.randn(4, 4)
def story():
    with ad.lazy():
        c = a + b
    c.numpy()
""",
    "reactive": """
graph = ad.Graph()
a, b = graph.input(ad.ones(4)), graph.input(ad.ones(4))
c = a + b
values = [ad.ones(4), ad.zeros(4)]
def story():
    values.append(values.pop(0))
    a.set(values[0])
    c.numpy()
""",
    "compiled": """
a, b = ad.randn(4, 4), ad.randn(4, 4)
@ad.compile
def add(a, b):
    return a + b
def story():
    add(a, b)
""",
    "a small product": """
a, b = ad.randn(4, 4, requires_grad=True), ad.randn(4, 4, requires_grad=True)
g = ad.ones(4, 4)
def story():
    (a * b).backward(g)
""",
    "a large softmax": """
x, g = ad.randn(256, 512, requires_grad=True), ad.randn(256, 512)
def story():
    x.softmax(1).backward(g)
""",
    "a change in a graph": """
graph = ad.Graph()
with graph:
    x = graph.input(ad.ones(4), name="x")
    y = (x * 2).exp().sum()
values = [ad.ones(4), ad.zeros(4)]
def story():
    values.append(values.pop(0))
    x.set(values[0])
    y.item()
""",
    "an optimizer's step": """
p = [ad.nn.Parameter(ad.randn(64, 64)) for _ in range(4)]
optimizer = ad.optim.Adam(p)
for each in p:
    each.grad = ad.randn(64, 64)
def story():
    optimizer.step()
""",
}
HEADINGS = {"a change in a graph": "reactive"}  # of the others: their own names

TRACER = """
import json, sys
import adjoint as ad
{setup}
for _ in range({warm}):
    story()
package = ad.__path__[0]
seen = {{}}
def note(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(package):
        seen.setdefault(name[len(package) + 1:], None)
sys.setprofile(note)
story()
sys.setprofile(None)
print(json.dumps(list(seen)))
"""


def files_of(setup: str, warm: int = 16) -> list[str]:
    """The package's files through which `story()` passes, once it is warm, in their order."""
    text = TRACER.format(setup=setup, warm=warm)
    env = {**os.environ, "ADJOINT_COMPILED": "0", "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True
    )
    return [str(name) for name in json.loads(found.stdout)]


def told(story: str) -> set[str]:
    """The files that the page names in a story."""
    heading = HEADINGS.get(story, story)
    _, _, rest = PAGE.partition(f"\n### {heading[0].upper()}{heading[1:]}\n")
    section = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return set(re.findall(r"`([a-z_/]+\.py)`", section))


@pytest.mark.parametrize("story", STORIES)
def test_no_file_is_passed_that_the_story_does_not_tell(story):
    passed = set(files_of(STORIES[story]))
    assert passed
    assert passed <= told(story), sorted(passed - told(story))


@pytest.mark.parametrize("story", STORIES)
def test_the_story_tells_of_files_that_are_there(story):
    assert told(story), story
    for name in told(story):
        assert (ROOT / "adjoint" / name).exists(), name
