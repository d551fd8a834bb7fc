"""What a profile sees, and that nothing of it stays behind."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.mode import DEFAULT, MODE
from adjoint.profiler import profile, record_function
from adjoint.utils.data import DataLoader, TensorDataset
from tests.native import needs_native


@pytest.fixture(autouse=True)
def _mode_is_restored():
    yield
    assert MODE.get() is DEFAULT


def names(prof):
    return [event.name for event in prof.events()]


def inside(prof, name):
    """The names of the events in the first one called `name`."""
    event = next(e for e in prof.events() if e.name == name)
    return [child.name for child in event.cpu_children]


def test_forward_and_backward():
    x = ad.ones(3, requires_grad=True)
    with profile() as prof:
        (x.sin() * x).sum().backward()
    assert names(prof) == [
        "sin", "mul", "sum", "SumBackward0", "expand", "MulBackward0", "mul", "mul",
        "SinBackward0", "cos", "mul", "AccumulateGrad",
    ]  # fmt: skip
    assert inside(prof, "SinBackward0") == ["cos", "mul"]
    for event in prof.events():
        assert event.cpu_time_total >= event.self_cpu_time_total >= 0
        for child in event.cpu_children:
            assert child.cpu_parent is event
            assert event.time_range.start <= child.time_range.start
            assert child.time_range.end <= event.time_range.end


def program(seed=0):
    ad.manual_seed(seed)
    model = nn.Sequential(nn.Linear(40, 60), nn.ReLU(), nn.LayerNorm(60), nn.Linear(60, 5))
    optimizer = ad.optim.AdamW(model.parameters(), lr=0.01)
    x, y = ad.randn(64, 40), ad.randint(0, 5, (64,))
    for batch, labels in DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
    out = model(x).softmax(-1)
    out.detach().add_(1)[0].fill_(3.0)
    return [out, loss, *(p for p in model.parameters())]


def test_a_profiled_program_computes_the_same_bits():
    plain = program()
    with profile(
        record_shapes=True, profile_memory=True, with_stack=True, with_flops=True,
        with_modules=True,
    ) as prof:  # fmt: skip
        profiled = program()
    for a, b in zip(plain, profiled, strict=True):
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    seen = set(names(prof))
    assert {"linear", "relu", "LinearBackward0", "Optimizer.step#AdamW.step", "add_", "fill_",
            "Optimizer.zero_grad#AdamW.zero_grad", "nn.Module: Sequential_0.2", "AccumulateGrad",
            "enumerate(DataLoader)#DataLoader.__next__"} <= seen  # fmt: skip
    counts = {e.key: e.count for e in prof.key_averages()}
    assert counts["Optimizer.step#AdamW.step"] == 4 and counts["nn.Module: Sequential_0"] == 5
    assert counts["nn.Module: Sequential_0.0"] == counts["nn.Module: Sequential_0.3"] == 5


def test_a_closure_of_an_optimizer_is_seen_in_its_step():
    p = nn.Parameter(ad.ones(2))
    optimizer = ad.optim.SGD([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    with profile() as prof:
        optimizer.step(closure)
    assert "SquareBackward0" in inside(prof, "Optimizer.step#SGD.step")


def test_workers_of_a_loader():
    loader = DataLoader(TensorDataset(ad.arange(4)), batch_size=2, num_workers=1)
    with profile() as prof:
        list(loader)
    assert names(prof).count("enumerate(DataLoader)#WorkerIterator.__next__") == 3  # with the end


def test_composites_by_kernels_and_op_by_op():
    large, empty = ad.randn(300, 400), ad.zeros(0, 3)
    with profile() as prof:
        large.softmax(1)
        nn.functional.cross_entropy(large, ad.zeros(300, dtype=ad.int64))
        nn.functional.normalize(empty)
    events = [e for e in prof.events() if e.cpu_parent is None]
    assert [e.name for e in events] == ["softmax", "cross_entropy", "normalized"]
    assert not events[0].cpu_children or ad.backends.native.unusable()
    assert events[2].cpu_children  # there is nothing to compute by a kernel


def test_modes_inside():
    with profile() as prof:
        with ad.no_grad():
            ad.ones(2).exp()
        with ad.inference_mode():
            ad.ones(2).sin()
        with ad.autocast("cpu", dtype=ad.bfloat16):
            assert (ad.ones(2, 2) @ ad.ones(2, 2)).dtype is ad.bfloat16
        with ad.autograd.detect_anomaly(check_nan=False):
            ad.ones(2).cos()
    assert names(prof) == ["exp", "sin", "mat_mul", "cos"]


def test_lazy_values_are_seen_when_they_are_computed():
    with profile() as prof:
        with ad.lazy():
            y = (ad.ones(3).exp() + 1).sin()
        before = len(prof._recorder.events)
        y.sum()
    assert before == 0
    assert names(prof) == ["exp", "add", "sin", "sum"]


def test_a_reactive_graph():
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(200, 20))
        y = ((x * 2 + 1).exp() @ ad.ones(20, 2)).sum()
    y.item()
    with profile(with_flops=True, profile_memory=True) as prof:
        x.set(ad.zeros(200, 20))
        assert len(prof._recorder.events) == 0
        y.item()
    seen = names(prof)
    assert seen == ["mul", "add", "exp", "mat_mul", "sum"]
    product = prof.events()[3]
    assert product.flops == 2 * 200 * 20 * 2 and product.self_cpu_memory_usage == 200 * 2 * 4


@needs_native
def test_a_chain_of_a_graph_is_one_event():
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(300, 200))
        y = (x * 2 + 1).exp()
    for n in range(40):  # policy.CHAIN_SEEN and some
        x.set(ad.full((300, 200), float(n % 3)))
        y.numpy()
    with profile() as prof:
        x.set(ad.zeros(300, 200))
        y.numpy()
    assert names(prof) == ["mul_add_exp"]


def test_recording_in_a_graph_is_no_event():
    graph = ad.Graph()
    with profile() as prof:
        with graph:
            x = graph.input(ad.ones(3))
            y = x.cumsum(0)
        y.softmax(0)
    assert names(prof) == []


def test_graph_steps():
    graph = ad.Graph()
    with profile() as prof, graph.step():
        (ad.ones(3) * 2).exp()
    assert names(prof) == ["mul", "exp"]


def compiled_step():
    model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 1))
    optimizer = ad.optim.SGD(model.parameters(), lr=0.01)

    def train(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, train


@needs_native
def test_a_compiled_step():
    ad.manual_seed(0)
    model, train = compiled_step()
    ad.manual_seed(0)
    other, plain = compiled_step()
    step, reference = ad.compile(train), ad.compile(plain)
    x, y = ad.randn(16, 30), ad.randn(16, 1)
    for _ in range(2):
        step(x, y), reference(x, y)
    with profile(with_flops=True) as prof:
        first = step(x, y)
    assert first.item() == reference(x, y).item()
    assert step(x, y).item() == reference(x, y).item()  # no record was left out or done twice
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert p.detach().numpy().tobytes() == q.detach().numpy().tobytes()
    found = inside(prof, "Compiled#train")
    assert len(found) == len(names(prof)) - 1
    assert found.count("linear") == found.count("linear_relu") == 1
    assert found[-1] == "Optimizer.step#SGD.step"
    linear = next(e for e in prof.events() if e.name == "linear_relu")
    assert linear.flops == 2 * 16 * 30 * 40


@needs_native
def test_tables_traces_and_memory_are_those_of_eager_graph_and_compiled_runs(tmp_path):
    """Whatever way a function runs: a table by each column, a Chrome trace, what it has made."""
    x = ad.randn(16, 30)

    def function(x):
        return ((x @ x.t()).exp() + 1).sum(0)

    compiled = ad.compile(function)
    graph = ad.Graph()
    source = graph.input(x)
    recorded = function(source)
    runs = {
        "eager": lambda: function(x),
        "graph": lambda: (source.set(x + 1), recorded.tolist()),
        "compiled": lambda: compiled(x),
    }
    for way, run in runs.items():
        run()
        with profile(profile_memory=True, with_flops=True, record_shapes=True) as prof:
            kept = run()
        sums = prof.key_averages()
        for key in (
            "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage",
            "flops", "count",
        ):  # fmt: skip
            order = [getattr(row, key) for row in sorted(sums, key=lambda row: -getattr(row, key))]
            names_in = [line.split()[0] for line in sums.table(sort_by=key).splitlines()[3:-2]]
            found = {row.key[:55]: getattr(row, key) for row in sums}
            assert [found[name] for name in names_in] == order, (way, key)
        product = next(row for row in sums if "mat_mul" in row.key)
        assert product.flops == 2 * 16 * 30 * 16
        made = sum(row.self_cpu_memory_usage for row in sums)
        assert made >= 16 * 4, way
        path = tmp_path / f"{way}.json"
        prof.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        events_of = [event.name for event in prof.events() if event.name != "[memory]"]
        assert [event["name"] for event in spans] == events_of
        assert any(event["name"] == "[memory]" for event in events)
        del kept
    outer = next(e for e in prof.events() if e.name == "Compiled#function")
    assert outer.self_cpu_memory_usage == 16 * 4  # the result alone is new
    assert outer.cpu_time_total >= sum(e.cpu_time_total for e in outer.cpu_children)


@needs_native
def test_backward_through_what_a_compiled_function_returned():
    model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 8))
    plain = ad.compile(model)
    x = ad.randn(16, 30)
    plain(x).sum().backward()
    eager = [p.grad.clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = None
    with profile(with_flops=True, profile_memory=True) as prof:
        plain(x).sum().backward()
    for p, g in zip(model.parameters(), eager, strict=True):
        assert p.grad.equal(g)
    found = inside(prof, "CompiledFunctionBackward")
    assert found.count("linear_weight") == 2 and found.count("linear_input") == 1
    behind = next(e for e in prof.events() if e.name == "CompiledFunctionBackward")
    assert sum(e.flops for e in behind.cpu_children) == 2 * 16 * (30 * 40 + 2 * 40 * 8)
    assert behind.self_cpu_memory_usage == sum(p._data.nbytes for p in model.parameters())


def test_a_frozen_program():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    x = ad.randn(4, 8)
    program = ad.inference.freeze(model, x)
    expected = program(x)
    with profile() as prof:
        found = program(x)
    assert found.tolist() == expected.tolist()
    assert names(prof)[0] == "inference.Program" and len(names(prof)) > 1
    with profile(profile_memory=True) as prof:
        found = program(x)
    assert prof.events()[0].self_cpu_memory_usage == found._data.nbytes


def test_record_function_in_and_out_of_profiles():
    @record_function("doubled")
    def doubled(x):
        return x * 2

    with record_function("outside"):
        assert doubled(ad.ones(1)).item() == 2
    with profile() as prof:
        doubled(ad.ones(1))
        with record_function("block", "an argument"):
            ad.ones(1).exp()
    assert names(prof) == ["doubled", "mul", "block", "exp"]
    assert prof.events()[0].is_user_annotation and not prof.events()[1].is_user_annotation


def test_errors_in_the_block_end_events_and_the_profile():
    prof = profile(with_modules=True)
    with pytest.raises(ZeroDivisionError), prof, record_function("block"):
        1 / 0  # noqa: B018
    assert MODE.get() is DEFAULT
    assert names(prof) == ["block"] and prof.events()[0].cpu_time_total > 0

    x = ad.ones(2, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda g: 1 / 0)
    with profile(with_modules=True) as prof:
        with pytest.raises(ZeroDivisionError):
            y.sum().backward()
        with pytest.raises(ad.ShapeError):
            ad.ones(2) + ad.ones(3)
        with pytest.raises(ad.ShapeError):
            nn.Linear(3, 3)(ad.ones(2))
        ad.ones(2).cos()
    last = prof.events()[-1]
    assert last.name == "cos" and last.cpu_parent is None
    assert not nn.hooks.EVERYWHERE


def test_backward_is_of_the_forwards_module():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    x = ad.ones(4, 2)
    with profile(with_modules=True) as prof:
        model(x).square().sum().backward()
    around = {}
    for event in prof.events():
        if event.name.startswith("LinearBackward"):
            around.setdefault(event.cpu_parent.name, []).append(event.name)
    root = "nn.Module: Sequential_0"
    assert list(around) == [f"{root}.2 (backward)", f"{root}.0 (backward)"]
    squares = [e for e in prof.events() if e.name.startswith(("PowBackward", "SumBackward"))]
    assert squares and all(each.cpu_parent is None for each in squares)  # of no module
    with profile() as plain:
        model(x).sum().backward()
    assert not any("Module" in each.name for each in plain.events())


def test_an_error_in_backward_leaves_no_module_open():
    model = nn.Linear(2, 1)
    y = model(ad.ones(1, 2, requires_grad=True))
    with profile(with_modules=True) as prof:
        z = model(y.new_ones(1, 2, requires_grad=True))
        z.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            z.sum().backward()
        model(ad.ones(3, 2)).sum().backward()
        ad.ones(2).cos()
    last = prof.events()[-1]
    assert last.name == "cos" and last.cpu_parent is None


def test_nested_profiles_are_refused():
    with profile(), pytest.raises(ad.ProfilerError, match="already enabled on this thread"):
        profile().start()
    with pytest.raises(RuntimeError), profile(), profile():
        pass


def test_only_the_thread_that_records_is_seen():
    def work(function, found):
        with profile() as prof:
            barrier.wait()
            for _ in range(50):
                function(ad.ones(2))
            barrier.wait()
        found.append(names(prof))

    barrier = threading.Barrier(3)
    sines, cosines = [], []
    threads = [
        threading.Thread(target=work, args=(ad.sin, sines)),
        threading.Thread(target=work, args=(ad.cos, cosines)),
    ]
    for thread in threads:
        thread.start()
    barrier.wait()
    for _ in range(50):
        ad.ones(2).exp()
    barrier.wait()
    for thread in threads:
        thread.join()
    assert sines == [["sin"] * 50] and cosines == [["cos"] * 50]


def test_tasks_whose_blocks_overlap():
    async def work(name, first, then):
        with record_function(name):
            first.set()
            await then.wait()
            ad.ones(1).exp()

    async def both():
        a, b = asyncio.Event(), asyncio.Event()
        await asyncio.gather(work("a", a, b), work("b", b, a))

    with profile() as prof:
        asyncio.run(both())
    assert sorted(names(prof)) == ["a", "b", "exp", "exp"]
    assert all(event.cpu_time_total > 0 for event in prof.events())


def test_a_profile_that_stops_in_a_block_leaves_nothing():
    prof = profile()
    prof.start()
    with ad.no_grad():
        with ad.no_grad():
            prof.stop()
            ad.ones(1).exp()
        ad.ones(1).exp()  # in a mode of when it was active
    ad.ones(1).exp()
    assert names(prof) == []
    assert MODE.get() is DEFAULT


def test_memory():
    with profile(profile_memory=True) as prof:
        x = ad.ones(100, 10).exp()
        y = x.T  # a view has no memory
        with record_function("free"):
            del x, y
        z = ad.ones(4).exp()
        del z
    by = {e.name: e for e in prof.events()}
    assert by["exp"].self_cpu_memory_usage == 16
    assert prof.events()[0].self_cpu_memory_usage == 4000
    assert by["free"].self_cpu_memory_usage == -4000
    assert by["[memory]"].self_cpu_memory_usage == -16
    assert prof.total_average().self_cpu_memory_usage == 0


def test_flops_of_products_and_convolutions():
    with profile(with_flops=True) as prof:
        ad.ones(3, 4) @ ad.ones(4, 5)
        nn.functional.conv2d(ad.ones(2, 3, 8, 8), ad.ones(4, 3, 3, 3))
        ad.ones(3).exp()
    assert [e.flops for e in prof.events() if e.flops] == [120, 2 * 2 * 4 * 36 * 27]


def test_whether_a_profile_runs_is_said_by_pytorchs_older_names():
    for framework in (ad, pytest.importorskip("torch")):
        assert not framework.autograd._profiler_enabled()
        with framework.profiler.profile():
            assert framework.autograd._profiler_enabled()
        assert not framework.autograd._profiler_enabled()
    with ad.profiler.profile() as prof:
        ad.ones(2).exp()
        ad.autograd._disable_profiler()
        ad.ones(2).sin()
    names = [event.name for event in prof.events()]
    assert "sin" not in names and "exp" in names
