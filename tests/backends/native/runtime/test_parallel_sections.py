"""Small calls through which threads go apart: which, that no part touches another's, same bits."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

pytest.importorskip("llvmlite")
import adjoint as ad
from adjoint.backends.codegen import Compiled, Kernel
from adjoint.backends.native.lowering.bound import bound_kernel, bound_product, product_into
from adjoint.backends.native.lowering.scratch import Scratch
from adjoint.backends.native.runtime.launch_list import Launch, LaunchList
from adjoint.backends.native.runtime.parallel_sections import parallel_sections
from adjoint.core import policy
from tests.native import needs_native

pytestmark = needs_native


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """However little it is."""
    monkeypatch.setattr(policy, "REGION_LEAST", 1)


@pytest.fixture(params=[2, 3, 7])
def threads(request):
    before = ad.get_num_threads()
    ad.set_num_threads(request.param)
    yield request.param
    ad.set_num_threads(before)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def elementwise():
    k = Kernel(2)
    x, y = k.input("float32"), k.input("float32")
    k.output(k.tanh(x) * y + 1)
    return Compiled(k)


def summing(axis):
    k = Kernel(2)
    k.output(k.sum(k.input("float32"), (axis,)))
    return Compiled(k)


KEPT = []


def network(rows, width=16, seed=0):
    """Arrays, and the calls of two layers, a sum of each row, and sums over all rows."""
    x, first, second, bias = (
        drawn(*shape, seed=seed + k)
        for k, shape in enumerate([(rows, width), (width, 12), (12, width), (12,)])
    )
    h, a = np.zeros((2, rows, 12), np.float32)
    y = np.zeros((rows, width), np.float32)
    each, gradient = np.zeros(rows, np.float32), np.zeros((width, 12), np.float32)
    sums = np.zeros(12, np.float32)
    turned = first.T.copy()
    calls = [
        *bound_product("linear", (x, turned, bias), h, Scratch()),
        *bound_kernel(elementwise(), [h, bias[None]], [a]),
        *bound_product("product", (a, second), y, Scratch()),
        *bound_kernel(summing(1), [y], [each]),
        *bound_product("product", (x.T, a), gradient, Scratch()),
        *bound_kernel(summing(0), [a], [sums]),
    ]
    KEPT[:] = turned, second, bias  # calls have their addresses only
    return (x, h, a, y, each, gradient, sums), calls


def alone(calls):
    for each in calls:
        each()


@pytest.mark.parametrize("rows", [8, 9, 15, 16, 33, 100])
def test_what_threads_compute_apart_is_what_each_call_computes(rows, threads):
    arrays, calls = network(rows)
    assert all(type(each) is Launch for each in calls)
    alone(calls)
    expected = [each.copy() for each in arrays]
    sequence = LaunchList(calls)
    assert sequence.regions == [range(4), range(4, 6)]
    for _ in range(50):
        for each in arrays[1:]:
            each[...] = np.nan
        sequence()
        for found, known in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(found, known)
    for each in arrays[1:]:
        each[...] = np.nan
    seen = []
    sequence.one_by_one(lambda k, run: seen.append((k, run())))
    assert [k for k, _ in seen] == list(range(6))
    for found, known in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(found, known)


def test_few_rows_and_one_thread(threads):
    _, calls = network(7)
    assert not [each for each in parallel_sections(calls, threads) if each.first == 0]
    assert parallel_sections(network(100)[1], 1) == []
    assert len(parallel_sections(network(100)[1][:1], threads)) == 0


def test_memory_that_moves_is_followed(threads):
    arrays, calls = network(32)
    sequence = LaunchList(calls)
    sequence()
    expected = [each.copy() for each in arrays]
    places = [sequence.moving(each) for each in arrays]
    other = [np.zeros_like(each) for each in arrays]
    other[0][...] = arrays[0]
    for each in arrays:
        each[...] = np.nan
    for move, each in zip(places, other, strict=True):
        move(each.ctypes.data)
    sequence()
    for found, known in zip(other, expected, strict=True):
        np.testing.assert_array_equal(found, known)
    assert all(np.isnan(each).all() for each in arrays)


def test_what_another_part_reads_or_writes_ends_a_region(threads):
    """A product of what all rows gave, and a result in memory that other rows have yet to read."""
    x, y, w = drawn(64, 16), np.zeros((64, 16), np.float32), drawn(16, 16)
    first = bound_product("product", (x, w), y, Scratch())
    z = np.zeros((16, 16), np.float32)
    found = parallel_sections([*first, *bound_product("product", (y.T, y), z, Scratch())], threads)
    assert found == []
    narrow = x.reshape(-1)[:64].reshape(64, 1)  # where x is
    column = w[:, :1].copy()
    calls = [*first, *bound_product("product", (y, column), narrow, Scratch())]
    assert parallel_sections(calls, threads) == []
    apart = np.zeros((64, 1), np.float32)
    calls = [*first, *bound_product("product", (y, column), apart, Scratch())]
    assert [range(each.first, each.last) for each in parallel_sections(calls, threads)] == [
        range(2)
    ]


def test_halves_of_a_sum_say_what_they_touch(threads):
    """The second reads what the first has written."""
    k = Kernel(1)
    k.output(k.sum(k.input("float32"), (0,)))
    x, out = drawn(200_000), np.zeros((), np.float32)
    calls = bound_kernel(Compiled(k), [x], [out])
    said = [call.spans for call in calls if type(call) is Launch]
    assert len(said) > 1 and all(
        len(spans) == len(call.pointers) for spans, call in zip(said, calls, strict=True)
    )
    assert all(region.last - region.first < 2 for region in parallel_sections(calls, threads))


def test_calls_that_need_each_other_are_no_parts(threads):
    x, w = drawn(4, 16), drawn(16, 16)
    ys = [np.zeros((4, 16), np.float32) for _ in range(5)]
    calls = [bound_product("product", (x, w), y, Scratch())[0] for y in ys]
    [region] = parallel_sections(calls, threads)
    assert sorted(n for part in region.parts for n, *_ in part) == list(range(5))
    assert len(region.parts) == min(threads, 5)
    calls.insert(3, bound_product("product", (ys[0], w), ys[4], Scratch())[0])
    found = parallel_sections(calls, threads)
    assert [range(each.first, each.last) for each in found] == [range(3), range(3, 5)]
    assert not set(range(6)).difference((*range(3), *range(3, 5), 5))
    alone(calls)
    expected = [y.copy() for y in ys]
    sequence = LaunchList(calls)
    for _ in range(20):
        for y in ys:
            y[...] = np.nan
        sequence()
        for y, known in zip(ys, expected, strict=True):
            np.testing.assert_array_equal(y, known)


def test_one_that_is_larger_than_the_others_is_shared_by_itself(monkeypatch):
    """What is dealt out must take less time than with all threads at one after another."""
    before = ad.get_num_threads()
    ad.set_num_threads(2)
    try:
        monkeypatch.setattr(policy, "REGION_LEAST", 1 << 16)
        monkeypatch.setattr(
            "adjoint.backends.native.runtime.parallel_sections.FEWEST", 1000
        )  # none by rows
        x, w, v = drawn(64, 64), drawn(64, 64), drawn(64, 2)
        large, *rest = (np.zeros((64, n), np.float32) for n in (64, 2, 2))
        few = [bound_product("product", (x, v), y, Scratch())[0] for y in rest]
        [one] = bound_product("product", (x, w), large, Scratch())
        assert one.shared and one.work == 64**3 and not few[0].shared
        assert parallel_sections([one, *few], 2) == []
        ys = [np.zeros((64, 64), np.float32) for _ in range(2)]
        both = [bound_product("product", (x, w), y, Scratch())[0] for y in ys]
        [region] = parallel_sections([*both, *few], 2)
        assert (region.first, region.last) == (0, 4)
    finally:
        ad.set_num_threads(before)


def test_what_is_large_or_may_refuse_is_in_none(threads, monkeypatch):
    _, calls = network(32)
    monkeypatch.setattr(policy, "REGION_MOST", 32 * 16 * 12 - 1)
    assert [range(each.first, each.last) for each in parallel_sections(calls, threads)] == []
    monkeypatch.setattr(policy, "REGION_MOST", 1 << 20)
    calls[1].otherwise = lambda: None
    found = [range(each.first, each.last) for each in parallel_sections(calls, threads)]
    assert found == [range(2, 4), range(4, 6)]


def test_rectified_products_and_rows_with_gaps(threads):
    x, w, room = drawn(24, 8), drawn(8, 6), np.full((24, 10), 7, np.float32)
    y, z = room[:, 2:8], np.zeros((24, 6), np.float32)
    call = product_into("product", (x, w), y, "relu")
    sequence = LaunchList([call, *bound_kernel(elementwise(), [y, y], [z])])
    assert sequence.regions == [range(2)]
    sequence()
    known = np.maximum(x @ w, 0)
    np.testing.assert_allclose(y, known, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(z, np.tanh(known) * known + 1, rtol=1e-5, atol=1e-6)
    assert (room[:, :2] == 7).all() and (room[:, 8:] == 7).all()


def test_products_that_are_added_to_one_sum(threads):
    """Each thread adds to rows of its own: what is in them is read, too."""
    pairs = [(drawn(8, 24).T, drawn(8, 6)) for _ in range(5)]  # as gradients of weights are
    begin = drawn(24, 6)
    y, z = begin.copy(), np.zeros((24, 6), np.float32)
    calls = [product_into("product", pair, y, "add") for pair in pairs]
    sequence = LaunchList([*calls, *bound_kernel(elementwise(), [y, y], [z])])
    assert sequence.regions == [range(6)]
    for _ in range(20):
        y[...] = known = begin
        sequence()
        for a, b in pairs:
            known = known + a @ b
        np.testing.assert_allclose(y, known, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(z, np.tanh(known) * known + 1, rtol=1e-4, atol=1e-5)


# ---- blocks of kernels ---------------------------------------------------------------------------


def lying(x, how):
    """The same elements in other memory."""
    if how == "turned":
        return np.ascontiguousarray(x.T).T
    if how == "gaps":
        room = np.zeros((x.shape[0], x.shape[1] + 3), x.dtype)
        room[:, 1:-2] = x
        return room[:, 1:-2]
    if how == "backwards":
        return np.ascontiguousarray(x[::-1])[::-1]
    return x


WAYS = ("rows", "turned", "gaps", "backwards")


@pytest.mark.parametrize("size", [1, 2, 5, 16])
@pytest.mark.parametrize("ways", [*itertools.product(WAYS, WAYS, WAYS)], ids="-".join)
def test_blocks_of_kernels_write_what_they_say(ways, size):
    """Each block alone, with NaN wherever it does not say that it reads."""
    rows, width = 16, 300
    given = [lying(drawn(rows, width, seed=k), how) for k, how in enumerate(ways[:2])]
    out = lying(np.full((rows, width), 5, np.float32), ways[2])
    compiled = elementwise()
    expected = compiled(*given)
    [call] = bound_kernel(compiled, given, [out])
    found = call.blocks(rows, size)
    if found is None:
        assert "turned" in ways  # rows are no outer loop there
        return
    assert len(found.spans) == -(-rows // size)
    arrays = *given, out
    base = [x if x.base is None else x.base for x in arrays]
    begin = [a.ctypes.data - x.ctypes.data for a, x in zip(arrays, base, strict=True)]
    flat = [x.reshape(-1).view(np.uint8) for x in base]
    kept = [x.copy() for x in flat]
    done = np.zeros((rows, width), int)
    for block, spans in enumerate(found.spans):
        for now, was, start, (low, high) in zip(flat, kept, begin, spans, strict=True):
            now[...] = 255  # NaN
            now[start + low : start + high] = was[start + low : start + high]
        before, shown = flat[2].copy(), out.copy()
        _run(call, found.words, block)
        changed = np.flatnonzero(flat[2] != before) - begin[2]
        assert spans[2][0] <= changed[0] and changed[-1] < spans[2][1]
        written = out.view(np.uint32) != shown.view(np.uint32)
        np.testing.assert_array_equal(out[written], expected[written])
        done += written
    assert (done == 1).all()


def _run(call, words, block):
    """One chunk of a call."""
    buffer = ctypes.create_string_buffer(words, len(words))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    kind(call.address)(block, block + 1, ctypes.addressof(buffer))


@pytest.mark.parametrize("rows", [1, 4, 15, 60])
def test_sums_of_rows_in_blocks(rows):
    x, y = drawn(rows, 37), np.zeros(rows, np.float32)
    compiled = summing(1)
    expected = compiled(x)
    [call] = bound_kernel(compiled, [x], [y])
    for size in {1, max(rows // 2, 1), rows}:
        found = call.blocks(rows, size)
        if found is None:  # a sum of everything
            assert rows == 1
            continue
        y[...] = np.nan
        for block in reversed(range(len(found.spans))):
            _run(call, found.words, block)
        np.testing.assert_array_equal(y, expected)
    assert call.blocks(rows + 1, 1) is None
    [over] = bound_kernel(summing(0), [drawn(64, 8)], [np.zeros(8, np.float32)])
    assert over.blocks(64, 8) is None and over.blocks(8, 4) is None


def test_three_dimensions_in_blocks_of_the_first(threads):
    k = Kernel(3)
    x, y = k.input("float32"), k.input("float32")
    k.output(x * y)
    compiled = Compiled(k)
    x, y = drawn(12, 5, 7), drawn(12, 1, 7, seed=1)
    out = np.zeros((12, 5, 7), np.float32)
    [call] = bound_kernel(compiled, [x, y], [out])
    for rows, size in ((12, 5), (4, 1), (12, 12)):
        found = call.blocks(rows, size)
        assert found is not None and len(found.spans) == -(-rows // size)
        out[...] = np.nan
        for block in range(len(found.spans)):
            _run(call, found.words, block)
        np.testing.assert_array_equal(out, x * y)
    assert call.blocks(5, 1) is None
