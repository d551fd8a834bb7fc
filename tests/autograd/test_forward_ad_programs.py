"""Random programs of duals, views and writes beside PyTorch: values, tangents, gradients."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import adjoint as ad

from ..pytorch import torch
from ..sweep import few_or_many

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own


def storage(x):
    return x.detach().untyped_storage().data_ptr()


class Program:
    """A pool of tensors, some of them duals, and what happens to them; `seed` says what."""

    def __init__(self, lib, seed):
        self.lib, self.grad = lib, seed % 3 == 0
        self.fw = importlib.import_module(f"{lib.__name__}.autograd.forward_ad")
        self.random = np.random.default_rng(seed)
        self.leaves, self.pool, self.log = [], [], []
        with self.fw.dual_level():
            self.pool += [self.dual((3, 4)), self.tensor(3, 4), self.dual((3, 4))]
            self.pool += [self.tensor(2, 3, 2)]
            for _ in range(14):
                self.step()
            pairs = [self.fw.unpack_dual(x) for x in self.pool]
            self.values = [(array(p), array(t)) for p, t in pairs]
            self.gradients = self.differentiated() if self.grad else []
        self.after = [array(x) for x in self.pool]
        self.left = [self.fw.unpack_dual(x).tangent for x in self.pool]

    def tensor(self, *shape):
        return self.lib.tensor(self.random.standard_normal(shape))

    def dual(self, shape):
        p, t = self.tensor(*shape), self.tensor(*shape)
        if self.grad:
            self.leaves += [p.requires_grad_(), t.requires_grad_()]
            p, t = p * 1, t * 1
        self.pool.append(p)
        return self.fw.make_dual(p, t)

    def step(self):
        kind, i, j, way = (int(self.random.integers(n)) for n in (12, *[len(self.pool)] * 2, 4))
        x, y = self.pool[i], self.pool[j]
        if kind in (4, 6, 8) and storage(x) == storage(y):
            return  # PyTorch reads what it has written to
        try:
            self.change(kind, way, x, y)
        except RuntimeError as error:
            kind = "a leaf" if "leaf Variable that requires grad" in str(error) else "refused"
        self.log.append((kind, i, j, way))

    def change(self, kind, way, x, y):
        add = self.pool.append
        if kind == 0:
            add(x if not x.ndim else x[way % len(x)] if way < 2 else x[::2])
        elif kind == 1:
            add(x.transpose(0, -1) if x.ndim > 1 else x.unsqueeze(0))
        elif kind == 2:
            add(x.detach() if way == 3 and not self.grad else x.view_as(x))
        elif kind == 3:
            x.mul_(way + 1.0)
        elif kind == 4:
            x.copy_(y) if x.shape == y.shape else x.add_(y.sum() * 0.1)
        elif kind == 5:
            x.sin_() if way else x.zero_()
        elif kind == 6:
            x[(0,) * min(x.ndim, 1)] = y.mean() if way else 1.5
        elif kind == 7:
            add(x * 2 + 1 if way < 2 else x.clone() if way < 3 else x.exp().reshape(-1))
        elif kind == 8:
            x.mul_(y) if x.shape == y.shape else x.add_(y.flatten()[0] if y.ndim else y)
        elif kind == 9:
            add(self.fw.unpack_dual(x).primal)
        elif kind == 10:
            x.reshape(-1).mul_(0.5)
        elif self.fw.unpack_dual(x).tangent is None and not self.grad:
            add(self.fw.make_dual(x, self.tensor(*x.shape)))

    def differentiated(self):
        loss = sum((x * x).sum() for x in self.pool)
        return [self.gradient(y) for y in self.fw.unpack_dual(loss)]

    def gradient(self, y):
        """Of all leaves; () where what is needed was written to."""
        try:
            found = self.lib.autograd.grad(y, self.leaves, allow_unused=True, retain_graph=True)
        except RuntimeError:
            return ()
        return tuple(map(array, found))


def array(x):
    return None if x is None else x.detach().numpy().copy()


def close(a, b):
    """None stands for zeros."""
    if a is None or b is None:
        return not np.any(a if b is None else b)
    return a.shape == b.shape and np.allclose(a, b)


@few_or_many("count", 12, 2_000)
def test_programs(count):
    for seed in range(count):
        ours, theirs = Program(ad, seed), Program(torch, seed)
        if "a leaf" in [kind for kind, *_ in theirs.log]:
            continue  # PyTorch takes a plain tensor for one, of which a dual was written
        assert ours.log == theirs.log, seed
        for name in ("values", "gradients", "after", "left"):
            found, expected = getattr(ours, name), getattr(theirs, name)
            assert len(found) == len(expected), seed
            for a, b in zip(found, expected, strict=True):
                pairs = zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]
                assert all(close(*pair) for pair in pairs), (seed, name, ours.log)
