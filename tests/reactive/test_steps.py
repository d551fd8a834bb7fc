"""Steps of a graph: eager execution that reuses values. Living graphs: what keeps its value."""

from __future__ import annotations

import copy
import threading
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core import policy
from adjoint.core.errors import GraphError, InvalidArgument


def reused(graph):
    stats = graph.stats()
    return stats["step_reused"], stats["step_ops"]


def steps(graph, function, n=4, reuse=True):
    """What `function` gives in each of n steps, and how many ops were reused in the last."""
    results, before = [], 0
    for _ in range(n):
        before = graph.stats()["step_reused"]
        with graph.step(reuse):
            results.append(function())
    return results, graph.stats()["step_reused"] - before


# ---- what a step hands out -----------------------------------------------------------------------


def test_a_loss_keeps_its_value_and_its_gradient():
    graph, w = ad.Graph(), ad.tensor(3.0, requires_grad=True)
    optimizer, losses = ad.optim.SGD([w], lr=0.25), []
    for _ in range(3):
        with graph.step():
            losses.append(w * w)
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert [loss.item() for loss in losses] == [9.0, 2.25, 0.5625]
    with pytest.raises(ad.AutogradError, match="second time"):
        losses[0].backward()
    assert len(graph) == 0


def test_tensors_of_the_graph_stand_for_their_values():
    graph = ad.Graph()
    x, w = graph.input(2.0), graph.parameter(3.0)
    living = x * 10
    with graph.step():
        y = w * x + living
    y.backward()
    assert (y.item(), w.grad.item()) == (26.0, 2.0)
    x.set(5.0)
    assert (y.item(), living.item()) == (26.0, 50.0)
    with graph.step(True):
        again = w * x + living
    assert again.item() == 65.0


@pytest.mark.parametrize("reuse", [True, False])
def test_a_computed_node_that_wants_a_gradient_is_refused(reuse):
    graph = ad.Graph()
    h = graph.parameter(3.0) * 2
    with graph.step(reuse):
        with pytest.raises(GraphError, match="compute it inside the step"):
            h * 2
        assert (h.detach() * 2).item() == 12.0
        with ad.no_grad():
            assert (h * 2).item() == 12.0


def test_blocks_nest_and_errors_leave_them():
    graph, x = ad.Graph(), ad.ones(2)
    with graph.step(), graph.step(False):
        assert (x * 2).node is None
        with graph:
            living = x * 3
        assert living.node is not None
    with pytest.raises(ZeroDivisionError), graph.step():
        1 / 0  # noqa: B018
    assert (x * 2).node is None
    with graph:
        assert (x * 2).node is not None


def test_backward_and_the_optimizer_inside_the_block():
    def run(block):
        ad.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
        optimizer = ad.optim.Adam(model.parameters(), lr=0.1)
        x = ad.randn(8, 3)
        for _ in range(4):
            with block():
                optimizer.zero_grad()
                (model(x) ** 2).mean().backward()
                optimizer.step()
        return [p.detach().numpy().copy() for p in (*model.parameters(), *model.buffers())]

    expected = run(ad.enable_grad)
    for reuse in (True, False, None):
        graph = ad.Graph()
        for a, b in zip(run(lambda: graph.step(reuse)), expected, strict=True):  # noqa: B023
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("clip", [
    lambda ps: nn.utils.clip_grad_norm_(ps, 1.0),
    lambda ps: nn.utils.get_total_norm([p.grad for p in ps]),
    lambda ps: nn.utils.clip_grads_with_norm_(ps, 1.0, ad.tensor(3.0)),
    lambda ps: nn.utils.clip_grad_value_(ps, 0.5),
])  # fmt: skip
def test_gradients_are_clipped_to_the_same_bits(clip):
    def run(block, seed):
        ad.manual_seed(seed)
        parameters = [nn.Parameter(ad.zeros(n)) for n in (256, 64, 128, 2, 1)]
        for p in parameters:
            p.grad = ad.randn(len(p))
        with block():
            total = clip(parameters)
        return [x.numpy().copy() for x in (total, *(p.grad for p in parameters)) if x is not None]

    for seed in range(30):
        graph = ad.Graph()
        for a, b in zip(
            run(ad.enable_grad, seed), run(lambda g=graph: g.step(True), seed), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_a_second_thread_steps_too():
    graph, x, found = ad.Graph(), ad.randn(50, 50), []

    def work():
        for _ in range(30):
            with graph.step(True):
                found.append((x @ x).exp().sum().item())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


# ---- what is reused ------------------------------------------------------------------------------


def test_what_did_not_change_is_computed_twice_and_then_reused():
    graph, x = ad.Graph(), ad.randn(4, 4)
    results, again = steps(graph, lambda: (x @ x).exp().sum())
    assert again == 3
    assert len({y.item() for y in results}) == 1


@pytest.mark.parametrize("change", [
    lambda x: x.add_(1), lambda x: x.data.add_(1), lambda x: x.detach().mul_(2),
    lambda x: x.detach().numpy().__setitem__(0, 9.0), lambda x: x[1:].zero_(),
    lambda x: setattr(x, "data", ad.ones(3)), lambda x: x.copy_(ad.zeros(3)),
    lambda x: ad.optim.SGD([x], lr=1.0).step(),
])  # fmt: skip
def test_every_write_is_seen(change):
    graph = ad.Graph()
    x = ad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x.grad = ad.ones(3)
    steps(graph, lambda: (x * 2).exp())
    with ad.no_grad():
        change(x)
    results, _ = steps(graph, lambda: (x * 2).exp())
    for y in results:
        np.testing.assert_array_equal(y.detach().numpy(), (x * 2).exp().detach().numpy())


def test_memory_that_others_write():
    graph, buffer = ad.Graph(), np.zeros(3, np.float32)
    x, found = ad.from_numpy(buffer), []
    for i in range(6):
        buffer[:] = i // 2
        with graph.step(True):
            found.append((x + 1).sum().item())
    assert found == [3, 3, 6, 6, 9, 9]


def _given_data_of(x, other):
    x.data = other
    return other


def _given_parts_of(x, vector):
    nn.utils.vector_to_parameters(vector, [x])
    return vector


@pytest.mark.parametrize("share", [
    lambda x: x.data, lambda x: x[:2].data, lambda x: _given_data_of(x, ad.zeros(3)),
    lambda x: _given_data_of(x, ad.zeros(4)[:3]), lambda x: _given_parts_of(x, ad.ones(3)),
])  # fmt: skip
@pytest.mark.parametrize("other_way", [False, True])
def test_tensors_that_share_memory_and_no_version(share, other_way):
    graph, x = ad.Graph(), ad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    other = share(x)
    shown, written = (other, x) if other_way else (x, other)
    steps(graph, lambda: (shown * 2).exp())
    with ad.no_grad():
        written.add_(1)
    results, _ = steps(graph, lambda: (shown * 2).exp())
    for y in results:
        np.testing.assert_array_equal(y.detach().numpy(), (shown * 2).exp().detach().numpy())


def test_a_module_that_is_moved_to_where_it_is_shares_nothing():
    model = nn.Linear(2, 2)
    before = model.weight._changes
    assert model.to("cpu").float().weight._changes is before


@pytest.mark.parametrize("write", [
    lambda y: y.data.mul_(3), lambda y: y.mul_(3), lambda y: y[0].data.zero_(),
    lambda y: y.view(3, 1).mul_(3), lambda y: y.detach().numpy().fill(5),
])  # fmt: skip
@pytest.mark.parametrize("function", [ad.exp, ad.tanh, lambda x: x.exp()[0:3]])
def test_a_reused_value_that_is_written_before_the_backward_pass(write, function):
    """What a gradient reads of it was changed, or refuses, as it does eagerly."""

    def gradient(w, y, product):
        try:
            with ad.no_grad():
                write(y)
            return ad.autograd.grad(product, w)[0].tolist()
        except ad.AutogradError as error:
            return str(error)

    def program(w):
        y = function(x * 0.5)
        return w, y, (y * w).square().sum()

    graph, x = ad.Graph(), ad.ones(3)
    expected = gradient(*program(ad.ones(3, requires_grad=True)))
    results, reused = steps(graph, lambda: program(ad.ones(3, requires_grad=True)))
    assert reused >= 2
    assert [gradient(*result) for result in results] == [expected] * 4


def test_an_output_that_was_saved_is_written_before_the_backward_pass():
    graph, x = ad.Graph(), ad.ones(3, requires_grad=True)
    steps(graph, lambda: ad.no_grad()(ad.tanh)(x * 2))
    (y, *_), reused = steps(graph, lambda: ad.tanh(x * 2), 1)
    assert reused == 2
    y.data.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_reused_value_changed_in_place_is_not_changed_for_the_next():
    graph, x = ad.Graph(), ad.ones(3)

    def program():
        y = x * 2
        z = y.view(3, 1)
        y.add_(1)
        z[0] = 7
        y.data.mul_(2)
        return y + 0

    results, _ = steps(graph, program, 6)
    assert all(y.tolist() == [14, 6, 6] for y in results)
    results[0].zero_()
    assert results[-1].tolist() == [14, 6, 6]


def test_values_of_equal_ops_are_told_apart():
    graph, x = ad.Graph(), ad.tensor([0.0, -0.0, 2.0])
    for _ in range(4):
        with graph.step(True):
            assert np.signbit((x * 0.0).numpy()).tolist() == [False, True, False]
            assert np.signbit((x * -0.0).numpy()).tolist() == [True, False, True]
            assert (x * 2).dtype is ad.float32 and (ad.ones(2, dtype=ad.int64) * True).tolist()
            assert ad.full((2,), 1).dtype is ad.int64 and ad.full((2,), 1.0).dtype is ad.float32


def test_autocast_is_part_of_what_is_known():
    graph, x = ad.Graph(), ad.randn(64, 64)
    layer = graph.reuse(nn.Linear(64, 64).requires_grad_(False))
    for _ in range(4):
        for on in (True, False):
            with graph.step(True), ad.autocast("cpu", dtype=ad.bfloat16, enabled=on):
                found = x @ x, layer(x), nn.functional.gelu(x @ x), nn.functional.softmax(x, -1)
            with ad.autocast("cpu", dtype=ad.bfloat16, enabled=on):
                plain = x @ x, layer(x), nn.functional.gelu(x @ x), nn.functional.softmax(x, -1)
            for a, b in zip(found, plain, strict=True):
                assert a.dtype is b.dtype and a.tolist() == b.tolist()


def test_autocast_casts_a_parameter_once():
    """So that its gradients are added up in the lower dtype, as eagerly."""

    def run(block):
        layer.zero_grad()
        with block, ad.autocast("cpu", dtype=ad.bfloat16):
            y = layer(layer(x)).float().square().mean()
        y.backward()
        return layer.weight.grad.tolist()

    graph, layer, x = ad.Graph(), nn.Linear(4, 4), ad.randn(5, 4)
    expected = run(ad.enable_grad())
    assert [run(graph.step(reuse)) for reuse in (True, True, True, False)] == [expected] * 4


def test_random_numbers_are_new_ones():
    graph, drawn = ad.Graph(), []
    ad.manual_seed(0)
    for _ in range(5):
        with graph.step(True):
            drawn.append((ad.rand(3), nn.functional.dropout(ad.ones(3)), ad.randperm(5)))
    ad.manual_seed(0)
    for values in drawn:
        for a, b in zip(
            values, (ad.rand(3), nn.functional.dropout(ad.ones(3)), ad.randperm(5)), strict=True
        ):
            assert a.tolist() == b.tolist()


def test_a_trusted_module_is_not_called():
    graph, calls = ad.Graph(), []

    class Teacher(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(2, 2).requires_grad_(False)

        def forward(self, x):
            calls.append(0)
            return self.body(x).tanh(), x.shape

    teacher, x = graph.reuse(Teacher()), ad.ones(1, 2)
    steps(graph, lambda: teacher(x), 5, None)
    assert len(calls) == 5  # its result is no tensor alone
    teacher = graph.reuse(nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Tanh()))
    teacher.register_forward_hook(lambda m, a, y: calls.append(1))
    calls.clear()
    results, _ = steps(graph, lambda: teacher(x), 5, None)
    assert calls == [1, 1]
    with ad.no_grad():
        teacher[0].weight.mul_(2)
    (changed, *_), _ = steps(graph, lambda: teacher(x), 1, None)
    assert changed.tolist() == teacher(x).tolist() != results[0].tolist()


def test_where_nothing_is_found_it_is_not_looked_for():
    graph, x = ad.Graph(), ad.ones(3)
    for i in range(3 * policy.STEP_BLOCKS):
        with graph.step():
            x * i
    assert graph.stats()["step_ops"] == policy.STEP_BLOCKS


def test_what_is_kept_is_bounded(monkeypatch):
    graph, x = ad.Graph(), ad.ones(1000)
    for i in range(100):
        with graph.step(True):
            (x * (i % 50) + 1).sum()
    assert len(graph.steps._values) <= 2 * policy.STEP_BLOCKS * 3 + 3
    monkeypatch.setattr(policy, "STEP_BYTES", 100)
    graph = ad.Graph()
    _, again = steps(graph, lambda: x * 3, 6)
    assert again == 0


def test_what_one_block_notes_is_bounded(monkeypatch):
    """A training as a whole may stand in one block. What is kept already stays kept."""
    monkeypatch.setattr(policy, "STEP_NOTED", 20)
    graph, x = ad.Graph(), ad.ones(3)
    steps(graph, lambda: x.exp(), 2)
    before = graph.stats()["step_reused"]
    with graph.step(True):
        for i in range(200):
            x.exp() + i
    assert graph.stats()["step_reused"] == before + 200
    assert max(map(len, (graph.steps._values, graph.steps._tensors, graph.steps._given))) <= 25


def test_the_log_names_what_ran_and_what_was_reused():
    graph, x = ad.Graph(), ad.randn(4, 4)
    with graph.events() as log:
        for _ in range(3):
            with graph.step():
                (x @ x).exp()
    assert log.ran == ["MatMul", "Exp"] * 2
    assert log.reused == ["MatMul", "Exp"]


# ---- a living graph ------------------------------------------------------------------------------


PLAIN = ad.zeros(())


def follower():
    graph, model = ad.Graph(), nn.Linear(2, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.5)
    with graph:
        loss = model(ad.ones(1, 2)).square().sum()
    return graph, model, optimizer, loss


@pytest.mark.parametrize("make", [
    lambda y: y.detach().clone(), lambda y: y.snapshot(), lambda y: ad.tensor(y.detach()),
    lambda y: y.detach().to(ad.float32, copy=True), lambda y: PLAIN.clone().copy_(y.detach()),
    lambda y: copy.deepcopy(y.detach()), lambda y: ad.no_grad()(y.clone)(),
])  # fmt: skip
@pytest.mark.parametrize("inside", [True, False])
def test_copies_copy(make, inside):
    graph, _, optimizer, loss = follower()
    value = loss.item()
    if inside:
        with graph:
            kept = make(loss)
    else:
        kept = make(loss)
    loss.backward()
    optimizer.step()
    assert kept.item() == value != loss.item()
    assert kept.node is None
    assert (kept + ad.Graph().input(1.0)).item() == pytest.approx(value + 1)  # in another, too


def test_what_carries_a_gradient_stays_a_node():
    graph, model, _, loss = follower()
    with graph:
        y = loss.clone()
    assert y.node is not None
    y.backward()
    assert model.weight.grad is not None


def test_a_clone_of_a_frozen_parameter_from_outside_is_a_copy():
    graph, weight = ad.Graph(), nn.Parameter(ad.ones(2))
    graph.freeze(weight)
    with graph:
        copied, used = weight.clone(), weight.sin()
    weight.set([2.0, 2.0])
    assert copied.node is None and copied.tolist() == [1.0, 1.0]
    assert used.tolist() == weight.sin().tolist()


def test_state_that_is_copied_stays():
    graph, model, optimizer, loss = follower()
    with graph:
        best = {name: value.clone() for name, value in model.state_dict().items()}
        target = copy.deepcopy(model)
    before = model.weight.detach().numpy().copy()
    loss.backward()
    optimizer.step()
    assert (best["weight"].numpy() == before).all()
    assert (target.weight.detach().numpy() == before).all()
    assert (model.weight.detach().numpy() != before).any()


def test_peek_computes_nothing():
    graph, _, optimizer, loss = follower()
    with pytest.raises(GraphError, match="no value yet"):
        graph.peek(loss)
    value = loss.item()
    loss.backward()
    optimizer.step()
    with graph.events() as log:
        assert graph.peek(loss).item() == value
    assert log.ran == []


def test_a_value_read_after_the_optimizers_step_warns_once():
    graph, _, optimizer, loss = follower()
    loss.backward()
    optimizer.step()
    with pytest.warns(UserWarning, match="read after a tensor.*snapshot") as found:
        loss.item()
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss.item()
        with graph:
            (loss * 2).item()


def test_a_detached_value_used_after_the_optimizers_step_warns():
    graph, model, optimizer, loss = follower()
    with graph:
        old = loss.detach()
        with ad.no_grad():
            other = model(ad.ones(1, 2)).sum()
    old.item()
    loss.backward()
    optimizer.step()
    with graph, pytest.warns(UserWarning, match="is used again after a tensor"):
        loss - old
    optimizer.step()
    with graph, pytest.warns(UserWarning, match="is used again"):
        loss - other


def test_an_attached_value_used_after_the_optimizers_step_warns():
    graph, _, optimizer, loss = follower()
    loss.backward()
    total = loss * 1
    optimizer.step()
    with graph, pytest.warns(UserWarning, match="is used again after a tensor"):
        total + loss  # of one shape and dtype: the short way
    optimizer.step()
    with graph, pytest.warns(UserWarning, match="is used again after a tensor"):
        total.exp()
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ad.autograd.grad(total, [loss], create_graph=True)  # not the program's


def test_a_loss_of_a_loop_that_is_read_again_after_the_step_warns():
    graph, model, optimizer, fixed = follower()
    x = ad.ones(1, 2)
    fixed.item()
    fixed.backward()
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixed.item()  # recorded once, read again and again
        with graph:
            loss = model(x).sum()  # recorded anew in each iteration
        loss.item()
    optimizer.step()
    with pytest.warns(UserWarning, match="is read after a tensor"):
        loss.item()


def test_a_loop_that_sets_inputs_or_reads_before_the_step_is_not_warned():
    graph, model = ad.Graph(), nn.Linear(2, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)
    x = graph.input((1, 2))
    loss = model(x).square().sum()
    for i in range(3):
        x.set([[1.0, i]])
        loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_memory_that_others_write_in_a_living_graph_is_compared_on_read():
    graph, buffer = ad.Graph(), np.ones(3, np.float32)
    batch, weight = ad.from_numpy(buffer), nn.Parameter(ad.ones(3))
    with graph:
        doubled, loss = (batch * 2).sum(), (batch * weight).sum()
    assert (doubled.item(), loss.item()) == (6, 3)
    buffer[:] = 3
    twin = graph.copy().twin(loss)
    assert (doubled.item(), loss.item(), twin.item()) == (18, 9, 9)
    with graph.events() as log:
        assert (doubled.item(), loss.item()) == (18, 9)
    assert log.ran == []
    seen = weight.detach().numpy()
    seen[0] = 5
    loss.backward()
    assert (loss.item(), weight.grad.tolist()) == (21, [3, 3, 3])
    part = seen[1:]  # memory lives on in views of views
    del seen
    part[0] = 7
    assert loss.item() == 39
    graph.check_invariants()


def test_memory_that_nobody_else_holds_any_more_is_not_compared():
    graph, weight = ad.Graph(), nn.Parameter(ad.ones(3))
    with graph:
        loss = weight.sum()
    for value in (5, 6):
        weight.detach().numpy()[0] = value
        assert loss.item() == value + 2
        assert not graph._state.foreign


def test_it_is_said_why_values_could_not_be_known_again():
    graph, frozen = ad.Graph(), nn.Linear(2, 2).requires_grad_(False)
    with ad.inference_mode():
        unseen = ad.ones(2)
    with graph.step(reuse=True):
        ad.rand(2)
        unseen * 2
        frozen(ad.ones(2))
    because = graph.stats()["step_unknown_because"]
    assert {why.split(",")[0]: n for why, n in because.items()} == {
        "random numbers": 1, "an inference tensor": 1,
    }  # fmt: skip
    assert sum(because.values()) == graph.stats()["step_unknown"]


def test_a_promised_module_through_which_gradients_flow_is_called_and_says_so_once():
    graph, frozen = ad.Graph(), nn.Linear(2, 1).requires_grad_(False)
    graph.reuse(frozen)
    x = ad.ones(2, requires_grad=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(4):
            x.grad = None
            with graph.step(reuse=True):
                frozen(x).sum().backward()
            assert x.grad.tolist() == frozen.weight[0].tolist()
    (message,) = [str(each.message) for each in found]
    assert "Linear cannot be reused (a gradient is wanted" in message
    assert found[0].filename == __file__


def test_memory_that_others_write_under_lazy():
    buffer, found = np.zeros(3, np.float32), []
    with ad.lazy():
        for i in range(3):
            buffer[:] = i
            x = ad.from_numpy(buffer)
            found.append((x * 2, x[0] + 1, x.view(3, 1).sum()))
    assert [[y.sum().item() for y in ys] for ys in found] == [[0, 1, 0], [6, 2, 3], [12, 3, 6]]
    x = ad.ones(2)
    with ad.lazy():
        y = x * 2
    x.numpy()[:] = 5
    assert y.tolist() == [2, 2]


def test_a_part_of_a_tensor_outside_is_written_in_a_graph():
    graph, model, memory = ad.Graph(), nn.Linear(3, 4), ad.zeros(5, 4)
    with graph:
        w = model(ad.ones(3))
        memory[0].copy_(w.detach())
        memory[:, 0].mul_(2)
        loss = (w - memory.mean(0)).square().sum()
    loss.backward()
    assert memory[0, 1:].tolist() == w.detach()[1:].tolist() and memory.grad_fn is None
    found = model.weight.grad.numpy().copy()
    model.weight.grad = None
    v = model(ad.ones(3))
    (v - memory.mean(0).detach()).square().sum().backward()
    np.testing.assert_allclose(found, model.weight.grad.numpy(), rtol=1e-5)
    with graph:
        column = memory[:, 1]
    with pytest.raises(GraphError, match="would be lost"):  # outside of the block
        column.copy_(graph.input(ad.ones(5), requires_grad=True) * 2)
    model.weight.grad = None
    with graph:
        memory[:, 1].copy_(model(ad.ones(3)).sum().expand(5))
        memory.sum().backward()  # inside, the memory becomes a node
    assert model.weight.grad.tolist() == [[5] * 3] * 4


@pytest.mark.parametrize("reuse", ["yes", 2, "auto"])
def test_reuse_is_none_or_a_bool(reuse):
    with pytest.raises(InvalidArgument, match="None, True or False"):
        ad.Graph().step(reuse=reuse)
