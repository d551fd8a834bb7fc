"""Who writes decides: the table of docs/graphs.md, a test for each line, in either gradient mode
and several dtypes; and training code of all kinds inside `with graph:`, as eagerly or warned."""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.tensor_base import TensorBase
from adjoint.nn import functional as F
from adjoint.optim import swa_utils
from adjoint.runtime.lazy import LazyValue

from ..sweep import one_in, swept

DTYPES = (ad.float32, ad.int64, ad.float64, ad.bfloat16, ad.uint8, ad.complex64, ad.bool)
every_dtype = pytest.mark.parametrize(
    "dtype", [*DTYPES[:2], *map(swept, DTYPES[2:])], ids=[str(dtype) for dtype in DTYPES]
)
floats = pytest.mark.parametrize("dtype", (ad.float32, ad.float64, ad.bfloat16), ids=str)
either_mode = pytest.mark.parametrize("gradients", [True, False], ids=["grad", "no_grad"])


def ones(dtype):
    return ad.ones(4).to(dtype)


def zeros(dtype):
    return ad.zeros(4).to(dtype)


def values(x):
    return x.detach().to(ad.complex64).tolist()


class Holder(nn.Module):
    """A module with one buffer."""

    def __init__(self, t):
        super().__init__()
        self.register_buffer("t", t)


# ---- (i) sets ------------------------------------------------------------------------------------

SETS = {
    "set": lambda t: t.set(zeros(t.dtype)),
    "data": lambda t: setattr(t, "data", zeros(t.dtype)),
    "load_state_dict": lambda t: Holder(t).load_state_dict({"t": zeros(t.dtype)}),
    "init": lambda t: nn.init.zeros_(t),
}
WRITES = {
    "zero_": lambda t: t.zero_(),
    "copy_": lambda t: t.copy_(zeros(t.dtype)),
    "item": lambda t: t.__setitem__(slice(None), 0),
    "part": lambda t: t[:].fill_(0),
    "masked_fill_": lambda t: t.masked_fill_(t == 1, 0),
    "out": lambda t: ad.mul(t.detach(), zeros(t.dtype), out=t.detach()),
}
LATE = "after a tensor that it depends on was changed"
every_write = pytest.mark.parametrize("write", WRITES)


@either_mode
def test_a_loop_that_writes_outside_of_its_block_and_reads_late_is_told(gradients):
    graph, t, seen = ad.Graph(), ones(ad.float32), []
    for turn in range(3):
        t += turn
        with graph, ad.set_grad_enabled(gradients):
            seen.append(t.sum())
    assert seen[2].item() == values(t.sum())  # what was recorded last is what it was
    with pytest.warns(UserWarning, match=LATE):
        assert seen[0].item() == seen[2].item()


@pytest.mark.parametrize("way", SETS)
@every_dtype
@either_mode
def test_a_set_is_followed_inside_a_block(way, dtype, gradients):
    graph, t = ad.Graph(), ones(dtype)
    with graph, ad.set_grad_enabled(gradients):
        y = ad.cat([t, t])
        assert values(y) == [1] * 8
        SETS[way](t)
        assert values(y) == values(t) * 2 == [0] * 8


@every_write
@every_dtype
@either_mode
def test_a_write_outside_of_blocks_is_followed(write, dtype, gradients):
    graph, t = ad.Graph(), ones(dtype)
    with graph, ad.set_grad_enabled(gradients):
        y = ad.cat([t, t])
    with ad.set_grad_enabled(gradients):
        WRITES[write](t)
    assert values(y) == values(t) * 2 == [0] * 8


@every_write
@every_dtype
@either_mode
def test_a_write_to_an_input_is_a_set(write, dtype, gradients):
    graph = ad.Graph()
    t = graph.input(ones(dtype))
    with graph, ad.set_grad_enabled(gradients):
        y = ad.cat([t, t])
        assert values(y) == [1] * 8
        WRITES[write](t)
        assert values(y) == [0] * 8


@every_write
@floats
def test_a_write_to_a_parameter_of_the_graph_is_a_set(write, dtype):
    graph = ad.Graph()
    t = graph.parameter(ones(dtype))
    with graph:
        y = ad.cat([t, t])
        with ad.no_grad():
            WRITES[write](t)
    with pytest.warns(UserWarning, match=LATE):
        assert values(y) == [0] * 8


# ---- (ii) leaves that require grad ---------------------------------------------------------------


@every_write
@floats
def test_a_leaf_that_requires_grad_is_followed_with_a_warning(write, dtype):
    graph, t = ad.Graph(), ones(dtype).requires_grad_()
    with graph:
        y = ad.cat([t, t])
        with ad.no_grad():
            WRITES[write](t)
        with pytest.warns(UserWarning, match=LATE):
            assert values(y) == values(t) * 2 == [0] * 8


def test_a_leaf_that_an_optimizer_changes_is_followed_with_a_warning():
    graph, w = ad.Graph(), ad.ones(2, requires_grad=True)
    with graph:
        loss = (w * w).sum()
        loss.backward()
        ad.optim.SGD([w], lr=0.25).step()
        with pytest.warns(UserWarning, match=LATE):
            assert loss.item() == 0.5


# ---- (iii) everything else -----------------------------------------------------------------------


@every_write
@every_dtype
@either_mode
def test_what_was_computed_of_a_plain_tensor_keeps_what_it_saw(write, dtype, gradients):
    graph, t = ad.Graph(), ones(dtype)
    with graph, ad.set_grad_enabled(gradients):
        read, unread = ad.cat([t, t]), ad.cat([t, t])
        part, alias = t[1:], t.detach()
        assert values(read) == [1] * 8
        WRITES[write](t)
        later = ad.cat([t, t])
        assert values(t) == values(alias) == [0] * 4
        assert values(part) == [0] * 3
    assert values(read) == values(unread) == [1] * 8
    assert values(later) == [0] * 8
    assert type(t._data) is np.ndarray and t.grad_fn is None
    graph.check_invariants()


@every_write
@every_dtype
@either_mode
@pytest.mark.parametrize("of", ["view", "inner_view", "detached", "data", "view_of_data"])
def test_a_write_to_an_alias_is_one_to_all(write, dtype, gradients, of):
    graph, whole = ad.Graph(), ad.ones(3, 4).to(dtype)
    outside = {"view": lambda: whole[1], "data": lambda: whole.data[1]}.get(of, lambda: None)()
    with graph, ad.set_grad_enabled(gradients):
        t = {
            "view": lambda: outside,
            "inner_view": lambda: whole[1],
            "detached": lambda: whole.detach()[1],
            "data": lambda: outside,
            "view_of_data": lambda: whole[1].data,
        }[of]()
        row = whole[1]
        seen, total = ad.cat([t, t]), ad.cat([whole, whole])
        WRITES[write](t)
        after = ad.cat([whole, whole])
    assert values(t) == values(row) == values(whole[1]) == [0] * 4
    assert values(seen) == [1] * 8 and values(total) == [[1] * 4] * 6
    assert values(after) == values(whole) * 2 == [[1] * 4, [0] * 4, [1] * 4] * 2
    WRITES["copy_"](whole[1].fill_(1))
    assert values(t) == values(row) == [0] * 4  # all of them memory
    graph.check_invariants()


def test_what_is_computed_of_written_memory_follows_inputs_of_the_graph():
    graph, t = ad.Graph(), ad.zeros(3)
    x = graph.input(ad.ones(3))
    with graph:
        t.add_(x)
        t[0] = 5
        y = t * 2
    assert (t.tolist(), y.tolist()) == ([5, 1, 1], [10, 2, 2])
    x.set(ad.full((3,), 2.0))
    assert (t.tolist(), y.tolist()) == ([5, 1, 1], [10, 4, 4])


def test_where_a_gradient_flows_the_tensor_becomes_a_node_and_aliases_stay():
    graph, t = ad.Graph(), ad.zeros(3)
    early, w = t.detach(), ad.ones(3, requires_grad=True)
    with graph:
        before = t + 1
        t.add_(w * 2)
        assert t.requires_grad and early.tolist() == t.tolist() == [2, 2, 2]
        t.mul_(3)
        assert early.tolist() == t.tolist() == [6, 6, 6]
        early.add_(1)
        assert early.tolist() == t.tolist() == [7, 7, 7]
        early[0] = 0
        assert early.tolist() == t.tolist() == [0, 7, 7]
    assert before.tolist() == [1, 1, 1]
    (t * t.detach()).sum().backward()
    assert w.grad.tolist() == [0, 42, 42]


def test_an_unset_input_is_written_later():
    graph, padded = ad.Graph(), ad.zeros(2, 4)
    x = graph.input((2, 3), "x")
    with graph:
        padded[:, :3] = x
        y = padded.sum()
    x.set(ad.ones(2, 3))
    assert y.item() == 6


def test_a_gradient_keeps_what_it_was():
    """Clipping, accumulation and zeroing change it in place."""
    graph, w = ad.Graph(), ad.tensor([3.0, 4.0], requires_grad=True)
    with graph:
        (w * w.detach()).sum().backward()
        before, grad = w.grad * 1, w.grad
        norm = nn.utils.clip_grad_norm_([w], 1.0)
        clipped = w.grad * 1
        (w * w.detach()).sum().backward()
        both = w.grad * 1
        w.grad.zero_()
    assert norm.item() == 5 and before.tolist() == [3, 4]
    np.testing.assert_allclose(clipped.tolist(), [0.6, 0.8], 1e-5)
    np.testing.assert_allclose(both.tolist(), [3.6, 4.8], 1e-5)
    assert grad.tolist() == w.grad.tolist() == [0, 0]


def test_the_state_of_an_optimizer_keeps_what_it_was():
    graph, w = ad.Graph(), ad.ones(2, requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.1, momentum=0.5)
    w.grad = ad.ones(2)
    optimizer.step()
    with graph:
        buffer = optimizer.state[w]["momentum_buffer"]
        before = buffer * 2
        optimizer.step()
        after = buffer * 2
    assert before.tolist() == [2, 2] and after.tolist() == [3, 3]


def test_statistics_of_ones_own_keep_what_they_were():
    graph, mean, count = ad.Graph(), ad.zeros(2), ad.tensor(0)
    seen = []
    with graph:
        for n in range(4):
            count += 1
            seen.append((mean / (count + 1), mean * 1, count * 2))
            mean.lerp_(ad.full((2,), float(n)), 0.5)
    eager = ad.zeros(2)
    for n, (ratio, each, twice) in enumerate(seen):
        assert each.tolist() == eager.tolist() and twice.item() == 2 * (n + 1)
        assert ratio.tolist() == (eager / (n + 2)).tolist()
        eager.lerp_(ad.full((2,), float(n)), 0.5)
    assert mean.tolist() == eager.tolist()


def test_numpy_that_writes_inside_a_block_leaves_what_was_computed():
    array = np.ones(3, np.float32)
    graph, t = ad.Graph(), ad.from_numpy(array)
    with graph:
        y = t * 2
        array[0] = 5
        z = t * 2
        assert (y.tolist(), z.tolist()) == ([2, 2, 2], [10, 2, 2])
        array[1] = 7
    assert (y.tolist(), z.tolist()) == ([2, 2, 2], [10, 2, 2])
    with graph:
        y = t * 2
    array[2] = 9  # outside: a set
    assert y.tolist() == [10, 14, 18]


def test_out_of_another_size_is_seen_by_what_is_recorded_later():
    graph, t = ad.Graph(), ad.ones(2)
    with graph:
        before = t * 2
        ad.add(ad.ones(3), 1, out=t)
        after = t * 2
    assert (before.tolist(), after.tolist()) == ([2, 2], [4, 4, 4])


@pytest.mark.parametrize("method", ["resize_", "set_"])
def test_other_memory_in_a_block_is_seen_by_what_is_recorded_later(method):
    graph, t = ad.Graph(), ad.ones(4)
    with graph:
        before = t * 2
        t.resize_(2) if method == "resize_" else t.set_(ad.zeros(2))
        after = t * 2
    assert before.tolist() == [2] * 4
    assert after.tolist() == ([2, 2] if method == "resize_" else [0, 0])


def test_a_batch_that_fails_takes_back_what_a_block_wrote():
    graph, t = ad.Graph(), ad.ones(2)
    y = graph.input(ad.ones(2)) + t
    with pytest.raises(ZeroDivisionError), graph.batch(), graph:
        t.mul_(3)
        assert t.tolist() == [3, 3]
        raise ZeroDivisionError
    assert t.tolist() == [1, 1] and y.tolist() == [2, 2]
    t.mul_(2)
    assert y.tolist() == [3, 3]
    graph.check_invariants()


def test_an_error_in_a_block_ends_it():
    graph, t = ad.Graph(), ad.ones(2)
    with pytest.raises(ad.ShapeError), graph:
        t.add_(1)
        t.add_(ad.ones(3))
    assert not graph._state.written and not graph._state.blocks
    assert t.tolist() == [2, 2]
    with graph:
        assert (t * 2).tolist() == [4, 4]


def test_blocks_of_two_graphs():
    first, second, t = ad.Graph(), ad.Graph(), ad.ones(2)
    with first:
        a = t * 2
        with second:
            b = t * 3
            t.add_(1)
        c = t * 2
    assert (a.tolist(), b.tolist(), c.tolist()) == ([2, 2], [3, 3], [4, 4])
    with second:
        t.add_(1)
    assert c.tolist() == [6, 6]  # written outside of the first graph's blocks


def test_all_gradients_are_taken_before_the_first_hook():
    """An optimizer in backward sees the old weights."""
    layers = [ad.full((2,), float(n), requires_grad=True) for n in (2, 3, 5)]
    expected = [15.0, 10.0, 6.0]
    for w in layers:
        optimizer = ad.optim.SGD([w], lr=1.0)
        w.register_post_accumulate_grad_hook(lambda _, o=optimizer: o.step())
    graph = ad.Graph()
    with graph:
        (layers[0] * layers[1] * layers[2]).sum().backward()
    assert [w.grad.tolist() for w in layers] == [[g, g] for g in expected]
    assert [w.tolist() for w in layers] == [[-13, -13], [-7, -7], [-1, -1]]


# ---- training programs, with everything inside ---------------------------------------------------


def net():
    ad.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def batches(n):
    numbers = np.random.default_rng(0)
    return [ad.tensor(numbers.standard_normal((6, 3)).astype(np.float32)) for _ in range(n)]


def train(block, steps, make=None, between=lambda model: None, after=lambda model, n: None):
    """Losses, and weights in the end, of a loop that has each step in a block."""
    model = net()
    optimizer = (make or (lambda p: ad.optim.SGD(p, lr=0.1, momentum=0.9)))(model.parameters())
    losses = []
    for n, x in enumerate(batches(steps)):
        with block():
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            logged = between(model)
            losses.append(loss.item())
            optimizer.step()
            after(model, n)
            if logged is not None:
                losses.append(logged.item())
    return losses, [v.detach().clone() for v in model.state_dict().values()]


def closure_loop(block, steps):
    """LBFGS calls its closure inside the step."""
    model, losses = net(), []
    optimizer = ad.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    for x in batches(steps):
        with block():

            def closure(x=x):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                return loss

            losses.append(float(optimizer.step(closure)))
    return losses, [v.detach().clone() for v in model.state_dict().values()]


def scaled(block, steps):
    """Autocast and a GradScaler."""
    model, scaler, losses = net(), ad.amp.GradScaler("cpu", init_scale=8.0), []
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    for x in batches(steps):
        with block():
            optimizer.zero_grad()
            with ad.autocast("cpu", dtype=ad.bfloat16):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            losses += [loss.item(), norm.item()]
            scaler.step(optimizer)
            scaler.update()
    return losses, [v.detach().clone() for v in model.state_dict().values()]


def averaged(block, steps):
    """An exponential average of the weights, and its batch statistics."""
    model, losses = net(), []
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5))
    for x in batches(steps):
        with block():
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
            average.update_parameters(model)
            losses.append(average(x).square().mean().item())
    with block():
        swa_utils.update_bn(batches(steps), average)
    return losses, [v.detach().clone() for v in average.state_dict().values()]


def swapped(block, steps):
    """Evaluation with averaged weights, swapped in and out through temporaries."""
    model, losses = net(), []
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    shadow = [p.detach().clone() for p in model.parameters()]
    for x in batches(steps):
        with block():
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
            with ad.no_grad():
                for s, p in zip(shadow, model.parameters(), strict=True):
                    s.lerp_(p, 0.5)
                kept = [p.clone() for p in model.parameters()]
                for s, p in zip(shadow, model.parameters(), strict=True):
                    p.copy_(s)
                losses.append(model(x).square().mean().item())
                for k, p in zip(kept, model.parameters(), strict=True):
                    p.copy_(k)
    return losses, [*shadow, *(p.detach().clone() for p in model.parameters())]


def in_backward(block, steps):
    """An optimizer for each parameter, stepped by a hook of backward."""
    model, losses = net(), []
    for p in model.parameters():
        optimizer = ad.optim.Adam([p], lr=0.01)

        def stepped(p, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()

        p.register_post_accumulate_grad_hook(stepped)
    for x in batches(steps):
        with block():
            loss = model(x).square().mean()
            losses.append(loss.item())
            loss.backward()
    return losses, [v.detach().clone() for v in model.state_dict().values()]


def statistics(block, steps):
    """The data's mean and variance, kept by Welford's method, in tensors of one's own."""
    mean, m2, count, losses = ad.zeros(3), ad.zeros(3), ad.tensor(0), []
    for x in batches(steps):
        with block():
            for row in x:
                count += 1
                delta = row - mean
                mean += delta / count
                m2 += delta * (row - mean)
            standard = (x - mean) / (m2 / count + 1e-5).sqrt()
            losses.append(standard.square().mean())
    return [loss.item() for loss in losses], [mean, m2, count]


def manual(block, steps):
    """Momentum written by hand, gradients zeroed in place."""
    w, velocity, losses = ad.ones(3, requires_grad=True), ad.zeros(3), []
    for x in batches(steps):
        with block():
            loss = (x @ w).square().mean()
            losses.append(loss.item())
            loss.backward()
            with ad.no_grad():
                velocity.mul_(0.9).add_(w.grad)
                w.sub_(velocity, alpha=0.05)
                w.grad.zero_()
    return losses, [w.detach().clone(), velocity]


def spectral(block, steps):
    """Spectral normalization keeps vectors of a power iteration."""
    ad.manual_seed(0)
    model, losses = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)), []
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    for x in batches(steps):
        with block():
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
    return losses, [v.detach().clone() for v in model.state_dict().values()]


def named_optimizers():
    """All that step without a closure, and take any gradient."""
    found = {}
    for name in ad.optim.__all__:
        kind = getattr(ad.optim, name)
        others = ("Optimizer", "LBFGS", "SparseAdam", "Muon")
        if isinstance(kind, type) and issubclass(kind, ad.optim.Optimizer) and name not in others:
            found[name] = kind
    return found


def by(kind):
    return lambda block, steps: train(block, steps, lambda p: kind(p, lr=0.01))


def clip_norm(model):
    return nn.utils.clip_grad_norm_(model.parameters(), 0.05)


def clip_value(model):
    nn.utils.clip_grad_value_(model.parameters(), 0.01)


def clip_data(model):
    for p in model.parameters():
        p.grad.data.clamp_(-0.01, 0.01)


def decay(model, n):
    with ad.no_grad():
        for p in model.parameters():
            p.mul_(0.99)


LOOPS = {
    **{f"with_{name}": by(kind) for name, kind in named_optimizers().items()},
    "clipped_by_norm": lambda b, n: train(b, n, between=clip_norm),
    "clipped_by_value": lambda b, n: train(b, n, between=clip_value),
    "clipped_through_data": lambda b, n: train(b, n, between=clip_data),
    "decayed": lambda b, n: train(b, n, after=decay),
    "closure": closure_loop,
    "scaled": scaled,
    "averaged": averaged,
    "swapped": swapped,
    "in_backward": in_backward,
    "statistics": statistics,
    "manual": manual,
    "spectral": spectral,
}


SAID = {("spectral", True)}  # vectors that are drawn inside the block are nodes, and follow


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("one_block", [False, True], ids=["blocks", "one_block"])
def test_training_inside_blocks_is_eager(name, one_block):
    expected, weights = LOOPS[name](contextlib.nullcontext, 5)
    graph = ad.Graph()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if one_block:
            with graph:
                losses, found = LOOPS[name](contextlib.nullcontext, 5)
        else:
            losses, found = LOOPS[name](lambda: graph, 5)
    if (name, one_block) in SAID:
        assert any(str(each.message).startswith("Graph: ") for each in said)
        return
    assert not said
    np.testing.assert_allclose(losses, expected, 1e-4, 1e-6)
    for a, b in zip(found, weights, strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), 1e-3, 1e-5)
    graph.check_invariants()


def test_a_loss_that_is_read_late_is_said():
    graph = ad.Graph()
    model, optimizer = (m := net()), ad.optim.SGD(m.parameters(), lr=0.1)
    with graph:
        loss = model(batches(1)[0]).square().mean()
        loss.backward()
        optimizer.step()
        with pytest.warns(UserWarning, match=LATE):
            loss.item()


# ---- flat ----------------------------------------------------------------------------------------

TURNS = {
    "plain": lambda t, x, w: t.add_(x.mean()),
    "integers": lambda t, x, w: t.add_((x > 0).sum()),
    "view": lambda t, x, w: t[0].mul_(0.5).add_(x.mean()),
    "part": lambda t, x, w: t.__setitem__(0, x.mean()),
    "detached": lambda t, x, w: t.detach().copy_(x),
    "data": lambda t, x, w: t.data.mul_(0.9),
    "no_grad": lambda t, x, w: ad.no_grad()(lambda: t.lerp_(x, 0.1))(),
    "out": lambda t, x, w: ad.mul(x, 2.0, out=t),
    "swap": lambda t, x, w: (kept := t.clone(), t.copy_(x), t.copy_(kept)),
    "leaf": lambda t, x, w: ad.no_grad()(lambda: w.mul_(0.999))(),
    "gradient": lambda t, x, w: ((w * x).sum().backward(), nn.utils.clip_grad_norm_([w], 1.0)),
    "set": lambda t, x, w: (x.set(ad.ones(3)), t.set(ad.ones(3))),
    "init": lambda t, x, w: nn.init.uniform_(t),
    "optimizer": lambda t, x, w: step_of(w, x),
}


def step_of(w, x):
    """A step of the parameter's own optimizer."""
    if not hasattr(w, "optimizer"):
        w.optimizer = ad.optim.Adam([w], lr=1e-3)
    w.optimizer.zero_grad()
    (w * x).sum().backward()
    w.optimizer.step()


SLACK = np.array([2, 2, 12])  # nodes, nodes of gradients, tensors and cells


def held(graph):
    """Nodes, those of gradients, tensors and cells in the process; and the blocks of Python's
    memory, of which lists of dead references hold some thousand, until they are looked through.
    """
    gc.collect()
    stats = graph.stats()
    ours = sum(isinstance(x, TensorBase | LazyValue) for x in gc.get_objects())
    return np.array([stats["nodes"], stats["gradient_nodes"], ours]), sys.getallocatedblocks()


def assert_flat(graph, turn, turns):
    """Run `turn` so often, and compare what is held after each of `turns`: nothing grows."""
    found, done = [], 0
    for count in turns:
        for _ in range(count - done):
            turn()
        done = count
        found.append(held(graph))
    (first, blocks), *later = found
    for now, more in later:
        assert (now <= first + SLACK).all()
        assert more < blocks + 12_000


@pytest.mark.filterwarnings("ignore:Graph. ")
@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize(
    "turns", [(50, 250), pytest.param((100, 1_000, 10_000), marks=pytest.mark.sweep)], ids=str
)
def test_turns_keep_nothing(name, turns):
    graph, t, w = ad.Graph(), ad.zeros(3), ad.ones(3, requires_grad=True)
    x = graph.input(ad.ones(3))
    used = t * 1 if name == "integers" else None

    def turn():
        with graph:
            TURNS[name](t, x, w)

    assert_flat(graph, turn, turns)
    assert used is None or used.tolist() == [0, 0, 0]


LISTED = {"statistics"}  # which returns a node of each turn


@pytest.mark.filterwarnings("ignore:Graph. ")
@pytest.mark.parametrize("name", [*one_in(12, [name for name in LOOPS if name not in LISTED])])
def test_loops_keep_nothing(name):
    """A loop's own lists hold numbers. For thousands of turns: `tests.reactive.soak --living`."""
    graph, found, entered = ad.Graph(), [], itertools.count()

    def block():
        if next(entered) in (80, 120, 160):  # LBFGS keeps 100 steps, which come three a turn
            found.append(held(graph)[0])
        return graph

    LOOPS[name](block, 161)
    assert (found[1] <= found[0] + SLACK).all() and (found[2] <= found[0] + SLACK).all()


@pytest.mark.filterwarnings("ignore:Graph. ")
def test_a_loop_that_keeps_nodes_is_noticed():
    graph = ad.Graph()
    x = graph.input(ad.ones(3))
    kept = []
    with pytest.raises(AssertionError):
        assert_flat(graph, lambda: kept.append(x * 2), (10, 20))


def test_f_functions_in_place_are_writes_too():
    graph, t = ad.Graph(), ad.tensor([-1.0, 2.0])
    with graph:
        before = t * 2
        F.relu(t, inplace=True)
    assert before.tolist() == [-2, 4] and t.tolist() == [0, 2]


# ---- warnings by line and kind -------------------------------------------------------------------


def test_a_late_read_that_is_harmless_leaves_others_their_warning():
    graph, w = ad.Graph(), ad.ones(3, requires_grad=True)
    with graph:
        loss, other = (w * 2).sum(), (w * 3).sum()
    loss.backward()
    ad.optim.SGD([w], lr=0.1).step()
    with pytest.warns(UserWarning, match=LATE) as said:
        for _ in range(3):
            loss.item()
            ad.optim.SGD([w], lr=0.1).step()
        other.item()
    assert len([each for each in said if LATE in str(each.message)]) == 2


def test_a_branch_on_a_value_that_can_be_set_is_said_once_for_each_line():
    graph = ad.Graph()
    x = graph.input(2.0)
    with pytest.warns(UserWarning, match=r"test_writers.py:\d+ decided by the value") as said:
        for _ in range(3):
            with graph:
                y = x * 2 if (x > 1) else x * 3
    assert len(said) == 1 and y.item() == 4
    with pytest.warns(UserWarning, match="decided by the value"), graph:
        y = x * 2 if (x > 1) else x * 3


def test_branches_that_decide_nothing_that_can_be_set_say_nothing():
    graph, t = ad.Graph(), ad.ones(2)
    x = graph.input(2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with graph:
            y = t * 2 if t.sum() > 1 else t * 3  # made of a plain tensor
            ad.distributions.Normal(x, 1.0).log_prob(y)  # whose own checks read values
            assert x > 1  # and nothing is recorded behind it
        if x > 1:
            x * 2


def test_a_plain_result_of_a_node_is_said():
    graph = ad.Graph()
    x = graph.input(ad.ones(2, 3))
    program = ad.inference.freeze(ad.nn.Linear(3, 2).eval(), ad.ones(2, 3))
    with pytest.warns(UserWarning, match="NumPy computed with the value"):
        np.sin(x)
    with pytest.warns(UserWarning, match="a frozen program computed with the value"):
        program(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.sin(x.numpy())


@pytest.mark.parametrize("by", ["data", "numpy"])
def test_what_others_write_unseen_to_what_a_block_wrote_is_said(by):
    """It is memory again, and no longer what the node computes."""
    graph, t = ad.Graph(), ad.arange(3.0)
    x = graph.input(ad.ones(3))
    with graph:
        with ad.no_grad():
            t.add_(x)
        if by == "data":
            other = ad.ones(3)
            other.data = t
            other.add_(1)
        else:
            t.detach().numpy()[0] = 9
        with pytest.warns(UserWarning, match="memory that others wrote unseen"):
            y = t * 1
    assert y.tolist() == ([2, 3, 4] if by == "data" else [9, 2, 3])
