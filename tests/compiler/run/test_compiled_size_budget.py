"""Programs of further sizes are in the budget of all that is kept by size."""

import gc

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.compiler.run import arena_pool, sized_step
from adjoint.core import policy, sized_tables
from tests.native import needs_native

pytestmark = needs_native


def training_step():
    """A compiled training step, and the model that it trains."""
    ad.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-3)

    @ad.compile
    def step(x, y):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def batch(rows):
    rng = np.random.default_rng(rows)
    return [ad.tensor(rng.standard_normal((rows, n)).astype(np.float32)) for n in (6, 3)]


@pytest.fixture
def room(monkeypatch):
    """A budget in which a dozen programs have room beside what is kept already."""
    monkeypatch.setattr(policy, "SIZED_BYTES", 1)
    monkeypatch.setattr(sized_tables._budget, "grown", 0)
    for _ in range(3):  # what other tests have left goes
        sized_tables.turn()
    kept = sized_tables.kept_bytes()
    monkeypatch.setattr(policy, "SIZED_BYTES", 2 * kept + (1 << 20))
    return policy.SIZED_BYTES


def test_sizes_without_end_keep_what_the_budget_holds(room, monkeypatch):
    pools = []
    of = arena_pool.ArenaPool.arena

    def noted(pool, part, size):
        pools.append(pool)
        return of(pool, part, size)

    monkeypatch.setattr(arena_pool.ArenaPool, "arena", noted)
    step, _ = training_step()
    turns = sized_tables.turns()
    most = 0
    for rows in range(3, 83):
        assert step(*batch(rows)).item() > 0
        most = max(most, len(step.programs))
        assert sized_tables.kept_bytes() <= 1.1 * sized_tables.limit()
    assert sized_tables.turns() > turns + 1
    assert most < 40  # of 80
    assert len(step._forms) == 1
    assert {key for keys, _ in step._forms.values() for key in keys} == set(step._programs)
    assert len(set(map(id, pools))) == 1  # memory of all is that of one pool
    count, nbytes = sized_tables.inventory()["compiled sizes"]
    assert 0 < count < 40 and nbytes <= sized_tables.limit()


def test_what_was_dropped_is_let_go_of(room):
    step, _ = training_step()
    for rows in range(3, 20):
        step(*batch(rows))
    sized_tables.turn()
    sized_tables.turn()
    step(*batch(30))  # the next one that is made drops them
    gc.collect()
    assert len(step.programs) <= 4  # those that were captured or lowered, and the last two


def test_a_size_that_comes_again_stays(room, monkeypatch):
    step, _ = training_step()
    for rows in (9, 10, 11, 12, 50):
        step(*batch(rows))
    made = []
    of = sized_step.SizedLowering.step

    def counted(lowering, sizes):
        made.append(list(sizes))
        return of(lowering, sizes)

    monkeypatch.setattr(sized_step.SizedLowering, "step", counted)
    turns = sized_tables.turns()
    for rows in range(60, 140):
        step(*batch(rows))
        step(*batch(50))
    assert sized_tables.turns() > turns + 1
    assert not any(50 in each for each in made)


def test_results_do_not_depend_on_what_was_dropped(room):
    def trained(drops):
        step, model = training_step()
        seen = []
        for rows in (3, 17, 18, 40, 17, 90, 18, 1, 64, 17, 3):
            if drops:
                sized_tables.turn()
                sized_tables.turn()
            loss = step(*batch(rows))
            seen.append([x.detach().numpy().tobytes() for x in (loss, *model.parameters())])
        return seen

    trained(False)  # the first program of a process may begin eagerly
    assert trained(True) == trained(False)


def test_a_backward_that_is_pending_outlives_its_program(room):
    ad.manual_seed(5)
    model = nn.Linear(6, 3)
    step = ad.compile(lambda x: model(x).tanh())
    for rows in (5, 6, 7, 8):
        step(batch(rows)[0])
    x = batch(9)[0]
    y = step(x)
    sized_tables.turn()
    sized_tables.turn()
    step(batch(11)[0])
    step(batch(12)[0])
    gc.collect()
    (g,) = ad.autograd.grad(y.sum(), model.weight)
    (expected,) = ad.autograd.grad(model(x).tanh().sum(), model.weight)
    np.testing.assert_allclose(g.numpy(), expected.numpy(), rtol=1e-5)
