"""Results that are written where a copy or a join would bring them: which, and the same bits."""

import numpy as np
import pytest

import adjoint as ad
from adjoint.compiler.schedule import schedule
from tests.native import needs_native

from ...sweep import swept

pytestmark = needs_native


def drawn(*shape, seed=0, dtype=np.float32):
    return ad.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def both(function, monkeypatch, *args):
    """The calls that run and the results, with destinations and without."""
    rows: list[list[str]] = []
    results = []
    for found in (schedule.destinations, lambda *_: []):
        monkeypatch.setattr(schedule, "destinations", found)
        compiled = ad.compile(lambda *args: function(*args))
        y = compiled(*args)
        [parts] = (program.listed() for program in compiled.programs)
        rows.append([steps[0].op.name for part in parts for steps, *_ in part])
        results.append([x.numpy() for x in (y if isinstance(y, (tuple, list)) else [y])])
    for y, z in zip(*results, strict=True):
        np.testing.assert_array_equal(y, z)
    return rows


def heads(batch, length, count, width, dtype=np.float32):
    """Attention of whole sequences, which takes three copies and a join backward."""
    x = drawn(batch, length, 3 * count * width, dtype=dtype)

    def attention(x):
        x = x.detach().requires_grad_()
        parts = x.reshape(batch, length, 3, count, width).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        y = ((q @ k.transpose(-1, -2)) / 3).tanh() @ v
        y = y.transpose(1, 2).reshape(batch, length, count * width)
        return y.detach(), ad.autograd.grad((y * y).sum(), x)[0]

    return attention, x


SIZES = [(2, 5, 2, 3), (1, 1, 1, 1), *map(swept, [
    ((3, 16, 4, 8),), ((2, 15, 3, 17),), ((1, 64, 2, 32),), ((4, 1, 1, 9),)
])]  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_attention_moves_nothing(sizes, dtype, monkeypatch):
    function, x = heads(*sizes, dtype)
    with_them, without = both(function, monkeypatch, x)
    y, g = function(x)
    compiled = ad.compile(function)(x)
    for found, expected in zip(compiled, (y.numpy(), g.numpy()), strict=True):
        scale = 1e-6 * abs(expected).max() + 1e-5
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=scale)
    if sizes == (2, 5, 2, 3):
        moves = ("reshape", "cat", "stack")
        assert sum(name in moves for name in without) > 3
        assert not any(name in moves for name in with_them)


JOINED = {
    "kernels": lambda x, y: ad.cat([x.tanh(), x * y, y.exp() + 1], 1),
    "stacked": lambda x, y: ad.stack([x.tanh(), x * y], 2),
    "joins of joins": lambda x, y: ad.cat([ad.cat([x * 2, y * 3], 0), ad.cat([y * x, x + y])], 1),
    "products": lambda x, y: ad.cat([x @ y.T, (x * 2) @ y.T, y.T @ x], 0),
    "transposed": lambda x, y: ad.cat([(x @ y.T).T, (x + y) @ (x - y).T], 1),
    "reduced": lambda x, y: ad.cat([x.sum(1), (x * y).softmax(1).amax(1)]),
    "rows and columns": lambda x, y: (x.tanh().T.reshape(-1), (x * y).T.reshape(-1) * 2),
}
KEPT = {
    "read elsewhere": lambda x, y: (ad.cat([x.tanh(), y]), (x.tanh() * 2).sum()),
    "twice": lambda x, y: ad.cat([x.tanh()] * 2),
    "returned": lambda x, y: (z := x.tanh(), ad.cat([z, y])),
    "a view is returned": lambda x, y: (z := x.tanh(), z.T, ad.cat([z.T, y.T])),
    "other dtypes": lambda x, y: ad.cat([x.tanh().double(), y]),
}


@pytest.mark.parametrize("name", [*JOINED, *KEPT])
@pytest.mark.parametrize("sizes", [(15, 15), swept(((1, 1),)), swept(((33, 33),))])
def test_joins_agree(name, sizes, monkeypatch):
    function = (JOINED | KEPT)[name]
    x, y = drawn(*sizes), drawn(*sizes, seed=1)
    found = both(function, monkeypatch, x, y)
    wanted = function(x, y)
    compiled = ad.compile(lambda x, y: function(x, y))
    for scale in (1, 2):  # values of another call
        got = compiled(x * scale, y)
        wanted = function(x * scale, y)
        for a, b in zip(
            *((z if isinstance(z, tuple) else [z]) for z in (got, wanted)), strict=True
        ):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    if name in JOINED and sizes == (15, 15):
        assert len(found[0]) < len(found[1]), found


def test_gradients_are_written_by_their_own_step():
    """What others see is not written before the step that says so."""
    w = drawn(3, 4).requires_grad_()

    @ad.compile
    def step(x):
        w.grad = None
        (x @ w.T.reshape(4, 3).contiguous()).tanh().sum().backward()
        return w.grad.sum()

    x = drawn(5, 4)
    assert step(x).item() == pytest.approx(w.grad.sum().item(), rel=1e-6)
    [part] = step.programs[0].parts
    placed = part.schedule.placed
    assert not any(d.value in placed for d in part.schedule.destinations)
    assert not placed.intersection(y for d in part.schedule.destinations for y in d.step.outputs)


def test_frozen_modules_join_in_place():
    def rows(x):
        return ad.cat([x.tanh(), (x @ x.T).exp()], 1)

    x = drawn(6, 6)
    program = ad.inference.freeze(rows, x)
    np.testing.assert_allclose(program(x).numpy(), rows(x).numpy(), rtol=1e-5)
    assert len(program._first.schedule.destinations) == 2
