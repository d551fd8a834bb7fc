"""Hooks and metadata of nodes, multi-gradient hooks and version counts: as PyTorch's."""

# ruff: noqa: E501 - one case of a table is one line

from __future__ import annotations

from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")


def leaf(t: Any, n: int = 2) -> Any:
    return t.ones(n, requires_grad=True)


def arguments(t: Any) -> Any:
    x, w, seen = leaf(t), leaf(t), []
    y = x * w
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 5,))
    y.sum().backward()
    return seen, x.grad, w.grad


def no_gradient_wanted(t: Any) -> Any:
    x, seen = leaf(t), []
    y = x * t.ones(2)
    y.grad_fn.register_hook(lambda *given: seen.append(given))
    y.sum().backward()
    return seen, x.grad


def broadcast(t: Any) -> Any:
    x, w, seen = leaf(t, 1), leaf(t, 3), []
    y = x + w
    y.grad_fn.register_hook(lambda *given: seen.append(given))
    y.sum().backward()
    return seen, x.grad


def replaced(t: Any) -> Any:
    x = leaf(t)
    y = x * 2
    y.grad_fn.register_hook(lambda inputs, outputs: None)
    handle = y.grad_fn.register_hook(lambda inputs, outputs: (t.ones(2) * 7, None))
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    return x.grad


def of_a_leaf(t: Any) -> Any:
    x, seen = leaf(t), []
    node = (x * 1).grad_fn.next_functions[0][0]
    node.register_hook(
        lambda inputs, outputs: seen.append((inputs, outputs[0].clone(), x.grad.clone()))
    )
    node.register_prehook(lambda outputs: (outputs[0] + 1,))
    x.register_post_accumulate_grad_hook(lambda p: seen.append("kept"))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    return seen, node.name(), x.grad


def several_outputs(t: Any) -> Any:
    x, seen = leaf(t, 4), []
    a, _ = x.split(2)
    a.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
    a.grad_fn.register_prehook(lambda outputs: seen.append(outputs))
    (a * 2).sum().backward()
    return seen, x.grad


def twice_differentiated(t: Any) -> Any:
    x = leaf(t)
    y = x**3
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * x, *inputs[1:]))
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    return g, t.autograd.grad(g.sum(), x)


def metadata(t: Any) -> Any:
    node = (leaf(t) * 2).grad_fn
    node.metadata["k"] = 1
    return node.metadata, (leaf(t) * 2).grad_fn.metadata, node.name()


def versions(t: Any) -> Any:
    x = t.zeros(3)
    counts = [x._version, x[:1]._version]
    x.add_(1)
    x[0] = 3
    x[1:].mul_(2)
    return [*counts, x._version, x[:1]._version, x.detach()._version, x.clone()._version]


def multi(mode: str, unused: bool) -> Any:
    def run(t: Any) -> Any:
        a, b, c = (leaf(t, 1) for _ in range(3))
        seen: list[Any] = []
        a.register_hook(lambda g: seen.append("a"))
        d = a * 2
        e = d * b
        several = (d, b, c) if unused else (d, e)
        t.autograd.graph.register_multi_grad_hook(several, seen.append, mode=mode)
        b.register_hook(lambda g: seen.append("b"))
        d.register_hook(lambda g: seen.append("d"))
        y = e * 3
        y.backward(retain_graph=True)
        y.backward()
        return seen

    return run


def same_twice(t: Any) -> Any:
    a, seen = leaf(t, 1), []
    t.autograd.graph.register_multi_grad_hook((a, a), seen.append)
    (a * 2).backward()
    return seen


CASES = {
    "arguments": arguments, "no gradient wanted": no_gradient_wanted, "broadcast": broadcast,
    "replaced": replaced, "of a leaf": of_a_leaf, "several outputs": several_outputs,
    "twice differentiated": twice_differentiated,
    "metadata": metadata, "versions": versions, "all": multi("all", False),
    "any": multi("any", False), "all, one unused": multi("all", True),
    "any, one unused": multi("any", True), "the same twice": same_twice,
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_as_pytorch(name):
    assert str(CASES[name](ad)) == str(CASES[name](torch))


WRONG = {
    "no tuple, before": (lambda y: y.grad_fn.register_prehook(lambda g: 3), TypeError, "int"),
    "no tuple": (lambda y: y.grad_fn.register_hook(lambda *g: ad.ones(2)), TypeError, "Tensor"),
    "too many": (lambda y: y.grad_fn.register_hook(lambda *g: (1, 2, 3)), RuntimeError, "got 3"),
    "dtype": (lambda y: y.register_hook(lambda g: g.double()), RuntimeError, "float64"),
    "dtype, before": (lambda y: y.grad_fn.register_prehook(lambda g: (g[0].double(),)), RuntimeError, "float64"),
    "dtype, after": (lambda y: y.grad_fn.register_hook(lambda g, _: (g[0].double(), None)), RuntimeError, "float64"),
    "shape, after": (lambda y: y.grad_fn.register_hook(lambda g, _: (ad.ones(3), None)), RuntimeError, "size of value"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_gradients_are_refused(name):
    register, error, words = WRONG[name]
    x = leaf(ad)
    y = x * 2
    register(y)
    with pytest.raises(error, match=words) as caught:
        y.sum().backward()
    assert isinstance(caught.value, ad.AdjointError) and x.grad is None


def test_a_shared_gradient_is_changed_for_one_node_alone():
    x = leaf(ad)
    y, z = x * 2, x * 3

    def change(outputs):
        outputs[0].mul_(10)

    y.grad_fn.register_prehook(change)
    (y + z).sum().backward()
    assert x.grad.tolist() == [23.0, 23.0]


def test_no_gradient_came_where_one_was_awaited():
    class Half(ad.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * 1, b * 1

        @staticmethod
        def backward(ctx, ga, gb):
            return ga, None

    a, b, seen = leaf(ad, 1), leaf(ad, 1), []
    ad.autograd.graph.register_multi_grad_hook((a, b), seen.append)
    for _ in range(2):
        sum(Half.apply(a, b)).backward()
    assert str(seen) == "[[tensor([1.]), None], [tensor([1.]), None]]"


def test_versions_of_inference_tensors():
    with ad.inference_mode():
        x = ad.ones(1)
    with pytest.raises(ad.AutogradError, match="do not track version counter"):
        _ = x._version
