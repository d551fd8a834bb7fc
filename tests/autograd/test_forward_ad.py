"""`autograd.forward_ad`: every program runs here and in PyTorch, and must end alike."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import forward_ad as fwad

from ..pytorch import torch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def flat(found):
    if isinstance(found, dict):
        return [y for key in sorted(found) for y in flat(found[key])]
    if isinstance(found, (tuple, list)):
        return [y for each in found for y in flat(each)]
    return [found]


def namespace(lib):
    return fwad if lib is ad else __import__("torch.autograd.forward_ad").autograd.forward_ad


def pair(lib, x):
    """A tensor's value and tangent, and whether they have histories."""
    primal, tangent = namespace(lib).unpack_dual(x)
    return [primal, tangent]


def ended(lib, program, *given):
    return flat(program(lib, namespace(lib), *given))


def agree(ours, theirs, tolerance=1e-6):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a is not None, "no tangent"
        assert tuple(a.shape) == tuple(b.shape)
        assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2]
        assert a.requires_grad == b.requires_grad
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().resolve_conj().numpy(), rtol=tolerance, atol=tolerance
        )


def both(program, *shapes, level=True, dtype=np.float64, seed=0):
    """`program(library, forward_ad, *tensors)`, inside a level, gives the same on both."""
    generator = np.random.default_rng(seed)
    given = [generator.standard_normal(shape).astype(dtype) for shape in shapes]
    found = []
    for lib in (ad, torch):
        tensors = [lib.tensor(x.copy()) for x in given]
        if level:
            with namespace(lib).dual_level():
                found.append(ended(lib, program, *tensors))
                found[-1] = [y.clone() if hasattr(y, "clone") else y for y in found[-1]]
        else:
            found.append(ended(lib, program, *tensors))
    agree(*found)


# ---- writes --------------------------------------------------------------------------------------


def write_to_a_dual(lib, fw, p, t):
    d = fw.make_dual(p, t)
    d.mul_(2)
    return [p, t, pair(lib, d), pair(lib, p)]


def write_to_a_dual_by_a_dual(lib, fw, p, t, q, u):
    d, e = fw.make_dual(p, t), fw.make_dual(q, u)
    d.mul_(e)
    d += e
    d.sub_(q)
    d.pow_(2)
    return [p, t, q, u, pair(lib, d), pair(lib, e)]


def write_to_a_plain_tensor(lib, fw, p, t):
    x = lib.zeros(4, dtype=lib.float64)
    d = fw.make_dual(p, t)
    x[1:] = d
    found = [pair(lib, x)]
    x.mul_(d.sum())
    return [*found, pair(lib, x), pair(lib, x[0]), pair(lib, x.sum())]


def views_of_what_is_written(lib, fw, p, t):
    x = lib.zeros(4, dtype=lib.float64)
    v, w = x[1:], x[:2]
    d = fw.make_dual(p, t)
    x[1:] = d
    found = [pair(lib, x), pair(lib, v), pair(lib, w)]
    v.mul_(3)
    w.add_(1)
    w[1] = d[0]
    return [*found, pair(lib, x), pair(lib, v), pair(lib, w)]


def write_to_a_view(lib, fw, p, t):
    x = lib.zeros(2, 4, dtype=lib.float64)
    v = x.t()[1:, 0]
    w = x[0].view(2, 2)
    v.copy_(fw.make_dual(p, t))
    v.exp_()
    return [pair(lib, y) for y in (x, v, w, x.t(), w[0], x * x, w.sin().sum())]


def part_of_a_dual_gets_plain(lib, fw, p, t):
    d = fw.make_dual(p, t)
    v = d[:2]
    d[0] = 1.0
    v[1:] = lib.full((1,), 7.0, dtype=lib.float64)
    return [p, t, pair(lib, d), pair(lib, v), pair(lib, d * v.sum())]


def views_of_a_dual(lib, fw, p, t):
    d = fw.make_dual(p, t)
    v = d[1:]
    w = v.unsqueeze(0).expand(2, 2)
    d.mul_(3)
    found = [pair(lib, v), pair(lib, w * 2)]
    v.mul_(2)
    v[0].sin_()
    return [*found, p, t, pair(lib, d), pair(lib, v), pair(lib, w + 0)]


def base_of_a_dual_is_written(lib, fw, p, t):
    d = fw.make_dual(p, t)
    p.mul_(10)
    found = [pair(lib, d), pair(lib, d * d)]
    p[0] = fw.make_dual(lib.tensor(5.0, dtype=lib.float64), lib.tensor(7.0, dtype=lib.float64))
    return [*found, pair(lib, p), pair(lib, d)]


def results_own_their_tangents(lib, fw, p, t):
    d = fw.make_dual(p, t)
    found = []
    for f in (
        lambda x: x + 1, lambda x: 1 + x, lambda x: x.clone(), lambda x: x * 1, lambda x: -x,
        lambda x: x.to(lib.float32), lambda x: x.contiguous() + 0, lambda x: lib.cat([x, x]),
        lambda x: x.sum(), lambda x: lib.stack([x]), lambda x: x.flip(0), lambda x: x.repeat(2),
        lambda x: x.relu(), lambda x: x.masked_fill(p > 100, 0.0),
        lambda x: lib.where(p < 100, x, p), lambda x: lib.nn.functional.pad(x, (1, 1)),
        lambda x: x.abs(), lambda x: x.clamp(-9, 9), lambda x: lib.nn.functional.leaky_relu(x),
        lambda x: x.index_select(0, lib.tensor([0, 1])), lambda x: x.maximum(p - 100),
        lambda x: x.nan_to_num(), lambda x: x.roll(1), lambda x: x.cumsum(0),
    ):  # fmt: skip
        y = f(d)
        y.mul_(100)
        found += [pair(lib, y), pair(lib, d)]
    return found


def zeroed(lib, fw, p, t):
    d = fw.make_dual(p, t)
    e = d * 2
    v = e[1:]
    d.zero_()
    e.fill_(3.0)
    found = [pair(lib, x) for x in (d, e, v)]
    v.copy_(p[:2])
    return [*found, pair(lib, e), t]


def detached(lib, fw, p, t):
    d = fw.make_dual(p, t)
    e = d.detach()
    f = (d * 2).detach()
    e.mul_(3)
    return [pair(lib, e), pair(lib, d), pair(lib, f), pair(lib, d.data)]


def in_place_chain(lib, fw, p, t):
    d = fw.make_dual(p, t)
    y = d.sigmoid()
    y.mul_(d).add_(d, alpha=2).tanh_().clamp_(-0.5, 0.5).div_(d.abs() + 1)
    y.t_().transpose_(0, 0)
    return [pair(lib, y), pair(lib, d)]


def other_layouts(lib, fw, p, t):
    d = fw.make_dual(p.t(), t)  # the tangent lies in another way, and is copied
    v = d.t().reshape(-1)
    v.mul_(2)
    y = (d * 3).t()
    y[0].add_(1)
    z = y.clone()
    z.view(-1)[0] = 0.0
    return [p, t, pair(lib, d), pair(lib, v), pair(lib, y), pair(lib, z)]


def scattered(lib, fw, p, t):
    d = fw.make_dual(p, t)
    x = lib.ones(5, dtype=lib.float64)
    index = lib.tensor([4, 0, 2])
    x.scatter_(0, index, d)
    y = lib.ones(5, dtype=lib.float64).index_add_(0, index, d)
    z = lib.ones(5, dtype=lib.float64)
    z[index] = d
    w = lib.zeros(3, dtype=lib.float64)
    w[p > -100] = d
    m = lib.zeros(3, dtype=lib.float64).masked_fill_(p > 0, d.sum())
    return [pair(lib, each) for each in (x, y, z, w, m)]


def split_and_written(lib, fw, p, t):
    d = fw.make_dual(p, t)
    a, b = d.split([1, 2])
    found = [pair(lib, a), pair(lib, b)]
    d.mul_(2)
    return [*found, pair(lib, a), pair(lib, b), [pair(lib, y) for y in d.unbind()]]


def dtypes(lib, fw, p, t):
    d = fw.make_dual(p, t)
    x = lib.zeros(3)
    x.copy_(d)
    i = lib.zeros(3, dtype=lib.int64)
    i.copy_(d)
    c = lib.zeros(3, dtype=lib.complex128)
    c.copy_(d)
    found = []
    for y in (x, c):  # in PyTorch the tangents are of the dtype that was copied
        primal, tangent = pair(lib, y)
        found += [primal, tangent.to(y.dtype)]
    return found + [
        pair(lib, y)
        for y in (i, d.to(lib.float32), d.to(lib.complex64), (d * 1j).imag, (d * 1j).abs())
    ]


WRITES = {
    f.__name__: (f, shapes)
    for f, *shapes in (
        (write_to_a_dual, 3, 3), (write_to_a_dual_by_a_dual, 3, 3, 3, 3),
        (write_to_a_plain_tensor, 3, 3), (views_of_what_is_written, 3, 3),
        (write_to_a_view, 3, 3), (part_of_a_dual_gets_plain, 3, 3), (views_of_a_dual, 3, 3),
        (base_of_a_dual_is_written, 3, 3), (results_own_their_tangents, 3, 3), (zeroed, 3, 3),
        (detached, 3, 3), (in_place_chain, 3, 3), (other_layouts, (2, 3), (3, 2)),
        (scattered, 3, 3), (split_and_written, 3, 3), (dtypes, 3, 3),
    )
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writes(name):
    program, shapes = WRITES[name]
    both(program, *shapes)
