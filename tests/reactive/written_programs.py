"""Random programs that write in place inside and outside of a graph's blocks, and an interpreter.

A program is a list of lines, each a plain tuple. `run` executes it on tensors of one dtype; with
`contextlib.nullcontext` as its block it is plain eager execution, whose values are the right ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

import adjoint as ad
from adjoint.core.errors import GraphError

DTYPES = ("float32", "float64", "bfloat16", "int64", "int32", "uint8", "complex64", "bool")

FUNCTIONS = {
    "double": lambda x: x + x,
    "flipped": lambda x: x.flip(0),
    "sum": lambda x: x.sum(-1, keepdim=True).to(x.dtype),
    "joined": lambda x: ad.cat([x, x]),
    "clone": lambda x: x.clone(),
    "like": lambda x: ad.ones_like(x),
}
ALIASES = {"detach": lambda x: x.detach(), "data": lambda x: x.data}
VIEWS = {
    "first": lambda x: x[0],
    "rows": lambda x: x[1:],
    "column": lambda x: x[..., 0],
    "transposed": lambda x: x.transpose(0, -1),
    "flat": lambda x: x.view(-1),
    "reshaped": lambda x: x.reshape(-1, 2),
    "unsqueezed": lambda x: x.unsqueeze(0),
    "itself": lambda x: x.view_as(x),
    "one_of_several": lambda x: x.unbind(0)[-1],
    "diagonal": lambda x: x.diagonal(),
}
BINARY = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "where": lambda x, y: ad.where(x == y, x, y),
    "matmul": lambda x, y: x @ y,
}
WRITES = {
    "mul_": lambda x: x.mul_(2),
    "add_": lambda x: x.add_(1),
    "zero_": lambda x: x.zero_(),
    "item": lambda x: x.__setitem__(0, 3),
    "part": lambda x: x.__setitem__((slice(None), slice(0, 1)), x[:, 1:2] * 2),
    "masked": lambda x: x.masked_fill_(x == 2, 5),
    "clamp_": lambda x: x.clamp_(1, 3),
    "neg_": lambda x: x.neg_(),
    "fill_": lambda x: x.fill_(2),
}
WRITES_OF_TWO = {
    "copy_": lambda x, y: x.copy_(y),
    "iadd": lambda x, y: x.add_(y),
    "imul": lambda x, y: x.mul_(y),
    "out": lambda x, y: ad.add(x.detach(), y.detach(), out=x.detach()),
    "set_part": lambda x, y: x.__setitem__(slice(0, 1), y[0:1]),
    "swap": lambda x, y: swap(x, y),
}
KINDS: dict[str, dict[str, Callable[..., Any]]] = {
    "function": FUNCTIONS, "alias": ALIASES, "view": VIEWS, "binary": BINARY, "write": WRITES,
    "write_of_two": WRITES_OF_TWO,
}  # fmt: skip
OFTEN = ("function", "alias", "view", "view", "binary", "write", "write", "write", "write_of_two",
         "read")  # fmt: skip


def swap(x, y):
    """Exchange the values of two tensors by a temporary."""
    kept = x.detach().clone()
    x.copy_(y)
    y.copy_(kept)


def random_program(seed, longest=14):
    """A dtype, and lines in blocks: ("enter",), ("leave",), and (kind, name, i, j, gradients)."""
    numbers = np.random.default_rng(seed)
    lines: list[tuple[Any, ...]] = [("enter",)]
    depth = 1
    for _ in range(int(numbers.integers(2, longest))):
        chance = numbers.random()
        if chance < 0.05:
            lines.append(("enter",))
            depth += 1
        elif chance < 0.1 and depth > 1:
            lines.append(("leave",))
            depth -= 1
        else:
            kind = OFTEN[numbers.integers(len(OFTEN))]
            names = sorted(KINDS.get(kind, {"": None}))
            name = names[numbers.integers(len(names))]
            i, j = map(int, numbers.integers(0, 12, 2))
            lines.append((kind, name, i, j, bool(numbers.random() < 0.6)))
    lines += [("leave",)] * depth
    return DTYPES[numbers.integers(len(DTYPES))], lines


def start(dtype, seed=0, leaf=True):
    """Plain tensors; where the dtype has gradients, a leaf and what was computed of it, too."""
    numbers = np.random.default_rng(seed)
    plain = [ad.tensor(numbers.integers(0, 4, (2, 4))).to(getattr(ad, dtype)) for _ in range(3)]
    if leaf and plain[0].dtype.is_floating_point:
        w = ad.tensor(numbers.integers(1, 4, (2, 4))).to(plain[0].dtype).requires_grad_()
        plain += [w, w * 2]
    return plain


def shares_memory(x, y):
    """Whether a write to `x` may be one to `y`, as far as versions tell."""
    return x is y or (x._changes is not None and x._changes is y._changes)


class Run:
    """What a program did: all of its tensors by the lines that made them, what it read meanwhile,
    the lines that were refused, and whether it wrote to a leaf.
    """

    def __init__(self, tensors, protected=()):
        self.tensors = list(tensors)
        self.leaves = [x for x in tensors if x.is_leaf and x.requires_grad]
        self.protected = protected
        self.log = []
        self.refused = []
        self.wrote_leaf = False

    def execute(self, lines, block=contextlib.nullcontext, skipped=()):
        """Run all lines but those `skipped`."""
        with contextlib.ExitStack() as stack:
            blocks = []
            for number, line in enumerate(lines):
                if line[0] == "enter":
                    blocks.append(stack.enter_context(contextlib.ExitStack()))
                    blocks[-1].enter_context(block())
                elif line[0] == "leave":
                    blocks.pop().close()
                elif number not in skipped:
                    self.line(number, line)
        return self

    def line(self, number, line):
        """One line that computes, reads or writes."""
        kind, name, i, j, gradients = line
        names = self.tensors
        x, y = names[i % len(names)], names[j % len(names)]
        if kind == "read":
            self.log.append(value(x))
            return
        writes = kind.startswith("write")
        written = (x, y) if name == "swap" else (x,)
        if writes and any(shares_memory(z, p) for z in written for p in self.protected):
            return
        if writes and any(shares_memory(z, p) for z in written for p in self.leaves):
            self.wrote_leaf = True
        try:
            with ad.set_grad_enabled(gradients):
                function = KINDS[kind][name]
                result = function(x, y) if kind in ("binary", "write_of_two") else function(x)
        except (ad.AdjointError, IndexError, TypeError) as error:
            self.refused.append((number, isinstance(error, GraphError), str(error)))
        else:
            if not writes:
                names.append(result)


def value(x):
    """A copy of a tensor's value."""
    if isinstance(x._data, np.ndarray) and x._data.dtype.kind == "V":
        return x.float().detach().numpy().copy()
    x = x.float() if x.dtype is ad.bfloat16 else x
    return x.detach().numpy().copy()


def same(a, b):
    """Whether two values are the same, bit for bit."""
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
