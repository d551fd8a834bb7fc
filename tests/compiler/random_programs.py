"""Random programs for `ad.compile`, and what they leave, eagerly and compiled.

A program is source text: a function of tensors and numbers, and what changes between its calls. It
grows line by line, each of which is run eagerly at once, so that programs are valid for their first
arguments, and what is compared does not overflow. `python -m tests.compiler.random_growth SEED`
shows a program, how its two ways differ, and the shortest part of it for which they still do.
"""

from __future__ import annotations

import contextlib
import copy
import linecache
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
HALF = 0.1  # and for those that do with bfloat16 or float16
NUDGES = {TOLERANCE: 1e-13, NARROW: 1e-7, HALF: 3e-3}  # by how much rounding moves numbers
MOST = 2000  # elements of a value

# What a compiled function may refuse, and what the docs say of it (docs/compiled.md).
REASONS = {
    "reads a value": "Python depends on what a tensor holds",
    "a tensor that it made and that has a gradient": "an own leaf is returned or kept",
    "gives a tensor from outside another shape": "x.t_() of an argument",
    "memory that a tensor shares with an array": "from_numpy",
    "a tensor that comes with the call is one that the function also reaches": "an alike argument",
    "memory that is written is shown by another tensor too": "x.detach() or x.data of a state",
    "a backward within the function reaches an argument that was computed": "outside history",
    "a parameter's value from before an optimizer's step is used after it": "old values",
    "backward through what a compiled function returned": "history that is over",
    "has other data (x.data = ...)": "between a call and its backward outside",
    "Trying to backward through the graph a second time": "a backward has released it",
    "writes to an argument that was computed with gradients": "the same",
    "a tensor from outside gets a history, or another requires_grad": "as it says",
    "a gradient that no operation has computed": "an argument became a gradient",
    "a gradient that is another tensor": "two gradients are one tensor",
    "two tensors have one and the same gradient": "two gradients are one tensor",
    "a write to windows (unfold, as_strided)": "an element may stand twice",
    "programs were compiled": "more than 16 signatures",
    "unsupported operation: more than one element": "a part of what was expanded is written",
    "data of a tensor of which there are views": "x.data = y",
    "set_: the tensor has views": "the same",
    "GradScaler may skip": "hooks of an optimizer write",
    "but got dtype": "states and parameters of an optimizer differ",
    "registers a hook on a tensor from outside": "each call would add another",
    "registers a hook on a tensor that it made": "a leaf that is returned",
    "retain_grad": "of what comes from outside, or goes there",
    "one of the variables needed for gradient": "a node of control flow has read what is written",
    "a function of it writes to": "cond, while_loop and scan give values",
    "changes Python's own state": "a GradScaler unscales, and nothing steps",
}


# Refused where it is recorded: a write to a part of what was expanded, of one element there; to
# what a node of control flow has read, where the ops of the branch that ran would not need it.
REFUSED_RECORDED = (
    "error: AutogradError: setitem: unsupported operation: more than one element",
    "error: AutogradError: set_: the tensor has views",
    *(f"error: AutogradError: {name}: one of the variables needed for gradient computation"
      for name in ("cond", "while_loop", "scan")),
)  # fmt: skip
SAVED = "one of the variables needed for gradient"
# Refused by a backward outside: one more through what a backward has released, where nothing was
# saved eagerly; what a node of control flow, or a call, has read; other data than it has read.
REFUSED_BEHIND = (
    "compile: backward through", "Trying to backward through the graph a second time",
    "has other data (x.data = ...)",
    *(f"{name}: one of the variables needed"
      for name in ("cond", "while_loop", "scan", "compile")),
)  # fmt: skip
# Eagerly only: a gradient that read what was overwritten, or what a backward has released, which a
# program need not have kept; an index out of range, or a probability beyond 1, where nothing
# depends on what they give.
REFUSED_EAGERLY = (
    "backward: ", "error: AutogradError", "error: IndexingError",
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


class Doubled(ad.autograd.Function):
    """One that writes to its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return 2 * g


class Signs(ad.autograd.Function):
    """One with a result that has no gradient, and a look at what is wanted."""

    @staticmethod
    def forward(ctx, x):
        signs = (x > 0.0131).to(x.dtype)
        ctx.mark_non_differentiable(signs)
        ctx.save_for_backward(signs)
        return x * signs, signs

    @staticmethod
    def backward(ctx, g, _):
        (signs,) = ctx.saved_tensors
        return g * signs if ctx.needs_input_grad[0] else None


class Gated(nn.Module):
    """A dict of results, arguments by keyword, and a number of its class."""

    factor = 1.5

    def forward(self, x, *, gate):
        return {"gated": x * self.factor * gate, "plain": x * self.factor}


class Running(nn.Module):
    """A buffer that is replaced, and a count."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", ad.zeros(()))
        self.steps = 0

    def forward(self, x):
        if self.training:
            self.steps += 1
            self.mean = self.mean * 0.9 + 0.1 * x.detach().mean()
        return x - self.mean / (1 - 0.9**self.steps if self.steps else 1.0)


class Model(nn.Module):
    """A layer of each kind that keeps something."""

    factor = 1.0

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
        self.lstm, self.gated, self.running = nn.LSTM(width, width), Gated(), Running()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(width, width))
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(width, width))
        self.steps, self.last = 0, ad.zeros(width)


OPTIMIZERS = {
    "SGD": lambda p: ad.optim.SGD(p, lr=0.05),
    "momentum": lambda p: ad.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: ad.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: ad.optim.AdamW(p, lr=0.01),
    "RMSprop": lambda p: ad.optim.RMSprop(p, lr=0.01),
    "NAdam": lambda p: ad.optim.NAdam(p, lr=0.01),
}


class World:
    """What a program reads and changes beside its arguments."""

    def __init__(self, program, compiled):
        ad.manual_seed(program.seed)
        self.model = Model(program.width).to(ad.float64)
        self.optimizer = OPTIMIZERS[program.optimizer](list(self.model.parameters()))
        self.is_sgd = type(self.optimizer) is ad.optim.SGD
        self.average, self.count = ad.zeros(program.width, dtype=ad.float64), ad.zeros(())
        self.table = ad.randn(5, program.width, dtype=ad.float64)
        self.scale, self.times, self.flag = 1.25, 2, True
        self.fail, self.shift, self.steps = False, 0, 1
        self.hidden, self.pair = ad.zeros(program.width, dtype=ad.float64), (ad.ones(()), 1)
        self.memo = {"k": 1.0, "h": ad.zeros(())}
        self.schedule = ad.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.scaler = ad.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        self.numbers = [0.5, 1.5]
        self.generator = ad.Generator().manual_seed(7)
        self.kept: list[Any] = []
        self.results: list[Any] = []
        self.inner = lambda v: v.sin() * self.scale + self.average.sum()
        self.block = nn.Sequential(nn.Linear(program.width, 3), nn.Tanh()).to(ad.float64)
        self.second = ad.optim.SGD(self.block.parameters(), lr=0.05, momentum=0.5)
        if compiled:
            self.inner, self.block = ad.compile(self.inner), ad.compile(self.block)

    def names(self):
        """For code that changes it."""
        own = {"model": self.model, "optimizer": self.optimizer, "world": self, "count": 1}
        return {**GLOBALS, **own}


GLOBALS: dict[str, Any] = {
    "ad": ad, "nn": nn, "F": F, "checkpoint": checkpoint, "Square": Square, "Steep": Steep,
    "Both": Both, "Doubled": Doubled, "Signs": Signs, "copy": copy, "Model": Model,
}  # fmt: skip


MODES = {"": contextlib.nullcontext, "no_grad": ad.no_grad, "inference": ad.inference_mode}


class Call(NamedTuple):
    """How a program is called once."""

    changes: tuple[str, ...]  # what is done before
    rows: int
    dtype: str
    wants: bool  # whether `x` wants a gradient
    mode: str  # "", "no_grad" or "inference"
    s: float
    n: int
    layout: str
    backward: str  # of what it returned: "now", "late" (after the next call), or ""
    alike: str = ""  # which arguments are, or show, something else


class Program(NamedTuple):
    """A random program."""

    seed: int
    width: int
    optimizer: str
    lines: tuple[str, ...]
    returned: tuple[str, ...]
    calls: tuple[Call, ...]
    tolerance: float
    options: tuple[tuple[str, Any], ...] = ()  # of compile

    @property
    def source(self):
        """Its text."""
        lines = ["def make(world):", "    model, optimizer = world.model, world.optimizer"]
        lines += ["    count = 1", "", "    def step(x, y, i, s, n):"]
        if any("count" in each for each in self.lines):
            lines += ["        nonlocal count"]
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
        about = f"width {self.width}, {self.optimizer}, {dict(self.options)}"
        return f"{self.source}\n# {about}\n{calls}\n"


ROWS = (3, 7, 15, 2, 1, 4, 0, 6)


def with_sizes(program, dynamic):
    """The same, called for one number of rows after another, with all that changes between."""
    first, *others = program.calls
    calls = [first]
    endless = "while_loop(lambda a" in program.source  # of what no rows give
    for n, rows in enumerate(ROWS):
        rows = 2 if endless and not rows else rows
        changes = others[n].changes if n < len(others) else ()
        calls.append(first._replace(rows=rows, changes=changes))
    options = (*program.options, ("dynamic", True)) if dynamic else program.options
    if dict(options).get("mode") == "pieces":
        options = program.options
    return program._replace(calls=tuple(calls), options=options)


def arguments(program, world, call, number, nudge):
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
    if call.alike:
        x, y = ALIKE[call.alike](world, x, y)
    return x, y, ad.from_numpy(i), call.s, call.n


def latest(world, x):
    """The last result that could stand in the place of `x`."""
    fitting = [z for z in world.results if isinstance(z, ad.Tensor) and z.shape == x.shape]
    return next((z for z in reversed(fitting) if z.dtype == x.dtype), x)


ALIKE = {
    "same": lambda world, x, y: (x, x),
    "view": lambda world, x, y: (x, x[:]),
    "part": lambda world, x, y: (x, x[:1]),
    "detached": lambda world, x, y: (x, x.detach()),
    "clone": lambda world, x, y: ((x * 1.0), y),
    "parameter": lambda world, x, y: (world.model.linear.weight, y),
    "state": lambda world, x, y: (x, world.table),
    "expanded": lambda world, x, y: (x, world.average.expand(x.shape)),
    "shown": lambda world, x, y: (x, world.model.linear.weight.detach()),
    "result": lambda world, x, y: (latest(world, x), y),
    "detached result": lambda world, x, y: (latest(world, x).detach(), y),
}


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
    found += noted("set", [model.steps, model.last, model.running.steps, world.steps, world.hidden])
    found += noted("kept", [world.memo, world.pair, world.scale, world.numbers, world.flag])
    found += noted("second", [world.second.state_dict(), world.scaler.state_dict()])
    found += noted("schedule", world.schedule.state_dict())
    found += noted("results", world.results)
    found += noted("arguments", [*given, *[x.grad for x in given[:2] if x.is_leaf]])
    found += noted("generators", [ad.get_rng_state(), world.generator.get_state()])
    return found


def total_of(results):
    """A number that depends on all of them."""
    return sum((y * (k + 1)).sum().double() for k, y in enumerate(results))


def played(program, compiled, nudge=0.0):
    """The trace of all calls; the reason for which a compiled one was refused, or ''."""
    factor = Model.factor
    try:
        return _played(program, compiled, nudge)
    finally:
        Model.factor = factor


def _played(program, compiled, nudge):
    world = World(program, compiled)
    step = program.made(world)
    options = dict(program.options)
    if compiled:
        step = ad.compile(step, **options)
    undoes = compiled and options.get("mode") != "pieces"
    trace: list[Any] = []
    steps = "step(" in program.source
    waiting: list[Any] = []  # results whose gradients are asked for after the next call

    def backward(ends):
        """The reason for which there is none, or None."""
        try:
            total_of(ends).backward()
        except ad.AutogradError as error:
            if compiled and any(each in str(error) for each in REFUSED_BEHIND):
                return str(error)
            trace.append((f"backward: {type(error).__name__}", None))
            return ""
        return None

    for number, call in enumerate(program.calls):
        for change in call.changes:
            with contextlib.suppress(Exception):  # not every one fits
                exec(change, world.names())
        given = arguments(program, world, call, number, nudge)
        before = left(world, given)
        ready = not steps or bool(world.optimizer.state)
        try:
            with MODES[call.mode]():
                found = step(*given)
        except Unsupported as error:
            if not compiled or not str(error).startswith("compile: "):
                raise
            if undoes:
                assert_same(left(world, given), before, 0.0, "a refused call has changed")
            return trace, str(error)
        except Exception as error:  # whatever it is, it is to be the same
            if undoes and ready:
                assert_same(left(world, given), before, 0.0, "a failed call has changed")
            return [*trace, (f"error: {type(error).__name__}: {error}", None)], ""
        trace.append((f"call {number}", None))
        trace += noted("results", found)
        world.results = list(found.values())  # which later calls are not to change
        trace += left(world, given)
        ends = [y for y in found.values() if isinstance(y, ad.Tensor) and y.requires_grad]
        for these in (waiting, ends if call.backward == "now" else []):
            refused = backward(these) if these else None
            if refused is not None:
                return trace, refused
            if these:
                trace += left(world, given)
        waiting = ends if call.backward == "late" else []
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
    tolerance = program.tolerance
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
            elif found and ".data." in program.source and SAVED in found[-1][0]:
                refused = found.pop()[0]  # eagerly no one hears of writes to x.data
            elif not refused:
                names = [e[0] for e in found], [e[0] for e in expected]
                assert len(found) == len(expected), f"{names[0][-1]} for {names[1][-1]}"
            assert_same(found, expected, tolerance)
        except AssertionError as error:
            for nudge in (NUDGES[tolerance], -3 * NUDGES[tolerance]):
                moved, _ = played(program, False, nudge)
                try:
                    assert_same(moved, expected, tolerance / 10)
                    assert len(moved) == len(expected)
                except AssertionError:
                    return "ill"
            raise AssertionError(f"{error}\n{program.described()}") from None
    return refused


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
