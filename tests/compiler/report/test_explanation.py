"""`explain`: what a compiled function's program does."""

import itertools

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from tests.native import needs_native

pytestmark = needs_native


def make_step(model=None, kind=ad.optim.Adam):
    model = model or nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = kind(model.parameters())

    @ad.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, model, optimizer


def test_a_training_step():
    step, model, optimizer = make_step()
    x, y = ad.randn(5, 6), ad.tensor([0, 1, 2, 0, 1])
    found = step.explain(x, y)
    assert optimizer.state[model[0].weight]["step"].item() == 1  # it is a call
    names = [row.name for row in found.rows]
    assert (names[0], names[-1]) == ("linear_relu", "Adam.step")
    assert names.count("linear_weight") == 2
    first = found.rows[0]
    assert first.operations == 2 * 5 * 6 * 8 and first.bytes == 4 * (30 + 48 + 8 + 40)
    assert first.how == "product" and first.native and first.seconds > 0
    parameters = sum(p._data.nbytes for p in model.parameters())
    assert found.rows[-1].bytes == (4 + 3) * parameters  # with the gradient read, the rest written
    assert found.host_calls == found.backward == []
    assert ("linear_relu", "a library or a routine computes it") in found.cuts
    assert 0 < found.memory <= found.without_reuse
    text = found.table(verbose=True)
    assert (
        "compiled:" not in str(found)
        and "compiled: first call" in text
        and text.count("\n  0: linear_relu ") == 1
    )
    slope = next(row for row in found.rows if row.name.startswith("relu_gradient"))
    assert slope.operations >= 5 * 8 and found.share(slope) > 0


def test_a_layer_whose_backward_comes_later():
    compiled = ad.compile(nn.LSTM(6, 5))
    found = compiled.explain(ad.randn(4, 2, 6))
    assert found.backward[0].name == "recurrent_layer_backward"
    assert not found.host_calls
    assert "when gradients of what was returned come in" in str(found)


def test_each_program_is_explained_with_why_it_is_there():
    compiled = ad.compile(lambda x: (x * 2).exp())
    compiled(ad.ones(3))
    found = compiled.explain(ad.ones(4))
    assert found.rows[0].name == "mul_exp" and found.rows[0].bytes == 32
    assert found.reasons == ["first call", "argument 0 was (3,) float32 and is (4,) float32"]
    np.testing.assert_allclose(compiled(ad.ones(3)).numpy(), np.exp(2 * np.ones(3)), rtol=1e-6)
    assert compiled.explain(ad.ones(3)).rows[0].bytes == 24
    assert {row.bytes for row in compiled.explain(ad.ones(0)).rows} == {0}


def test_what_runs_eagerly_is_not_explained():
    compiled = ad.compile(lambda x: x if x.sum() > 0 else -x, fallback="eager")
    with pytest.warns(UserWarning, match="runs eagerly"):
        compiled(ad.ones(2))
    with pytest.raises(Unsupported, match=r"runs eagerly: .*reads a value"):
        compiled.explain(ad.ones(2))


def test_what_was_fused_and_what_is_computed_again():
    sizes = (64, 256, 256, 256, 64)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    layers = [x for layer in layers for x in (layer, nn.LayerNorm(layer.out_features), nn.ReLU())]
    step, _, _ = make_step(nn.Sequential(*layers, nn.Linear(64, 3)))
    x, y = ad.randn(256, 64), ad.zeros(256, dtype=ad.int64)
    step(x, y)
    found = step.explain(x, y)
    kernels = [row for row in found.rows if row.how == "kernel"]
    assert all(len(row.fused) != 1 for row in found.rows)
    for row in kernels:
        assert not row.fused or row.name.removesuffix("_...") == "_".join(row.fused[:3])
        assert not row.fused or set(row.again) <= set(row.fused)
    again = [row for row in kernels if row.again]
    assert again and all(
        name in {"sub", "mul", "add", "relu"} for row in again for name in row.again
    )
    assert not any(row.fused for row in found.rows if row.how == "product")
    text = found.table(verbose=True)
    assert f"  computed again rather than kept, {again[0].name} (" in text
    assert f"  fused, {again[0].name} (" in text


def test_nothing_is_fused_or_computed_again_where_there_is_one_op():
    compiled = ad.compile(lambda x: x.exp())
    [row] = compiled.explain(ad.ones(4)).rows
    assert row.fused == row.again == ()
    [row] = ad.compile(lambda x: (x.exp() * 2 + x * 2) - 1).explain(ad.ones(4)).rows
    assert row.fused == ("exp", "mul", "mul", "add", "sub") and not row.again
    found = ad.compile(lambda x: (x.exp() * 2 + x * 2) - 1).explain(ad.ones(4))
    assert "fused, exp_mul_mul_... (1): exp, mul (2), add, sub" in found.table(verbose=True)


def test_the_slowest_come_first_and_as_many_as_asked_for():
    layers = [x for _ in range(20) for x in (nn.Linear(8, 8), nn.Softmax(1))]
    found = ad.compile(nn.Sequential(*layers)).explain(ad.randn(4, 8))

    def named(text):
        lines = [line.split() for line in text.splitlines()[3:] if line.startswith("  ")]
        return [line[1] if line[0].endswith(":") else line[0] for line in lines]

    slowest = sorted(found.rows, key=lambda row: -row.seconds)
    assert named(str(found))[:15] == [row.name for row in slowest[:15]]
    assert f"and {len(found.rows) - 15} more" in str(found)
    everything = found.table(sort_by=None, row_limit=-1)
    assert named(everything)[: len(found.rows)] == [row.name for row in found.rows]
    assert "more" not in everything and found.table(row_limit=0).count("more, ") == 1
    for key in ("operations", "bytes", "share"):
        assert found.table(sort_by=key)
    with pytest.raises(ad.InvalidArgument, match=r"table: sort_by='time'; one of seconds, "):
        found.table(sort_by="time")


def test_shares_are_of_the_fastest_that_was_seen():
    found = ad.compile(lambda x: x.exp()).explain(ad.ones(64))
    assert all(0 <= found.share(row) <= 1 for row in found.rows)
    rows = [found.rows[0]._replace(bytes=1 << 40, seconds=1e-6), found.rows[0]]
    mended = type(found)("", rows, (), (), 0, 0, (), found.peaks)
    assert mended.share(rows[0]) == 1 and mended.peaks.bytes == rows[0].bytes / 1e-6


def test_only_what_changes_nothing_is_called_several_times():
    layer, calls, factor = nn.Linear(2, 1), [], ad.zeros(())
    compiled = ad.compile(lambda x: layer(x))
    plain = compiled._run
    compiled._run = lambda *given: calls.append(1) or plain(*given)
    compiled.explain(ad.ones(3, 2))
    assert len(calls) == 5
    counting = ad.compile(lambda x: (factor.add_(1), x + factor)[1])
    counting.explain(ad.ones(2))
    assert factor.item() == 1
    drawing = ad.compile(lambda x: x + ad.rand(2))
    ad.manual_seed(3)
    drawing.explain(ad.ones(2))
    after = ad.rand(1)
    ad.manual_seed(3)
    ad.rand(2)
    assert after.item() == ad.rand(1).item()


class Reducing:
    def __init__(self):
        self.kind = "sum"

    def __call__(self, x):
        return x.sum() if self.kind == "sum" else x.mean()


def test_a_guard_that_fails_says_which_line_read_it_and_how_often():
    reducing = Reducing()
    compiled = ad.compile(reducing)
    x = ad.ones(4)
    for kind in ("sum", "mean", "median"):
        reducing.kind = kind
        compiled(x)
    _, second, third = compiled.reasons
    line = Reducing.__call__.__code__.co_firstlineno + 1
    assert "kind was 'sum' and is 'mean', read (" in second
    assert f"test_explanation.py:{line}, in __call__)" in second and "times" not in second
    assert third.endswith("; it has changed 2 times") and "is 'median'" in third
    assert third in compiled.explain(x).table(verbose=True)


# ---- modules -------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.fc, self.out = nn.LayerNorm(size), nn.Linear(size, 24), nn.Linear(24, size)

    def forward(self, x):
        return x + self.out(nn.functional.gelu(self.fc(self.norm(x))))


class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(8) for _ in range(2))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


LINEAR = ["blocks.0.fc", "blocks.0.out", "blocks.1.fc", "blocks.1.out", "head"]


def modules(rows, name):
    return [row.module for row in rows if row.name.startswith(name)]


def test_steps_are_named_by_their_modules_also_in_backward():
    model = Stacked()
    step, _, _ = make_step(model)
    x, y = ad.randn(5, 8), ad.tensor([0, 1, 2, 0, 1])
    found = step.explain(x, y)
    forward = [row for row in found.rows if row.name in ("linear", "linear_relu")]
    assert [row.module for row in forward] == LINEAR
    assert sorted(modules(found.rows, "linear_weight")) == LINEAR
    assert sorted(modules(found.rows, "linear_input")) == LINEAR
    assert found.rows[-1].module == ""  # the optimizer's
    assert "  blocks.0.fc: linear " in str(found)
    several = [row.module for row in found.rows if ", +" in row.module]
    assert several and all(each.partition(", +")[0].startswith("blocks.") for each in several)
    layers = [row for row in found.rows if row.how != "optimizer" and row.seconds]
    assert sum(row.module != "" for row in layers) > 0.8 * len(layers)


def test_modules_of_a_compiled_module_and_of_a_backward_from_outside():
    compiled = ad.compile(Stacked())
    found = compiled.explain(ad.randn(5, 8))
    assert modules(found.rows, "linear") == LINEAR
    assert sorted(modules(found.backward, "linear_weight")) == LINEAR
    inner = Stacked()
    inner.head = ad.compile(inner.head)  # a compiled one in its place has its name
    outer = ad.compile(lambda x: inner(x))
    assert modules(outer.explain(ad.randn(5, 8)).rows, "linear")[-1] == "head"


def test_several_outermost_modules_are_told_apart():
    encoder, decoder = nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))
    found = ad.compile(lambda x: decoder(encoder(x))).explain(ad.ones(3, 4))
    assert modules(found.rows, "linear") == ["0", "Sequential_2.0"]


def test_equal_kernels_of_different_modules_have_their_own_names():
    found = ad.compile(Stacked().eval()).explain(ad.randn(5, 8))
    kernels = [row for row in found.rows if row.name == "gelu"]
    assert [row.module.partition(",")[0] for row in kernels] == ["blocks.0", "blocks.1"]


def test_the_layers_of_a_frozen_program():
    program = ad.inference.freeze(Stacked().eval(), ad.ones(5, 8))
    assert modules(program.explain(ad.ones(5, 8)).rows, "linear") == LINEAR


def test_modules_are_noted_by_captures_alone(monkeypatch):
    """Calls of modules, eager or in a program that is there, and eager backward do not ask."""
    from adjoint.compiler.capture.module_places import ModulePlaces

    model = Stacked()
    compiled = ad.compile(lambda x: model(x))
    x = ad.randn(5, 8)
    expected = compiled(x)
    calls = []
    for name in ("call", "begin_node", "begin"):
        monkeypatch.setattr(ModulePlaces, name, lambda *_: calls.append(1))
    model(x).sum().backward()
    assert compiled(x).tolist() == expected.tolist()
    compiled(x).sum().backward()
    assert calls == []


def test_an_error_within_a_module_leaves_no_place_behind():
    class Failing(nn.Module):
        def forward(self, x):
            raise KeyError("x")

    model = nn.Sequential(nn.Linear(2, 2), Failing())

    def function(x):
        try:
            model(x)
        except KeyError:
            return x.exp() + 1
        return x

    [row] = ad.compile(function).explain(ad.ones(2, 2)).rows
    assert row.module == "" and "exp" in row.name
