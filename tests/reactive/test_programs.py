"""Random programs with views and in-place writes: eagerly, lazily, and in a graph, the same."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import adjoint as ad

# Nodes follow what a program writes: that is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:Graph. ")

FUNCTIONS = {
    "tanh": lambda x: x.tanh(),
    "exp": lambda x: (x * 0.1).exp(),
    "softmax": lambda x: x.softmax(-1),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "sort": lambda x: x.sort(-1)[0],
    "norm": lambda x: (x * x + 1).sqrt(),
    "dropout": lambda x: ad.nn.functional.dropout(x, 0.5),
    "noise": lambda x: x + ad.randn(x.shape, dtype=x.dtype),
    "clone": lambda x: x.clone(),
    "detach": lambda x: x.detach(),
}
VIEWS = {
    "first": lambda x: x[0],
    "last_rows": lambda x: x[1:],
    "column": lambda x: x[..., 0],
    "reversed": lambda x: x.transpose(0, -1),
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
    "where": lambda x, y: ad.where(x > y, x, y),
    "matmul": lambda x, y: x @ y,
    "cat": lambda x, y: ad.cat([x, y]),
}
WRITES = {
    "mul_": lambda x: x.mul_(1.5),
    "add_": lambda x: x.add_(0.5),
    "tanh_": lambda x: x.tanh_(),
    "relu_": lambda x: x.relu_(),
    "zero_": lambda x: x.zero_(),
    "item": lambda x: x.__setitem__(0, 0.25),
    "part": lambda x: x.__setitem__((slice(None), slice(0, 1)), x[:, 1:2] * 2),
    "masked": lambda x: x.masked_fill_(x > 0.3, 0.1),
    "clamp_": lambda x: x.clamp_(-0.5, 0.5),
    "random": lambda x: x.uniform_(0.0, 1.0),
}
WRITES_OF_TWO = {
    "copy_": lambda x, y: x.copy_(y) if x.ndim >= y.ndim else x,
    "iadd": lambda x, y: x.add_(y),
    "imul": lambda x, y: x.mul_(y),
    "isub": lambda x, y: x.sub_(y, alpha=2),
    "set_part": lambda x, y: x.__setitem__(slice(0, 1), y[0:1]),
}
KINDS = {
    "function": FUNCTIONS,
    "view": VIEWS,
    "binary": BINARY,
    "write": WRITES,
    "write_of_two": WRITES_OF_TWO,
}
PLACES = st.integers(0, 12)


def instructions(kind):
    names = st.sampled_from(sorted(KINDS[kind]))
    return st.tuples(
        st.just(kind), names, PLACES, PLACES, st.sampled_from(["grad", "grad", "grad", "no_grad"])
    )


PROGRAMS = st.lists(
    st.sampled_from(["function", "view", "view", "binary", "write", "write", "write_of_two"])
    .flatmap(instructions),
    min_size=1,
    max_size=12,
)  # fmt: skip


def start(seed):
    numbers = np.random.default_rng(seed)
    return [numbers.standard_normal((2, 4)) for _ in range(3)]


def run(program, a, b, c, protected=()):
    """All the program's tensors, and which of its lines were refused. Nothing writes to the
    `protected` tensors, nor to what shares their memory.
    """
    ad.manual_seed(3)
    names = [a, b, c, a * 1.0, c * 1.0]
    refused = []
    for line, (kind, name, i, j, mode) in enumerate(program):
        x, y = names[i % len(names)], names[j % len(names)]
        function = KINDS[kind][name]
        if kind.startswith("write") and any(shares_memory(x, z) for z in protected):
            refused.append(line)
            continue
        try:
            with ad.set_grad_enabled(mode == "grad"):
                result = function(x, y) if "two" in kind or kind == "binary" else function(x)
        except (ad.AdjointError, IndexError) as error:
            refused.append((line, type(error).__name__))
        else:
            if not kind.startswith("write"):
                names.append(result)
    return names, refused


def shares_memory(x, y):
    return x is y or (x._changes is not None and x._changes is y._changes)


def gradients(names, leaves):
    """Of the sum of all that require grad; None where eager execution refuses."""
    ends = [x.sum() for x in names if x.requires_grad]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return ad.autograd.grad(sum(ends), leaves, allow_unused=True)
    except ad.AdjointError:
        return None


def values(tensors):
    return [None if x is None else x.detach().numpy().copy() for x in tensors]


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for have, want in zip(found, expected, strict=True):
        assert (have is None) == (want is None)
        if want is not None:
            assert have.shape == want.shape
            np.testing.assert_array_equal(have, want)


def leaves_of(arrays):
    a, b, c = (ad.tensor(array.copy()) for array in arrays)
    return a.requires_grad_(), b.requires_grad_(), c


def eagerly(program, arrays, protect=False):
    a, b, c = leaves_of(arrays)
    names, refused = run(program, a, b, c, (a, b, c) if protect else ())
    return values(names), gradients(names, [a, b]), refused


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(PROGRAMS, st.booleans())
def test_lazily_as_eagerly(program, read_backwards):
    expected, grads, refused = eagerly(program, start(0))
    a, b, c = leaves_of(start(0))
    with ad.lazy():
        names, refused_lazily = run(program, a, b, c)
        shapes = [x.shape for x in names]
        found = gradients(names, [a, b]) if grads is not None else None
    assert refused_lazily == refused
    assert shapes == [x.shape for x in expected]
    if grads is not None:
        assert_equal(values(found), values(grads))
    order = range(len(names))
    for i in reversed(order) if read_backwards else order:
        assert_equal(values(names[i : i + 1]), expected[i : i + 1])


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(PROGRAMS)
def test_in_a_graph_as_eagerly_also_after_changes(program):
    program = [line for line in program if line[1] != "clone"]  # some are copies, which stay
    graph = ad.Graph()
    graph.freeze_draws()  # test_repeats.py has those that are made again
    first, second = start(0), start(1)
    a, b = graph.parameter(first[0]), graph.parameter(first[1])
    c = graph.input(first[2])
    with graph:
        names, refused = run(program, a, b, c, (a, b, c))
    for arrays in (first, second, first):
        for x, value in zip((a, b, c), arrays, strict=True):
            x.set(value)
        expected, grads, refused_eagerly = eagerly(program, arrays, protect=True)
        assert refused == refused_eagerly
        assert_equal(values(names), expected)
        graph.check_invariants()
        if grads is not None:
            assert_equal(values(gradients(names, [a, b])), values(grads))
        with graph.events() as log:
            values(names)
        assert log.ran == []
    graph.check_invariants()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(PROGRAMS)
def test_in_a_graph_of_tensors_from_outside(program):
    """The graph follows eager tensors: what changes them in place changes it."""
    program = [line for line in program if line[1] != "clone"]  # some are copies, which stay
    graph = ad.Graph()
    graph.freeze_draws()  # test_repeats.py has those that are made again
    first, second = start(0), start(1)
    a, b, c = leaves_of(first)
    with graph:
        names, _ = run(program, a, b, c, (a, b, c))
    for arrays in (first, second):
        with ad.no_grad():
            for x, value in zip((a, b, c), arrays, strict=True):
                x.copy_(ad.tensor(value))
        expected, _, _ = eagerly(program, arrays, protect=True)
        assert_equal(values(names), expected)
        graph.check_invariants()
