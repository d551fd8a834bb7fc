"""`quasirandom.SobolEngine` beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dimension", [1, 2, 7, 300])
def test_points_are_pytorchs(dimension):
    mine = ad.quasirandom.SobolEngine(dimension)
    theirs = torch.quasirandom.SobolEngine(dimension)
    for n in (1, 4, 1, 300):
        assert np.array_equal(mine.draw(n).numpy(), theirs.draw(n).numpy())
        assert mine.num_generated == theirs.num_generated
    mine.fast_forward(700)
    theirs.fast_forward(700)
    a, b = mine.draw(9, dtype=ad.float64), theirs.draw(9, dtype=torch.float64)
    assert np.array_equal(a.numpy(), b.numpy())
    assert np.array_equal(mine.reset().draw_base2(3).numpy(), theirs.reset().draw_base2(3).numpy())
    assert mine.draw(2, out=ad.empty(2, dimension)).shape == (2, dimension)
    assert mine.draw(0).shape == (0, dimension)
    assert repr(mine) == repr(theirs)


def test_skipping_at_the_begin():
    for n in (0, 1, 5):
        mine = ad.quasirandom.SobolEngine(3).fast_forward(n)
        expected = torch.quasirandom.SobolEngine(3).draw(n + 2)[n:]
        assert np.array_equal(mine.draw(2).numpy(), expected.numpy())


def test_scrambled_points_are_even_and_have_a_seed():
    engine = ad.quasirandom.SobolEngine(4, scramble=True, seed=5)
    points = engine.draw(256)
    assert points.equal(ad.quasirandom.SobolEngine(4, scramble=True, seed=5).draw(256))
    assert points.equal(engine.reset().draw(256))
    counts = ad.stack([(points * 16).floor().long()[:, i].bincount() for i in range(4)])
    assert (counts == 16).all()
    assert repr(engine) == "SobolEngine(dimension=4, scramble=True, seed=5)"


def test_errors():
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match="Supported range"):
            ad.quasirandom.SobolEngine(dimension)
    engine = ad.quasirandom.SobolEngine(2).fast_forward(3)
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(1)
    with pytest.raises(ValueError, match="begin again"):
        engine.fast_forward(2**30)
    with pytest.raises(ValueError, match="begin again"):
        engine.draw(-1)
    assert engine.num_generated == 3
