"""`cond`, `while_loop` and `scan`: eagerly, in compiled functions, in graphs, with gradients."""

import threading

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.backends import native
from adjoint.compiler.capture.subgraphs import Subgraph
from adjoint.core.errors import AutogradError, InvalidArgument, InvalidType, ShapeError, Unsupported
from adjoint.utils.checkpoint import checkpoint
from tests.native import needs_native

F = nn.functional
peer = pytest.mark.sweep


def gradients(loss, parameters):
    """Values and gradients of a step, as arrays."""
    for p in parameters:
        p.grad = None
    y = loss()
    y.backward()
    return [y.detach().numpy().copy(), *(_array(p.grad) for p in parameters)]


def _array(g):
    return None if g is None else g.numpy().copy()


def both(function, parameters, *calls, tolerance=1e-6, programs=1):
    """A function's value and gradients of `parameters`, eagerly and in a compiled step, for each
    of some calls; an eager None is the compiled zero. Returns the compiled step.
    """

    def step(*given):
        for p in parameters:
            p.grad = None
        y = function(*given)
        loss = (y * y).sum()
        loss.backward()
        return y

    compiled = ad.compile(step)
    for given in calls:
        y = step(*given)
        own = [_array(p.grad) for p in parameters]
        z = compiled(*given)
        np.testing.assert_allclose(z.detach().numpy(), y.detach().numpy(), tolerance, tolerance)
        for g, p in zip(own, parameters, strict=True):
            wanted = np.zeros(p.shape) if g is None else g
            np.testing.assert_allclose(p.grad.numpy(), wanted, tolerance, tolerance)
    assert len(compiled.programs) == len(compiled.reasons) == programs, compiled.reasons
    return compiled


def true_and_false(*given):
    return [(ad.tensor(each), *given) for each in (True, False, False, True)]


# ---- as PyTorch has them (whose first compiled function takes half a minute) ---------------------


@peer
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cond_is_as_in_pytorch(dtype):
    torch = pytest.importorskip("torch")
    x, w = np.random.default_rng(0).normal(size=(2, 3, 3))
    for pred in (True, False):
        found = []
        for lib in (ad, torch):
            kind = getattr(lib, dtype)
            a = lib.tensor(x, dtype=kind, requires_grad=True)
            b = lib.tensor(w, dtype=kind, requires_grad=True)
            y = lib.cond(
                lib.tensor(pred), lambda v, b=b: (v @ b).sin(), lambda v, b=b: v * b.exp(), (a,)
            )
            y.sum().backward()
            found.append([each.detach().numpy() for each in (y, a.grad, b.grad)])
        for ours, theirs in zip(*found, strict=True):
            assert ours.dtype == theirs.dtype == dtype
            np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6)


@peer
def test_while_loop_is_as_in_pytorch():
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops import while_loop

    for n in (0, 1, 4):
        found = []
        for lib, loop in ((ad, ad.while_loop), (torch, while_loop)):
            count, x = loop(
                lambda k, v, n=n: k < n,
                lambda k, v: (k + 1, v.sin() * 2),
                (lib.tensor(0), lib.tensor([0.5, 2.0])),
            )
            found.append((count.item(), x.numpy()))
        assert found[0][0] == found[1][0] == n
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)


@peer
@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of what it deprecates
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scan_is_as_in_pytorch(dim, reverse):
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops.scan import scan

    xs = np.random.default_rng(0).normal(size=(3, 3, 3))
    found = []
    for lib, scanned in ((ad, ad.scan), (torch, scan)):
        x = lib.tensor(xs, requires_grad=True)
        begin = {"a": lib.zeros(3, 3, dtype=lib.float64), "b": lib.tensor(xs[0] * 0 + 1)}

        def combine(carry, given):
            a = carry["a"] * 0.5 + given["x"].sin()
            return {"a": a, "b": carry["b"] * 1.0}, [a * 2, given["x"] + carry["b"]]

        carry, ys = scanned(combine, begin, {"x": x}, dim=dim, reverse=reverse)
        (carry["a"].sum() + (ys[0] ** 2).sum() + ys[1].sum()).backward()
        parts = (carry["a"], carry["b"], *ys, x.grad)
        found.append([each.detach().numpy() for each in parts])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_numbers_and_lists_do_eagerly_what_python_does():
    assert ad.cond(True, lambda: 1, lambda: 2) == 1
    assert ad.cond(0, lambda: 1, lambda: 2) == 2
    n, x = ad.while_loop(lambda n, x: n < 3, lambda n, x: [n + 1, x + n], [0, ad.zeros(2)])
    assert n.item() == 3
    assert x.tolist() == [3.0, 3.0]


@needs_native
def test_python_decides_at_capture_where_it_knows():
    step = ad.compile(lambda x, up: ad.cond(up, lambda v: v + 1, lambda v: v - 1, (x,)))
    assert step(ad.ones(2), True).tolist() == [2.0, 2.0]
    assert step(ad.ones(2), False).tolist() == [0.0, 0.0]
    assert len(step.programs) == 2


# ---- one program for every value -----------------------------------------------------------------


@needs_native
@pytest.mark.parametrize("dtype", [ad.float32, ad.float64])
def test_a_branch_is_picked_in_each_run(dtype):
    ad.manual_seed(0)
    one, two = nn.Linear(4, 3, dtype=dtype), nn.Linear(4, 3, dtype=dtype)

    def f(pred, x):
        return ad.cond(pred, lambda v: one(v).tanh(), lambda v: two(v) * one.weight[0, 0], (x,))

    parameters = [*one.parameters(), *two.parameters()]
    step = both(f, parameters, *true_and_false(ad.randn(5, 4, dtype=dtype)))
    explained = step.explain(ad.tensor(True), ad.randn(5, 4, dtype=dtype))
    assert not explained.host_calls
    branches = [row.name for row in explained.rows if row.name.startswith("cond")]
    assert branches == ["cond", "cond_backward"]


@needs_native
def test_a_whole_training_step_with_an_optimizer():
    def made():
        ad.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        gate = nn.Linear(4, 1)
        optimizer = ad.optim.Adam([*model.parameters(), *gate.parameters()], lr=1e-2)

        def step(x, y):
            optimizer.zero_grad()
            z = gate(x)
            out = ad.cond(
                z.sum() > 0, lambda v, z: model(v) * z, lambda v, z: model(-v) - z, (x, z)
            )
            loss = ((out - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss, z.sum() > 0

        return step, [*model.parameters(), *gate.parameters()]

    (eager, ours), (other, theirs) = made(), made()
    compiled = ad.compile(other)
    picked = set()
    for k in range(12):
        ad.manual_seed(k)
        x, y = ad.randn(6, 4) * (-1) ** k, ad.randn(6, 1)
        a, b = eager(x, y), compiled(x, y)
        picked.add(a[1].item())
        assert a[1].item() == b[1].item()
        np.testing.assert_allclose(a[0].item(), b[0].item(), rtol=1e-5)
        for p, q in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), 1e-4, 1e-6)
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), 1e-4, 1e-6)
    assert picked == {True, False}
    assert compiled.reasons == ["first call"]


@needs_native
def test_a_loop_runs_as_often_as_the_values_say():
    ad.manual_seed(0)
    w = ad.randn(3, 3, requires_grad=True)

    def f(x, n):
        _, y, z = ad.while_loop(
            lambda k, y, z: k < n,
            lambda k, y, z: (k + 1, (y @ w).tanh(), z + y * k),
            (ad.tensor(0), x, ad.zeros(2, 3)),
        )
        return y + z + w.sum()

    both(f, [w], *((ad.randn(2, 3), ad.tensor(n)) for n in (0, 1, 5, 2, 40, 0)), tolerance=1e-5)


@needs_native
def test_a_loop_until_it_has_converged():
    target = ad.tensor([2.0, 9.0, 30.0], requires_grad=True)

    def root(a):
        better = lambda x: (0.5 * (x + a / x),)  # noqa: E731
        (x,) = ad.while_loop(lambda x: (x * x - a).abs().max() > 1e-4, better, (a * 0.5 + 0.5,))
        return x

    both(lambda k: root(target * k), [target], (ad.tensor(1.0),), (ad.tensor(100.0),))
    target.grad = None
    root(target).sum().backward()
    np.testing.assert_allclose(target.grad.numpy(), 0.5 / np.sqrt([2, 9, 30]), rtol=1e-3)


@needs_native
@pytest.mark.parametrize("length", [0, 1, 2, 15])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_the_unrolled_loop(length, reverse):
    ad.manual_seed(0)
    inner, outer, head = nn.Linear(5, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 3)

    def combine(h, x):
        h = (inner(x) + outer(h)).tanh()
        return h, head(h)

    def f(x, h):
        h, y = ad.scan(combine, h, x, reverse=reverse)
        return h.sum() + (y * y).sum()

    def unrolled(x, h):
        results = []
        for t in reversed(range(length)) if reverse else range(length):
            h, y = combine(h, x[t])
            results.append(y)
        return h.sum() + sum((y * y).sum() for y in results)

    modules = [inner, outer, head]
    parameters = [p for module in modules for p in module.parameters()]
    x, h = ad.randn(length, 2, 5, requires_grad=True), ad.randn(2, 4, requires_grad=True)
    parameters += [x, h]
    wanted = gradients(lambda: unrolled(x, h), parameters)
    eager = gradients(lambda: f(x, h), parameters)
    step = ad.compile(lambda: f(x, h).backward())
    compiled = gradients(lambda: f(x, h), parameters)
    for p in parameters:
        p.grad = None
    step()
    for a, b, c, p in zip(wanted[1:], eager[1:], compiled[1:], parameters, strict=True):
        a = np.zeros(p.shape) if a is None else a
        for found in (b, c, _array(p.grad)):
            np.testing.assert_allclose(np.zeros(p.shape) if found is None else found, a, 1e-5, 1e-6)


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_what_is_carried_may_change_places(size):
    """Small values are copied into a body's memory, large ones read where they are."""
    w = ad.linspace(0.5, 1.0, size).requires_grad_()

    def f(a, b):
        pair, ys = ad.scan(lambda c, x: ((c[1], c[0]), c[0] * x), (a * w, b), ad.ones(3, size))
        _, c, d = ad.while_loop(
            lambda k, c, d: k < 3, lambda k, c, d: (k + 1, d, c), (ad.tensor(0), *pair)
        )
        return c * 3 + d * w + ys.sum(0)

    a, b = ad.ones(size), ad.ones(size) * 2
    wanted = (a * w) * 3 + b * w + (a * w) * 2 + b
    with ad.Graph():
        found = f(a, b)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(f(a, b).detach().numpy(), wanted.detach().numpy(), rtol=1e-6)
    if native.unusable() is None:
        both(f, [w], (a, b), (b, a))


def test_a_scan_of_nothing():
    carry, (y, z) = ad.scan(
        lambda c, x: (c + x.sum(), (x * 2, c > 0)), ad.tensor(1.0), ad.zeros(0, 3)
    )
    assert carry.item() == 1.0
    assert (y.shape, y.dtype, z.shape, z.dtype) == ((0, 3), ad.float32, (0,), ad.bool)


@needs_native
def test_a_character_model_by_scan_learns_as_the_unrolled_one():
    text = "to be or not to be that is the question " * 2
    letters = sorted(set(text))
    codes = ad.tensor([letters.index(c) for c in text])

    def made(scans):
        ad.manual_seed(0)
        embed, cell = nn.Embedding(len(letters), 8), nn.GRUCell(8, 16)
        head = nn.Linear(16, len(letters))
        parameters = [p for m in (embed, cell, head) for p in m.parameters()]
        optimizer = ad.optim.Adam(parameters, lr=1e-2)

        def step(x, y):
            optimizer.zero_grad()
            h = ad.zeros(x.shape[1], 16)

            def combine(h, x):
                h = cell(embed(x), h)
                return h, head(h)

            if scans:
                _, logits = ad.scan(combine, h, x)
            else:
                rows = []
                for each in x:
                    h, row = combine(h, each)
                    rows.append(row)
                logits = ad.stack(rows)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
            return loss

        return step

    windows = ad.stack([codes[k : k + 12] for k in range(0, 48, 12)], 1)
    following = ad.stack([codes[k + 1 : k + 13] for k in range(0, 48, 12)], 1)
    steps = [made(False), made(True), ad.compile(made(True)), ad.compile(made(False))]
    losses = [[step(windows, following).item() for _ in range(15)] for step in steps]
    assert losses[0][-1] < 0.9 * losses[0][0]
    for found in losses[1:]:
        np.testing.assert_allclose(found, losses[0], rtol=1e-4)
    assert steps[2].reasons == ["first call"]


@needs_native
def test_nested():
    ad.manual_seed(0)
    w, u = ad.randn(3, requires_grad=True), ad.randn(3, requires_grad=True)

    def cond_in_scan(x):
        def combine(h, x):
            h = ad.cond(x.sum() > 0, lambda h: h * w + x, lambda h: h.sin() - u, (h,))
            return h, h * 2

        h, y = ad.scan(combine, ad.ones(3), x)
        return y + h

    def scan_in_cond(x):
        def up(x):
            return ad.scan(lambda h, x: (h * w + x, h * u), ad.ones(3), x)[1]

        return ad.cond(x.sum() > 0, up, lambda x: x * w, (x,))

    def loop_in_cond_in_loop(x):
        def inner(x):
            return ad.while_loop(lambda y: y.sum() < 3, lambda y: (y + w * w + 1,), (x,))[0]

        def outer(k, x):
            return k + 1, ad.cond(k > 0, inner, lambda x: x * u, (x,))

        return ad.while_loop(lambda k, x: k < 2, outer, (ad.tensor(0), x))[1]

    calls = [(ad.randn(4, 3) + k,) for k in (0, 1, -1)]
    for f in (cond_in_scan, scan_in_cond, loop_in_cond_in_loop):
        both(f, [w, u], *calls, tolerance=1e-5)


# ---- what branches may do ------------------------------------------------------------------------


@needs_native
def test_operands_and_results_of_any_form():
    w = ad.tensor([2.0, 3.0], requires_grad=True)

    def f(pred, x, n):
        found = ad.cond(
            pred,
            lambda given, n: {"y": given["x"] * w, "n": n + 1, "same": given["x"], "w": w},
            lambda given, n: {"y": w + n, "n": n * 2, "same": w, "w": given["x"]},
            ({"x": x}, n),
        )
        return found["y"] + found["same"] * found["n"] + found["w"].exp()

    both(f, [w], *true_and_false(ad.ones(2), ad.tensor(3)))
    assert (
        ad.compile(lambda p, x: ad.cond(p, lambda v: None, lambda v: None, (x,)))(
            ad.tensor(True), ad.ones(2)
        )
        is None
    )


@needs_native
def test_constants_and_local_tensors_of_a_branch():
    w = ad.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    table = ad.tensor([5.0, 6.0])

    def local(x):
        made = ad.zeros(2, 2)
        made[0] = x[1] * 2
        made[1].add_(w[0])
        scale = ad.tensor(3.0)
        return made * scale + table

    f = lambda pred, x: ad.cond(pred, local, lambda x: ad.ones(2, 2), (x,)) * w  # noqa: E731
    step = both(f, [w], *true_and_false(ad.randn(2, 2)))
    table.fill_(1.0)
    pred, x = ad.tensor(True), ad.ones(2, 2)
    np.testing.assert_allclose(step(pred, x).detach().numpy(), f(pred, x).detach().numpy())
    assert len(step.programs) == 1


@needs_native
def test_what_the_tape_says_of_a_branch_holds():
    w = ad.tensor([1.0, -2.0, 3.0], requires_grad=True)

    class Doubled(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 20 + ctx.saved_tensors[0]

    def up(x):
        y = x * w.detach() + Doubled.apply(w)
        with ad.no_grad():
            z = w * 5
        y.register_hook(lambda g: g * 3)
        return y * z

    def down(x):
        (g,) = ad.autograd.grad((w**3 * x).sum(), w, create_graph=True)
        return g + w

    f = lambda pred, x: ad.cond(pred, up, down, (x,))  # noqa: E731
    both(f, [w], *true_and_false(ad.tensor([0.5, 1.0, 2.0])))


@needs_native
def test_in_place_on_what_a_branch_made():
    w = ad.randn(3, requires_grad=True)

    def up(x):
        y = x * w
        y.mul_(2).add_(w)
        y[0] = y[1] * 2
        return y

    both(lambda p, x: ad.cond(p, up, lambda x: x, (x,)) + w, [w], *true_and_false(ad.randn(3)))


@needs_native
def test_dropout_in_eval_mode_and_batch_norm_in_eval_mode():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).eval()
    bias = model[0].bias
    f = lambda p, x: ad.cond(p, model, lambda x: x * bias, (x,))  # noqa: E731
    step = both(f, list(model.parameters()), *true_and_false(ad.randn(4, 3)))
    assert len(step.programs) == 1


@needs_native
def test_routines_and_large_inputs_in_a_branch():
    ad.manual_seed(0)
    lstm, wide = nn.LSTM(6, 8), nn.Linear(8, 300)

    def f(p, x):
        return ad.cond(p, lambda x: wide(lstm(x)[0]), lambda x: wide(x @ wide.weight[:6]), (x,))

    parameters = [*lstm.parameters(), *wide.parameters()]
    calls = [(ad.tensor(k % 2 == 0), ad.randn(40, 30, 6)) for k in range(4)]
    step = both(f, parameters, *calls, tolerance=1e-3)
    with ad.no_grad():
        wide.weight.mul_(2)  # where it is: read in place
    wide.bias.data = ad.ones(300)
    p, x = ad.tensor(True), ad.randn(40, 30, 6)
    wanted = f(p, x).detach().numpy()
    np.testing.assert_allclose(step(p, x).detach().numpy(), wanted, 1e-4, 1e-4)


@needs_native
def test_sizes_that_are_zero_or_odd():
    w = ad.randn(15, requires_grad=True)
    for rows in (0, 1, 15):
        f = lambda p, x: ad.cond(p, lambda x: x * w, lambda x: x.exp() - w, (x,)) + w  # noqa: E731
        both(f, [w], *true_and_false(ad.randn(rows, 15)))


@needs_native
def test_dtypes_mixed_and_narrow():
    w = ad.tensor([1.0, 2.0, 3.0], dtype=ad.bfloat16, requires_grad=True)

    def f(pred, x, n):
        a, b = ad.cond(
            pred,
            lambda x, n: ((x * w).float(), n + 1),
            lambda x, n: (x + w.float() * n, n.clone()),
            (x, n),
        )
        return a * b

    both(f, [w], *true_and_false(ad.ones(3), ad.tensor([1, 2, 3])), tolerance=1e-2)


@needs_native
def test_under_autocast():
    layer = nn.Linear(8, 8)

    def f(pred, x):
        with ad.autocast("cpu", dtype=ad.bfloat16):
            y = ad.cond(pred, lambda x: layer(x), lambda x: layer(x * 2), (x,))
        assert y.dtype is ad.bfloat16
        return y.float()

    both(f, list(layer.parameters()), *true_and_false(ad.randn(4, 8)), tolerance=2e-2)


@needs_native
def test_errors_of_values_are_those_of_eager_runs():
    table = nn.Embedding(4, 3)

    def f(pred, i):
        return ad.cond(pred, lambda i: table(i).sum(), lambda i: i.sum() * 1.0, (i,))

    step = both(f, [table.weight], (ad.tensor(True), ad.tensor([1, 2])))
    assert step(ad.tensor(False), ad.tensor([9, 1])).item() == 10.0
    with pytest.raises(IndexError):
        f(ad.tensor(True), ad.tensor([9, 1]))
    with pytest.raises(IndexError):
        step(ad.tensor(True), ad.tensor([9, 1]))
    step(ad.tensor(True), ad.tensor([3, 0]))

    def loss(pred, x, y):
        return ad.cond(pred, F.cross_entropy, lambda x, y: x.sum() * 0 + y.sum(), (x, y))

    again = ad.compile(loss)
    x = ad.randn(2, 3)
    assert again(ad.tensor(False), x, ad.tensor([0, 7])).item() == 7.0
    with pytest.raises(IndexError, match="7"):
        again(ad.tensor(True), x, ad.tensor([0, 7]))
    assert len(again.programs) == 1


@needs_native
def test_checkpoints_around_and_within_a_branch():
    ad.manual_seed(0)
    layer = nn.Linear(3, 3)

    def f(p, x):
        inner = lambda y: checkpoint(lambda v: layer(v).exp(), y, use_reentrant=False)  # noqa: E731
        outer = lambda x: ad.cond(p, layer, lambda x: x * layer.bias, (x,))  # noqa: E731
        y = checkpoint(outer, x, use_reentrant=False)
        return ad.cond(p, inner, lambda y: y * layer.weight.sum(), (y,))

    both(f, list(layer.parameters()), *true_and_false(ad.randn(2, 3)), tolerance=1e-5)


@needs_native
def test_hooks_of_what_a_branch_reads_run_once():
    w = ad.ones(3, requires_grad=True)
    w.register_hook(lambda g: g * 2)
    f = lambda p, x: ad.cond(p, lambda x: x * w + w, lambda x: x - w, (x,)) * w  # noqa: E731
    both(f, [w], *true_and_false(ad.randn(3)))


@needs_native
def test_what_python_read_in_a_branch_is_guarded():
    scale = [2.0]
    step = ad.compile(lambda p, x: ad.cond(p, lambda x: x * scale[0], lambda x: x, (x,)))
    assert step(ad.tensor(True), ad.ones(2)).tolist() == [2.0, 2.0]
    scale[0] = 3.0
    assert step(ad.tensor(True), ad.ones(2)).tolist() == [3.0, 3.0]
    first, second = step.reasons
    assert first == "first call" and second.startswith("what scale contains was changed, read (")


@needs_native
def test_passes_treat_the_nodes_right():
    weight = ad.tensor([1.0, 2.0])

    def f(x):
        ad.cond(x.sum() > 0, lambda x: x.exp(), lambda x: x, (x,))  # nobody reads it
        made = ad.cond(ad.tensor(True), lambda: ad.ones(2) * 2, lambda: ad.ones(2))  # a constant
        y = ad.cond(x.sum() > 0, lambda x: x * weight, lambda x: x, (x,))
        return x + made, (y * 2 + x).exp()

    step = ad.compile(f)
    for x in (ad.ones(2), -ad.ones(2)):
        for a, b in zip(step(x), f(x), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    rows = step.explain(ad.ones(2)).rows
    assert [row.name for row in rows if row.name == "cond"] == ["cond"]
    for part in step.programs[0].parts:
        part.graph.verify()


@needs_native
def test_large_values_around_a_branch_are_computed_again_rightly():
    """The pass that saves memory meets the node between what it may compute again."""
    w = ad.randn(64, 64, requires_grad=True)

    def f(p, x):
        for _ in range(3):
            x = (x @ w * 0.1).relu() * 2 + x
            x = ad.cond(p, lambda x: x.tanh() * w, lambda x: x * 0.5 + w, (x,))
        return x

    both(f, [w], *true_and_false(ad.randn(64, 64)), tolerance=1e-3)


# ---- gradients of every kind ---------------------------------------------------------------------


@needs_native
def test_gradients_through_what_is_returned():
    ad.manual_seed(0)
    w = ad.randn(3, requires_grad=True)

    def f(pred, x):
        y = ad.cond(pred, lambda x: (x * w).tanh(), lambda x: x.exp() + w, (x,))
        h, ys = ad.scan(lambda h, x: (h * w + x, h * x), ad.zeros(3), y)
        (z,) = ad.while_loop(lambda z: z.sum() < 30, lambda z: (z * 1.5 + w * w + 1,), (h,))
        return z, ys

    compiled = ad.compile(f)
    for pred in (True, False, True):
        found = []
        for function in (f, compiled):
            w.grad = None
            x = ad.linspace(-1, 1, 12).reshape(4, 3).requires_grad_()
            z, ys = function(ad.tensor(pred), x * 2)
            other = function(ad.tensor(not pred), x)  # whose memory is not that of the first
            (z.sum() + (ys * ys).sum()).backward()
            (other[0].sum() * 2).backward()
            found.append([_array(x.grad), _array(w.grad)])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-5)
    assert compiled.reasons == ["first call"]


@needs_native
def test_second_derivatives_within_a_compiled_step():
    w = ad.tensor([0.5, -1.0, 2.0], requires_grad=True)

    def f(pred, x):
        y = ad.cond(pred, lambda x: (x * w).sin(), lambda x: x**3 * w.exp(), (x,))
        h, ys = ad.scan(lambda h, x: (h.sin() * w + x, h * h), y, ad.stack([y, y * 2]))
        (g,) = ad.autograd.grad((ys * ys).sum() + h.sum(), w, create_graph=True)
        return g + y

    both(f, [w], *true_and_false(ad.tensor([1.0, 0.3, -0.7])), tolerance=1e-4)


def test_gradcheck_of_what_is_captured():
    """Where nothing is compiled, too: by the nodes of a graph."""
    w = ad.randn(3, dtype=ad.float64, requires_grad=True)
    graph = ad.Graph()

    def branch(x, w):
        return ad.cond(x.sum() > 0, lambda x: (x * w).sin(), lambda x: x.exp() * w, (x,))

    def scanned(x, w):
        h, y = ad.scan(lambda h, x: (h.tanh() * w + x, h * x), w * 2, x)
        return h.sum() + y

    def loop(x, w):
        go, more = lambda k, y: k < 3, lambda k, y: (k + 1, y.sin() * w + x * k)
        return ad.while_loop(go, more, (ad.tensor(0), x))[1]

    for f in (branch, scanned, loop):
        for x in (ad.ones(2, 3, dtype=ad.float64), -ad.ones(2, 3, dtype=ad.float64)):
            x = x.requires_grad_()
            assert ad.autograd.gradcheck(f, (x, w))
            with graph:
                y = f(x, w).sum()
                gs = ad.autograd.grad(y, (x, w))
            wanted = ad.autograd.grad(f(x, w).sum(), (x, w))
            for g, h in zip(gs, wanted, strict=True):
                np.testing.assert_allclose(g.detach().numpy(), h.numpy(), rtol=1e-9)


@needs_native
def test_second_derivatives_of_a_loop():
    w = ad.tensor([0.5, 0.3], requires_grad=True)
    d = ad.tensor([0.7, -0.2], requires_grad=True)

    def f(x):
        more = lambda k, y, z: (k + 1, y * y * w + 1 + y * d.sin(), z * 0.9 + w.exp())  # noqa: E731
        start = (ad.tensor(0), x, x * 2)
        _, y, z = ad.while_loop(lambda k, y, z: y.abs().sum() < 9, more, start)
        first = ad.autograd.grad((y**3).sum() + (y * z).sin().sum(), (x, w), create_graph=True)
        total = sum((g * g).sum() for g in first)
        return (y, *first, *ad.autograd.grad(total, (x, w, d)))

    compiled = ad.compile(f)
    for values in ([1.0, 0.5], [0.1, 2.0], [-0.3, 0.2]):
        x = ad.tensor(values, requires_grad=True)
        for found, wanted in zip(compiled(x), f(x), strict=True):
            np.testing.assert_allclose(found.tolist(), wanted.tolist(), rtol=2e-4)
    assert len(compiled.programs) == 1
    x = ad.tensor([20.0, 1.0], requires_grad=True)  # no iteration
    np.testing.assert_allclose(compiled(x)[4].tolist(), [0.0, 0.0], atol=1e-6)


@needs_native
def test_second_derivatives_of_a_loop_that_draws():
    w = ad.tensor([0.5, 0.3], requires_grad=True)

    def f(x):
        more = lambda y: (y + nn.functional.dropout(y * y * w, 0.5) + ad.rand(2),)  # noqa: E731
        (y,) = ad.while_loop(lambda y: y.abs().sum() < 9, more, (x,))
        (g,) = ad.autograd.grad((y**3).sum(), w, create_graph=True)
        return y, g, *ad.autograd.grad((g * g).sum(), (x, w)), ad.rand(1)

    compiled, x = ad.compile(f), ad.ones(2, requires_grad=True)
    for seed in range(3):
        runs = []
        for run in (f, compiled):
            ad.manual_seed(seed)
            runs.append(run(x))
        for wanted, found in zip(*runs, strict=True):
            np.testing.assert_allclose(found.tolist(), wanted.tolist(), rtol=1e-4)


def test_second_derivatives_of_a_loop_in_a_graph():
    graph = ad.Graph()
    w = graph.parameter(ad.tensor([0.5, 0.3], dtype=ad.float64))
    x = graph.input(ad.ones(2, dtype=ad.float64), requires_grad=True)

    def f(x, w):
        more = lambda y: (y * y * w + 1,)  # noqa: E731
        (y,) = ad.while_loop(lambda y: y.sum() < 9, more, (x,))
        (g,) = ad.autograd.grad((y * y).sum(), x, create_graph=True)
        return ad.autograd.grad((g * g).sum(), (x, w))

    with graph:
        found = f(x, w)
    for values in ([1.0, 1.0], [2.0, 0.5]):
        x.set(ad.tensor(values, dtype=ad.float64))
        plain = [y.snapshot().requires_grad_() for y in (x, w)]
        for y, z in zip(found, f(*plain), strict=True):
            np.testing.assert_allclose(y.tolist(), z.tolist(), rtol=1e-9)


@needs_native
def test_third_derivatives_of_a_loop_are_refused():
    def f(x):
        (y,) = ad.while_loop(lambda y: y.sum() < 9, lambda y: (y * y * y + 1,), (x,))
        for _ in range(3):
            (y,) = ad.autograd.grad(y.sum(), x, create_graph=True)
        return y

    x = ad.ones(2, requires_grad=True)
    assert f(x).shape == (2,)  # eagerly there are
    with pytest.raises((AutogradError, Unsupported), match="use scan, or give max_steps="):
        ad.compile(f)(x)


@needs_native
def test_two_backwards_through_one_loop():
    w = ad.tensor([1.5, 0.5], requires_grad=True)

    def f(x):
        (y,) = ad.while_loop(lambda y: y.sum() < 9, lambda y: (y * w + 1,), (x,))
        (g,) = ad.autograd.grad(y.sum(), w, retain_graph=True)
        return y * w + g.detach()

    both(f, [w], (ad.ones(2),), (ad.zeros(2),))


@needs_native
def test_without_gradients_nothing_is_kept():
    w = ad.ones(3, requires_grad=True)
    step = ad.compile(lambda x: ad.scan(lambda h, x: (h * w + x, h), ad.zeros(3), x)[0])
    with ad.no_grad():
        y = step(ad.ones(4, 3))
    assert not y.requires_grad
    assert step(ad.ones(4, 3)).requires_grad
    plain = ad.compile(lambda p, x: ad.cond(p, lambda x: x * 2, lambda x: x + w.detach(), (x,)))
    assert not plain(ad.tensor(True), ad.ones(3)).requires_grad


# ---- in graphs, lazily, frozen -------------------------------------------------------------------


def test_in_a_graph_a_change_of_the_predicate_picks_the_other_branch():
    graph = ad.Graph()
    w = ad.tensor([2.0, 3.0], requires_grad=True)
    with graph:
        p = graph.input(1.0)
        x = ad.tensor([1.0, -1.0])
        y = ad.cond(p > 0, lambda x: x * w, lambda x: x.exp() + w, (x,))
        h, ys = ad.scan(lambda h, x: (h * 2 + x, h * w), y, ad.stack([y, y]))
        (z,) = ad.while_loop(lambda z: z.sum() < 20, lambda z: (z * z + 1,), (h,))
    for value in (1.0, -1.0, 1.0):
        p.set(value)
        pred = ad.tensor(value) > 0
        v = ad.cond(pred, lambda x: x * w, lambda x: x.exp() + w, (ad.tensor([1.0, -1.0]),))
        g, vs = ad.scan(lambda h, x: (h * 2 + x, h * w), v, ad.stack([v, v]))
        (u,) = ad.while_loop(lambda z: z.sum() < 20, lambda z: (z * z + 1,), (g,))
        np.testing.assert_allclose(y.detach().numpy(), v.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(ys.detach().numpy(), vs.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(z.detach().numpy(), u.detach().numpy(), rtol=1e-6)


def test_gradients_of_a_graph_follow_the_values():
    graph = ad.Graph()
    w = graph.parameter([2.0, 3.0], name="w")
    p = graph.input(1.0)

    def f(p, w):
        y = ad.cond(p > 0, lambda: w * w, lambda: w.exp())
        begin = (ad.tensor(0.0), y)
        _, z = ad.while_loop(lambda k, z: k < p * 3, lambda k, z: (k + 1, z * w), begin)
        h, ys = ad.scan(lambda h, x: (h * w + x, h), z, ad.stack([z, z]))
        return (h + ys).sum()

    with graph:
        loss = f(p, w)
    for value in (1.0, -1.0, 2.0):
        p.set(value)
        w.grad = None
        loss.backward()
        v = ad.tensor([2.0, 3.0], requires_grad=True)
        wanted = f(ad.tensor(value), v)
        wanted.backward()
        np.testing.assert_allclose(loss.item(), wanted.item(), rtol=1e-6)
        np.testing.assert_allclose(w.grad.numpy(), v.grad.numpy(), rtol=1e-6)


def test_lazily_what_decides_is_read():
    w = ad.ones(3, requires_grad=True)
    with ad.lazy():
        x = ad.ones(3) * 2
        y = ad.cond(x.sum() > 0, lambda v: v * w * 3, lambda v: v, (x,))
        _, z = ad.while_loop(lambda k, v: k < 3, lambda k, v: (k + 1, v * 2), (ad.tensor(0), y))
        h, ys = ad.scan(lambda h, v: (h + v, h * v), ad.zeros(3), ad.stack([z, z]))
    (h + ys.sum(0)).sum().backward()
    assert h.tolist() == [96.0] * 3
    assert w.grad.tolist() == [96.0 + 2 * 48.0 * 48.0] * 3


@needs_native
def test_frozen_modules_have_branches():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return ad.cond(x.sum() > 0, self.up, self.down, (x,))

    model = Gated()
    program = ad.inference.freeze(model, ad.ones(4, 3))
    for x in (ad.ones(4, 3), -ad.ones(4, 3)):
        np.testing.assert_allclose(program(x).numpy(), model(x).detach().numpy(), rtol=1e-5)


@needs_native
def test_threads():
    w = ad.tensor([1.5, 0.5], requires_grad=True)
    step = ad.compile(
        lambda n: ad.while_loop(lambda k, y: k < n, lambda k, y: (k + 1, y * w), (ad.tensor(0), w))
    )
    wrong = []

    def run(n):
        for _ in range(30):
            _, y = step(ad.tensor(n))
            if not np.allclose(y.detach().numpy(), w.detach().numpy() ** (n + 1)):
                wrong.append(n)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- what is refused -----------------------------------------------------------------------------


def compiled_error(kind, match, function, *given):
    with pytest.raises(kind, match=match) as found:
        ad.compile(function)(*given)
    return str(found.value)


@needs_native
def test_branches_that_differ_are_named():
    p, x = ad.tensor(True), ad.ones(3)
    compiled_error(
        ShapeError, r"true_fn gives \(3,\) adjoint.float32 and false_fn \(\) adjoint.float32",
        lambda p, x: ad.cond(p, lambda x: x, lambda x: x.sum(), (x,)), p, x,
    )  # fmt: skip
    compiled_error(
        ShapeError, r"false_fn \(3,\) adjoint.float64",
        lambda p, x: ad.cond(p, lambda x: x, lambda x: x.double(), (x,)), p, x,
    )  # fmt: skip
    compiled_error(
        ShapeError, r"false_fn \(\(3,\) adjoint.float32,\)",
        lambda p, x: ad.cond(p, lambda x: x, lambda x: (x,), (x,)), p, x,
    )  # fmt: skip


def test_what_is_carried_stays_as_it_is():
    for call in (lambda f: f, ad.compile if native.unusable() is None else lambda f: f):
        with pytest.raises(ShapeError, match=r"is given \(\(3,\) adjoint.float32,\) and gives"):
            call(lambda x: ad.while_loop(lambda x: x.sum() < 9, lambda x: (x.sum(),), (x,)))(
                ad.ones(3)
            )
        with pytest.raises(ShapeError, match="scan: combine_fn is given"):
            call(lambda x: ad.scan(lambda h, x: (h.double(), x), x[0], x))(ad.ones(3))


@needs_native
def test_what_a_branch_is_not_to_do():
    p, x, w = ad.tensor(True), ad.ones(3), ad.ones(3)
    leaf = ad.ones(3, requires_grad=True)
    norm = nn.BatchNorm1d(3)
    seen = []

    def of(up, down=lambda x: x):
        return lambda p, x: ad.cond(p, up, down, (x,))

    def writes(x):
        w.add_(x)
        return x

    def writes_a_part(x):
        w[0] = x[0]
        return x

    def writes_an_operand(x):
        return x.mul_(2)

    def backward(x):
        (x * leaf).sum().backward()
        return x

    def sets(x):
        leaf.grad = None
        return x

    def remembers(x):
        seen.append(1)
        return x

    for function, match in (
        (writes, "writes to a tensor from outside, of shape"),
        (writes_a_part, "writes to a tensor from outside, of shape"),
        (writes_an_operand, "writes to an operand"),
        (lambda x: norm(x.reshape(1, 3).expand(2, 3))[0], "writes to a tensor from outside"),
        (lambda x: x * x.sum().item(), "reads a value"),
        (lambda x: x if x.sum() > 0 else x * 2, "reads a value"),
        (backward, "backward within a function of it reaches"),
        (sets, "sets the gradient"),
        (remembers, "changes seen"),
    ):
        text = compiled_error(Unsupported, match, of(function), p, x)
        assert __file__ in text, text
        compiled_error(Unsupported, match, of(lambda x: x, function), p, x)
    assert w.tolist() == [1.0] * 3
    assert leaf.grad is None
    assert not seen
    text = compiled_error(Unsupported, "writes to", of(writes), p, x)
    line = writes.__code__.co_firstlineno + 1
    assert f":{line}, in writes" in text
    # all of it runs eagerly, on wish
    with pytest.warns(UserWarning, match="runs eagerly"):
        ad.compile(of(writes), fallback="eager")(p, x)
    assert w.tolist() == [2.0] * 3


def test_arguments_that_are_refused():
    with pytest.raises(InvalidArgument, match=r"cond: pred has shape \(2,\)"):
        ad.cond(ad.tensor([True, False]), lambda: 1, lambda: 2)
    with pytest.raises(InvalidType, match="cond: pred is a str"):
        ad.cond("yes", lambda: 1, lambda: 2)
    with pytest.raises(InvalidType, match="expected a function, got a int"):
        ad.cond(True, 1, lambda: 2)
    with pytest.raises(InvalidType, match="operands are a tuple or list"):
        ad.cond(True, lambda x: x, lambda x: x, ad.ones(2))
    with pytest.raises(InvalidType, match="carried_inputs are a tuple or list"):
        ad.while_loop(lambda x: x, lambda x: x, ad.ones(2))
    with pytest.raises(InvalidType, match="body_fn gives a Tensor"):
        ad.while_loop(lambda x: x.sum() < 9, lambda x: x + 1, (ad.ones(2),))
    with pytest.raises(InvalidType, match="combine_fn gives a Tensor"):
        ad.scan(lambda h, x: h, ad.ones(2), ad.ones(2))
    with pytest.raises(ShapeError, match=r"slices along dim 0"):
        ad.scan(lambda h, x: (h, h), ad.ones(2), (ad.ones(2), ad.ones(3)))
    with pytest.raises(ShapeError, match="dim=2"):
        ad.scan(lambda h, x: (h, h), ad.ones(2), ad.ones(2), dim=2)
    with pytest.raises(InvalidArgument, match="xs have no tensor"):
        ad.scan(lambda h, x: (h, h), ad.ones(2), ())


@needs_native
def test_numbers_that_are_carried_are_tensors_of_one_dtype():
    """Also what a turn gives as a number; one of another kind is refused."""

    def f(x):
        n, h, y = ad.while_loop(
            lambda k, h, x: k < 3, lambda k, h, x: (k + 1, 2, x + h), (0, 0.5, x)
        )
        (_, z), r = ad.scan(lambda c, x: ((c[0] + x, False), 3), (0.0, True), x)
        return n, h, y, z, r

    found = f(ad.ones(2))
    for each in (found, ad.compile(f)(ad.ones(2))):
        n, h, y, z, r = each
        assert [x.dtype for x in each] == [ad.int64, ad.float32, ad.float32, ad.bool, ad.int64]
        assert (n.item(), h.item(), y.tolist(), z.item()) == (3, 2.0, [5.5, 5.5], False)
        assert r.tolist() == [3, 3]
    grown = lambda x: ad.while_loop(lambda k, x: k < 3, lambda k, x: (k + 0.5, x), (0, x))  # noqa: E731
    for function in (grown, ad.compile(grown)):
        with pytest.raises(ShapeError, match=r"given \(\(\) adjoint.int64.* gives .*float32"):
            function(ad.ones(2))


@needs_native
def test_a_body_holds_no_tensor_of_the_users():
    """Constants would be such, and weights that are gone."""
    import gc
    import weakref

    def step(p, x):
        return ad.cond(p, lambda x: x * ad.tensor([1.0, 2.0]), lambda x: x + 1, (x,))

    compiled = ad.compile(step)
    compiled(ad.tensor(True), ad.ones(2))
    (program,) = compiled.programs
    assert not program.captured.inputs.states  # the constant is in the body
    bodies = [x for x in gc.get_objects() if type(x) is Subgraph]
    assert bodies
    outside = ad.ones(2)
    held = weakref.ref(outside)
    compiled = ad.compile(lambda p, x, w: ad.cond(p, lambda x: x * w, lambda x: x, (x,)))
    compiled(ad.tensor(True), ad.ones(2), outside)
    del outside
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("compiles", [False, True])
def test_what_control_flow_gives_back_is_new(compiles):
    def step(y):
        given = ad.while_loop(lambda a: a.sum() > 100, lambda a: (a * 0.5,), (y,))[0]
        part = ad.cond(y.sum() > 0, lambda a: a[0], lambda a: a[1], (y,))
        carry, _ = ad.scan(lambda c, x: (c, x), y, y)
        for each in (given, part, carry):
            each -= 1
        return given, part, carry

    y = ad.ones(3)
    found = (ad.compile(step) if compiles else step)(y)
    assert [x.tolist() for x in found] == [[0.0] * 3, 0.0, [0.0] * 3]
    assert y.tolist() == [1.0] * 3


def test_operands_that_were_made_in_inference_mode():
    """A branch takes sums of them, which may be saved."""
    w = ad.ones(2, requires_grad=True)

    def step(x):
        with ad.inference_mode():
            v = x**2
        return ad.cond(v.mean() > 0.5, lambda a: a * 2 + a.sum() * w.sum(), lambda a: a + w, (v,))

    for function in (step, ad.compile(step)):
        for x, gradient in ((ad.ones(2), [4.0, 4.0]), (ad.zeros(2), [1.0, 1.0])):
            w.grad = None
            function(x).sum().backward()
            assert w.grad.tolist() == gradient
