"""Modules called on a graph, again and again: their results are those of eager calls."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn


@pytest.fixture
def graph():
    graph = ad.Graph()
    yield graph
    graph.check_invariants()


def batches(n, *shape):
    numbers = np.random.default_rng(0)
    return [ad.tensor(numbers.standard_normal(shape).astype(np.float32)) for _ in range(n)]


def twins(make):
    """Two modules with the same parameters."""
    ad.manual_seed(0)
    first = make()
    ad.manual_seed(0)
    return first, make()


def values(module):
    return [t.detach().numpy().copy() for t in (*module.parameters(), *module.buffers())]


def assert_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


# ---- calls ---------------------------------------------------------------------------------------


def test_what_nobody_can_ask_for_any_more_is_freed(graph):
    model, eager = twins(net)
    sizes = []
    for x in batches(4, 5, 4):
        with graph:
            y = model(x)
        assert_equal([y.detach().numpy()], [eager(x).detach().numpy()])
        sizes.append(len(graph))
    assert sizes[1:] == [sizes[0]] * 3


def test_training_in_a_graph_is_training(graph):
    model, eager = twins(net)
    target = batches(1, 5, 2)[0]
    results = []
    for module, mode in ((model, graph), (eager, None)):
        optimizer = ad.optim.Adam(module.parameters(), lr=0.01)
        losses = []
        for x in batches(6, 5, 4):
            optimizer.zero_grad()
            if mode is None:
                loss = nn.functional.mse_loss(module(x), target)
            else:
                with mode:
                    loss = nn.functional.mse_loss(module(x), target)
            losses.append(loss.item())  # after the step it is the loss with the new parameters
            loss.backward()
            optimizer.step()
        results.append(losses)
    assert results[0] == pytest.approx(results[1], rel=1e-5)
    assert_equal(values(model), values(eager))


def test_a_node_a_tensor_and_a_detached_node(graph):
    model, eager = (each.double() for each in twins(net))
    w = graph.parameter(np.ones((5, 4)))
    h = w * 2
    with graph:
        through, stopped, apart = (
            model(h),
            model(h.detach()),
            model(ad.ones(5, 4, dtype=ad.float64) * 2),
        )
    expected = eager(ad.ones(5, 4, dtype=ad.float64) * 2).detach().numpy()
    assert_equal([t.detach().numpy() for t in (through, stopped, apart)], [expected] * 3)
    apart.sum().backward()
    assert w.grad is None
    stopped.sum().backward()
    assert w.grad is None
    through.sum().backward()
    v = ad.ones(5, 4, dtype=ad.float64, requires_grad=True)
    eager(v * 2).sum().backward()
    assert_equal([w.grad.numpy()], [v.grad.numpy()])
    for own, other in zip(model.parameters(), eager.parameters(), strict=True):
        assert_equal([own.grad.numpy()], [3 * other.grad.numpy()])


def test_a_leaf_from_outside_gets_its_gradient(graph):
    model, eager = twins(net)
    x = ad.ones(5, 4, requires_grad=True)
    z = ad.ones(5, 4, requires_grad=True)
    with graph:
        model(x).sum().backward()
    eager(z).sum().backward()
    assert_equal([x.grad.numpy()], [z.grad.numpy()])


def test_a_module_twice_in_one_loss(graph):
    model, eager = twins(net)
    first, second = batches(2, 5, 4)
    with graph:
        loss = model(first).sum() + model(second).exp().sum()
    expected = eager(first).sum() + eager(second).exp().sum()
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for own, other in zip(model.parameters(), eager.parameters(), strict=True):
        np.testing.assert_allclose(own.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_gan_step(graph):
    def run(mode):
        ad.manual_seed(3)
        discriminator, generator = net(), nn.Linear(3, 4)
        bce = nn.functional.binary_cross_entropy_with_logits
        optimizers = [ad.optim.SGD(m.parameters(), lr=0.1) for m in (discriminator, generator)]
        seen = []
        for real, noise in zip(batches(4, 5, 4), batches(4, 5, 3), strict=True):
            optimizers[0].zero_grad()
            with mode() if mode else ad.enable_grad():
                fake = generator(noise)
                scores, others = discriminator(real), discriminator(fake.detach())
                loss = bce(scores, ad.ones(5, 2)) + bce(others, ad.zeros(5, 2))
            seen.append(loss.item())
            loss.backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            with mode() if mode else ad.enable_grad():
                second = bce(discriminator(generator(noise)), ad.ones(5, 2))
            seen.append(second.item())
            second.backward()
            optimizers[1].step()
        return seen, values(discriminator) + values(generator)

    expected, weights = run(None)
    found, own = run(lambda: graph)
    assert found == pytest.approx(expected, rel=1e-5)
    for a, b in zip(own, weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_loss_is_a_module_like_any_other(graph):
    criterion, model = nn.MSELoss(), nn.Linear(4, 2)
    target = ad.zeros(5, 2)
    with graph:
        for x in batches(3, 5, 4):
            loss = criterion(model(x), target)
            assert loss.item() == pytest.approx(
                float((model(x).detach().numpy() ** 2).mean()), rel=1e-5
            )


# ---- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda: nn.BatchNorm1d(4), lambda: nn.BatchNorm1d(4, momentum=None),  # which reads its counter
    lambda: nn.Sequential(nn.Dropout(0.4), nn.BatchNorm1d(4), nn.Dropout(0.1)),
    lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), lambda: nn.InstanceNorm1d(4),
    lambda: nn.LayerNorm(4), lambda: nn.AlphaDropout(0.3), lambda: nn.RReLU(),
])  # fmt: skip
def test_running_statistics_and_random_numbers_are_those_of_eager_calls(graph, make):
    """Training, evaluation and training again, with the same seed."""
    module, eager = twins(make)
    results = []
    for each, mode in ((module, graph), (eager, None)):
        ad.manual_seed(11)
        found = []
        for i, x in enumerate(batches(6, 5, 4)):
            each.train(i not in (2, 3))
            if mode is None:
                y = each(x)
            else:
                with mode:
                    y = each(x)
            found += [y.detach().numpy().copy(), *values(each)]
        found.append(ad.rand(2).numpy())
        results.append(found)
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_graph_with_a_seed_draws_its_own_numbers():
    layer = nn.Dropout(0.5)
    x = ad.ones(20)

    def run(seed):
        ad.manual_seed(1)
        graph = ad.Graph(seed=seed)
        with graph:
            found = [layer(x).tolist() for _ in range(3)]
        return found, ad.rand(1).item()

    first, after = run(5)
    again, after_again = run(5)
    assert first == again
    assert first[0] != first[1]
    assert run(6)[0] != first
    ad.manual_seed(1)
    assert after == after_again == ad.rand(1).item()


def test_train_and_eval_on_the_graph(graph):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    x = ad.ones(2, 4)
    with graph:
        model(x)
        graph.eval()
        assert not model[1].training
        assert model(x).tolist() == model(x).tolist()
        graph.train()
        assert model.training
        assert graph.training


def test_changed_settings_are_another_signature(graph):
    dropout, norm = nn.Dropout(0.0), nn.LayerNorm(4, eps=1e-5).double()
    x = batches(1, 3, 4)[0].double()
    with graph:
        assert dropout(x).tolist() == x.tolist()
        dropout.p = 1.0
        assert dropout(x).tolist() == [[0] * 4] * 3
        before = norm(x).detach().numpy().copy()
        norm.eps = 10.0
        after = norm(x).detach().numpy()
    assert abs(after).max() < abs(before).max()
    expected = norm(x).detach().numpy()
    np.testing.assert_allclose(after, expected, rtol=1e-6)


def test_replaced_parameters_and_children_are_seen(graph):
    model = net()
    x = ad.ones(2, 4)
    with graph:
        model(x).sum().item()
        model[0].weight = nn.Parameter(ad.zeros(8, 4))
        model[0].bias.data = ad.zeros(8)
        assert_equal(
            [model(x).detach().numpy()], [np.broadcast_to(model[2].bias.detach().numpy(), (2, 2))]
        )
        model[1] = nn.ReLU()
        model[2] = nn.Linear(8, 3)
        assert model(x).shape == (2, 3)


def test_an_edit_of_a_modules_parameter_by_an_optimizer_is_seen(graph):
    layer = nn.Linear(2, 1, bias=False)
    x = ad.ones(1, 2)
    with graph:
        y = layer(x)
        before = y.item()
        with ad.no_grad():
            layer.weight.mul_(2)
        assert y.item() == pytest.approx(2 * before)


def test_hooks_on_modules_are_called_each_time(graph):
    layer, calls = nn.Linear(2, 2), []
    layer.register_forward_hook(lambda m, args, out: calls.append(tuple(out.shape)))
    layer.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    with graph:
        first = layer(ad.ones(3, 2))
        layer(ad.ones(3, 2))
    assert calls == [(3, 2)] * 2
    expected = nn.functional.linear(ad.ones(3, 2) * 2, layer.weight, layer.bias)
    assert_equal([first.detach().numpy()], [expected.detach().numpy()])


def test_backward_hooks_on_modules(graph):
    layer, seen = nn.Linear(2, 2), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].tolist()))
    x = graph.input(np.ones((1, 2), np.float32), requires_grad=True)
    with graph:
        layer(x).sum().backward()
    assert seen == [[[1, 1]]]


class Branching(nn.Module):
    """Reads a value to decide what to compute."""

    def forward(self, x):
        """One of two ways."""
        return x * 2 if x.sum() > 0 else x - 1


class Counting(nn.Module):
    """Has an effect that no graph sees."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, scale=1, *, parts=()):
        """Takes numbers, and a list of tensors."""
        self.calls += 1
        return {"y": x * scale, "parts": [p + 1 for p in parts], "name": "a"}


def test_modules_that_read_values(graph):
    module = Branching()
    with graph:
        assert module(ad.ones(2)).tolist() == [2, 2]
        assert module(-ad.ones(2)).tolist() == [-2, -2]
        assert module(ad.ones(2)).tolist() == [2, 2]


def test_arguments_of_any_structure(graph):
    module = Counting()
    with graph:
        a = module(ad.ones(2), 3, parts=[ad.ones(1), ad.zeros(1)])
        b = module(ad.ones(2), 4, parts=(ad.ones(1),))
    assert (a["y"].tolist(), [p.tolist() for p in a["parts"]]) == ([3, 3], [[2], [1]])
    assert (b["y"].tolist(), [p.tolist() for p in b["parts"]]) == ([4, 4], [[2]])
    assert a["name"] == "a"


def test_one_tensor_twice_and_two_tensors_are_told_apart(graph):
    bilinear, eager = twins(lambda: nn.Bilinear(2, 2, 1))
    x, y = batches(2, 3, 2)
    with graph:
        for pair in ((x, x), (x, y), (y, y), (y, x)):
            assert_equal([bilinear(*pair).detach().numpy()], [eager(*pair).detach().numpy()])


def test_a_result_changed_in_place_does_not_change_the_next(graph):
    layer, eager = twins(lambda: nn.Linear(2, 2))
    x = ad.ones(1, 2)
    with graph:
        y = layer(x)
        y.mul_(0)
        assert y.tolist() == [[0, 0]]
        again = layer(x)
    assert_equal([again.detach().numpy()], [eager(x).detach().numpy()])


def test_an_argument_changed_in_place_is_seen_by_the_next_call(graph):
    layer, eager = twins(lambda: nn.Linear(2, 2))
    x = ad.ones(1, 2)
    with graph:
        first = layer(x)
        x.mul_(3)
        second = layer(x)
    before, after = (eager(ad.ones(1, 2) * n).detach().numpy() for n in (1, 3))
    assert_equal([y.detach().numpy() for y in (first, second)], [before, after])


def test_an_argument_changed_without_a_record_leaves_what_was_computed(graph):
    layer, eager = twins(lambda: nn.Linear(2, 2))
    x = ad.ones(1, 2)
    with graph:
        first = layer(x)
        with ad.no_grad():
            x.mul_(3)
        second = layer(x)
    before, after = (eager(ad.ones(1, 2) * n).detach().numpy() for n in (1, 3))
    assert_equal([y.detach().numpy() for y in (first, second)], [before, after])


def test_errors_inside_a_module_leave_the_graph_usable(graph):
    layer = nn.Linear(2, 2)
    with graph:
        with pytest.raises(ad.ShapeError):
            layer(ad.ones(1, 3))
        y = layer(ad.ones(1, 2))
    assert y.shape == (1, 2)
    assert (ad.ones(1) + 1).tolist() == [2]
    graph.check_invariants()


def test_a_module_and_its_nodes_can_go():
    gc.collect()
    graph = ad.Graph()
    layer = nn.Linear(2, 2)
    with graph:
        y = layer(ad.ones(1, 2))
    reference = weakref.ref(layer.weight)
    del layer, y
    gc.collect()
    assert reference() is None
    assert len(graph) == 0


def test_recurrent_modules_and_attention(graph):
    for make, shape in (
        (lambda: nn.LSTM(4, 3, batch_first=True), (2, 5, 4)),
        (lambda: nn.GRU(4, 3), (5, 2, 4)),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (2, 5, 4)),
    ):
        module, eager = twins(make)
        for x in batches(3, *shape):
            with graph:
                y = module(x)
            z = eager(x)
            y, z = (t[0] if isinstance(t, tuple) else t for t in (y, z))
            np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-5, atol=1e-6)
            y.sum().backward()
            z.sum().backward()
            for own, other in zip(module.parameters(), eager.parameters(), strict=True):
                np.testing.assert_allclose(
                    own.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=1e-5
                )


def test_the_frozen_backbone_does_not_run_from_the_third_epoch_on(graph):
    backbone, head = nn.Sequential(nn.Linear(4, 16), nn.Tanh()), nn.Linear(16, 1)
    graph.freeze(backbone)
    inputs = batches(3, 5, 4)
    optimizer = ad.optim.SGD(head.parameters(), lr=0.1)
    counts = []
    for _ in range(3):
        with graph.events() as log:
            for x in inputs:
                optimizer.zero_grad()
                with graph.step():
                    loss = (head(backbone(x)) ** 2).mean()
                loss.backward()
                optimizer.step()
        counts.append(log.ran.count("Tanh"))
    assert counts == [3, 3, 0]  # kept once they were asked for again


def test_a_training_loop_keeps_no_nodes_of_earlier_steps(graph):
    model, target = net(), ad.zeros(5, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    sizes = []
    for x in batches(8, 5, 4):
        optimizer.zero_grad()
        with graph:
            loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        sizes.append(len(graph))
    assert sizes[-1] == sizes[3]
