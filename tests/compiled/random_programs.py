"""Random programs for `ad.compile`, and what they leave, eagerly and compiled.

A program is source text: a function of tensors and numbers, and what changes between its calls. It
grows line by line, each of which is run eagerly at once, so that programs are valid for their first
arguments, and what is compared does not overflow. `python -m tests.compiled.random_programs SEED`
shows a program, how its two ways differ, and the shortest part of it for which they still do.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import Unsupported
from adjoint.nn import functional as F
from adjoint.utils.checkpoint import checkpoint

TOLERANCE = 1e-8  # relative to the largest value: float64, but for the order of sums
NARROW = 1e-3  # for programs that compute with float32 somewhere
MOST = 2000  # elements of a value

# What a compiled function may refuse, and what the docs say of it (docs/compiled.md).
REASONS = {
    "reads a value": "Python depends on what a tensor holds",
    "a tensor that it made and that has a gradient": "an own leaf is returned or kept",
    "memory that a tensor shares with an array": "from_numpy",
    "memory that is written is shown by another tensor too": "x.detach() or x.data of a state",
    "a backward within the function reaches an argument that was computed": "outside history",
    "a parameter's value from before an optimizer's step is used after it": "old values",
    "backward through what a compiled function returned": "history that is over",
    "a tensor from outside gets a history, or another requires_grad": "as it says",
    "a gradient that no operation has computed": "an argument became a gradient",
    "a gradient that is another tensor": "two gradients are one tensor",
    "two tensors have one and the same gradient": "two gradients are one tensor",
    "a write to windows (unfold, as_strided)": "an element may stand twice",
    "programs were compiled": "more than 16 signatures",
    "unsupported operation: more than one element": "a part of what was expanded is written",
}


# Refused where it is recorded: a write to a part of what was expanded, of one element there.
REFUSED_RECORDED = "error: AutogradError: setitem: unsupported operation: more than one element"
# Eagerly only: a gradient that read what was overwritten, or what a backward has released, which a
# program need not have kept; an index out of range, or a probability beyond 1, where nothing
# depends on what they give; a view() of what was made of an argument that is not row-major.
REFUSED_EAGERLY = (
    "backward: ", "error: AutogradError", "error: IndexingError", "error: ShapeError: view: ",
    "error: InvalidArgument: bernoulli",
)  # fmt: skip


# ---- what programs are about ---------------------------------------------------------------------


class Square(ad.autograd.Function):
    """A user's function."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x


class Steep(ad.autograd.Function):
    """One with a number, whose gradient is not the true one."""

    @staticmethod
    def forward(ctx, x, steepness):
        ctx.steepness = steepness
        ctx.save_for_backward(x)
        return ad.tanh(x * steepness)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() * ctx.steepness, None


class Both(ad.autograd.Function):
    """One with two inputs and two results."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x + y, x * y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g + h * y, g + h * x


class Model(nn.Module):
    """A layer of each kind that keeps something."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.weight = nn.Parameter(ad.randn(width) * 0.5)
        self.batch, self.layer = nn.BatchNorm1d(width), nn.LayerNorm(width)
        self.drop, self.cell = nn.Dropout(0.3), nn.GRUCell(width, width)
        self.embedding = nn.Embedding(5, width)
        self.convolution = nn.Conv1d(1, 2, 3, padding=1)
        self.register_buffer("seen", ad.zeros(()))
        self.register_buffer("level", ad.ones(width))


OPTIMIZERS = {
    "SGD": lambda p: ad.optim.SGD(p, lr=0.05),
    "momentum": lambda p: ad.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: ad.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: ad.optim.AdamW(p, lr=0.01),
    "RMSprop": lambda p: ad.optim.RMSprop(p, lr=0.01),
}


class World:
    """What a program reads and changes beside its arguments."""

    def __init__(self, program, compiled):
        ad.manual_seed(program.seed)
        self.model = Model(program.width).to(ad.float64)
        self.optimizer = OPTIMIZERS[program.optimizer](list(self.model.parameters()))
        self.average, self.count = ad.zeros(program.width, dtype=ad.float64), ad.zeros(())
        self.table = ad.randn(5, program.width, dtype=ad.float64)
        self.scale, self.times, self.flag = 1.25, 2, True
        self.numbers = [0.5, 1.5]
        self.generator = ad.Generator().manual_seed(7)
        self.kept: list[Any] = []
        self.inner = lambda v: v.sin() * self.scale + self.average.sum()
        self.block = nn.Sequential(nn.Linear(program.width, 3), nn.Tanh()).to(ad.float64)
        if compiled:
            self.inner, self.block = ad.compile(self.inner), ad.compile(self.block)

    def names(self):
        """For code that changes it."""
        own = {"model": self.model, "optimizer": self.optimizer, "world": self}
        return {**GLOBALS, **own}


GLOBALS: dict[str, Any] = {
    "ad": ad, "nn": nn, "F": F, "checkpoint": checkpoint, "Square": Square, "Steep": Steep,
    "Both": Both,
}  # fmt: skip


class Call(NamedTuple):
    """How a program is called once."""

    changes: tuple[str, ...]  # what is done before
    rows: int
    dtype: str
    wants: bool  # whether `x` wants a gradient
    grad: bool  # the mode
    s: float
    n: int
    layout: str
    backward: bool  # afterwards, of what it returned


class Program(NamedTuple):
    """A random program."""

    seed: int
    width: int
    optimizer: str
    lines: tuple[str, ...]
    returned: tuple[str, ...]
    calls: tuple[Call, ...]
    narrow: bool

    @property
    def source(self):
        """Its text."""
        lines = ["def make(world):", "    model, optimizer = world.model, world.optimizer", ""]
        lines += ["    def step(x, y, i, s, n):"]
        for each in self.lines:
            lines += ["        " + line for line in each.split("\n")]
        pairs = ", ".join(f"{name!r}: {name}" for name in self.returned)
        return "\n".join([*lines, f"        return {{{pairs}}}", "", "    return step", ""])

    def made(self, world):
        """The function."""
        name = f"<program {self.seed}>"
        linecache.cache[name] = len(self.source), None, self.source.splitlines(True), name
        own = dict(GLOBALS)
        exec(compile(self.source, name, "exec"), own)
        return own["make"](world)

    def described(self):
        """All of it, for people."""
        calls = "\n".join(f"# {call}" for call in self.calls)
        return f"{self.source}\n# width {self.width}, {self.optimizer}\n{calls}\n"


def arguments(program, call, number, nudge):
    """Of one call; `nudge` moves numbers by as much as rounding may."""
    draw = np.random.default_rng((program.seed, number, call.rows))
    shape = call.rows, program.width
    x, y = (draw.standard_normal(shape) for _ in range(2))
    x, y = x * (1 + nudge * draw.standard_normal(shape)), y * (1 - nudge)
    i = draw.integers(0, 5, call.rows)
    if call.layout == "turned":
        x = np.ascontiguousarray(x.T).T
    elif call.layout == "strided":
        x = np.repeat(x, 2, 0)[::2]
    x, y = ad.from_numpy(x), ad.from_numpy(y)
    if call.dtype == "float32":
        x = x.float()
    if call.wants:
        x.requires_grad_()
    return x, y, ad.from_numpy(i), call.s, call.n


# ---- what a program leaves -----------------------------------------------------------------------


def noted(name, value):
    """Entries of a trace: arrays, and what else there is to compare."""
    if isinstance(value, ad.Tensor):
        about = tuple(value.shape), str(value.dtype), value.requires_grad
        return [(f"{name}: {about}", value.detach().numpy().copy())]
    if isinstance(value, dict):
        return [entry for key, each in value.items() for entry in noted(f"{name}.{key}", each)]
    if isinstance(value, (list, tuple)):
        return [entry for k, each in enumerate(value) for entry in noted(f"{name}[{k}]", each)]
    return [(f"{name}: {value!r}", None)]


def left(world, given):
    """All that a user could see after a call."""
    model = world.model
    found = noted("parameters", dict(model.named_parameters()))
    found += noted("gradients", {k: p.grad for k, p in model.named_parameters()})
    found += noted("buffers", dict(model.named_buffers()))
    found += noted("states", world.optimizer.state_dict())
    block = list(world.block.parameters())
    found += noted("block", [block, [p.grad for p in block]])
    found += noted("world", [world.average, world.count, world.table, world.kept])
    found += noted("arguments", [*given, given[0].grad])
    found += noted("generators", [ad.get_rng_state(), world.generator.get_state()])
    return found


def total_of(results):
    """A number that depends on all of them."""
    return sum((y * (k + 1)).sum().double() for k, y in enumerate(results))


def played(program, compiled, nudge=0.0):
    """The trace of all calls; the reason for which a compiled one was refused, or ''."""
    world = World(program, compiled)
    step = program.made(world)
    if compiled:
        step = ad.compile(step)
    trace: list[Any] = []
    steps = any("optimizer.step" in line for line in program.lines)
    for number, call in enumerate(program.calls):
        for change in call.changes:
            with contextlib.suppress(ad.AdjointError):
                exec(change, world.names())
        given = arguments(program, call, number, nudge)
        before = left(world, given)
        ready = not steps or bool(world.optimizer.state)
        try:
            with ad.set_grad_enabled(call.grad):
                found = step(*given)
        except Unsupported as error:
            if not compiled or not str(error).startswith("compile: "):
                raise
            assert_same(left(world, given), before, 0.0, "a refused call has changed")
            return trace, str(error)
        except Exception as error:  # whatever it is, it is to be the same
            if compiled and ready:
                assert_same(left(world, given), before, 0.0, "a failed call has changed")
            return [*trace, (f"error: {type(error).__name__}: {error}", None)], ""
        trace.append((f"call {number}", None))
        trace += noted("results", found)
        trace += left(world, given)
        ends = [y for y in found.values() if isinstance(y, ad.Tensor) and y.requires_grad]
        if call.backward and ends:
            try:
                total_of(ends).backward()
            except ad.AutogradError as error:
                if compiled and "compile: backward through" in str(error):
                    return trace, str(error)
                return [*trace, (f"backward: {type(error).__name__}", None)], ""
            trace += left(world, given)
    return trace, ""


def assert_same(found, expected, tolerance, what=""):
    """Two traces are the same, as far as the first goes."""
    for n, (a, b) in enumerate(zip(found, expected, strict=False)):
        assert a[0] == b[0], f"{what} entry {n}: {a[0]} for {b[0]}"
        if a[1] is not None and a[1].size:
            u, v = a[1], b[1]
            if u.dtype.kind == "f":
                scale = float(np.abs(v).max(initial=0, where=np.isfinite(v)))
                limit = tolerance * scale + tolerance * 1e-3
                np.testing.assert_allclose(u, v, rtol=0, atol=limit, err_msg=f"{what} {b[0]}")
            else:
                np.testing.assert_array_equal(u, v, err_msg=f"{what} {b[0]}")


def compared(program):
    """'' where the compiled program leaves what the eager one leaves, else why it was refused, or
    "ill" where rounding decides what the eager one leaves. AssertionError where they differ.
    """
    tolerance = NARROW if program.narrow else TOLERANCE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = played(program, False)
        try:
            found, refused = played(program, True)
            if expected[-1][0].startswith(REFUSED_EAGERLY) and len(found) >= len(expected):
                expected.pop()
                del found[len(expected) :]
                refused = ""
            elif found and found[-1][0].startswith(REFUSED_RECORDED):
                refused = found.pop()[0]
            elif not refused:
                names = [e[0] for e in found], [e[0] for e in expected]
                assert len(found) == len(expected), f"{names[0][-1]} for {names[1][-1]}"
            assert_same(found, expected, tolerance)
        except AssertionError as error:
            for nudge in (1e-13, -3e-13):
                moved, _ = played(program, False, nudge)
                try:
                    assert_same(moved, expected, tolerance / 10)
                    assert len(moved) == len(expected)
                except AssertionError:
                    return "ill"
            raise AssertionError(f"{error}\n{program.described()}") from None
    return refused


# ---- how programs grow ---------------------------------------------------------------------------

UNARY = (
    "tanh({})", "sin({})", "exp({} * 0.3)", "sigmoid({})", "F.softplus({})", "F.gelu({})",
    "F.silu({})", "F.relu({} - 0.0371)", "abs({} - 0.0113)", "square({})", "-{}",
    "sqrt({0} * {0} + 1)", "log1p({0} * {0})", "clamp({}, -1.3, 0.71)", "F.leaky_relu({} + 0.013)",
    "F.elu({} + 0.017)", "F.hardtanh({} * 2)", "reciprocal({0} * {0} + 1)", "erf({})", "atan({})",
    "cos({})", "rsqrt({0} * {0} + 1)", "expm1({} * 0.2)", "{} ** 2", "{} ** 3 * 0.1",
    "nan_to_num({})", "F.mish({})", "F.logsigmoid({})", "sinh({} * 0.2)", "floor({} * 0.713)",
    "round({} * 0.713)", "sign({} - 0.0391)", "F.softsign({})", "tanh({}).acos()",
)  # fmt: skip
SCALED = (
    "{} * 1.5", "{} + 0.25", "1.0 - {}", "{} / 3", "2.0 / ({0} * {0} + 2)", "{} * s", "{} + n",
    "{} * world.scale", "{} - world.numbers[0]", "{} * world.numbers[1]", "s * {}", "{} * True",
)  # fmt: skip
BINARY = (
    "{} + {}", "{} - {}", "{} * {}", "{0} / ({1} * {1} + 1)", "maximum({}, {} + 0.0173)",
    "minimum({}, {} - 0.0119)", "where({0} > {1} + 0.0137, {0}, {1} * 2)", "atan2({}, {} + 0.051)",
    "lerp({}, {}, 0.3)", "addcmul({0}, {1}, {0}, value=0.5)", "hypot({}, {} + 1.5)",
    "logaddexp({}, {})", "add({}, {}, alpha=0.7)", "F.mse_loss({}, {}.expand_as({0}))",
    "({0} > {1} + 0.013).double()", "Both.apply({}, {})[1]", "sub({}, {}, alpha=2)",
    "F.smooth_l1_loss({}, {}.expand_as({0}), reduction='none')",
)  # fmt: skip
REDUCED = (
    "{}.sum({d})", "{}.sum({d}, keepdim=True)", "{}.mean({d})", "{}.amax({d}, keepdim=True)",
    "{}.amin({d})", "{}.var({d}, correction=0)", "{}.std({d}, keepdim=True, correction=0)",
    "{}.logsumexp({d})", "({} + 0.7).norm(dim={d})", "{}.cumsum({d})", "{}.tanh().prod({d})",
    "{}.softmax({d})", "{}.log_softmax({d})", "{}.max({d})[0]", "{}.sort({d})[0]",
    "{}.argmax({d}).double()", "({} > 0.131).any({d}).double()", "{}.topk(1, {d})[0]", "{}.sum()",
    "{}.mean()", "({} * {}).sum().sqrt()", "{}.tanh().cumprod({d})", "{}.min({d}).values",
    "F.normalize({} + 0.3, dim={d})", "{}.median({d})[0]", "F.layer_norm({0}, {0}.shape[-1:])",
    "{}.flip({d})", "{}.roll(1, {d})", "{}.var()", "{}.logcumsumexp({d})", "{}.diff(dim={d})",
)  # fmt: skip
PRODUCTS = (
    "{0} @ {1}", "{0} @ {1}.T", "{0}.T @ {1}", "F.linear({0}, {1})", "outer({0}[0], {1}[0])",
    "einsum('ij,kj->ik', {0}, {1})", "addmm({0} @ {0}.T, {1}, {1}.T)", "mm({0}, {1}.t())",
    "({0}.unsqueeze(0) @ {1}.unsqueeze(0).mT)[0]",
    "bmm({0}.expand(2, -1, -1), {1}.T.expand(2, -1, -1))",
)  # fmt: skip
VIEWS = (
    "{}.transpose(0, -1)", "{}.T", "{}.reshape(-1)", "{}.unsqueeze(0)", "{}.unsqueeze(-1)",
    "{}.squeeze()", "{}.expand(2, *{0}.shape)", "{}[1:]", "{}[::2]", "{}[..., 0]", "{}[0]",
    "{}.diagonal()", "{}.unbind(0)[-1]", "{}.chunk(2)[0]", "{}.split(2)[-1]", "{}.flatten()",
    "{}.narrow(-1, 0, 1)", "{}.permute(1, 0)", "{}.movedim(0, -1)", "{}.detach()", "{}[:, 1:]",
    "{}[..., None]", "{}.view(-1)", "{}[-1:]", "{}.select(-1, 0)", "{}.view_as({0})",
    "{}[..., ::2]", "{}.unfold(0, 2, 1)", "{}.swapaxes(0, 1)", "{}.contiguous()",
    "{}.reshape(1, -1)", "{}[1:][:1]",
)  # fmt: skip
MOVED = (
    "cat([{}, {}])", "stack([{0}, {0} * 2])", "cat([{}, {}], -1)", "{}.repeat(2, 1)",
    "F.pad({}, (1, 0))", "{}[ad.tensor([0, 0, -1])]", "{}.index_select(0, ad.tensor([0, 0]))",
    "{0}.tril()", "{0}.triu(1)", "{0}.masked_fill({0} > 0.317, -0.5)",
    "{0}.gather(0, ad.zeros({0}.shape, dtype=ad.int64))", "{}.clone()",
    "{0}.new_full((2,), 0.5) + {0}.sum()", "zeros_like({})", "ones_like({})", "full_like({}, 0.25)",
    "tile({}, (2,))", "hstack([{}, {}])", "vstack([{}, {}])", "F.one_hot(i, 5).double()",
    "arange(3) * {0}.sum()", "world.table[i]", "F.embedding(i, world.table)",
    "{0}.index_add(0, ad.tensor([0]), {0}[:1])", "take_along_dim({0}, {0}.argsort(-1), -1)",
    "{0}.scatter_add(0, ad.zeros({0}.shape, dtype=ad.int64), {0})", "{0}[{0}.shape[0] // 2]",
    "F.interpolate({0}[None], scale_factor=2.0)[0]", "block_diag({}, {})",
    "meshgrid({0}[0], {1}[0], indexing='ij')[0]",
)  # fmt: skip
CASTS = (
    "{}.float().double()", "{}.to(ad.float32)", "{}.double()", "({} * 3.137).long().double()",
    "({} > 0.093).double()", "({0} * 2.13).int() + {0}", "{}.to(ad.float32).exp().double() * 0.1",
    "{0}.type_as(world.count)", "({} > 0.217).logical_not().double()",
)  # fmt: skip
DRAWN = (
    "F.dropout({}, 0.3)", "{0} + 0.1 * ad.randn_like({0})", "ad.rand_like({0}) * {0}",
    "ad.bernoulli(ad.sigmoid({}))", "model.drop({})", "{0} * ad.rand((), dtype=ad.float64)",
    "{0} + ad.randn({0}.shape, generator=world.generator, dtype=ad.float64)",
    "ad.randint(0, 5, (3,)).double()", "{0}[ad.randperm({0}.shape[0])]",
    "F.dropout({}, 0.5, training=model.training)", "ad.normal({}, 0.5)",
)  # fmt: skip
CUSTOM = (
    "Square.apply({})", "Steep.apply({}, 0.7)", "Steep.apply({}, s)", "Both.apply({0}, {0})[0]",
    "world.inner({})", "checkpoint(lambda v: (v * 2).tanh(), {}, use_reentrant=False)",
    "checkpoint(lambda v: F.dropout(v.sin(), 0.4), {}, use_reentrant=False)",
    "(lambda v: v * world.scale)({})", "ad.func.grad(lambda v: v.tanh().square().sum())({})",
    "ad.func.vmap(lambda v: v * v.sum())({})",
)  # fmt: skip
LAYERS = (
    "model.linear({})", "model.layer({})", "model.batch({})", "world.block({})",
    "model.cell({0}, {0})", "model.embedding(i)", "model.convolution({}[:, None])[:, 0]",
    "{} * model.weight", "{} + model.level", "F.linear({}, model.linear.weight, model.linear.bias)",
    "model.linear(model.linear({}).tanh())",
    "F.scaled_dot_product_attention({0}[None], {0}[None], {0}[None])[0]",
    "F.cross_entropy({0}, i % {0}.shape[1])", "{} - world.average", "{0} * model.seen.clamp(max=2)",
    "F.batch_norm({0}, None, None, training=True)",
    "F.layer_norm({0}, {0}.shape[-1:], model.weight)",
)  # fmt: skip
WRITES = (
    "{}.mul_(1.5)", "{}.add_(0.5)", "{}.tanh_()", "{}.sub_({}.detach() * 0.1)", "{}.zero_()",
    "{}[0] = 0.25", "{}[:, 0:1] = 0.5", "{}[:, :1] *= 2", "{0}[1:] += {0}[:-1].clone()",
    "{0}.masked_fill_({0} > 0.313, 0.1)", "{}.clamp_(-0.51, 0.53)", "{0}[0] = {0}[-1] * 2",
    "{}.copy_({})", "{} += {}", "{} *= {}", "{} -= 0.5", "{0}.T.mul_(0.5)",
    "{0}.diagonal().fill_(1.0)", "{}.uniform_(0.0, 1.0)", "{}.normal_()",
    "{0}[ad.tensor([0, 0])] = 0.75", "{}.relu_()",
    "{0}.index_add_(0, ad.tensor([0]), {0}[:1].clone())", "{0}[{0} > 0.291] = 0.2", "{}.exp_()",
    "{0}.view(-1)[0] += 1", "{0}[..., -1].sin_()", "{}.addcmul_({}, {})", "{}.lerp_({}, 0.25)",
    "{}.requires_grad_()", "{}.detach_()", "{0}.transpose(0, -1)[0] = {1}.sum()", "{}.neg_()",
)  # fmt: skip
OF_STATES = (
    "model.seen += 1", "model.level.mul_(0.9)",
    "model.level.copy_({}.detach().sum().tanh().expand_as(model.level))",
    "world.average.mul_(0.9).add_({}.detach().mean(), alpha=0.1)", "world.count.add_(1)",
    "model.level[0] = 0.5", "world.table[1:3] *= 0.9", "world.table[0] = world.average",
    "world.average += model.weight.detach()", "model.level.uniform_(generator=world.generator)",
)  # fmt: skip
OF_PARAMETERS = (
    "with ad.no_grad():\n    model.weight.mul_(0.99)",
    "with ad.no_grad():\n    model.weight.add_(world.average, alpha=0.1)",
    "with ad.no_grad():\n    model.linear.weight[0] = 0.1",
    "with ad.no_grad():\n    for p in model.parameters():\n        p.sub_(0.01 * p)",
    "with ad.no_grad():\n    nn.init.normal_(model.linear.bias, std=0.1)",
    "with ad.no_grad():\n    for p in model.linear.parameters():\n        p.clamp_(-0.613, 0.613)",
)
OF_GRADIENTS = (
    "nn.utils.clip_grad_norm_(model.parameters(), 0.5)", "model.weight.grad = None",
    "nn.utils.clip_grad_value_(model.parameters(), 0.113)",
    "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.mul_(0.5)",
    "model.weight.grad.add_(ad.randn_like(model.weight), alpha=0.01)",
    "model.weight.grad = model.weight.detach() * 0.5", "model.weight.grad.zero_()",
    "for p in model.parameters():\n    if p.grad is not None:\n        p.grad = p.grad * 0.7",
    "model.linear.weight.grad[0] = 0.1",
)  # fmt: skip
CLEARED = (
    "optimizer.zero_grad()", "optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)",
    "model.zero_grad()", "",
)  # fmt: skip
CHANGES = (
    "optimizer.param_groups[0]['lr'] *= 0.5", "model.eval()", "model.train()",
    "world.scale += 0.25", "world.times = 3 - world.times % 2", "world.flag = not world.flag",
    "world.numbers[0] += 1", "with ad.no_grad(): model.weight.mul_(0.9)", "ad.manual_seed(11)",
    "world.generator.manual_seed(3)", "model.weight = nn.Parameter(model.weight.detach() * 1.1)",
    "model.weight.grad = None", "model.weight.requires_grad_(not model.weight.requires_grad)",
    "model.zero_grad()", "model.linear.requires_grad_(not model.linear.bias.requires_grad)",
    "model.zero_grad(set_to_none=False)", "model.weight.grad = ad.ones_like(model.weight)",
    "world.average = world.average + 1", "world.average.add_(1)",
    "world.table = world.table.clone()",
    "model.load_state_dict({k: v * 1.01 for k, v in model.state_dict().items()})",
    "optimizer.load_state_dict(optimizer.state_dict())", "optimizer.state.clear()",
    "model.linear.weight.data = model.linear.weight.data * 0.9",
    "world.kept.append(model.weight.grad)", "world.kept.append(model.linear.weight.grad)",
    "model.level = model.level * 0.5",
    "model.linear = nn.Linear(*model.linear.weight.shape[::-1]).double()",
    "model.weight.register_hook(lambda g: g * 0.5)", "model.drop.p = 0.5",
    "model.linear.register_forward_hook(lambda module, given, found: found * 0.5)",
    "world.block.requires_grad_(False)", "model.layer.eps = 1e-3",
    "world.count = world.count.double()", "model.linear.bias.grad = model.weight.grad",
    "model.level = model.weight.detach()", "world.average = model.linear.weight.detach()[0]",
    "optimizer.add_param_group({'params': [ad.ones(2, requires_grad=True)]})",
)  # fmt: skip
SAFE = """
    tanh sin exp sigmoid abs square sqrt log1p clamp reciprocal erf atan cos rsqrt expm1
    nan_to_num sinh floor round sign maximum minimum where atan2 lerp addcmul hypot
    logaddexp add sub outer einsum addmm mm bmm cat stack zeros_like ones_like full_like
    tile hstack vstack arange take_along_dim block_diag meshgrid
"""
IN_AD = frozenset(SAFE.split())


class Growing:
    """A program while it is made."""

    def __init__(self, seed, size):
        self.rng = rng = random.Random(seed)
        width = rng.choice([1, 3, 4, 4, 15])
        self.program = Program(seed, width, rng.choice(list(OPTIMIZERS)), (), (), (), False)
        rows = rng.choice([0, 1, 2, 3, 5, 5, 15, 15, 100 if width > 4 else 257])
        self.calls = [Call((), rows, "float64", rng.random() < 0.4, True, 0.75, 3, "plain", False)]
        self.world = World(self.program, False)
        given = arguments(self.program, self.calls[0], 0, 0.0)
        self.names = {**self.world.names(), **dict(zip("xyisn", given, strict=True))}
        self.lines: list[str] = []
        self.count = 0
        self.grow(size)

    # One line.

    def tensors(self, **wanted):
        """Names of tensors of floating point that lines may read."""
        own = [f"v{k}" for k in range(self.count)]
        return ["x", "y", "x", "y", *[n for n in own if n in self.names], *own[-4:], *own[-2:]]

    def operand(self, test=None):
        """The name of a tensor, the later ones more often."""
        found = [
            n for n in self.tensors()
            if isinstance(self.names.get(n), ad.Tensor) and self.names[n].is_floating_point()
            and (test is None or test(self.names[n]))
        ]  # fmt: skip
        return self.rng.choice(found) if found else "x"

    def filled(self, template):
        """An expression."""
        name = template.partition("(")[0]
        if name in IN_AD:
            template = "ad." + template
        first = self.operand()
        shape = tuple(self.names[first].shape)

        def fits(t):
            with contextlib.suppress(ad.AdjointError):
                return len(ad.broadcast_shapes(shape, tuple(t.shape))) > -1
            return False

        others = [self.operand(fits if self.rng.random() < 0.9 else None) for _ in range(2)]
        given = [first, *others] if "{0}" in template or "{}" in template else []
        if any(each in template for each in ("@", "mm(", "einsum", "F.linear({0}, {1})")):
            given = [self.operand(lambda t: t.ndim == 2) for _ in range(2)]
        dim = self.rng.choice([0, -1])
        return self.named(template, given, dim)

    @staticmethod
    def named(template, given, dim):
        """Both `{}` and `{0}` in one template: the first `{}` is 0."""
        parts = template.split("{}")
        text = parts[0]
        for k, part in enumerate(parts[1:]):
            text += f"{{{k}}}" + part
        return text.format(*given, d=dim)

    def tried(self, line, mode=None):
        """Run a line; whether it may stay."""
        before = dict(self.names)
        try:
            with warnings.catch_warnings(), mode or contextlib.nullcontext():
                warnings.simplefilter("ignore")
                exec(line, self.names)
        except Exception:  # whatever it is: the line is not valid here
            self.names = before
            return False
        for name, value in self.names.items():
            if isinstance(value, ad.Tensor) and name[0] == "v" and not self.bounded(value):
                self.names = before
                return False
        return True

    @staticmethod
    def bounded(value):
        if value.numel() > MOST or value.ndim > 4:
            return False
        if not value.is_floating_point():
            return False
        return bool((value.detach().abs().nan_to_num() < 1e3).all())

    def local(self):
        """A tensor that may be written: one that was computed, in memory of its own."""
        states = [self.names["x"], self.names["y"], self.world.average, self.world.table]
        states += [*self.world.model.parameters(), *self.world.model.buffers()]

        def own(t):
            return not any(
                t is z or (t._version is not None and t._version is z._version) for z in states
            )

        anything = self.rng.random() < 0.02
        return self.operand(None if anything else own)

    def line(self):
        """A new line, which has run; None where it is not valid."""
        rng = self.rng
        kind = rng.choices(KINDS, WEIGHTS)[0]
        template = rng.choice(kind)
        if kind is WRITES:
            line = self.named(template, [self.local(), self.operand(), self.operand()], 0)
            of_argument = line.startswith(("x ", "y ", "x.", "y.", "x[", "y["))
            if of_argument and rng.random() > 0.1:
                return None
            return line if self.tried(line) else None
        if kind is OF_STATES or kind is OF_PARAMETERS:
            line = template.format(self.operand())
            return line if self.tried(line) else None
        if kind is BLOCKS:
            return self.block(template)
        line = f"v{self.count} = {self.filled(template)}"
        if not self.tried(line):
            return None
        self.count += 1
        return line

    def block(self, header):
        """Lines below a header, each of which runs once here."""
        inside = []
        mode = ad.no_grad() if "no_grad" in header else None
        if header.startswith("grads"):
            return self.inner_gradient()
        name = f"v{self.count}"
        begin = f"{name} = {self.operand()} * 1.0"
        if header.startswith("for"):
            body = self.rng.choice([f"{name} = {name} * 0.5 + {{}}", f"{name} = {name}.tanh() + s"])
            body = body.format(self.operand())
            line = f"{begin}\n{header}\n    {body}"
            if not self.tried(line):
                return None
            self.count += 1
            return line
        if header.startswith("if"):
            inside = [f"{name} = {name} * {self.rng.choice(['2', 's', 'world.scale'])}"]
            line = "\n    ".join([f"{begin}\n{header}", *inside])
            if not self.tried(line):
                return None
            self.count += 1
            return line
        for _ in range(self.rng.randint(1, 3)):
            template = self.rng.choice(self.rng.choice([UNARY, BINARY, VIEWS, PRODUCTS]))
            line = f"v{self.count} = {self.filled(template)}"
            if self.tried(line, mode):
                self.count += 1
                inside.append(line)
                mode = ad.no_grad() if "no_grad" in header else None
        return "\n    ".join([header, *inside]) if inside else None

    def inner_gradient(self):
        """autograd.grad in the middle."""
        end = self.operand(lambda t: t.requires_grad)
        at = self.rng.choice(
            ["x", "model.weight", "model.linear.weight", self.operand(lambda t: t.requires_grad)]
        )
        create = self.rng.random() < 0.6
        name = f"v{self.count}"
        options = f"create_graph={create}, retain_graph=True, allow_unused=True"
        line = f"{name} = ad.autograd.grad({end}.sin().sum(), {at}, {options})[0]\n"
        line += f"if {name} is None:\n    {name} = ad.zeros_like({at})"
        if not self.tried(line):
            return None
        self.count += 1
        return line

    def more(self, count):
        """Some lines."""
        for _ in range(count):
            line = self.line()
            if line is not None:
                self.lines.append(line)

    def grow(self, size):
        """The whole program."""
        rng = self.rng
        trains = rng.random() < 0.6
        if trains:
            self.add(rng.choice(CLEARED))
        self.more(rng.randint(2, size))
        for _ in range(rng.choice([1, 1, 1, 2]) if trains else 0):
            self.train(size)
        if trains and rng.random() < 0.3:
            self.add(rng.choice(OF_PARAMETERS))
        own = [f"v{k}" for k in range(self.count) if f"v{k}" in self.names]
        returned = rng.sample(own, min(len(own), rng.randint(1, 4)))
        if trains and "loss" in self.names:
            returned.append("loss")
        if rng.random() < 0.05:
            returned.append(rng.choice(["x", "s"]))
        self.change(trains)
        text = "\n".join(self.lines)
        narrow = "float32" in text or "float()" in text or "world.count" in text
        narrow = narrow or "randint" in text or any(c.dtype == "float32" for c in self.calls)
        self.program = self.program._replace(
            lines=tuple(self.lines), returned=tuple(returned), calls=tuple(self.calls),
            narrow=narrow,
        )  # fmt: skip

    def add(self, line):
        if line and self.tried(line):
            self.lines.append(line)
            return True
        return False

    def train(self, size):
        """A loss, its gradients, what is done with them, a step of the optimizer."""
        rng = self.rng
        ends = [self.operand(lambda t: t.requires_grad) for _ in range(rng.randint(1, 3))]
        parts = [f"({n} * {n}).mean()" if rng.random() < 0.7 else f"{n}.sin().sum()" for n in ends]
        if not self.add("loss = " + " + ".join(dict.fromkeys(parts))):
            return
        retain = rng.random() < 0.2
        if not self.add("loss.backward(retain_graph=True)" if retain else "loss.backward()"):
            return
        if rng.random() < 0.4:
            self.add(rng.choice(OF_GRADIENTS))
        if rng.random() < 0.8:
            self.add("optimizer.step()")
        if rng.random() < 0.3:
            self.more(rng.randint(1, 3))

    def change(self, trains):
        """The other calls."""
        rng = self.rng
        first = self.calls[0]._replace(backward=not trains or rng.random() < 0.05)
        self.calls[0] = call = first
        for _ in range(rng.choice([2, 2, 3, 4])):
            changes = rng.sample(CHANGES, rng.choice([0, 1, 1, 2]))
            call = call._replace(changes=tuple(changes))
            if rng.random() < 0.15:
                call = call._replace(rows=rng.choice([0, 1, 2, 3, 5, 15]))
            if rng.random() < 0.06:
                call = call._replace(wants=not call.wants)
            if rng.random() < 0.05:
                call = call._replace(grad=not call.grad)
            if rng.random() < 0.05:
                call = call._replace(dtype=rng.choice(["float32", "float64"]))
            if rng.random() < 0.08:
                call = call._replace(s=rng.choice([0.75, -0.5, 2.0]), n=rng.choice([2, 3]))
            if rng.random() < 0.1:
                call = call._replace(layout=rng.choice(["plain", "turned", "strided"]))
            self.calls.append(call)


BLOCKS = (
    "with ad.no_grad():", "for k in range(n):", "for k in range(world.times):", "if world.flag:",
    "if model.training:", "grads", "grads", "for t in x.unbind(0)[:3]:", "if x.shape[0] > 3:",
)  # fmt: skip
TABLE = (
    (UNARY, 14), (SCALED, 8), (BINARY, 12), (REDUCED, 12), (PRODUCTS, 6), (VIEWS, 12), (MOVED, 10),
    (CASTS, 3), (DRAWN, 4), (CUSTOM, 4), (LAYERS, 12), (WRITES, 14), (OF_STATES, 5),
    (OF_PARAMETERS, 0.7), (BLOCKS, 5),
)  # fmt: skip
KINDS = [kind for kind, _ in TABLE]
WEIGHTS = [weight for _, weight in TABLE]


def made(seed, size=14):
    """The program of a seed."""
    state = ad.get_rng_state()
    try:
        return Growing(seed, size).program
    finally:
        ad.set_rng_state(state)


def reason_of(refused):
    """The reason among `REASONS`; AssertionError for one that is not listed."""
    for each in REASONS:
        if each in refused:
            return each
    raise AssertionError(f"refused for a reason that is not listed: {refused}")


# ---- the shortest part that differs --------------------------------------------------------------


def fault_of(program):
    """What is wrong with it, in a line; '' if nothing."""
    try:
        refused = compared(program)
        if refused and refused != "ill":
            reason_of(refused)
    except Exception as error:  # to be shown
        return f"{type(error).__name__}: {error}".strip()
    return ""


def shortened(program):
    """The program without what its fault does not need."""
    kind = fault_of(program)[:14]
    changed = True
    while changed:
        changed = False
        parts = [
            program._replace(lines=program.lines[:k] + program.lines[k + 1 :])
            for k in range(len(program.lines))
        ]
        parts += [
            program._replace(calls=program.calls[:k] + program.calls[k + 1 :])
            for k in range(len(program.calls))
        ]
        parts += [
            program._replace(returned=program.returned[:k] + program.returned[k + 1 :])
            for k in range(len(program.returned))
        ]
        parts += [
            program._replace(
                calls=(*program.calls[:k], call._replace(changes=()), *program.calls[k + 1 :])
            )
            for k, call in enumerate(program.calls)
            if call.changes
        ]
        for each in reversed(parts):
            if fault_of(each).startswith(kind):
                program, changed = each, True
                break
    return program


def main():
    """Show the programs of seeds."""
    for seed in map(int, sys.argv[1:]):
        program = made(seed)
        fault = fault_of(program)
        print(program.described())
        print(fault or f"refused: {compared(program)!r}")
        if fault:
            short = shortened(program)
            print("---- shortest ----")
            print(short.described())
            print(fault_of(short).partition("def make")[0])


if __name__ == "__main__":
    main()
