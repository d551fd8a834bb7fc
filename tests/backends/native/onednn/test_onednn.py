"""oneDNN's binding and its plans: loading, constants, threads, forks, memory."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from adjoint.backends.codegen import target
from adjoint.backends.native.gemm import products
from adjoint.backends.native.onednn import api as onednn
from adjoint.backends.native.onednn import eager_convolution, pooling_plans
from adjoint.backends.native.onednn import plan as onednn_plan
from adjoint.core import policy, sized_tables
from adjoint.core.errors import Unsupported

from .onednn_cases import needs_onednn, workers  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def run(code, **environment):
    """What a fresh process prints."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@needs_onednn
@pytest.mark.parametrize(
    ("function", "value", "name"),
    [
        ("dnnl_dt2str", onednn.DATA_TYPES["bfloat16"], "bf16"),
        ("dnnl_dt2str", onednn.DATA_TYPES["float32"], "f32"),
        ("dnnl_fmt_tag2str", onednn.FORMAT_ANY, "any"),
        ("dnnl_prop_kind2str", onednn.INFERENCE, "forward_inference"),
        ("dnnl_prop_kind2str", onednn.TRAINING, "forward_training"),
        ("dnnl_alg_kind2str", onednn.CONVOLUTION_DIRECT, "convolution_direct"),
        ("dnnl_alg_kind2str", onednn.POOL_MAX, "pooling_max"),
        ("dnnl_alg_kind2str", onednn.POOL_AVERAGE, "pooling_avg_include_padding"),
        ("dnnl_alg_kind2str", onednn.LINEAR, "eltwise_linear"),
        ("dnnl_alg_kind2str", onednn.REDUCTION_SUM, "reduction_sum"),
        ("dnnl_alg_kind2str", onednn.ACTIVATIONS["relu"][0], "eltwise_relu"),
        ("dnnl_alg_kind2str", onednn.ACTIVATIONS["tanh"][0], "eltwise_tanh"),
        ("dnnl_alg_kind2str", onednn.ACTIVATIONS["elu"][0], "eltwise_elu"),
        ("dnnl_alg_kind2str", onednn.ACTIVATIONS["sigmoid"][0], "eltwise_logistic"),
        ("dnnl_alg_kind2str", onednn.ACTIVATIONS["gelu_tanh"][0], "eltwise_gelu_tanh"),
        ("dnnl_alg_kind2str", onednn.ACTIVATIONS["silu"][0], "eltwise_swish"),
        ("dnnl_alg_kind2str", onednn.ACTIVATIONS["gelu"][0], "eltwise_gelu_erf"),
        ("dnnl_status2str", onednn._UNIMPLEMENTED, "unimplemented"),
    ],
)
def test_constants_mean_what_the_library_says(function, value, name):
    tell = getattr(onednn.library().dll, function)
    tell.argtypes, tell.restype = (ctypes.c_int,), ctypes.c_char_p
    assert tell(value).decode() == name


def test_importing_loads_nothing():
    code = """
        import adjoint
        from adjoint.backends.native.gemm import products
        from adjoint.backends.native.onednn import eager_convolution, pooling_plans
        print("libdnnl" in open("/proc/self/maps").read())
    """
    assert run(code).strip() == "False"


USE = """
    import numpy as np
    from adjoint.backends.native.gemm import products
    from adjoint.backends.native.onednn import api as onednn, eager_convolution as convolution
    from adjoint.backends.native.onednn import pooling_plans as pooling
    a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7
    assert np.array_equal(products.matmul(a, a), a @ a)
    x, w = a.reshape(1, 4, 32, 32), a.ravel()[:36].reshape(1, 4, 3, 3)
    y = convolution.conv(x, w, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1, (30, 30))
    assert y.shape == (1, 1, 30, 30) and y.max() > 0
    assert pooling.max_pool(x, (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), (16, 16)).max() == 6
    print(onednn.unavailable())
"""


def test_without_the_library_numpy_computes():
    assert run(USE, ADJOINT_ONEDNN="off").strip() == "switched off by ADJOINT_ONEDNN=off"
    assert "/nowhere/libdnnl.so" in run(USE, ADJOINT_ONEDNN="/nowhere/libdnnl.so")


def test_a_library_of_another_kind_is_refused():
    with open("/proc/self/maps") as file:
        libc = next(line.split()[-1] for line in file if "/libc.so" in line)
    assert "dnnl_version" in run(USE, ADJOINT_ONEDNN=libc)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(onednn, "_loaded", None)
    monkeypatch.setattr(onednn, "PACKAGE", "no-such-package")
    monkeypatch.delenv("ADJOINT_ONEDNN", raising=False)
    assert onednn.unavailable() == "not installed; pip install no-such-package"
    with pytest.raises(Unsupported, match=r"oneDNN: not installed; .* NumPy is used instead"):
        onednn.library()


def operands():
    r = np.random.default_rng(0)
    a, b = (r.standard_normal((128, 128), np.float32) for _ in range(2))
    x = r.standard_normal((6, 32, 14, 14), np.float32)
    w = r.standard_normal((32, 32, 3, 3), np.float32)
    return a, b, x, w


def everything(a, b, x, w):
    """One of each, as bytes."""
    windows = ((2, 2), (2, 2), ((0, 0), (0, 0)))
    options = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    y = eager_convolution.conv(x, w, None, *options, (14, 14))
    found = (
        products.matmul(a, b),
        y,
        eager_convolution.conv_input(y, w, *options, (14, 14)),
        eager_convolution.conv_weight(x, y, *options, (3, 3)),
        pooling_plans.max_pool(x, *windows, (1, 1), (7, 7)),
        pooling_plans.sum_pool(x, *windows, (7, 7)),
    )
    return [v.tobytes() for v in found]


@needs_onednn
def test_several_python_threads_at_once(workers, monkeypatch):  # noqa: F811
    monkeypatch.setattr(policy, "CONVOLUTION_GRAIN", 1 << 16)
    arrays = operands()
    expected = everything(*arrays)
    wrong, done = [], []

    def work():
        for _ in range(30):
            if everything(*arrays) != expected:
                wrong.append(1)
        done.append(1)

    callers = [threading.Thread(target=work) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(done) == 6
    assert not wrong


@needs_onednn
def test_without_generated_code_the_same_steps_run(monkeypatch):
    arrays = operands()
    table = sized_tables.SizedTable("plans of oneDNN", onednn_plan._plans.weigh)
    monkeypatch.setattr(onednn_plan, "_plans", table)
    pool = onednn_plan._pool()
    before = pool.num_threads
    pool.set_num_threads(1)
    expected = everything(*arrays)
    pool.set_num_threads(before)
    onednn_plan._plans.clear()
    monkeypatch.setattr(onednn_plan, "_run", lambda: None)
    assert onednn_plan.threads() == 1
    assert everything(*arrays) == expected


@needs_onednn
def test_a_forked_child_computes(workers, monkeypatch):  # noqa: F811
    monkeypatch.setattr(policy, "CONVOLUTION_GRAIN", 1 << 16)
    arrays = operands()
    expected = everything(*arrays)
    child = os.fork()
    if not child:
        os._exit(0 if [everything(*arrays) for _ in range(3)] == [expected] * 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert everything(*arrays) == expected


@needs_onednn
def test_a_fork_while_another_thread_builds_primitives():
    stop = threading.Event()

    def build():
        n = 0
        while not stop.is_set():
            n += 1
            a = np.ones((70 + n % 40, 64 + n // 40), np.float32)
            products.matmul(a, a.T)

    builder = threading.Thread(target=build)
    builder.start()
    try:
        for i in range(10):
            child = os.fork()
            if not child:
                a = np.ones((200 + i, 64), np.float32)
                os._exit(0 if (products.matmul(a, a.T) == 64).all() else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        builder.join()


@needs_onednn
def test_openmp_starts_no_threads():
    code = """
        import os
        import numpy as np
        from adjoint.backends.native.onednn import plan as onednn_plan
        from tests.backends.native.onednn.test_onednn import everything, operands
        everything(*operands())
        print(len(os.listdir("/proc/self/task")) - onednn_plan.threads())
        print(onednn_plan.onednn.library().threads[1]())
    """
    root = Path(__file__).parents[4]
    printed = run(
        code,
        OMP_NUM_THREADS="3",
        ADJOINT_NUM_THREADS="2",
        OPENBLAS_NUM_THREADS="1",
        PYTHONPATH=str(root),
    ).split()
    assert printed == ["0", "3"]  # and the caller's own setting is as before


@needs_onednn
def test_memory_does_not_grow(workers):  # noqa: F811
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    a = np.ones((64, 64), np.float32)
    b = np.ones((80, 64), np.float32).T
    x, w = np.ones((1, 8, 12, 12), np.float32), np.ones((8, 8, 3, 3), np.float32)

    def calls(n):
        for _ in range(n):
            products.matmul(a, b)
            eager_convolution.conv(x, w, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1, (10, 10))

    def growth():
        before = resident()
        calls(5000)
        return resident() - before

    calls(100)
    assert any(growth() < 2 << 20 for _ in range(3))  # what leaks grows each time


@pytest.fixture
def few_plans(monkeypatch):
    """A budget with room for a MiB beside what is there."""
    for _ in range(2):
        sized_tables.turn()
    onednn_plan._plans.clear()
    products._ready.clear()
    monkeypatch.setattr(policy, "SIZED_BYTES", sized_tables.kept_bytes() + (1 << 20))


@needs_onednn
def test_plans_are_bounded_by_their_bytes_and_those_that_come_again_stay(few_plans):
    w = np.ones((16, 3, 3, 3), np.float32)

    def images(n):
        x = np.ones((1, 3, n, n), np.float32)
        eager_convolution.conv(x, w, None, (1, 1), ((0, 0),) * 2, (1, 1), 1, (n - 2, n - 2))

    images(20)
    plans = onednn_plan._plans
    [(one,)] = plans.values()
    assert 32 << 10 < onednn_plan.bytes_of(one) < 1 << 20
    for n in range(21, 40):
        images(20)
        images(n)
        assert plans.measured() <= sized_tables.kept_bytes() <= 1.1 * sized_tables.limit()
    assert one in [plan for (plan,) in plans.values()] and 1 < len(plans) < 19


@needs_onednn
def test_the_library_keeps_few_primitives_itself():
    kept = ctypes.c_int()
    onednn.library().dll.dnnl_get_primitive_cache_capacity(ctypes.byref(kept))
    assert kept.value == policy.ONEDNN_PRIMITIVES


@needs_onednn
@pytest.mark.skipif(not target.host().has("avx512bw"), reason="oneDNN's bfloat16 needs AVX-512")
def test_products_that_are_remembered_are_bounded_by_their_bytes(few_plans, monkeypatch):
    made = []
    plan = onednn_plan.OneDnnPlan.run

    def note(self, *arrays):
        made.append(weakref.ref(self))
        plan(self, *arrays)

    monkeypatch.setattr(onednn_plan.OneDnnPlan, "run", note)
    for n in range(100, 140):
        x = np.ones((32, 256), products.BFLOAT16)
        products.matmul(x, np.ones((256, n), products.BFLOAT16))
    gc.collect()
    assert len(made) == 40
    assert len({ref() for ref in made if ref()}) < 20


@needs_onednn
def test_memory_is_given_back_and_comes_again():
    arrays = operands()
    expected = everything(*arrays)
    assert onednn_plan._plans
    assert onednn_plan._temporary.array.size
    onednn_plan.release_memory()
    assert not onednn_plan._plans
    assert not onednn_plan._temporary.array.size + onednn_plan._work.array.size
    assert everything(*arrays) == expected


@needs_onednn
def test_errors_say_what_and_why():
    lib = onednn.library()
    with pytest.raises(onednn.LibraryError, match="a product: oneDNN says invalid_arguments"):
        lib.check(2, "a product")
    with pytest.raises(Unsupported, match=r"a product: not implemented by oneDNN 3\."):
        lib.check(3, "a product")
    with pytest.raises(Unsupported, match="13 dimensions"):
        onednn.contiguous((1,) * 13, np.dtype(np.float32))
    with pytest.raises(Unsupported, match="float64"):
        onednn.contiguous((1,), np.dtype(np.float64))


@needs_onednn
def test_a_memory_lives_as_long_as_who_has_it():
    memory = onednn.contiguous((4, 6), np.dtype(np.float32))
    asked = [
        onednn.Primitive(onednn.reorder(memory, memory, f"copy {k}")).memory(onednn.SRC)
        for k in range(50)
    ]
    gc.collect()
    assert {each.size for each in asked} == {4 * 6 * 4}
    assert all(onednn.same_layout(each, memory) for each in asked)


@needs_onednn
def test_what_failed_is_named():
    with pytest.raises(
        onednn.LibraryError, match=r"memory of shape \(4, -2\) and strides \(2, 1\)"
    ):
        onednn.described((4, -2), (2, 1), np.dtype(np.float32))


@needs_onednn
def test_a_step_that_fails_is_an_error(workers):  # noqa: F811
    memory = onednn.contiguous((4, 4), np.dtype(np.float32))
    mover = onednn.Primitive(onednn.reorder(memory, memory, "a copy (4, 4)"))
    missing = onednn_plan.PrimitiveStep(mover, {onednn.SRC: onednn_plan.PlanArgument(memory, 0)})
    plan = onednn_plan.OneDnnPlan("a copy (4, 4)", [[[missing]] * 3], 1)
    for _ in range(2):
        with pytest.raises(onednn.LibraryError, match=r"a copy \(4, 4\): oneDNN says invalid"):
            plan.run(np.ones((4, 4), np.float32))
