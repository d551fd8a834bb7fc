"""Progress bars: shown when wished, harmless without tqdm."""

from __future__ import annotations

import sys

import pytest

import adjoint as ad
from adjoint.core.progress import progress


@pytest.mark.parametrize(("wish", "shown"), [("auto", False), ("on", True), ("off", False)])
def test_the_switch(wish, shown, monkeypatch, capsys):
    pytest.importorskip("tqdm")
    monkeypatch.setenv("ADJOINT_PROGRESS", wish)
    assert list(progress(range(3))) == [0, 1, 2]
    assert ("0/3" in capsys.readouterr().err) == shown  # a captured stream is no terminal


def test_a_wrong_switch_is_refused(monkeypatch):
    monkeypatch.setenv("ADJOINT_PROGRESS", "yes")
    with pytest.raises(ValueError, match="'yes'; set it to auto, on or off"):
        progress(range(3))


def test_without_tqdm_it_counts_and_shows_nothing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setenv("ADJOINT_PROGRESS", "on")
    assert list(progress(iter("ab"))) == ["a", "b"] and len(progress(range(4))) == 4
    with progress(total=5) as bar:
        bar.set_postfix({"loss": 1.0}, refresh=False)
        bar.set_description("training")
        bar.update(2)
        assert bar.n == 2 and len(bar) == 5
    assert capsys.readouterr() == ("", "")


def test_the_hub_has_a_bar(monkeypatch, capsys):
    found = pytest.importorskip("tqdm")
    assert ad.hub.tqdm is found.tqdm
    monkeypatch.setitem(sys.modules, "tqdm", None)
    from adjoint.hub import tqdm

    bar = tqdm([1, 2], desc="EPOCH 1", leave=True)
    for _ in bar:
        bar.set_postfix({"Loss": "2.5"})
    assert bar.n == 2 and len(bar) == 2
    tqdm.write("done")
    assert capsys.readouterr() == ("done\n", "")
    with pytest.raises(AttributeError, match="no_such"):
        _ = ad.hub.no_such
