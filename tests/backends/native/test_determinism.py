"""The same bits every time: from one run to the next, in another process, from several threads.

For a number of threads every routine gives the same result; what is elementwise gives it for any.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import adjoint as ad
import adjoint.nn.functional as nf
from adjoint.backends.native.runtime.pool import default_pool
from tests.native import needs_native

pytestmark = needs_native

ROOT = Path(__file__).parents[3]
THREADS = 3
RUNS = 3


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = default_pool().num_threads
    default_pool().set_num_threads(THREADS)
    yield
    default_pool().set_num_threads(before)


def values(*shape: int, dtype: Any = ad.float32, seed: int = 0) -> Any:
    x = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return ad.tensor(x).to(dtype)


def places(*shape: int, most: int) -> Any:
    return ad.tensor(np.random.default_rng(7).integers(0, most, shape))


def differentiated(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    """The outputs, and the gradients of all inputs."""
    leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
    ys = function(*leaves)
    ys = ys if isinstance(ys, tuple) else (ys,)
    gs = [values(*y.shape, dtype=y.dtype, seed=5) for y in ys]
    ad.autograd.backward(ys, gs)
    return [*ys, *(x.grad for x in leaves if x.grad is not None)]


# ---- routines that threads share -----------------------------------------------------------------


def reductions() -> list[Any]:
    found = []
    for dtype in (ad.float32, ad.float64, ad.bfloat16):
        x = values(301, 407, dtype=dtype)
        for y in (x, x.t(), x[:, ::2]):
            found += [y.sum(), y.sum(0), y.sum(1), y.mean(), y.var(1), y.amax(0), y.argmax(1)]
            found += [y.logsumexp(0), y.logsumexp(1), y.norm(), y.prod(1)]
    return found


def products() -> list[Any]:
    found = []
    for dtype in (ad.float32, ad.float64, ad.bfloat16):
        for m, k, n in ((200, 300, 150), (5, 700, 300), (400, 400, 1), (64, 1000, 17)):
            a, b = values(m, k, dtype=dtype), values(k, n, dtype=dtype)
            found += [a @ b, a.t().contiguous().t() @ b, a @ b.t().contiguous().t()]
        found.append(values(6, 40, 60, dtype=dtype) @ values(6, 60, 50, dtype=dtype))
        found += differentiated(
            nf.linear, values(70, 90, dtype=dtype), values(80, 90, dtype=dtype),
            values(80, dtype=dtype),
        )  # fmt: skip
    return found


def convolutions() -> list[Any]:
    x, w = values(4, 8, 20, 20), values(16, 8, 3, 3)
    found = differentiated(nf.conv2d, x, w, values(16))
    found += differentiated(lambda x, w: nf.conv2d(x, w, groups=8), x, values(8, 1, 3, 3))
    found += differentiated(lambda x, w: nf.conv_transpose2d(x, w, stride=2), x, values(8, 5, 3, 3))
    return found


def pooling() -> list[Any]:
    x = values(4, 8, 21, 23)
    found = differentiated(lambda x: nf.max_pool2d(x, 3, 2), x)
    return found + differentiated(lambda x: nf.avg_pool2d(x, 3, 2), x)


def attention() -> list[Any]:
    q, k, v = (values(2, 3, 130, 32, seed=seed) for seed in range(3))
    found = differentiated(nf.scaled_dot_product_attention, q, k, v)
    return found + differentiated(
        lambda q, k, v: nf.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v
    )


def recurrent() -> list[Any]:
    found = []
    for kind in (ad.nn.LSTM, ad.nn.GRU, ad.nn.RNN):
        layer = kind(12, 40, num_layers=2, bidirectional=True)
        with ad.no_grad():  # values of its own: the generator is shared by all threads
            for number, p in enumerate(layer.parameters()):
                p.copy_(values(*p.shape, seed=number) / 7)
        y = layer(values(15, 33, 12))[0]
        y.sum().backward()
        found += [y, *(p.grad for p in layer.parameters())]
    return found


def indexing() -> list[Any]:
    x, index = values(300, 170), places(900, most=300)
    src = values(900, 170)
    rows = index.unsqueeze(1).expand(900, 170).contiguous()
    found = [x.index_add(0, index, src), x.scatter_add(0, rows, src), x[index], x.gather(0, rows)]
    found += [x.cumsum(0), x.cumsum(1), x.index_select(0, index), ad.bincount(index)]
    return found + differentiated(lambda w: nf.embedding(index, w), x)


def composites() -> list[Any]:
    x, w, b = values(130, 270), values(270, seed=1), values(270, seed=2)
    target = places(130, most=270)
    found = differentiated(lambda x, w, b: nf.layer_norm(x, (270,), w, b), x, w, b)
    found += differentiated(lambda x, w: nf.rms_norm(x, (270,), w), x, w)
    found += differentiated(
        lambda x, w, b: nf.batch_norm(x, ad.zeros(270), ad.ones(270), w, b, True), x, w, b
    )
    for loss in (nf.mse_loss, nf.l1_loss, nf.smooth_l1_loss, nf.huber_loss):
        found += differentiated(loss, x, values(130, 270, seed=4))
    found += differentiated(lambda x: nf.cross_entropy(x, target), x)
    found += differentiated(lambda x: nf.cross_entropy(x, target, label_smoothing=0.1), x)
    found += differentiated(lambda x: nf.nll_loss(x.log_softmax(1), target), x)
    return found + differentiated(lambda x: x.softmax(1) + x.log_softmax(0), x)


def optimizers() -> list[Any]:
    found = []
    for kind in (ad.optim.SGD, ad.optim.Adam, ad.optim.AdamW, ad.optim.RMSprop):
        parameters = [ad.nn.Parameter(values(n, 300, seed=n)) for n in (3, 200, 1)]
        optimizer = kind(parameters, lr=0.05)
        for step in range(3):
            for p in parameters:
                p.grad = values(*p.shape, seed=step)
            ad.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        found += parameters
    return found


def elementwise() -> list[Any]:
    found = []
    for dtype in (ad.float32, ad.float64, ad.float16, ad.bfloat16):
        x, y = values(211, 401, dtype=dtype), values(401, dtype=dtype)
        found += [x.exp(), x + y, (x * y).tanh(), x.sigmoid(), x.t().sin(), nf.gelu(x), nf.silu(x)]
        found += [ad.where(x > y, x, y), x.clamp(-1, 1), x.abs().sqrt(), x.clone().mul_(0.3)]
        found += [x.clone().add_(y, alpha=0.7), x.to(ad.float32), x.round(), ad.atan2(x, y)]
    found += [(values(300, 300) * 100).to(ad.int32) // 7]
    return found


ROUTINES = {
    f.__name__: f
    for f in (
        reductions, products, convolutions, pooling, attention, recurrent, indexing, composites,
        optimizers, elementwise,
    )
}  # fmt: skip


def digest(name: str) -> str:
    """The bits of all results."""
    state = hashlib.sha1()
    for y in ROUTINES[name]():
        array = np.ascontiguousarray(y.detach()._data)
        state.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return state.hexdigest()


def in_a_process(names: list[str]) -> dict[str, str]:
    """The digests in a new process."""
    code = (
        "import json; from tests.backends.native import test_determinism as t\n"
        f"print(json.dumps({{name: t.digest(name) for name in {names!r}}}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "ADJOINT_NUM_THREADS": str(THREADS)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ROUTINES)
def test_every_run_gives_the_same_bits(name: str) -> None:
    assert len({digest(name) for _ in range(RUNS)}) == 1


def test_another_process_gives_the_same_bits() -> None:
    assert in_a_process(list(ROUTINES)) == {name: digest(name) for name in ROUTINES}


@pytest.mark.parametrize("name", ["elementwise", "reductions", "indexing", "composites", "pooling"])
def test_the_number_of_threads_changes_no_bit(name: str) -> None:
    found = set()
    for count in (1, 2, 3, 5):
        default_pool().set_num_threads(count)
        found.add(digest(name))
    assert len(found) == 1


# ---- several threads and processes at once -------------------------------------------------------


def test_several_threads_at_once_get_the_same_bits() -> None:
    """Over launchers that are known, and ones that are made meanwhile."""
    names = ["elementwise", "indexing", "composites", "attention", "recurrent", "convolutions",
             "optimizers"]  # fmt: skip
    expected = {name: digest(name) for name in names[:-1]}
    expected["optimizers"] = in_a_process(["optimizers"])["optimizers"]  # new to this process
    wrong: list[str] = []
    start = threading.Barrier(4)

    def compute(first: int) -> None:
        start.wait()
        for k in range(len(names)):
            name = names[(first + k) % len(names)]
            if digest(name) != expected[name]:
                wrong.append(name)

    workers = [threading.Thread(target=compute, args=(2 * n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_one_op_from_many_threads() -> None:
    """All at once make, and then use, one launcher for each shape."""
    wrong: list[int] = []
    start = threading.Barrier(8)

    def compute(number: int) -> None:
        for n in range(200, 1400, 40):
            x = values(n, seed=number)
            y = x.numpy()
            start.wait()
            for _ in range(5):
                if not np.array_equal((x.floor() * 2 + x).numpy(), np.floor(y) * 2 + y):
                    wrong.append(number)

    workers = [threading.Thread(target=compute, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


FORKING = """
import os, threading
from tests.backends.native import test_determinism as t
expected = t.digest("elementwise"), t.digest("composites")
stop = threading.Event()

def busy():
    x = t.values(1000, 1000)
    while not stop.is_set():
        x.exp().sum()

others = [threading.Thread(target=busy) for _ in range(2)]
for other in others:
    other.start()
failed = 0
for _ in range(6):
    pid = os.fork()
    if not pid:
        found = t.digest("elementwise"), t.digest("composites")
        os._exit(found != expected)
    failed += os.waitpid(pid, 0)[1] != 0
stop.set()
for other in others:
    other.join()
raise SystemExit(failed)
"""
ENDING = """
import threading
from tests.backends.native import test_determinism as t
x = t.values(1000, 1000)

def busy():
    while True:
        x.exp().sum(), x @ x

x.exp()
for _ in range({others}):
    threading.Thread(target=busy, daemon=True).start()
y = [x.exp() for _ in range(20)]
"""


def child(code: str) -> Any:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
        env={**os.environ, "ADJOINT_NUM_THREADS": str(THREADS)},
    )  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forks_while_other_threads_compute() -> None:
    ended = child(FORKING)
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.parametrize("others", [0, 2])
def test_programs_end_while_workers_wait_or_compute(others: int) -> None:
    ended = child(ENDING.format(others=others))
    assert ended.returncode == 0 and not ended.stderr, ended.stderr[-3000:]


class Computed(ad.utils.data.Dataset):
    """Samples that kernels compute."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, n: int) -> Any:
        x = values(200, 300, seed=n)
        return x.softmax(1) @ x.t()


def test_workers_of_a_loader_compute_the_same_bits() -> None:
    digest("elementwise")  # the parent's threads are running
    default_pool().set_num_threads(1)  # as many as a worker has
    loaders = [ad.utils.data.DataLoader(Computed(), 3, num_workers=n) for n in (0, 2)]
    here, there = (ad.cat(list(loader)).numpy() for loader in loaders)
    np.testing.assert_array_equal(here, there)
