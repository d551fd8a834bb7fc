"""How many steps programs have: what is one kernel stays one, and a training step gets no longer.

The numbers are those of today; a pass that joins more may lower them.
"""

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F
from benchmarks.steps import LARGE, ROWS, of_framework
from tests.native import needs_native

pytestmark = needs_native

ONE_KERNEL = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (256,)),
    "rms_norm": lambda x: F.rms_norm(x, (256,)),
    "gelu": F.gelu,
    "silu times x": lambda x: F.silu(x) * x,
    "pointwise": lambda x: ad.tanh(x) * ad.sigmoid(x) + ad.exp(-x * x) * ad.sin(x),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name):
    found = ad.compile(ONE_KERNEL[name]).explain(ad.randn(64, 256))
    assert len(found.rows) == 1 and not found.host_calls, found


class Block(nn.Module):
    """A layer of a GPT."""

    def __init__(self, width=128, heads=4):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.count = heads

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.heads(self.first(x)).reshape(batch, length, 3, self.count, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


def steps_of(model, optimizer, loss_of, *args):
    """The explanation of a whole training step."""

    @ad.compile
    def step(*args):
        optimizer.zero_grad()
        loss = loss_of(model, *args)
        loss.backward()
        optimizer.step()
        return loss

    step(*args)
    return step.explain(*args)


def test_a_block_of_a_gpt():
    model, x = Block(), ad.randn(12, 64, 128)
    with ad.no_grad():
        found = ad.compile(model).explain(x)
    assert len(found.rows) <= 13, found  # how products run is learnt by measuring
    optimizer = ad.optim.AdamW(model.parameters())
    found = steps_of(model, optimizer, lambda m, x: m(x).square().mean(), x)
    assert len(found.rows) <= 50, found


def test_the_step_of_the_perceptron():
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    x, y = ad.randn(64, 784), ad.randint(0, 10, (64,))
    found = steps_of(
        model, ad.optim.Adam(model.parameters()), lambda m, x, y: F.cross_entropy(m(x), y), x, y
    )
    assert len(found.rows) <= 19 and not found.host_calls, found


def clipped(last):
    """A step of a perceptron that bounds its gradients, and drops them last, or first."""
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = ad.optim.Adam(model.parameters())

    @ad.compile
    def step(x, y):
        if not last:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        if last:
            optimizer.zero_grad()
        return loss, norm

    batch = ad.randn(32, 64), ad.randint(0, 10, (32,))
    step(*batch)
    return model, step, batch


@pytest.mark.parametrize("last", [False, True])
def test_bounding_gradients_calls_no_python(last):
    model, step, batch = clipped(last)
    found = step.explain(*batch)
    names = [row.name for row in found.rows]
    assert not found.host_calls and not {"stack", "reshape"}.intersection(names), found
    assert len(names) <= 25, found
    assert all((p.grad is None) is last for p in model.parameters())


def test_gradients_that_are_dropped_last_are_written_over():
    """They lie between the kernels; those that are kept are the leaves' own memory."""
    found = {}
    for last in (False, True):
        _, step, batch = clipped(last)
        step(*batch)
        [program] = step.programs
        schedule = program.parts[0].schedule
        scaled = set(schedule.overwritten).intersection(schedule.graph.outputs)
        found[last] = len(program.gradients), len(scaled)
    assert found == {False: (4, 0), True: (0, 4)}


@pytest.mark.parametrize("row", [name for name in ROWS if name not in LARGE])
def test_rows_of_the_benchmark_call_no_python(row):
    step, batch = of_framework(ROWS[row](), ad)
    compiled = ad.compile(step)
    compiled(*batch)
    found = compiled.explain(*batch)
    assert not found.host_calls, found
    [program] = compiled.programs
    assert not program.late  # no error comes behind gradients
