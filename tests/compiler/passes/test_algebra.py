"""Algebra on programs: what is exact changes no bit; what is not is asked for."""

from __future__ import annotations

import itertools
import random

import ml_dtypes
import numpy as np
import pytest

import adjoint as ad
from adjoint.compiler.passes import basic_passes
from adjoint.compiler.passes.algebra import exact_algebra, reassociate
from tests.native import needs_native

from ...sweep import few_or_many
from .test_inference_passes import graph_of, names, values

FLOATS = {
    "float32": np.float32, "float64": np.float64, "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip


def special(name):
    """Signed zeros, infinities, NaN, subnormal, least, greatest and common numbers."""
    kind = FLOATS[name]
    about = ml_dtypes.finfo(kind)
    edge = [about.smallest_subnormal, about.smallest_normal, about.max, about.eps]
    plain = [0.0, np.inf, 1.0, 3.0, 0.1, 7.3, 2.0**-3, 1e4]
    one = np.array([*map(float, edge), *plain, np.nan], dtype=np.float64)
    with np.errstate(all="ignore"):
        return np.concatenate([one, -one]).astype(kind)


def pairs(name):
    """Each special number with each."""
    one = special(name)
    both = np.array(list(itertools.product(one, one)), one.dtype)
    return [ad.from_numpy(np.ascontiguousarray(both[:, k])) for k in (0, 1)]


def bits(array):
    """What the elements are to the bit; a NaN is a NaN."""
    array = np.asarray(array)
    if array.dtype.kind in "biu":
        return array
    words = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").copy()
    words[np.isnan(array.astype(np.float64))] = 0x7FC0
    return words


def assert_same_bits(found, expected):
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_array_equal(bits(x), bits(y))


EXACT = {
    "minus zero": (lambda x, y: x + -0.0, ["add"], []),
    "minus zero first": (lambda x, y: -0.0 + x, ["add"], []),
    "less zero": (lambda x, y: x - 0.0, ["sub"], []),
    "times one": (lambda x, y: 1.0 * x, ["mul"], []),
    "by one": (lambda x, y: x / 1, ["true_divide"], []),
    "a constant one": (lambda x, y: x * ad.ones((), dtype=x.dtype).expand(x.shape),
                       ["mul"], []),
    "negative of negative": (lambda x, y: x.neg().neg(), ["neg", "neg"], []),
    "less a negative": (lambda x, y: x - (-y), ["neg", "sub"], ["add"]),
    "a negative more": (lambda x, y: x + (-y), ["neg", "add"], ["sub"]),
    "negative, more": (lambda x, y: (-x) + y, ["neg", "add"], ["sub"]),
    "two negatives": (lambda x, y: (-x) * (-y), ["neg", "neg", "mul"], ["mul"]),
    "quotient of negatives": (lambda x, y: (-x) / (-y), ["neg", "neg", "true_divide"],
                              ["true_divide"]),
    "negative scaled": (lambda x, y: (-x) * 0.1, ["neg", "mul"], ["mul"]),
    "negative divided": (lambda x, y: (-x) / 3, ["neg", "true_divide"], ["true_divide"]),
    "scaled, negative": (lambda x, y: -(x * 0.1), ["mul", "neg"], ["mul"]),
    "size of negative": (lambda x, y: (-x).abs(), ["neg", "abs"], ["abs"]),
    "size of size": (lambda x, y: x.abs().abs(), ["abs", "abs"], ["abs"]),
    "square of negative": (lambda x, y: (-x).square(), ["neg", "square"], ["square"]),
    "square of size": (lambda x, y: x.abs().square(), ["abs", "square"], ["square"]),
    "rectified twice": (lambda x, y: x.relu().relu(), ["relu", "relu"], ["relu"]),
    "expanded twice": (lambda x, y: (x.reshape(1, -1).expand(2, -1).expand(3, 2, -1)),
                       ["reshape", "expand", "expand"], ["reshape", "expand"]),
    "a choice of one": (lambda x, y: ad.where(x > y, x, x), ["gt", "where"], []),
    "the greater of one": (lambda x, y: ad.maximum(x, x), ["maximum"], []),
    "the less of one": (lambda x, y: ad.minimum(x, x), ["minimum"], []),
    "not not": (lambda x, y: (x > y).logical_not().logical_not(),
                ["gt", "logical_not", "logical_not"], ["gt"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("rule", EXACT)
@np.errstate(all="ignore")
def test_exact_algebra(rule, name):
    function, before, after = EXACT[rule]
    inputs = pairs(name)
    graph = graph_of(function, *inputs)
    basic_passes.fold_constants(graph, basic_passes.Folds())
    expected = values(graph, *inputs)
    assert names(graph) == before
    assert exact_algebra(graph) > 0
    basic_passes.drop_dead(graph)
    assert names(graph) == after
    assert_same_bits(values(graph, *inputs), expected)
    assert exact_algebra(graph) == 0


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("power", [1, -1, 5, -20, 100, -126, 126, 127, -127, 1000])
@np.errstate(all="ignore")
def test_powers_of_two_divide_by_products(name, power):
    """Where the reciprocal is a normal number; to the bit for subnormal results, too."""
    fits = abs(power) <= (126 if name == "float32" else 1022)
    for c in (2.0**power, -(2.0**power)):
        inputs = pairs(name)[:1]
        graph = graph_of(lambda x, c=c: x / c, *inputs)
        expected = values(graph, *inputs)
        assert exact_algebra(graph) == fits
        assert names(graph) == ["mul" if fits else "true_divide"]
        assert_same_bits(values(graph, *inputs), expected)


KEPT = {
    "plus zero": lambda x, y: x + 0.0,  # -0 becomes 0
    "less minus zero": lambda x, y: x - -0.0,
    "from zero": lambda x, y: 0.0 - x,
    "times zero": lambda x, y: x * 0.0,
    "itself less": lambda x, y: x - x,
    "itself over": lambda x, y: x / x,
    "one over": lambda x, y: 1 / x,
    "a third": lambda x, y: x / 3,
    "difference turned": lambda x, y: -(x - y),  # 0, where x is y
    "there and back": lambda x, y: x + y - y,
    "merged": lambda x, y: x * 2 * 3,
    "wider": lambda x, y: x * ad.ones(2, 1, dtype=x.dtype),
    "rounded": lambda x, y: x.to(ad.bfloat16).to(ad.float64),
    "by integers": lambda x, y: x.to(ad.int32).to(ad.float64),
}


@pytest.mark.parametrize("rule", KEPT)
@np.errstate(all="ignore")
def test_what_would_change_a_bit_is_kept(rule):
    graph = graph_of(KEPT[rule], *pairs("float32"))
    basic_passes.fold_constants(graph, basic_passes.Folds())
    before = names(graph)
    assert exact_algebra(graph) == 0 and names(graph) == before


@np.errstate(all="ignore")
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_casts_of_casts():
    """Every three dtypes: what is left gives the same, and all that loses nothing is one cast."""
    kinds = [
        ad.bool, ad.uint8, ad.int8, ad.int16, ad.int32, ad.int64, ad.float16, ad.bfloat16,
        ad.float32, ad.float64, ad.complex64, ad.complex128,
    ]  # fmt: skip
    ints = np.array([0, 1, -1, 2**15, -(2**15), 2**31 - 1, 2**53 + 1, -(2**63), 255, 300])
    joined = set()
    for first, second, last in itertools.product(kinds, repeat=3):
        if first is second or second is last:
            continue
        if first.is_floating_point or first.is_complex:
            x = ad.from_numpy(special("float64")).to(first)
        else:
            x = ad.from_numpy(ints).to(first)
        if second.category < 2 <= first.category or last.category < 2 <= max(first.category, 2):
            x = x[:1] * 0 + 1 if first.category >= 2 else x  # numbers beyond a range are any
        graph = graph_of(lambda x, s=second, t=last: x.to(s).to(t), x)
        expected = values(graph, x)
        if exact_algebra(graph):
            basic_passes.drop_dead(graph)
            joined.add((first.name, second.name, last.name))
            assert len(graph.nodes) == (first is not last)
            found = values(graph, x)
            for a, b in zip(found, expected, strict=True):
                if a.dtype.kind == "c":
                    assert_same_bits([a.real, a.imag], [b.real, b.imag])
                else:
                    assert_same_bits([a], [b])
    for way in (
        "float16 float32 float16", "bfloat16 float64 float32", "int8 int64 int8",
        "bool uint8 int64", "uint8 int16 float32", "int32 float64 int32",
        "int32 float64 int64", "float32 complex64 float64", "complex64 complex128 complex64",
    ):  # fmt: skip
        assert tuple(way.split()) in joined
    for way in (
        "float32 float16 float32", "int64 float64 int64", "float16 bfloat16 float32",
        "int64 int32 int64", "uint8 int8 int64", "float32 float64 int32", "int32 float64 int8",
        "complex64 float32 complex64", "int8 uint8 int16", "uint8 float32 int8",
        "int64 int32 bool",
    ):  # fmt: skip
        assert tuple(way.split()) not in joined


@pytest.mark.parametrize("name", ["int8", "uint8", "int64"])
def test_integers(name):
    about = np.iinfo(name)
    x = ad.from_numpy(np.array([0, 1, about.min, about.max, 77], name))
    for function, count in (
        (lambda x: x + 0, 0), (lambda x: x * 1, 0), (lambda x: x.neg().neg(), 0),
        (lambda x: (-x).abs(), 2), (lambda x: (-x) * 3, 2), (lambda x: (-x).square(), 2),
    ):  # fmt: skip
        graph = graph_of(function, x)
        expected = values(graph, x)
        exact_algebra(graph)
        basic_passes.drop_dead(graph)
        assert len(graph.nodes) == count
        assert_same_bits(values(graph, x), expected)


# ---- programs at random --------------------------------------------------------------------------

STEPS = [
    lambda x, y, c: x + y, lambda x, y, c: x - y, lambda x, y, c: x * y, lambda x, y, c: x / y,
    lambda x, y, c: -x, lambda x, y, c: -x, lambda x, y, c: x * c, lambda x, y, c: x / c,
    lambda x, y, c: x + c, lambda x, y, c: c - x, lambda x, y, c: x.abs(),
    lambda x, y, c: x.square(), lambda x, y, c: x.relu(), lambda x, y, c: ad.maximum(x, y),
    lambda x, y, c: ad.where(x > c, x, y), lambda x, y, c: x.double().to(x.dtype),
]  # fmt: skip
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.25, -8.0, 3.0, 0.1, 1e30, 2.0**-126]


def program(seed):
    """A function of two inputs, by a few steps."""
    choose = random.Random(seed)
    steps = [
        (choose.choice(STEPS), choose.random(), choose.random(), choose.choice(NUMBERS))
        for _ in range(choose.randint(2, 12))
    ]

    def function(x, y):
        found = [x, y]
        for step, i, j, c in steps:
            found.append(step(found[int(i * len(found))], found[-1 - int(j * 2)], c))
        return tuple(found[-3:])

    return function


@few_or_many("cases", 60, 3000)
@np.errstate(all="ignore")
def test_random_programs_keep_their_bits(cases):
    changed = 0
    for seed in range(cases):
        inputs = pairs(("float32", "float64")[seed % 2])
        graph = graph_of(program(seed), *inputs)
        expected = values(graph, *inputs)
        count = len(graph.nodes)
        changed += exact_algebra(graph) > 0
        basic_passes.merge_equal(graph)
        basic_passes.drop_dead(graph)
        assert len(graph.nodes) <= count
        assert_same_bits(values(graph, *inputs), expected)
    assert changed > cases / 3


# ---- nearly --------------------------------------------------------------------------------------

X = ad.from_numpy(np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32))
Y = ad.from_numpy(np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32))

NEARLY = {
    "numbers of products": (lambda x, y: x * 2 * 3 / 5, ["mul", "mul", "true_divide"], ["mul"]),
    "numbers of sums": (lambda x, y: x + 1 - 3 + 0.5, ["add", "sub", "add"], ["add"]),
    "a quotient": (lambda x, y: x / 3, ["true_divide"], ["mul"]),
    "rows by sums": (lambda x, y: x / y.sum(1, True), ["sum", "true_divide"],
                     ["sum", "reciprocal", "mul"]),
    "sum of scaled": (lambda x, y: (x * 3).sum(0), ["mul", "sum"], ["sum", "mul"]),
    "sum of divided": (lambda x, y: (x / 3).sum(), ["true_divide", "sum"], ["sum", "mul"]),
    "mean of negative": (lambda x, y: (-x).mean(1), ["neg", "mean"], ["mean", "mul"]),
    "sum scaled by a value": (lambda x, y: (x * y.sum()).sum(1), ["sum", "mul", "sum"],
                              ["sum", "sum", "mul"]),
    "scaled twice by one": (lambda x, y: x * 3 + y * 3, ["mul", "mul", "add"], ["add", "mul"]),
    "less, by a value": (lambda x, y: x * y.sum() - y.sum() * y,
                         ["sum", "mul", "sum", "mul", "sub"], ["sum", "sub", "mul"]),
}  # fmt: skip


@pytest.mark.parametrize("rule", NEARLY)
def test_reassociate(rule):
    function, before, after = NEARLY[rule]
    graph = graph_of(function, X, Y)
    expected = values(graph, X, Y)
    assert names(graph) == before
    basic_passes.merge_equal(graph)
    assert exact_algebra(graph) == 0  # none of it is exact
    assert reassociate(graph) > 0
    basic_passes.drop_dead(graph)
    graph.verify()
    assert names(graph) == after
    np.testing.assert_allclose(values(graph, X, Y)[0], expected[0], rtol=2e-5, atol=1e-5)
    assert reassociate(graph) == 0


def test_what_is_read_elsewhere_or_would_overflow_stays():
    def twice(x, y):
        z = x * 3
        return z.sum(), z

    for function in (
        twice,
        lambda x, y: x * 1e30 * 1e30,
        lambda x, y: x * 1e-30 * 1e-30,
        lambda x, y: x / 0.0,
        lambda x, y: x + float("inf") - 1.0,
        lambda x, y: (x * 3).sum(()) if False else (x * y).sum(),
        lambda x, y: x.half() * 2 * 3,
        lambda x, y: x.long() + 1 + 2,
    ):
        graph = graph_of(function, X, Y)
        before = names(graph)
        assert reassociate(graph) == 0 and names(graph) == before


@few_or_many("cases", 20, 1000)
def test_random_programs_are_nearly_the_same(cases):
    """In double precision, on numbers near 1, where rounding is small."""
    changed = 0
    for seed in range(cases):
        draws = np.random.default_rng(seed)
        x, y = (ad.from_numpy(draws.uniform(0.5, 2, (3, 16))) for _ in range(2))
        choose = random.Random(seed)
        forms = [
            lambda x, y, c: x * c, lambda x, y, c: x / c, lambda x, y, c: x + c,
            lambda x, y, c: x - c, lambda x, y, c: x * c + y * c,
            lambda x, y, c: x / y.abs().sum(1, True) + y, lambda x, y, c: x * y,
            lambda x, y, c: (x * c).sum(1, True) + y,
        ]  # fmt: skip
        steps = [(choose.choice(forms), choose.choice([0.5, 3.0, -1.5, 7.0])) for _ in range(8)]

        def function(x, y, steps=steps):
            sizes = [x.abs().max()]
            for k, (step, c) in enumerate(steps):
                x = step(x, y if k % 2 else x, c)
                sizes.append(x.abs().max())
            return x, ad.stack(sizes).max()

        graph = graph_of(function, x, y)
        expected, largest = values(graph, x, y)
        changed += reassociate(graph) > 0
        basic_passes.drop_dead(graph)
        graph.verify()
        found = values(graph, x, y)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * largest)
    assert changed > cases / 2


# ---- in compiled functions -----------------------------------------------------------------------


@needs_native
@np.errstate(all="ignore")
def test_compiled_functions_keep_bits_and_reassociate_when_asked():
    def function(x, y):
        return (x.neg().neg() - 0.0) * 3 * 5 / 4, x - (-y), (x / 8).abs().abs()

    x, y = pairs("float32")
    plain, other = ad.compile(function), ad.compile(function, reassociate=True)
    assert_same_bits([r.numpy() for r in plain(x, y)], [r.numpy() for r in function(x, y)])
    stages = plain.graph(x, y)
    assert stages["exact_algebra"].changes == 6
    assert "reassociate" not in [each.name for each in stages.stages]
    assert [n.op.name for n in stages["drop_dead"].program.nodes] == [
        "mul",
        "mul",
        "mul",
        "add",
        "mul",
        "abs",
    ]
    assert other.graph(x, y)["reassociate"].changes == 2
    found = other(x, y)
    assert_same_bits([r.numpy() for r in found[1:]], [r.numpy() for r in function(x, y)[1:]])
    with pytest.raises(AssertionError):
        assert_same_bits([found[0].numpy()], [function(x, y)[0].numpy()])


@needs_native
def test_a_training_step_reassociated():
    def run(**options):
        ad.manual_seed(0)
        model = ad.nn.Sequential(ad.nn.Linear(6, 8), ad.nn.LayerNorm(8), ad.nn.Linear(8, 3))
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            loss = ad.nn.functional.cross_entropy(model(x) * 2 * 0.7, y) / 3
            loss.backward()
            optimizer.step()
            return loss

        step = ad.compile(step, **options)
        x, y = ad.randn(32, 6), ad.randint(0, 3, (32,))
        return [step(x, y).item() for _ in range(10)]

    np.testing.assert_allclose(run(), run(reassociate=True), rtol=1e-5)
