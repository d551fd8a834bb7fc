"""`graph()`: a compiled function's program before and after each pass."""

from __future__ import annotations

import json
import re
import shutil
import threading

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import GraphError, InvalidArgument, Unsupported
from adjoint.ir import rewriting
from adjoint.ir.program import Value
from tests.native import needs_native

from .test_explanation import make_step

pytestmark = needs_native


def ops(stage):
    return [node.op.name for node in stage.program.nodes]


def test_each_pass_shows_what_it_did():
    compiled = ad.compile(lambda x: ((x * 1).exp() + x.exp()) * 2)
    stages = compiled.graph(ad.ones(3))
    assert ops(stages["captured"]) == ["mul", "exp", "exp", "add", "mul"]
    assert ops(stages["drop_identities"]) == ["exp", "exp", "add", "mul"]
    assert ops(stages["merge_equal"]) == ["exp", "add", "mul"]
    assert ops(stages["runs"]) == ["exp_add_mul"]
    for before, after in zip(stages.stages, stages.stages[1:], strict=False):
        if after.part == before.part and not after.changes:
            assert ops(after) == ops(before)
    table = str(stages)
    assert re.search(r"part 0: merge_equal +1 +3\n", table)
    assert re.search(r"part 0: drop_dead +-- +3\n", table)
    assert "%1 = exp(%0)" in str(stages["merge_equal"])


def test_a_training_step_is_left_as_it_was():
    """Neither parameters nor the optimizer's state, generators, gradients, or programs change."""
    step, model, optimizer = make_step(
        nn.Sequential(nn.Linear(6, 8), nn.Dropout(), nn.Linear(8, 3))
    )
    x, y = ad.randn(5, 6), ad.tensor([0, 1, 2, 0, 1])
    assert "update" in ops(step.graph(x, y).stages[0])
    assert not step.reasons and not optimizer.state  # those it began with are taken away again
    step(x, y)
    step(x, y)
    states = [
        v.clone() for v in (*model.state_dict().values(), *(p.grad for p in model.parameters()))
    ]
    kept, draws = [p.grad for p in model.parameters()], ad.get_rng_state()
    stages = step.graph(x, y)
    now = [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    for before, after in zip(states, now, strict=True):
        assert before.equal(after)
    assert all(p.grad is g for p, g in zip(model.parameters(), kept, strict=True))
    assert ad.get_rng_state().equal(draws)
    assert step.reasons == ["first call"] and len(step.programs) == 1
    assert optimizer.state[model[0].weight]["step"].item() == 2
    assert "update" in ops(stages.stages[0])  # the whole, with the optimizer
    assert ops(stages["runs"])[0] == "linear" and stages["runs"].schedule is not None
    step(x, y)
    assert step.reasons == ["first call"]


def test_what_is_computed_again_is_a_stage_of_its_own():
    step, _, _ = make_step()
    x, y = ad.randn(5, 6), ad.tensor([0, 1, 2, 0, 1])
    step(x, y)
    names = [each.name for each in step.graph(x, y).stages if each.part == 0]
    assert names.index("recompute") + 1 == names.index("fuse_kernels")


def test_several_optimizers_are_several_parts():
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizers = [ad.optim.SGD(m.parameters(), lr=0.1) for m in (first, second)]

    @ad.compile
    def step(x):
        for optimizer in optimizers:
            optimizer.zero_grad()
            second(first(x).relu()).sum().backward()
            optimizer.step()

    stages = step.graph(ad.ones(2, 3))
    assert {each.part for each in stages.stages} == {-1, 0, 1}
    assert [each.part for each in stages.stages if each.name == "runs"] == [0, 1]


def test_modules_and_signatures():
    compiled = ad.compile(nn.Linear(3, 2))
    stages = compiled.graph(ad.ones(4, 3))
    assert ops(stages["captured"])[0] == "linear"
    assert compiled.graph(ad.ones(0, 3))["captured"].program.inputs[0].shape == (0, 3)
    assert compiled.graph(x := ad.ones(1, 3)).stages and compiled(x).shape == (1, 2)
    with pytest.raises(
        InvalidArgument, match="no stage 'fold'; there are captured, keep_less, fold_constants"
    ):
        stages["fold"]


def test_what_cannot_be_captured_is_said():
    with pytest.raises(
        Unsupported, match=r"^compile: the function reads a value.*test_pass_trace.py"
    ):
        ad.compile(lambda x: x if x.sum() > 0 else -x).graph(ad.ones(2))
    compiled = ad.compile(lambda x: x if x.sum() > 0 else -x, fallback="eager")
    with pytest.warns(UserWarning, match="runs eagerly"):
        compiled(ad.ones(2))
    with pytest.raises(Unsupported, match=r"graph: .* runs eagerly: .*reads a value"):
        compiled.graph(ad.ones(2))


def embedded(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def test_the_page_has_the_stages_that_changed_something(tmp_path):
    compiled = ad.compile(lambda x: (x * 1).exp() * 2 + x, name="f</script>")
    stages = compiled.graph(ad.ones(3))
    page = embedded(stages.draw(tmp_path / "graph.html"))
    assert page["title"] == "f</script>"
    titles = [each["title"] for each in page["stages"]]
    assert titles == [
        "captured", "part 0: captured", "part 0: drop_identities", "part 0: fuse_kernels",
        "part 0: runs",
    ]  # fmt: skip
    assert page["nodes"] == page["stages"][-1]["nodes"]
    inside = [node for node in page["nodes"] if node["kind"] == "op"]
    assert {node["module"] for node in inside} == {"exp_mul_add 1"}
    assert [node["op"] for node in inside] == ["exp", "mul", "add"]
    assert inside[1]["attributes"] == {"input 1": "2", "computed by": "kernel", "buffer": "0"}
    one = embedded(stages.draw(tmp_path / "one.html", "captured"))
    assert [each["title"] for each in one["stages"]] == ["captured"]


def test_other_drawings(tmp_path):
    stages = ad.compile(lambda x: (x * 1).exp() * 2).graph(ad.ones(3))
    text = stages.draw(tmp_path / "graph.dot").read_text()
    assert "subgraph" in text and 'label="exp_mul 1"' in text
    assert "subgraph" not in stages.draw(tmp_path / "graph.dot", "captured").read_text()
    if shutil.which("dot"):
        assert "<svg" in stages.draw(tmp_path / "graph.svg").read_text()
    with pytest.raises(InvalidArgument, match="the suffix says what to draw"):
        stages.draw(tmp_path / "graph.png")


def test_programs_are_verified_after_each_pass():
    """In all tests: see conftest.py."""

    @rewriting.rewriting
    def wrong(graph):
        graph.outputs = [Value(graph.inputs[0].spec)]
        return 1

    @rewriting.rewriting
    def silent(graph):
        graph.outputs = []
        return 0

    del rewriting.PASSES["wrong"], rewriting.PASSES["silent"]
    captured = ad.compile(lambda x: x * 2).graph(ad.ones(3))["captured"].program
    with pytest.raises(AssertionError, match="silent has changed a program without a word"):
        silent(captured)
    with pytest.raises(GraphError, match=r"after wrong: the output .* is not computed"):
        wrong(captured)


def test_values_are_those_without_looking():
    step, model, _ = make_step()
    x, y = ad.randn(5, 6), ad.tensor([0, 1, 2, 0, 1])
    other, twin, _ = make_step()
    twin.load_state_dict(model.state_dict())
    for _ in range(3):
        found = step(x, y)
        if step.reasons:
            step.graph(x, y)
        np.testing.assert_array_equal(found.detach().numpy(), other(x, y).detach().numpy())
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())


def test_inputs_have_the_users_names():
    step, model, optimizer = make_step()
    x, y = ad.randn(5, 6), ad.tensor([0, 1, 2, 0, 1])
    step(x, y)
    inputs = [x.name for x in step.graph(x, y).stages[0].program.inputs]
    assert inputs[:2] == ["argument 0", "argument 1"]
    for name in ("model.0.weight", "model.2.bias", "model.0.bias.grad"):
        assert name in inputs
    assert "optimizer: exp_avg of model.0.weight" in inputs
    assert len(model.state_dict()) == 4 and len(optimizer.state) == 4
    assert re.search(r"%0 += argument 0 +float32\[5, 6\]", str(step.graph(x, y).stages[0]))
    names = [x.name for x in ad.compile(model).graph(x).stages[0].program.inputs]
    assert names[:2] == ["argument 0", "0.weight"]
    shift = ad.ones(6)
    captured = ad.compile(lambda x: x + shift).graph(x)["captured"]
    assert [x.name for x in captured.program.inputs] == ["argument 0", "shift"]


def test_programs_of_nothing(tmp_path):
    for function in (lambda x: x, lambda x: None, lambda x: ad.ones(3) * 2):
        stages = ad.compile(function).graph(ad.ones(2))
        assert stages.stages[0].name == "captured" and "captured" in str(stages)
        assert stages.draw(tmp_path / "graph.html").stat().st_size > 1000
        assert stages.draw(tmp_path / "graph.dot").read_text().startswith("digraph")


def test_threads_and_modes():
    compiled = ad.compile(lambda x: (x * 2 * 3).exp(), reassociate=True)
    found = []

    def work():
        for _ in range(3):
            stages = compiled.graph(ad.ones(4))
            found.append(([each.name for each in stages.stages], compiled(ad.ones(4)).tolist()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12 and all(each == found[0] for each in found)
    assert compiled.reasons == ["first call"]
    layer = ad.compile(nn.Linear(3, 2))
    with ad.autocast("cpu", dtype=ad.bfloat16):
        assert "cast" in ops(layer.graph(ad.ones(2, 3))["captured"])
    with ad.no_grad():
        assert ops(layer.graph(ad.ones(2, 3))["captured"]) == ["linear"]
    assert "cotangents" in ops(layer.graph(ad.ones(2, 3))["captured"])


class Trainer:
    def __init__(self):
        self.model = nn.Linear(3, 1)

    @ad.compile
    def run(self, x):
        return self.model(x)


def test_methods_and_arguments_that_are_modules():
    trainer = Trainer()
    stages = trainer.run.__func__.graph(trainer, ad.ones(2, 3))
    assert ops(stages["captured"])[0] == "linear"
    compiled = ad.compile(lambda model, x: model(x))
    inputs = [
        x.name for x in compiled.graph(nn.Linear(3, 1), ad.ones(2, 3)).stages[0].program.inputs
    ]
    assert inputs == ["argument 0", "linear.weight", "linear.bias"]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(self.fc(x)).relu()


def test_pictures_have_the_boxes_of_modules():
    model = nn.Sequential(Block(), Block(), nn.Linear(4, 1))
    with ad.no_grad():
        picture = ad.compile(model).graph(ad.ones(3, 4)).stages[-1].snapshot()
    homes = {(node.op, node.module) for node in picture.nodes if node.kind == "op"}
    assert {("linear", "0.fc"), ("linear", "1.fc"), ("linear", "2")} <= homes
    kernels = {module for op, module in homes if op == "rsqrt"}
    assert len(kernels) == 2 and {each.partition(".")[0] for each in kernels} == {"0", "1"}
    assert all(len(each.split(".")) >= 2 for each in kernels)
    [output] = [node for node in picture.nodes if node.kind == "boundary"]
    assert output.module == "2"
