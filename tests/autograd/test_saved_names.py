"""`grad_fn._saved_self` and its like: what nodes saved, by PyTorch's names, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F

torch = pytest.importorskip("torch")

UNARY = [
    "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid", "abs", "reciprocal",
    "relu", "erf", "log1p", "log2", "expm1", "asin", "acosh", "atanh", "sgn", "lgamma", "logit",
    "logsumexp:1", "softmax:1", "log_softmax:1", "cumprod:1", "amax:1", "amin:1", "prod", "norm",
]  # fmt: skip
OTHERS = {
    "a * b": "self other", "a / b": "self other", "a ** b": "self exponent result",
    "a @ b.T": "self mat2", "a ** 3": "self exponent", "a ** 2": "self",
    "f.maximum(a, b)": "self other", "f.atan2(a, b)": "self other",
    "a.clamp(0.2, 0.5)": "self min max", "f.addcmul(a, a, b)": "tensor1 tensor2",
    "f.hypot(a, b)": "self other result", "f.where(a > 0.5, a, b)": "condition",
    "a.masked_fill(a > 0.5, 0)": "mask", "a.gather(1, i)": "index",
    "f.nn.functional.linear(a, b, b[:, 0])": "mat1", "f.nn.functional.gelu(a)": "self",
    "f.nn.functional.mse_loss(a, b)": "self target", "f.nn.functional.leaky_relu(a)": "self",
    "f.nn.functional.layer_norm(a, (4,), b[0], b[1])": "input weight",
    "f.nn.functional.conv1d(a[None], b[None, :, :2])": "input weight",
    "f.linalg.inv(a @ b.T + e)": "inverse", "a.std(1)": "self",
}  # fmt: skip


def made(framework, text, *wanting):
    generator = np.random.default_rng(0)
    names = {"f": framework, "i": framework.tensor([[0], [1], [2]]), "e": framework.eye(3) * 9}
    for name in "ab":
        values = framework.tensor(generator.random((3, 4)).astype("f4") * 0.8 + 0.1)
        names[name] = values.requires_grad_(name in (wanting or "ab"))
    return eval(text, names), names


def text_of(name):
    function, _, dim = name.partition(":")
    start = "1 + " * (function == "acosh")
    return f"({start}a).{function}({dim})"


CASES = {**{text_of(each): None for each in UNARY}, **OTHERS}


@pytest.mark.parametrize("text", CASES)
def test_nodes_answer_by_pytorchs_names(text):
    ours, theirs = made(ad, text)[0].grad_fn, made(torch, text)[0].grad_fn
    names = [name for name in dir(ours) if name.startswith("_saved_")]
    assert names and set(names) <= set(dir(theirs)) | {"_saved_result"}
    if CASES[text] is not None:
        assert {f"_saved_{name}" for name in CASES[text].split()} <= set(names)
    for name in names:
        found, expected = getattr(ours, name), getattr(theirs, name, None)
        if expected is not None:
            found, expected = ad.as_tensor(found).detach(), torch.as_tensor(expected).detach()
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_no_gradient_wants_is_none():
    for framework in (ad, torch):
        y, names = made(framework, "a * b", "a")
        assert y.grad_fn._saved_self is None and y.grad_fn._saved_other is names["b"]


def test_pytorchs_tutorial():
    # https://docs.pytorch.org/tutorials/intermediate/autograd_saved_tensors_hooks_tutorial.html
    for framework in (ad, torch):
        x = framework.ones(5, requires_grad=True)
        assert x.pow(2).grad_fn._saved_self is x
        y = x.exp()
        assert y.equal(y.grad_fn._saved_result) and y is not y.grad_fn._saved_result
        assert y.grad_fn._saved_result.grad_fn is y.grad_fn
        (again,) = framework.autograd.grad(y.grad_fn._saved_result.sum(), x, retain_graph=True)
        assert again.allclose(y)
        with pytest.raises(AttributeError, match="_saved_self"):
            _ = y.grad_fn._saved_self
        assert not hasattr(y.grad_fn, "_saved_other") and not hasattr(y.grad_fn, "other")
        y.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            _ = y.grad_fn._saved_result
        z = x.sin()
        with framework.no_grad():
            x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            _ = z.grad_fn._saved_self


def test_hooks_on_one_saved_tensor():
    for framework in (ad, torch):
        seen = []

        def pack(t, seen=seen):
            seen.append(t.requires_grad)
            return t.detach().numpy().copy()

        x = framework.tensor([1.0, 2.0], requires_grad=True)
        y = x * x.exp()
        y.grad_fn._raw_saved_self.register_hooks(pack, framework.from_numpy)
        exp = y.grad_fn.next_functions[1][0]
        exp._raw_saved_result.register_hooks(lambda t: 2 * t, lambda t: t / 2)
        with pytest.raises(RuntimeError, match="already been set"):
            y.grad_fn._raw_saved_self.register_hooks(pack, pack)
        with pytest.raises(TypeError, match="incompatible function arguments"):
            y.grad_fn._raw_saved_other.register_hooks(1, pack)
        assert y.grad_fn._saved_self.tolist() == [1, 2] and len(seen) == 1
        assert repr(y.grad_fn._saved_self) == "tensor([1., 2.], requires_grad=True)"
        assert y.grad_fn._saved_self.is_leaf
        assert exp._saved_result.allclose(x.exp()) and exp._saved_result.grad_fn is exp
        (g,) = framework.autograd.grad(y.sum(), x, create_graph=True)
        assert g.allclose(x.exp() * (1 + x))
        (h,) = framework.autograd.grad(g.sum(), x, retain_graph=True)
        assert h.allclose(x.exp() * (2 + x))
        saved = exp._raw_saved_result
        y.sum().backward()
        with pytest.raises(RuntimeError, match="freed"):
            saved.register_hooks(pack, pack)
        w = x * x.detach()
        with pytest.raises(RuntimeError, match="value None is forbidden"):
            w.grad_fn._raw_saved_self.register_hooks(pack, pack)
        with pytest.raises(RuntimeError, match="modifying its input"):
            w.grad_fn._raw_saved_other.register_hooks(lambda t: t.add_(1), pack)


def test_a_node_that_saves_something_else_says_so():
    x = ad.rand(3, 4, requires_grad=True)
    loss = F.cross_entropy(x, ad.tensor([0, 1, 2]))  # PyTorch saves log-probabilities there
    with pytest.raises(ad.MissingName, match=r"CrossEntropyBackward0.*'_saved_self'.*node.saved"):
        _ = loss.grad_fn._saved_self
    with pytest.raises(ad.MissingName, match="there is _saved_self, _saved_other"):
        _ = (x * x).grad_fn._saved_mat2

    class Twice(ad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    node = Twice.apply(x).grad_fn
    assert node.saved_tensors[0] is x and not hasattr(node, "_saved_self")
    assert not [name for name in dir(node) if name.startswith("_saved_")]
