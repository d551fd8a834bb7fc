"""What programs do with graphs: run, rewrite, cut, compile, train."""

from __future__ import annotations

import collections
import sys
import types

import pytest

import adjoint as ad
from adjoint.fx.passes.shape_prop import ShapeProp
from adjoint.fx.passes.split_module import split_module
from adjoint.nn.utils.fusion import fuse_conv_bn_eval

from ...pytorch import torch
from .test_tracing import net, text

BOTH = (ad, torch)


class Convolutions(ad.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = ad.nn.Conv2d(2, 3, 3)
        self.norm = ad.nn.BatchNorm2d(3)
        self.act = ad.nn.ReLU()
        self.body = ad.nn.Sequential(ad.nn.Conv2d(3, 3, 1), ad.nn.BatchNorm2d(3), ad.nn.ReLU())

    def forward(self, x):
        return self.body(self.act(self.norm(self.conv(x)))).mean((2, 3))


def test_convolutions_take_batch_norms_in():
    """In the manner of PyTorch's tutorial."""
    model = Convolutions()
    for _ in range(3):
        model(ad.randn(4, 2, 5, 5))
    model.eval()
    traced = ad.fx.symbolic_trace(model)
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        if node.op == "call_module" and isinstance(modules[node.target], ad.nn.BatchNorm2d):
            (before,) = node.all_input_nodes
            fused = fuse_conv_bn_eval(modules[before.target], modules[node.target])
            parent, _, name = before.target.rpartition(".")
            setattr(modules[parent], name, fused)
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    traced.recompile()
    traced.delete_all_unused_submodules()
    x = ad.randn(4, 2, 5, 5)
    ad.testing.assert_close(traced(x), model(x))
    assert not any(isinstance(m, ad.nn.BatchNorm2d) for m in traced.modules())


def test_a_module_takes_anothers_place():
    model = Convolutions().eval()
    traced = ad.fx.symbolic_trace(model)
    for node in traced.graph.nodes:
        if node.target == "act":
            with traced.graph.inserting_after(node):
                traced.add_submodule("swish", ad.nn.SiLU())
                new = traced.graph.call_module("swish", node.args)
                node.replace_all_uses_with(new)
            traced.graph.erase_node(node)
    traced.recompile()
    x = ad.randn(2, 2, 4, 4)
    h = ad.nn.functional.silu(model.norm(model.conv(x)))
    ad.testing.assert_close(traced(x), model.body(h).mean((2, 3)))


def test_an_interpreter_sees_each_node_and_frees_values():
    class Profiler(ad.fx.Interpreter):
        def __init__(self, module):
            super().__init__(module)
            self.seen = collections.Counter()
            self.held = 0

        def run_node(self, n):
            self.seen[n.op] += 1
            value = super().run_node(n)
            self.held = max(self.held, len(self.env))
            return value

    model = net(ad)().eval()
    profiler = Profiler(ad.fx.symbolic_trace(model))
    x = ad.randn(2, 3)
    assert profiler.run(x)[0].tolist() == model(x)[0].tolist()
    assert profiler.seen["call_module"] == 8 and profiler.seen["output"] == 1
    assert profiler.held < sum(profiler.seen.values()) / 2


def test_an_interpreter_says_where_it_failed():
    said = []
    for T in BOTH:
        with pytest.raises(AttributeError) as caught:
            T.fx.Interpreter(T.fx.symbolic_trace(lambda x: x.foo())).run(T.ones(1))
        said.append(str(caught.value).split("\n\n")[1].split("\n")[0])
    assert said[0] == said[1]
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x"):
        ad.fx.Interpreter(ad.fx.symbolic_trace(lambda x: x)).run()


def transformed(T):
    class Swap(T.fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is T.nn.functional.relu:
                return T.sigmoid(*args).neg()
            return super().call_function(target, args, kwargs)

        def call_module(self, target, args, kwargs):
            made = super().call_module(target, args, kwargs)
            return made * 2 if target == "again" else made

    return Swap(T.fx.symbolic_trace(net(T)().eval())).transform()


def test_a_transformer_writes_the_graph_that_pytorchs_writes():
    ours, theirs = map(transformed, BOTH)
    assert text(ours.code) == text(theirs.code)


def pairs(T):
    yield lambda x: T.relu(x) + T.relu(x), lambda a: T.relu(a), lambda a: T.sigmoid(a).neg()
    yield (
        lambda x, y: T.cat([x.neg() + y, (x * 2).neg() + x], 0).sum(),
        lambda a, b: a.neg() + b,
        lambda a, b: T.sub(b, a),
    )
    yield (lambda x: (x + 1).relu() * (x + 2).relu(), lambda a: (a + 1).relu(), lambda a: a.exp())
    yield lambda x: x.neg().neg().neg().neg(), lambda a: a.neg().neg(), lambda a: a + 0
    yield lambda x: x.neg().exp() + x.neg(), lambda a: a.neg().exp(), lambda a: a  # none, then one
    yield lambda x: T.max(x, 1)[0], lambda a: T.max(a, 1), lambda a: T.min(a, 1)


@pytest.mark.parametrize("which", range(6))
def test_patterns_are_replaced_as_in_pytorch(which):
    ours, theirs = [], []
    for T, found in zip(BOTH, (ours, theirs), strict=True):
        program, pattern, replacement = list(pairs(T))[which]
        module = T.fx.symbolic_trace(program)
        found.append(len(T.fx.replace_pattern(module, pattern, replacement)))
        found.append(text(module.code))
        module.graph.lint()
    assert ours == theirs


def test_a_pattern_used_elsewhere_within_is_left():
    module = ad.fx.symbolic_trace(lambda x: (x.neg().exp(), x.neg().exp().neg()))
    node = module.graph.find_nodes(op="call_method", target="exp")[0]
    node.args[0].replace_all_uses_with(node.args[0])
    inner = module.graph.find_nodes(op="call_method", target="neg")[0]
    output = module.graph.output_node()
    output.args = ((*output.args[0], inner),)
    assert len(ad.fx.replace_pattern(module, lambda a: a.neg().exp(), lambda a: a.cos())) == 1
    x = ad.tensor(1.0)
    y, z, n = module(x)
    assert (y.item(), z.item(), n.item()) == ((-x).exp().item(), -x.cos().item(), -1)


def test_shapes_are_noted():
    model = net(ad)().eval()
    traced = ad.fx.symbolic_trace(model)
    ShapeProp(traced).propagate(ad.ones(5, 3))
    shapes = {n.name: n.meta["tensor_meta"] for n in traced.graph.nodes if n.op == "call_module"}
    assert {tuple(each.shape) for each in shapes.values()} == {(5, 4)}
    assert shapes["first_0"].dtype is ad.float32 and shapes["first_0"].stride == (4, 1)
    twice = ad.fx.symbolic_trace(lambda x: x.split(1, 0))
    ShapeProp(twice).propagate(ad.ones(2, 3))
    meta = twice.graph.output_node().meta["tensor_meta"]
    assert [tuple(each.shape) for each in meta] == [(1, 3), (1, 3)]


def halves(T, split):
    class M(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = T.nn.Linear(2, 2), T.nn.Linear(2, 2)
            self.p = T.nn.Parameter(T.ones(2))

        def forward(self, x, y=1):
            z = self.a(x) + self.p
            w = self.b(z) * y
            return w + z, z

    model = M()
    traced = T.fx.symbolic_trace(model)
    parts = {"a": 0, "add": 0, "p": 0, "b": 1, "mul": 1, "add_1": 2}
    return model, split(traced, model, lambda node: parts[node.name])


def test_a_module_is_cut_as_pytorch_cuts_it():
    from torch.fx.passes.split_module import split_module as theirs_split

    model, ours = halves(ad, split_module)
    theirs = ours if torch is ad else halves(torch, theirs_split)[1]
    assert text(ours.code) == text(theirs.code)
    for name in ("submod_0", "submod_1", "submod_2"):
        assert text(getattr(ours, name).code) == text(getattr(theirs, name).code)
    x = ad.randn(3, 2)
    for mine, other in zip(ours(x, 2), model(x, 2), strict=True):
        assert mine.tolist() == other.tolist()
    with pytest.raises(ad.InvalidArgument, match="need each other"):
        traced = ad.fx.symbolic_trace(lambda x: x.neg().exp().neg())
        split_module(traced, traced, lambda node: node.target)


def test_traced_modules_are_compiled_and_new_graphs_compiled_anew():
    traced = ad.fx.symbolic_trace(ad.nn.Sequential(ad.nn.Linear(3, 4), ad.nn.Tanh()))
    compiled = ad.compile(traced)
    x = ad.randn(2, 3)
    ad.testing.assert_close(compiled(x), traced(x))
    node = traced.graph.output_node()
    with traced.graph.inserting_before(node):
        node.args = (traced.graph.call_function(ad.mul, (node.args[0], 3)),)
    traced.recompile()
    ad.testing.assert_close(traced(x), 3 * traced.get_submodule("0")(x).tanh())
    ad.testing.assert_close(compiled(x), traced(x))


def test_traced_modules_under_function_transforms():
    traced = ad.fx.symbolic_trace(net(ad)().eval())
    state = dict(traced.named_parameters())
    buffers = dict(traced.named_buffers())

    def loss(state, x):
        return ad.func.functional_call(traced, {**state, **buffers}, (x,))[0].square().sum()

    x = ad.randn(4, 3)
    each = ad.func.vmap(ad.func.grad(loss), (None, 0))(state, x)
    for name, parameter in state.items():
        traced.zero_grad()
        loss(dict(traced.named_parameters()), x[1]).backward()
        ad.testing.assert_close(each[name][1], parameter.grad)


def test_a_traced_module_is_trained_and_saved(tmp_path):
    ad.manual_seed(0)
    model = net(ad)()
    traced = ad.fx.symbolic_trace(model.eval())
    optimizer = ad.optim.SGD(traced.parameters(), 0.05)
    x, y = ad.randn(16, 3), ad.randn(16, 4)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (traced(x)[0] - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert model(x)[0].tolist() == traced(x)[0].tolist()  # parameters are shared
    ad.save(traced.state_dict(), tmp_path / "state.pt")
    again = ad.fx.symbolic_trace(net(ad)().eval())
    again.load_state_dict(ad.load(tmp_path / "state.pt"))
    assert again(x)[0].tolist() == traced(x)[0].tolist()


def test_a_graph_module_is_traced_again():
    traced = ad.fx.symbolic_trace(net(ad)().eval())
    again = ad.fx.symbolic_trace(traced)
    assert len(again.graph.nodes) == len(traced.graph.nodes)

    class Outer(ad.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = traced

        def forward(self, x):
            return self.inner(x)[0] + 1

    outer = ad.fx.symbolic_trace(Outer())
    x = ad.randn(2, 3)
    assert outer(x).tolist() == (traced(x)[0] + 1).tolist()


def wrapped(T, monkeypatch):
    program = """
@T.fx.wrap
def doubled(x, k=2): return x * k if x.ndim else x
T.fx.wrap("len")
def f(x): return doubled(x, k=3) + len(x)
"""
    module = types.ModuleType(f"wrapping_{T.__name__}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    names["T"] = T
    exec(program, names)
    return T.fx.symbolic_trace(names["f"])


def test_wrapped_functions_stay_whole_when_traced_again_too(monkeypatch):
    ours, theirs = (wrapped(T, monkeypatch) for T in BOTH)
    assert [n.name for n in ours.graph.nodes] == [n.name for n in theirs.graph.nodes]
    assert ours(ad.ones(2)).tolist() == [5, 5]
    again = ad.fx.symbolic_trace(ours)
    assert [n.name for n in again.graph.nodes] == [n.name for n in ours.graph.nodes]
    for T in BOTH:
        with pytest.raises(NotImplementedError, match="top level of a module"):
            T.fx.wrap("len")
