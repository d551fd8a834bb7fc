"""Compiled functions that write to their arguments: the caller's tensors change, as eagerly."""

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import AutogradError, ShapeError, Unsupported
from adjoint.runtime.tensors import wrap
from tests.native import needs_native

pytestmark = needs_native


def scaled(x, y):
    x.mul_(2)
    x[0] = y.sum()
    y.copy_(x + y)
    return x.sum(), x


@pytest.mark.parametrize("shape", [(3,), (1,), (0, 3), (15, 7), (200, 300)])
def test_arguments_change_as_in_eager_calls(shape):
    def function(x, y):
        x.mul_(2).add_(y)
        y.copy_(x.tanh())
        return x.sum(), x

    compiled = ad.compile(function)
    for i in range(3):
        given = ad.randn(*shape), ad.full(shape, i + 1.0)
        other = [x.clone() for x in given]
        found, expected = compiled(*given), function(*other)
        assert found[1] is given[0]
        np.testing.assert_allclose(found[0].item(), expected[0].item(), rtol=1e-5, atol=1e-5)
        for a, b in zip(given, other, strict=True):
            np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-5, atol=1e-6)
    assert len(compiled.programs) == 1


def test_views_show_what_is_written_and_others_of_their_memory_stay():
    compiled = ad.compile(scaled)
    base = ad.ones(4, 3)
    x, y = base[:, 1], ad.ones(4)
    compiled(x, y)
    assert base.tolist() == [[1, 4, 1]] + [[1, 2, 1]] * 3
    assert y.tolist() == [5, 3, 3, 3]
    compiled(base[:, 0], base[:, 2].clone())
    assert base[:, 0].tolist() == [4, 2, 2, 2]


def test_a_backward_that_needs_what_was_overwritten_says_so():
    w, x = ad.ones(3, requires_grad=True), ad.ones(3)
    loss = (w * x).sum()
    ad.compile(lambda x: x.mul_(2))(x)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        loss.backward()


def test_swaps_and_running_sums():
    @ad.compile
    def swaps(x, y):
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)

    x, y = ad.ones(3), ad.zeros(3)
    for k in range(3):
        swaps(x, y)
        assert (x.tolist(), y.tolist()) == ([k % 2] * 3, [(k + 1) % 2] * 3)

    model, total = nn.Linear(3, 3), ad.zeros(3)

    @ad.compile
    def adds(total, x):
        with ad.no_grad():
            total += model(x).sum(0)

    expected = sum(model(ad.full((2, 3), float(k))).sum(0) for k in range(3))
    for k in range(3):
        adds(total, ad.full((2, 3), float(k)))
    np.testing.assert_allclose(total.tolist(), expected.tolist(), rtol=1e-5)


def test_memory_that_is_written_and_shown_by_another_argument_is_refused():
    compiled = ad.compile(scaled)
    compiled(ad.ones(4), ad.ones(4))
    base = ad.ones(4, 2)
    with pytest.raises(Unsupported, match="shown by another tensor"):
        compiled(base[:, 0], base.view(8)[::2])
    assert base.tolist() == [[1, 1]] * 4
    compiled(base[:2, 0].clone(), base[:2, 1].clone())
    model = nn.Linear(4, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

    @ad.compile
    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        return x * 1

    step(ad.ones(1, 4))
    before = model.weight.tolist()
    with pytest.raises(Unsupported, match="shown by another tensor"):
        step(model.weight.detach())
    assert model.weight.tolist() == before


def test_arguments_that_cannot_be_written_are_refused_and_stay():
    compiled = ad.compile(scaled)
    compiled(ad.ones(4), ad.ones(4))
    y = ad.ones(4)
    with pytest.raises(AutogradError, match="expanded"):
        compiled(ad.ones(1).expand(4), y)
    with ad.inference_mode():
        x = ad.ones(4)
    with pytest.raises(AutogradError, match="inference tensor"):
        compiled(x, y)
    array = np.ones(4, np.float32)
    array.flags.writeable = False
    with pytest.raises(AutogradError, match="read-only"):
        compiled(wrap(array), y)
    assert y.tolist() == [1] * 4 and array.tolist() == [1] * 4


def test_an_argument_that_would_get_a_history_is_refused():
    w = ad.ones(3, requires_grad=True)
    with pytest.raises(Unsupported, match="gets a history"):
        ad.compile(lambda x: x.mul_(w))(ad.ones(3))


def test_an_error_leaves_arguments_as_they_are():
    def function(x, index):
        x.add_(1)
        return nn.functional.embedding(index, x)

    compiled = ad.compile(function)
    x = ad.zeros(3, 2)
    compiled(x, ad.tensor([2]))
    with pytest.raises(IndexError):
        compiled(x, ad.tensor([3]))
    assert x.tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("offset", [None, 0, 2])
@pytest.mark.parametrize("record", ["lazy", "compiled"])
def test_as_strided_sees_the_memory_that_eager_execution_sees_or_is_refused(record, offset):
    """Results lie row-major in programs and lazy recordings, eager ones like what they are of."""
    base = ad.arange(24.0).view(4, 6)
    parts = [base, base.t(), base[1:], base[:, 1:], base[:1].expand(4, 6), base[:0], base[2, 3]]
    kinds = {
        "itself": lambda x: x,
        "t": lambda x: x.mT,
        "row-major": lambda x: x.mT.clone(memory_format=ad.contiguous_format),
        "computed": lambda x: x * 2 + 1,
        "computed of t": lambda x: x.mT * 2,
        "clone": lambda x: x.mT.clone(),
        "part": lambda x: x[..., 1:] * 1,
    }
    for name, kind in kinds.items():

        def function(x, kind=kind):
            return kind(x).as_strided((2, 2), (1, 3), offset)

        compiled, agreed = ad.compile(function), 0
        for x in [*parts, *reversed(parts)]:
            try:
                expected = function(x)
            except (RuntimeError, IndexError):
                continue
            try:
                if record == "lazy":
                    with ad.lazy():
                        found = function(x)
                else:
                    found = compiled(x)
            except (Unsupported, ShapeError) as error:
                assert "as_strided: " in str(error)
                continue
            assert found.equal(expected), (name, x.stride(), x.storage_offset())
            agreed += 1
        assert agreed or name in ("computed of t", "clone"), (name, agreed)


def test_as_strided_of_a_state_that_is_not_row_major_is_refused():
    state = ad.from_numpy(np.arange(6.0).reshape(2, 3).T)
    compiled = ad.compile(lambda x: state.as_strided((2, 2), (1, 2)) + x)
    with pytest.raises(Unsupported, match=r"as_strided: .* row-major"):
        compiled(ad.ones(1))


def test_as_strided_in_a_branch_goes_by_no_memory_from_outside():
    """Of which it does not know how it lies: a transposed operand gave other elements."""
    base = ad.arange(24.0).view(4, 6)
    refused = ad.compile(lambda x: ad.cond(x.sum() > 0, lambda x: x.as_strided((2,), (3,)),
                                           lambda x: x[0, :2], (x,)))  # fmt: skip
    copied = ad.compile(lambda x: ad.cond(
        x.sum() > 0, lambda x: x.clone(memory_format=ad.contiguous_format).as_strided((2,), (3,)),
        lambda x: x[0, :2], (x,),
    ))  # fmt: skip
    for x in (base, base.t()):
        with pytest.raises(Unsupported, match="as_strided: of memory from outside of its function"):
            refused(x)
        assert copied(x).equal(x.contiguous().view(-1)[[0, 3]])


def test_sparse_arguments():
    x = ad.eye(3).to_sparse_csr()
    with pytest.raises(Unsupported, match="sparse tensors are computed with eagerly alone"):
        ad.compile(ad.sparse.mm)(x, ad.ones(3, 2))
    with pytest.warns(UserWarning, match="runs eagerly: an argument is of layout"):
        found = ad.compile(ad.sparse.mm, fallback="eager")(x, ad.ones(3, 2))
    assert found.equal(ad.ones(3, 2))


@pytest.mark.parametrize("shape", [(3, 15), (1, 3)])
@pytest.mark.parametrize("change", ["t_", "squeeze_"])
def test_shapes_of_tensors_from_outside_stay(shape, change):
    """A program writes values: of another shape they were an error of NumPy's, or were copied."""
    x = ad.randn(*shape)
    before = x.clone()

    def function(x):
        getattr(x, change)()
        return x + 1

    compiled = ad.compile(function)
    if (shape, change) == ((3, 15), "squeeze_"):
        assert ad.equal(compiled(x), before + 1)
        return
    with pytest.raises(Unsupported, match="gives a tensor from outside another shape"):
        compiled(x)
    assert ad.equal(x, before) and x.shape == before.shape
    assert ad.equal(ad.compile(lambda x: function(x.clone()))(x), function(before))


@pytest.mark.parametrize("change", ["mul_", "add_"])
def test_arguments_with_a_history_are_not_written(change):
    w = ad.ones(3, requires_grad=True)

    def step(x):
        getattr(x, change)(2.0)
        return x * 1

    with pytest.raises(Unsupported, match="writes to an argument that was computed"):
        ad.compile(step)(w * 2)
    with pytest.warns(UserWarning, match="writes to an argument that was computed"):
        y = ad.compile(step, fallback="eager")(w * 2)
    y.sum().backward()
    assert w.grad.tolist() == ([4.0] if change == "mul_" else [2.0]) * 3
