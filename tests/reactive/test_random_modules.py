"""Random modules in random training programs: in steps of a graph, the values of eager execution.

A program is drawn as data: the tree of a module, and rounds. A round is what is changed (an
attribute, memory, a hook, ...) before, inside or after a block, and how the block trains. One
runner plays it, eagerly and in steps, and notes everything that a user could see.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import functools
import random
import typing
import warnings

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F
from adjoint.utils.checkpoint import checkpoint

from ..sweep import swept

WIDTH = 4

# ---- modules, each from rows of WIDTH numbers to such rows ---------------------------------------


class Kind(enum.Enum):
    SUM = 1
    PRODUCT = 2


@dataclasses.dataclass
class Options:
    slope: float = 1.0


class Point(typing.NamedTuple):
    x: float
    y: float


LIMITS = {"top": 3.0}
FUNCTIONS = (ad.tanh, ad.sin, F.relu, F.softplus, functools.partial(ad.clamp, max=0.5), F.gelu)


class Attributes(nn.Module):
    """Reads an attribute of every kind."""

    shift = 0.0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.times, self.scale, self.turned, self.mode, self.maybe = 1, 1.0, False, "mean", None
        self.kind, self.options, self.point = Kind.SUM, Options(), Point(0.5, 0.25)
        self.scales, self.ends, self.names, self.shown = [1.0, 2.0], (0, 2), {"bias": 0.0}, {0, 1}
        self.number, self.act, self.calls = np.float32(1.0), ad.tanh, 0

    def forward(self, x):
        self.calls += 1
        h = x
        for _ in range(self.times):
            h = self.act(self.linear(h)) * self.scale
        h = h * float(self.number) + self.names["bias"] + self.shift * sum(self.scales)
        if self.turned:
            h = h.flip(1)
        if self.maybe is not None:
            h = h + self.maybe
        if 0 in self.shown:
            h = h * self.options.slope
        part = h[:, self.ends[0] : self.ends[1]]
        side = getattr(part, self.mode)(1, keepdim=True) * self.point.x - self.point.y
        h = h + side if self.kind is Kind.SUM else h * side
        return h.clamp(-3, LIMITS["top"])


class Memory(nn.Module):
    """Reads tensors and arrays that others may write."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(ad.randn(WIDTH))
        self.table, self.plain, self.window = np.ones(WIDTH, np.float32), ad.ones(WIDTH), None
        self.register_buffer("level", ad.ones(2, WIDTH))
        self.register_buffer("low", self.level[0])
        self.shown = ad.from_numpy(np.full(WIDTH, 0.5, np.float32))
        self.view = None

    def forward(self, x):
        h = x * self.plain + self.low * self.level[1]
        h = h * ad.from_numpy(self.table) + self.shown
        if self.window is not None:
            h = h + ad.as_tensor(self.window)
        if self.view is not None:
            h = h - self.view
        return ad.tanh(h) * self.weight


class Recurrent(nn.Module):
    """Keeps a state, which may carry a gradient."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(WIDTH, WIDTH)
        self.h, self.detached, self.count = ad.zeros(WIDTH), True, 0
        self.register_buffer("steps", ad.zeros(()))

    def forward(self, x):
        self.count += 1
        self.steps += 1
        h = ad.tanh(self.cell(x) + self.h)
        self.h = h.mean(0).detach() if self.detached else h.mean(0)
        return h / (1 + 0.1 * self.steps)


class Still(nn.Module):
    """Keeps a state that only the program changes."""

    def __init__(self):
        super().__init__()
        self.h = ad.zeros(WIDTH)
        self.queue = [ad.ones(WIDTH)]

    def forward(self, x):
        return (x + self.h) * ad.stack(self.queue[-2:]).mean(0)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x[:, None]).mean((1, 2))[:, None]


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.batch, self.layer = nn.BatchNorm1d(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        return self.layer(x) + self.batch(x)


class Attention(nn.Module):
    """A composite with products in it."""

    def __init__(self):
        super().__init__()
        self.causal, self.scale, self.dim = False, None, 1

    def forward(self, x):
        y = F.scaled_dot_product_attention(
            x[None], x[None], x[None], is_causal=self.causal, scale=self.scale
        )
        return F.normalize(y[0].float(), dim=self.dim).softmax(self.dim)


class Random(nn.Module):
    """Draws from every generator there is."""

    def __init__(self, world):
        super().__init__()
        self.dropout, self.linear, self.world = nn.Dropout(0.0), nn.Linear(WIDTH, WIDTH), [world]
        self.skip, self.noise, self.source = 0.0, 0.0, "numpy"

    def __deepcopy__(self, memo):
        other = Random(self.world[0])
        other.load_state_dict(self.state_dict())
        return other

    def forward(self, x):
        if self.skip and random.random() < self.skip:
            return x
        h = self.dropout(self.linear(x))
        if self.noise:
            world = self.world[0]
            if self.source == "numpy":
                noise = ad.from_numpy(world.numbers.standard_normal(WIDTH).astype(np.float32))
            elif self.source == "generator":
                noise = ad.randn(WIDTH, generator=world.generator)
            else:
                noise = ad.randn_like(x)
            h = h + self.noise * noise
        return h


class Closing(nn.Module):
    """Its forward calls a closure, which reads what the program may change."""

    def __init__(self, world):
        super().__init__()
        gain = 1.0

        def scale(x):
            return x * gain * world.settings["gain"] + world.offset

        def set_gain(value):
            nonlocal gain
            gain = value

        self.scale, self.set_gain = scale, set_gain
        self.last = lambda x: x.sin()
        self.partial = functools.partial(ad.add, ad.ones(WIDTH), alpha=1)

    def forward(self, x):
        return self.last(self.scale(x)) + self.partial(x)


class Steep(ad.autograd.Function):
    """A function of the user, with a number, and a gradient of its own."""

    @staticmethod
    def forward(ctx, x, steepness):
        ctx.steepness = steepness
        ctx.save_for_backward(x)
        return ad.tanh(x * steepness)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() * ctx.steepness, None


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.steepness = 1.0

    def forward(self, x):
        return Steep.apply(x, self.steepness)


class Writing(nn.Module):
    """Writes to what it has computed."""

    def __init__(self):
        super().__init__()
        self.linear, self.way = nn.Linear(WIDTH, WIDTH), 0
        self.register_buffer("sum", ad.zeros(WIDTH))

    def forward(self, x):
        h = self.linear(x) * 1.5
        if self.way == 1:
            h[:, 0] = 0.5
        elif self.way == 2:
            h.add_(1).clamp_(-2, 2)
        elif self.way == 3:
            h.view(-1)[1:3].mul_(2)
        elif self.way == 4:
            h.data.mul_(0.5)
        elif self.way == 5:
            with ad.no_grad():
                self.sum.lerp_(h.mean(0), 0.5)
            h = h + self.sum
        elif self.way == 6:
            h.detach().numpy()[0] = 0.25
        elif self.way == 7:
            rows = ad.zeros_like(h)
            for i in range(len(rows)):
                rows[i] = h[i] * i
            h = rows
        return ad.sin(h)


class Wrapped(nn.Module):
    """Calls its child in a context, or twice."""

    def __init__(self, how, child):
        super().__init__()
        self.how, self.child, self.again = how, child, child if how == "twice" else None

    def forward(self, x):
        child = self.child
        if self.how == "no_grad":
            with ad.no_grad():
                return child(x)
        if self.how == "detach":
            return child(x).detach() + x
        if self.how == "autocast":
            with ad.autocast("cpu", dtype=ad.bfloat16):
                return child(x).float()
        if self.how == "checkpoint":
            return checkpoint(child, x, use_reentrant=False)
        if self.how == "twice":
            return self.again(child(x))
        return child(x) + x


class Listed(nn.Module):
    def __init__(self, children):
        super().__init__()
        self.parts = nn.ModuleList(children)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


LEAVES = {
    "attributes": lambda world: Attributes(),
    "memory": lambda world: Memory(),
    "recurrent": lambda world: Recurrent(),
    "still": lambda world: Still(),
    "convolution": lambda world: Convolution(),
    "normed": lambda world: Normed(),
    "attention": lambda world: Attention(),
    "random": Random,
    "closing": Closing,
    "custom": lambda world: Custom(),
    "writing": lambda world: Writing(),
    "linear": lambda world: nn.Linear(WIDTH, WIDTH),
}
WRAPPERS = ("no_grad", "detach", "autocast", "checkpoint", "twice", "residual")


def built(tree, world):
    """The module of a drawn tree: the name of a leaf, (wrapper, tree), or a list of trees."""
    if isinstance(tree, str):
        return LEAVES[tree](world)
    if isinstance(tree, tuple):
        return Wrapped(tree[0], built(tree[1], world))
    return Listed([built(each, world) for each in tree])


# ---- what a program changes ----------------------------------------------------------------------

ACTIONS = {}


def action(function):
    """Something that a program does: `function(world, number)`."""
    ACTIONS[function.__name__] = function
    vars(function).setdefault("kinds", object)
    return function


def change(*kinds):
    """Something that is done to one of the modules of these kinds: `function(module, number)`."""

    def declare(function):
        @functools.wraps(function)
        def perform(world, number):
            found = [m for m in world.model.modules() if isinstance(m, kinds)]
            if found:
                function(found[number % len(found)], number)

        perform.kinds = kinds
        return action(perform)

    return declare


def size(number):
    return number / 4 - 0.5


SETTINGS = {
    Attributes: (
        ("scale", size),
        ("times", lambda n: n % 3),
        ("turned", lambda n: bool(n % 2)),
        ("mode", lambda n: ("mean", "sum", "amax")[n % 3]),
        ("maybe", lambda n: None if n % 2 else size(n)),
        ("kind", lambda n: Kind(1 + n % 2)),
        ("options", lambda n: Options(size(n))),
        ("point", lambda n: Point(size(n), -size(n))),
        ("scales", lambda n: [size(n)]),
        ("ends", lambda n: (n % 2, 2 + n % 3)),
        ("names", lambda n: {"bias": size(n)}),
        ("shown", lambda n: {n % 3}),
        ("number", lambda n: np.float32(size(n))),
        ("act", lambda n: FUNCTIONS[n % len(FUNCTIONS)]),
        ("shift", size),
    ),
    nn.Dropout: (("p", lambda n: (0.0, 0.5, 0.9)[n % 3]),),
    nn.Conv1d: (("padding", lambda n: (n % 3,)), ("stride", lambda n: (1 + n % 2,))),
    nn.BatchNorm1d: (
        ("momentum", lambda n: (0.1, 0.5, None)[n % 3]),
        ("eps", lambda n: 10.0 ** -(n % 6)),
        ("training", lambda n: bool(n % 2)),
        ("track_running_stats", lambda n: bool(n % 2)),
    ),
    Attention: (
        ("causal", lambda n: bool(n % 2)),
        ("scale", lambda n: (None, 0.5, 2.0)[n % 3]),
        ("dim", lambda n: n % 2),
    ),
    nn.LayerNorm: (("eps", lambda n: 10.0 ** -(n % 6)),),
    Random: (
        ("skip", lambda n: (0.0, 0.5)[n % 2]),
        ("noise", lambda n: (0.0, 0.5)[n % 2]),
        ("source", lambda n: ("numpy", "generator", "ad")[n % 3]),
    ),
    Recurrent: (("detached", lambda n: bool(n % 2)), ("h", lambda n: ad.full((WIDTH,), size(n)))),
    Still: (("h", lambda n: ad.full((WIDTH,), size(n))), ("queue", lambda n: [ad.ones(WIDTH) * n])),
    Memory: (
        ("plain", lambda n: ad.full((WIDTH,), size(n))),
        ("low", lambda n: ad.full((WIDTH,), size(n))),
        ("level", lambda n: ad.full((2, WIDTH), size(n))),
        ("table", lambda n: np.full(WIDTH, size(n), np.float32)),
    ),
    Closing: (
        ("last", lambda n: (lambda x: x * n, ad.cos, ad.tanh)[n % 3]),
        ("partial", lambda n: functools.partial(ad.add, ad.ones(WIDTH), alpha=n)),
    ),
    Custom: (("steepness", size),),
    Writing: (("way", lambda n: n % 8),),
    Wrapped: (("how", lambda n: WRAPPERS[n % len(WRAPPERS)]),),
}


@action
def set_attribute(world, number):
    """Any attribute of any module, by another value."""
    found = [
        (module, name, value)
        for module in world.model.modules()
        for name, value in SETTINGS.get(type(module), ())
    ]
    if found:
        module, name, value = found[number * 7919 % len(found)]
        setattr(module, name, value(number // 4))


@change(Attributes)
def change_attribute_in_place(module, number):
    """The content of an attribute that is a container."""
    value = size(number)
    if number % 5 == 0:
        module.scales.append(value)
    elif number % 5 == 1:
        module.scales[0] = value
    elif number % 5 == 2:
        module.names.update(bias=value)
    elif number % 5 == 3:
        module.shown.symmetric_difference_update({0})
    else:
        module.options.slope = value


@change(Memory)
def write_array(module, number):
    """The memory of an array, or of one that a tensor shows."""
    array = module.table if number % 2 else module.shown.numpy()
    array[number % WIDTH] = size(number)


@change(Memory)
def write_tensor(module, number):
    for tensor in (module.plain, module.level, module.low, module.shown, module.weight)[
        number % 5 :
    ][:1]:
        with ad.no_grad():
            tensor.mul_(0.5).add_(size(number))


@change(Memory)
def alias_attribute(module, number):
    """Let one attribute show the memory of another."""
    with ad.no_grad():
        module.view = (
            lambda: module.weight.data,
            lambda: module.weight.detach()[1:2],
            lambda: module.plain[: number % WIDTH + 1].sum(),
            lambda: module.level[1],
            lambda: module.level.data[0],
            lambda: module.plain.view(2, 2).T.reshape(-1),
            lambda: module.plain.expand(2, WIDTH)[1],
            lambda: module.shown[::2].mean(),
        )[number % 8]()


@change(Memory)
def show_parameter_to_numpy(module, number):
    module.window = module.weight.detach().numpy() if number % 2 else module.low.numpy()


@change(Memory)
def replace_data(module, number):
    """Two tensors that show one memory, neither of which is a view of the other."""
    if number % 4 == 0:
        module.plain.data = module.low
    elif number % 4 == 1:
        module.weight.data = module.plain
    elif number % 4 == 2:
        module.plain.data = ad.full((WIDTH,), size(number))
    else:
        module.low.data = ad.from_numpy(module.table)


@change(Memory)
def write_alias(module, number):
    if module.view is not None:
        module.view.mul_(size(number))


@change(Recurrent, Still)
def write_state(module, number):
    with ad.no_grad():
        module.h.add_(size(number))


@change(Still)
def append_to_queue(module, number):
    module.queue.append(ad.full((WIDTH,), size(number)))


@change(Closing)
def set_closure(module, number):
    module.set_gain(size(number))


@action
def set_global(world, number):
    """What a closure or a forward reads from outside."""
    if number % 3 == 0:
        LIMITS["top"] = size(number)
    elif number % 3 == 1:
        world.settings["gain"] = size(number)
    elif number % 3 == 2:
        world.offset = size(number)


@change(nn.Module)
def switch_mode(module, number):
    module.train(bool(number & 8))


@change(nn.Module)
def want_gradients(module, number):
    module.requires_grad_(bool(number & 8))


@change(Wrapped)
def replace_child(module, number):
    module.child = nn.Linear(WIDTH, WIDTH) if number % 2 else copy.deepcopy(module.child)


@change(Wrapped)
def share_child(module, number):
    module.again = module.child


@change(Listed)
def add_part(module, number):
    module.parts.append(nn.Linear(WIDTH, WIDTH) if number % 2 else module.parts[0])


@change(Listed)
def remove_part(module, number):
    if len(module.parts) > 1:
        del module.parts[number % len(module.parts)]


@change(Listed)
def turn_parts_around(module, number):
    module.parts = nn.ModuleList(list(module.parts)[::-1])


@change(Listed)
def replace_part(module, number):
    module.parts[0] = copy.deepcopy(module.parts[number % len(module.parts)])


@action
def tie_parameters(world, number):
    """Linear layers share a weight; or one is a view of another's transposed."""
    linears = [m for m in world.model.modules() if isinstance(m, nn.Linear)]
    if len(linears) > 1:
        first, second = linears[number % len(linears)], linears[(number + 1) % len(linears)]
        if number % 3 == 0:
            second.weight = first.weight
        elif number % 3 == 1:
            second.weight = nn.Parameter(first.weight.detach().T)
        else:
            second.weight = nn.Parameter(first.weight.data)


@change(nn.Linear)
def write_parameter(module, number):
    value, weight = size(number), module.weight
    if number % 8 == 0:
        weight.data.mul_(value)
    elif number % 8 == 1:
        weight.data = ad.full((WIDTH, WIDTH), value)
    elif number % 8 == 2:
        weight.detach()[0].fill_(value)
    elif number % 8 == 3:
        weight.detach().numpy()[:, 1] = value
    elif number % 8 == 4:
        module.bias = None if module.bias is not None else nn.Parameter(ad.ones(WIDTH))
    elif number % 8 == 5:
        module.weight = nn.Parameter(weight.detach() * value)
    elif number % 8 == 6:
        nn.init.normal_(weight)
    else:
        with ad.no_grad():
            weight[number % WIDTH] -= value
            weight.T[0].copy_(weight[1])


@change(nn.Linear)
def replace_forward(module, number):
    if number % 2:
        module.forward = lambda x: F.linear(x, module.weight).sin()
    else:
        module.__dict__.pop("forward", None)


@action
def write_input(world, number):
    """The memory of the batch, in every way."""
    x, value = world.x, size(number)
    if number % 6 == 0:
        x[0] = value
    elif number % 6 == 1:
        x.numpy()[:, 1] = value
    elif number % 6 == 2:
        x.data.add_(value)
    elif number % 6 == 3:
        x.data = ad.randn(5, WIDTH)
    elif number % 6 == 4:
        x.copy_(ad.full((5, WIDTH), value))
    else:
        world.loader += np.float32(value)


@action
def take_input(world, number):
    """Another batch: drawn, of a loader's memory, a part, of another size, or a view."""
    world.x = (
        lambda: ad.randn(5, WIDTH),
        lambda: ad.from_numpy(world.loader),
        lambda: world.x.detach(),
        lambda: world.x.data,
        lambda: ad.randn(7, WIDTH)[1:6],
        lambda: world.memory[:5],
        lambda: ad.tensor(world.loader),
        lambda: world.x.clone(),
    )[number % 8]()


@action
def write_memory(world, number):
    world.memory[number % 8] = size(number)


@action
def seed_again(world, number):
    if number % 3 == 0:
        ad.manual_seed(number)
    elif number % 3 == 1:
        random.seed(number)
    else:
        world.generator.manual_seed(number)


@action
def add_hook(world, number):
    """A hook that changes what it is given, or keeps it."""
    modules = list(world.model.modules())
    module, factor = modules[number % len(modules)], size(number)
    parameters = list(world.model.parameters())
    parameter = parameters[number % len(parameters)]
    hooks = (
        lambda: module.register_forward_hook(lambda m, args, y: y * factor),
        lambda: module.register_forward_pre_hook(lambda m, args: (args[0] + factor,)),
        lambda: module.register_forward_hook(lambda m, args, y: world.keep(y)),
        lambda: module.register_full_backward_hook(lambda m, gi, go: _halved(gi)),
        lambda: parameter.register_hook(lambda g: g * factor),
        lambda: parameter.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(factor)),
        lambda: module.register_forward_hook(lambda m, args, y: y * world.settings["gain"]),
        lambda: module.register_forward_pre_hook(lambda m, args: world.stumble()),
    )
    world.hooks.append(hooks[number // 3 % len(hooks)]())


def _halved(gradients):
    return tuple(None if g is None else g * 0.5 for g in gradients)


@action
def remove_hook(world, number):
    if world.hooks:
        world.hooks.pop(number % len(world.hooks)).remove()


@action
def save_state(world, number):
    """By copies, or by references, which follow."""
    state = world.model.state_dict()
    world.state = {k: v.clone() for k, v in state.items()} if number % 2 else state


@action
def load_state(world, number):
    if world.state is not None:
        world.model.load_state_dict(world.state, strict=False, assign=number % 4 == 3)


@action
def copy_model(world, number):
    """A target network, or its averages."""
    if world.target is None or number % 4 == 0:
        world.target = copy.deepcopy(world.model).requires_grad_(False)
        return
    pairs = list(zip(world.target.parameters(), world.model.parameters(), strict=False))
    with ad.no_grad():
        for average, parameter in pairs:
            if average.shape != parameter.shape:
                continue
            if number % 4 == 1:
                average.lerp_(parameter, 0.5)
            elif number % 4 == 2:
                average.data.copy_(parameter.data)
            else:
                average.data = parameter.data


@action
def drop_target(world, number):
    world.target = None


@action
def zero_gradients(world, number):
    world.model.zero_grad(set_to_none=bool(number % 2))


@action
def clip_gradients(world, number):
    nn.utils.clip_grad_norm_(list(world.model.parameters()), 0.1 + number / 8)


@action
def write_gradient(world, number):
    for parameter in list(world.model.parameters())[number % 3 :][:1]:
        if parameter.grad is not None:
            parameter.grad.mul_(size(number))


@action
def write_output(world, number):
    """What the last forward gave is written, while its gradient may still be wanted."""
    if world.y is None:
        return
    if number % 4 == 0:
        world.y.data.mul_(0.5)
    elif number % 4 == 1:
        with ad.no_grad():
            world.y.add_(1)
    elif number % 4 == 2:
        world.y.detach().numpy()[0] = size(number)
    else:
        world.y[0].mul_(2)


@action
def change_learning_rate(world, number):
    for optimizer in world.optimizers:
        optimizer.param_groups[0]["lr"] = 0.01 * (number % 4)


@action
def new_optimizers(world, number):
    world.make_optimizers(number)


@action
def move_model(world, number):
    world.model.to("cpu") if number % 2 else world.model.double().float()


@action
def vector_of_parameters(world, number):
    parameters = list(world.model.parameters())
    vector = nn.utils.parameters_to_vector(parameters).detach() * 0.9
    nn.utils.vector_to_parameters(vector, parameters)
    world.vector = vector


@action
def write_vector(world, number):
    if world.vector is not None:
        world.vector.mul_(size(number))


# ---- how a block trains --------------------------------------------------------------------------

WAYS = {}


def way(function):
    """How a round trains: `function(world, block)`."""
    WAYS[function.__name__] = function
    return function


@way
def evaluated(world, block):
    with block(), ad.no_grad():
        world.forward()


@way
def kept(world, block):
    """Nothing is trained; the loss and log-probabilities are kept."""
    with block():
        loss = world.loss()
        world.keep(loss, world.y.log_softmax(1)[:, 0])


@way
def head_alone(world, block):
    with block():
        with ad.no_grad():
            features = world.forward()
        loss = (features @ world.head).square().mean()
    world.update(loss)


@way
def backward_after(world, block):
    with block():
        loss = world.loss()
    world.update(loss)


@way
def everything_inside(world, block):
    with block():
        loss = world.loss()
        world.update(loss)


@way
def backward_inside(world, block):
    with block():
        loss = world.loss()
        loss.backward()
    world.act(world.round.between)
    world.step()


@way
def accumulated(world, block):
    for _ in range(2):
        with block():
            (world.loss() / 2).backward()
    world.step()


@way
def penalized(world, block):
    """A penalty of the gradient."""
    with block():
        loss = world.loss()
        wanted = [p for p in world.parameters() if p.requires_grad]
        grads = ad.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
        penalty = sum((g.square().sum() for g in grads if g is not None), ad.zeros(()))
        total = loss + 0.1 * penalty
    world.update(total)


@way
def gradient_of_the_input(world, block):
    x = world.x.detach().clone().requires_grad_()
    with block():
        world.y = world.model(x)
        (g,) = ad.autograd.grad(world.y.square().sum(), x)
    world.note(g)
    world.keep(g)


@way
def closure(world, block):
    optimizer = ad.optim.LBFGS(list(world.parameters()), lr=0.1, max_iter=2)

    def evaluate():
        optimizer.zero_grad()
        with block():
            loss = world.loss()
            loss.backward()
        return loss

    world.note(optimizer.step(evaluate))


@way
def closure_inside(world, block):
    optimizer = ad.optim.LBFGS(list(world.parameters()), lr=0.1, max_iter=2)

    def evaluate():
        optimizer.zero_grad()
        loss = world.loss()
        loss.backward()
        return loss

    with block():
        optimizer.step(evaluate)


@way
def nested(world, block):
    with block():
        world.forward()
        with block():
            loss = world.loss()
        loss = loss + world.y.abs().mean()
    world.update(loss)


@way
def twice_backward(world, block):
    world.zero_grad()
    with block():
        loss = world.loss()
        loss.backward(retain_graph=True)
    world.act(world.round.between)
    loss.backward()
    world.step()


@way
def backward_of_the_round_before(world, block):
    late, world.late = world.late, None
    with block():
        world.late = world.loss()
        if late is not None:
            world.update(late)


@way
def stumbling(world, block):
    """An exception leaves the block in the middle; the program goes on."""
    world.stumbles = 1
    with contextlib.suppress(ZeroDivisionError), block():
        world.forward()
        loss = world.loss()
        world.update(loss)
        1 / 0  # noqa: B018
    with block():
        world.forward()


@way
def compared_with_the_target(world, block):
    target = world.target or world.model
    with block():
        with ad.no_grad():
            wanted = target(world.x)
        world.y = world.model(world.x)
        loss = F.mse_loss(world.y, wanted * 0.9)
    world.update(loss)


@way
def in_autocast(world, block):
    with block(), ad.autocast("cpu", dtype=ad.bfloat16):
        loss = world.loss().float()
    world.update(loss)


@way
def evaluated_in_autocast(world, block):
    with ad.autocast("cpu", dtype=ad.bfloat16), block(), ad.no_grad():
        world.forward()


# ---- the runner ----------------------------------------------------------------------------------

OPTIMIZERS = (
    lambda ps: ad.optim.SGD(ps, lr=0.05),
    lambda ps: ad.optim.SGD(ps, lr=0.05, momentum=0.9),
    lambda ps: ad.optim.Adam(ps, lr=0.01),
    lambda ps: ad.optim.RMSprop(ps, lr=0.01),
    lambda ps: ad.optim.AdamW(ps, lr=0.01, foreach=False),
)


@dataclasses.dataclass(frozen=True)
class Round:
    """What is done in the places of a round, how it trains, how often, in which graph."""

    before: tuple[tuple[str, int], ...]
    inside: tuple[tuple[str, int], ...]
    between: tuple[tuple[str, int], ...]
    way: str
    times: int
    graph: int


@dataclasses.dataclass(frozen=True)
class Program:
    """A tree of modules, how much of it is frozen at first, and rounds."""

    tree: typing.Any
    frozen: bool
    seed: int
    reuse: bool | None  # which steps play it, besides those that reuse
    rounds: tuple[Round, ...]


class World:
    """One run of a program."""

    def __init__(self, program, blocks):
        ad.manual_seed(program.seed)
        np.random.seed(program.seed)
        random.seed(program.seed)
        LIMITS["top"] = 3.0
        self.program, self.blocks = program, blocks
        self.numbers = np.random.default_rng(program.seed)
        self.generator = ad.Generator().manual_seed(program.seed)
        self.settings, self.offset = {"gain": 1.0}, 0.0
        self.log, self.kept, self.hooks = [], [], []
        self.state = self.target = self.y = self.late = self.vector = None
        self.stumbles = 0
        self.loader = self.numbers.standard_normal((5, WIDTH)).astype(np.float32)
        self.memory = ad.randn(8, WIDTH)
        self.x = ad.randn(5, WIDTH)
        self.wanted = ad.randn(5, WIDTH)
        self.head = nn.Parameter(ad.randn(WIDTH, 1))
        self.model = built(program.tree, self)
        if program.frozen:
            self.model.requires_grad_(False)
        self.make_optimizers(program.seed)
        self.round = None

    def parameters(self):
        return [self.head, *self.model.parameters()]

    def make_optimizers(self, number):
        make = OPTIMIZERS[number % len(OPTIMIZERS)]
        body = list(self.model.parameters())
        self.optimizers = [make([self.head])] + ([OPTIMIZERS[0](body)] if body else [])

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()

    def update(self, loss):
        self.zero_grad()
        self.act(self.round.between)
        loss.backward()
        self.step()

    def forward(self):
        self.act(self.round.inside)
        self.y = self.model(self.x)
        return self.y

    def loss(self):
        y = self.forward()
        loss = F.mse_loss(y, self.wanted) + 0.1 * (y @ self.head).mean()
        self.note(loss)
        return loss

    def stumble(self):
        if self.stumbles:
            self.stumbles -= 1
            raise ZeroDivisionError

    def keep(self, *tensors):
        self.kept += tensors

    def note(self, x):
        """What `x` is now."""
        self.log.append(noted(x))

    def act(self, actions):
        for name, number in actions:
            self.attempt(name, lambda: ACTIONS[name](self, number))  # noqa: B023

    def attempt(self, name, function):
        """What is an error eagerly is one in a step, too."""
        try:
            function()
        except Exception as error:
            self.log.append(f"{name}: {type(error).__name__}")

    def play(self):
        for each in self.program.rounds:
            self.round = each
            self.act(self.round.before)
            for _ in range(self.round.times):
                train = WAYS[self.round.way]
                block = self.blocks[self.round.graph]
                self.attempt(self.round.way, lambda: train(self, block))  # noqa: B023
                self.look()
        for tensor in self.kept:
            self.note(tensor)

    def look(self):
        self.log.append(self.round.way)
        if self.y is not None:
            self.note(self.y)
        for parameter in self.parameters():
            self.note(parameter)
            self.note(parameter.grad)
        for buffer in self.model.buffers():
            self.note(buffer)
        for module in self.model.modules():
            if isinstance(module, (Recurrent, Still)):
                self.note(module.h)


def noted(x):
    """A tensor's dtype and numbers. NumPy is not shown the tensor itself, whose memory would be
    compared from then on.
    """
    if x is None:
        return None
    with ad.no_grad():
        return x.dtype, x.clone().float().numpy()


def played(program, blocks):
    """The log of a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world = World(program, blocks)
        world.play()
    return world.log


def assert_same(found, expected):
    """The same log, but for rounding, which is relative to an array's largest number."""
    for number, (a, b) in enumerate(zip(found, expected, strict=False)):
        if type(a) is tuple and type(b) is tuple and not np.array_equal(a[1], b[1]):
            where = f"entry {number}, after {[e for e in expected[:number] if type(e) is str][-3:]}"
            size = np.abs(b[1]).max(initial=0, where=np.isfinite(b[1]))
            np.testing.assert_allclose(a[1], b[1], 0, 1e-5 * size + 1e-7, err_msg=where)
        key = [each[0] if type(each) is tuple else each for each in (a, b)]
        assert key[0] == key[1], (number, *key)
    assert len(found) == len(expected)


# ---- programs ------------------------------------------------------------------------------------

NUMBERS, NOTHING = st.integers(0, 63), st.just(())
LEAF = st.sampled_from(list(LEAVES))
TREE = st.one_of(
    LEAF,
    st.tuples(st.sampled_from(WRAPPERS), st.one_of(LEAF, st.lists(LEAF, min_size=1, max_size=2))),
)


@functools.cache
def kinds_of(leaf):
    """The types of the modules in a leaf."""
    return {type(module) for module in LEAVES[leaf](None).modules()}


def names_in(tree):
    """The leaves of a tree."""
    if isinstance(tree, str):
        return [tree]
    parts = tree[1:] if isinstance(tree, tuple) else tree
    return [leaf for each in parts for leaf in names_in(each)]


@st.composite
def programs(draw):
    """A program whose actions all find something to change."""
    tree = draw(st.lists(TREE, min_size=1, max_size=4))
    kinds = {Wrapped, Listed}.union(*map(kinds_of, names_in(tree)))
    able = [
        name
        for name, function in ACTIONS.items()
        if any(issubclass(kind, function.kinds) for kind in kinds)
    ]
    action = st.tuples(st.sampled_from([*able, *["set_attribute"] * (len(able) // 2)]), NUMBERS)
    write = st.tuples(st.sampled_from([n for n in able if n.startswith("write")]), NUMBERS)
    rounds = st.builds(
        Round,
        before=st.lists(action, max_size=2).map(tuple),
        inside=st.one_of(NOTHING, NOTHING, st.tuples(action)),
        between=st.one_of(NOTHING, NOTHING, st.tuples(write)),
        way=st.sampled_from(list(WAYS)),
        times=st.sampled_from([1, 2, 3, 3]),
        graph=st.sampled_from([0, 0, 0, 1]),
    )
    return Program(
        tree,
        frozen=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
        reuse=draw(st.sampled_from([True, None, False])),
        rounds=tuple(draw(st.lists(rounds, min_size=2, max_size=5))),
    )


EAGER = (contextlib.nullcontext, contextlib.nullcontext)


def compare(program):
    expected = played(program, EAGER)
    for reuse in dict.fromkeys((True, program.reuse)):
        graphs = ad.Graph(), ad.Graph()
        blocks = [functools.partial(graph.step, reuse) for graph in graphs]
        assert_same(played(program, blocks), expected)


@pytest.mark.parametrize(
    ("number", "count"), [(0, 50), *(swept((number, 200)) for number in range(1, 5))]
)
def test_random_modules_train_in_steps_as_eagerly(number, count):
    @seed(number)
    @settings(max_examples=count)
    @given(programs())
    def test(program):
        compare(program)

    test()
