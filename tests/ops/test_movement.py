"""Movement beside PyTorch: values, strides and storage, gradients, joining, splitting, padding."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjoint as ad
from adjoint.ops.shape.arranging import pad

torch = pytest.importorskip("torch")

FEW = settings(max_examples=100, deadline=None)


def distinct(shape, dtype=np.float64):
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


def both(array, requires_grad=False):
    ours, theirs = ad.tensor(array), torch.tensor(array)
    return (ours.requires_grad_(), theirs.requires_grad_()) if requires_grad else (ours, theirs)


def assert_same(ours, theirs):
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    assert tuple(ours.shape) == tuple(theirs.shape)
    a, b = ours.detach(), theirs.detach()
    np.testing.assert_array_equal(a.numpy(), b.resolve_conj().numpy())


def assert_same_layout(ours, theirs, base, their_base):
    """The same place in the storage, the same strides where they matter, both views or neither."""
    assert ours.is_contiguous() == theirs.is_contiguous()
    if not theirs.numel():
        return
    same_storage = theirs.untyped_storage().data_ptr() == their_base.untyped_storage().data_ptr()
    assert np.may_share_memory(ours.detach().numpy(), base.detach().numpy()) == same_storage
    for size, a, b in zip(theirs.shape, ours.stride(), theirs.stride(), strict=True):
        assert size == 1 or a == b
    if same_storage:
        assert ours.data_ptr() - base.data_ptr() == theirs.data_ptr() - their_base.data_ptr()


X = distinct((2, 3, 4))
S = distinct((4, 4))
V = distinct((6,))
Z = distinct(())
ONES = distinct((1, 3, 1, 2))

# name: (call(module, *tensors), arrays); each is run in both libraries
CALLS = {
    "view": (lambda m, x: x.view(6, 4), X),
    "view-infer": (lambda m, x: x.view(-1, 2), X),
    "view-of-transposed": (lambda m, x: x.transpose(0, 1).view(3, 2, 2, 2), X),
    "view-dtype": (lambda m, x: x.detach().view(m.int64), X),
    "view-smaller-dtype": (lambda m, x: x.detach().view(m.int16), X),
    "view-larger-dtype": (lambda m, x: x.detach().view(m.complex128), X),
    "view_as": (lambda m, x, y: x.view_as(y), X, distinct((4, 6))),
    "reshape": (lambda m, x: m.reshape(x, (4, 6)), X),
    "reshape-copy": (lambda m, x: x.transpose(0, 2).reshape(-1), X),
    "reshape-0d": (lambda m, x: x.reshape(1, 1), Z),
    "reshape_as": (lambda m, x, y: x.reshape_as(y), X, distinct((4, 6))),
    "transpose": (lambda m, x: m.transpose(x, 0, -1), X),
    "transpose-0d": (lambda m, x: m.transpose(x, 0, -1), Z),
    "swapaxes": (lambda m, x: m.swapaxes(x, 0, 1), X),
    "swapdims": (lambda m, x: x.swapdims(0, 1), X),
    "t": (lambda m, x: m.t(x), S),
    "t-1d": (lambda m, x: x.t(), V),
    "T": (lambda m, x: x.T, S),
    "mT": (lambda m, x: x.mT, X),
    "H": (lambda m, x: x.H, S),
    "mH": (lambda m, x: x.mH, X),
    "mH-complex": (lambda m, x: x.mH, X + 2j * X),
    "adjoint": (lambda m, x: m.adjoint(x), X),
    "permute": (lambda m, x: m.permute(x, (2, 0, 1)), X),
    "permute-args": (lambda m, x: x.permute(2, -3, 1), X),
    "permute-keyword": (lambda m, x: x.permute(dims=(2, 0, 1)), X),
    "movedim": (lambda m, x: m.movedim(x, 0, 2), X),
    "movedim-several": (lambda m, x: x.movedim((0, 1), (-1, 0)), X),
    "moveaxis": (lambda m, x: m.moveaxis(x, (2, 0), (0, 1)), X),
    "squeeze": (lambda m, x: m.squeeze(x), ONES),
    "squeeze-dim": (lambda m, x: x.squeeze(2), ONES),
    "squeeze-not-1": (lambda m, x: x.squeeze(1), ONES),
    "squeeze-dims": (lambda m, x: x.squeeze((0, 2, 3)), ONES),
    "squeeze-0d": (lambda m, x: x.squeeze(0), Z),
    "unsqueeze": (lambda m, x: m.unsqueeze(x, -1), X),
    "unsqueeze-strided": (lambda m, x: x.transpose(0, 2).unsqueeze(1), X),
    "expand": (lambda m, x: x.expand(5, -1, 3, 2, -1), ONES),
    "expand-0d": (lambda m, x: x.expand(2, 3), Z),
    "expand-empty": (lambda m, x: x.expand(0, 1, 3, 1, 2), ONES),
    "expand_as": (lambda m, x, y: x.expand_as(y), ONES, distinct((2, 3, 5, 2))),
    "broadcast_to": (lambda m, x: m.broadcast_to(x, (2, 3, 2, 2)), ONES),
    "diagonal": (lambda m, x: m.diagonal(x), S),
    "diagonal-offset": (lambda m, x: x.diagonal(-2, 2, 1), X),
    "diagonal-outside": (lambda m, x: x.diagonal(9), S),
    "diag_embed": (lambda m, x: m.diag_embed(x), X),
    "diag_embed-dims": (lambda m, x: m.diag_embed(x, -1, 0, 2), X),
    "diag-vector": (lambda m, x: m.diag(x, 1), V),
    "diag-matrix": (lambda m, x: m.diag(x, -1), S),
    "diagflat": (lambda m, x: m.diagflat(x, 1), S),
    "trace": (lambda m, x: m.trace(x), S),
    "unfold": (lambda m, x: x.unfold(2, 2, 1), X),
    "unfold-step": (lambda m, x: x.unfold(0, 3, 2), V),
    "unfold-0d": (lambda m, x: x.unfold(0, 1, 1), Z),
    "as_strided": (lambda m, x: m.as_strided(x, (2, 3), (2, 3), 4), X),
    "as_strided-overlap": (lambda m, x: x.as_strided((4, 3), (1, 1)), V),
    "as_strided-of-view": (lambda m, x: (x * 1).detach()[1].as_strided((2, 2), (12, 1), 3), X),
    "narrow": (lambda m, x: m.narrow(x, 2, 1, 2), X),
    "narrow-negative": (lambda m, x: x.narrow(1, -2, 2), X),
    "select": (lambda m, x: m.select(x, 1, -1), X),
    "unflatten": (lambda m, x: m.unflatten(x, 2, (2, -1)), X),
    "flatten": (lambda m, x: m.flatten(x), X),
    "flatten-dims": (lambda m, x: x.flatten(1, -1), X),
    "flatten-0d": (lambda m, x: x.flatten(), Z),
    "flatten-strided": (lambda m, x: x.transpose(0, 1).flatten(0, 1), X),
    "ravel": (lambda m, x: m.ravel(x), X),
    "contiguous": (lambda m, x: x.transpose(0, 1).contiguous(), X),
    "contiguous-itself": (lambda m, x: x.contiguous(), X),
    "clone": (lambda m, x: x.clone(), X),
    "clone-keeps-order": (lambda m, x: x.permute(2, 0, 1).clone(), X),
    "atleast_1d": (lambda m, x: m.atleast_1d(x), Z),
    "atleast_2d": (lambda m, x: m.atleast_2d(x), V),
    "atleast_3d": (lambda m, x: m.atleast_3d(x), V),
    "atleast_3d-matrix": (lambda m, x: m.atleast_3d([x, x])[1], S),
    "cat": (lambda m, x, y: m.cat([x, y, x], 1), X, distinct((2, 1, 4))),
    "cat-empty-legacy": (lambda m, x, y: m.cat((x, y)), X, distinct((0,))),
    "cat-promotes": (lambda m, x, y: m.cat((x, y)), V, np.array([1, 2])),
    "concat": (lambda m, x: m.concat((x, x), dim=-1), X),
    "concatenate": (lambda m, x: m.concatenate((x, x), axis=1), X),
    "stack": (lambda m, x, y: m.stack([x, y], -1), V, V + 1),
    "stack-0d": (lambda m, x: m.stack((x, x)), Z),
    "hstack": (lambda m, x: m.hstack((x, x)), X),
    "hstack-1d": (lambda m, x, y: m.hstack((x, y)), V, Z),
    "vstack": (lambda m, x: m.vstack((x, x)), V),
    "dstack": (lambda m, x: m.dstack((x, x)), V),
    "column_stack": (lambda m, x, y: m.column_stack((x, y)), V, distinct((6, 2))),
    "row_stack": (lambda m, x: m.row_stack((x, x)), V),
    "repeat": (lambda m, x: x.repeat(2, 1, 3), S),
    "repeat-zero": (lambda m, x: x.repeat(0, 2), S),
    "repeat-zero-many": (lambda m, x: x.repeat(1 << 48, 0), S),
    "repeat-once": (lambda m, x: x.repeat(1, 1, 1), S),
    "tile": (lambda m, x: m.tile(x, (2,)), S),
    "repeat_interleave": (lambda m, x: m.repeat_interleave(x, 2), S),
    "repeat_interleave-dim": (lambda m, x: x.repeat_interleave(3, dim=1), X),
    "repeat_interleave-counts": (
        lambda m, x: m.repeat_interleave(x, m.tensor([1, 0, 2]), dim=1), X),
    "repeat_interleave-one-count": (lambda m, x: m.repeat_interleave(x, m.tensor([2]), dim=0), X),
    "flip": (lambda m, x: m.flip(x, (0, 2)), X),
    "flip-args": (lambda m, x: x.flip(0, 1), X),
    "fliplr": (lambda m, x: m.fliplr(x), S),
    "flipud": (lambda m, x: m.flipud(x), V),
    "roll": (lambda m, x: m.roll(x, 2), S),
    "roll-dims": (lambda m, x: x.roll((1, -5), (0, 2)), X),
    "roll-same-dim": (lambda m, x: x.roll((1, 1), (0, 0)), X),
    **{f"rot90-{k}": (lambda m, x, k=k: m.rot90(x, k, (0, 2)), X) for k in (-1, 0, 1, 2, 3)},
    "block_diag": (lambda m, x, y, z: m.block_diag(x, y, z), S, V, Z),
    "cartesian_prod": (lambda m, x, y: m.cartesian_prod(x, y), V, V[:2]),
    "combinations": (lambda m, x: m.combinations(x), V),
    "combinations-3": (lambda m, x: m.combinations(x, 3, with_replacement=True), V[:3]),
    "combinations-too-many": (lambda m, x: m.combinations(x, 4), V[:3]),
    "tril": (lambda m, x: m.tril(x, 1), X),
    "triu": (lambda m, x: x.triu(-1), X),
    "select_scatter": (lambda m, x, y: x.select_scatter(y, 1, 0), S, S[0]),
    "slice_scatter": (lambda m, x, y: m.slice_scatter(x, y, 1, 0, None, 2), S, S[:, :2]),
    "diagonal_scatter": (lambda m, x, y: x.diagonal_scatter(y, 1), S, V[:3]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_values_layout_and_gradients_equal_pytorchs(name):
    call, *arrays = CALLS[name]
    pairs = [both(a, requires_grad=a.dtype.kind in "fc") for a in arrays]
    ours, theirs = call(ad, *(p[0] for p in pairs)), call(torch, *(p[1] for p in pairs))
    assert_same(ours, theirs)
    if not theirs.is_conj():
        assert_same_layout(ours, theirs, *pairs[0])
    assert ours.requires_grad == theirs.requires_grad
    if theirs.requires_grad:
        weight = distinct(theirs.shape, theirs.detach().resolve_conj().numpy().dtype)
        (ours * ad.tensor(weight)).sum().backward(ad.tensor(1.0).to(ours.dtype))
        (theirs * torch.tensor(weight)).sum().backward(torch.tensor(1.0).to(theirs.dtype))
        for a, b in pairs:
            if b.grad is not None:
                assert_same(a.grad, b.grad.resolve_conj())


SEVERAL = {
    "split": (lambda m, x: m.split(x, 2, 2), X),
    "split-uneven": (lambda m, x: x.split(3, -1), X),
    "split-sizes": (lambda m, x: x.split([1, 0, 2], 1), X),
    "split-one": (lambda m, x: x.split(9), X),
    "split-empty": (lambda m, x: x.split(0), distinct((0, 2))),
    "split_with_sizes": (lambda m, x: m.split_with_sizes(x, (1, 3), 2), X),
    "tensor_split": (lambda m, x: m.tensor_split(x, 4), V),
    "tensor_split-many": (lambda m, x: m.tensor_split(x, 8), V),
    "tensor_split-indices": (lambda m, x: m.tensor_split(x, (1, 4)), V),
    "tensor_split-odd-indices": (lambda m, x: m.tensor_split(x, (3, 1, -2, 9)), V),
    "tensor_split-tensor": (lambda m, x: m.tensor_split(x, m.tensor([2, 3])), V),
    "chunk": (lambda m, x: m.chunk(x, 4), V),
    "chunk-dim": (lambda m, x: x.chunk(2, dim=-1), X),
    "hsplit": (lambda m, x: m.hsplit(x, 2), S),
    "hsplit-1d": (lambda m, x: m.hsplit(x, [1, 2]), V),
    "vsplit": (lambda m, x: m.vsplit(x, 2), S),
    "dsplit": (lambda m, x: m.dsplit(x, 2), X),
    "unbind": (lambda m, x: m.unbind(x), X),
    "unbind-last": (lambda m, x: x.unbind(-1), X),
    "unbind-one": (lambda m, x: x.unbind(0), ONES),
    "unbind-none": (lambda m, x: x.unbind(0), distinct((0, 2))),
    "iter": (lambda m, x: tuple(x), X),
    "meshgrid": (lambda m, x, y: m.meshgrid(x, y, indexing="ij"), V, V[:2]),
    "meshgrid-xy": (lambda m, x, y, z: m.meshgrid([x, y, z], indexing="xy"), V, V[:2], V[:3]),
    "broadcast_tensors": (lambda m, x, y: m.broadcast_tensors(x, y), S, distinct((2, 1, 4))),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_outputs_equal_pytorchs(name):
    call, *arrays = SEVERAL[name]
    pairs = [both(a, requires_grad=True) for a in arrays]
    ours, theirs = call(ad, *(p[0] for p in pairs)), call(torch, *(p[1] for p in pairs))
    assert isinstance(ours, tuple)
    assert len(ours) == len(theirs)
    total = their_total = 0.0
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert_same(a, b)
        assert_same_layout(a, b, *(pairs[0] if len(pairs) == 1 else pairs[i]))
        if i != 1:  # one output stays unused: its gradient is missing
            total = total + (a * a).sum()
            their_total = their_total + (b * b).sum()
    if not len(ours):
        return
    total.backward()
    their_total.backward()
    for a, b in pairs:
        if b.grad is not None:
            assert_same(a.grad, b.grad)


PADS = [
    ("constant", (1, 2)), ("constant", (1, 0, 0, 2)), ("constant", (-1, 2, 1, -1)),
    ("constant", (0, 0)), ("constant", (1, 1, 1, 1, 1, 1)), ("reflect", (2, 1)),
    ("reflect", (1, 3, 2, 0)), ("replicate", (3, 2)), ("replicate", (1, 0, 4, 5)),
    ("circular", (4, 2)), ("circular", (1, 2, 3, 0)), ("replicate", (-1, 2)), ("reflect", (0, 0)),
    ("replicate", (5, -4)), ("replicate", (-5, 6)), ("reflect", (-1, 3)), ("circular", (-1, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "widths"), PADS)
def test_pad(mode, widths):
    ours, theirs = both(X, requires_grad=True)
    a, b = pad(ours, widths, mode), torch.nn.functional.pad(theirs, widths, mode)
    assert_same(a, b)
    assert a is not ours
    (a * a).sum().backward()
    (b * b).sum().backward()
    assert_same(ours.grad, theirs.grad)


def test_pad_with_a_value_in_several_dtypes():
    for dtype in ("float32", "int64", "bool"):
        ours, theirs = both(X.astype(dtype))
        assert_same(pad(ours, (1, 1), value=3), torch.nn.functional.pad(theirs, (1, 1), value=3))


def test_triangle_indices():
    for arguments in ((3, 4), (4, 3, 1), (3, 3, -1), (0, 2), (2, 2, 5)):
        assert_same(ad.tril_indices(*arguments), torch.tril_indices(*arguments))
        assert_same(ad.triu_indices(*arguments), torch.triu_indices(*arguments))


# ---- chains of views, written through ------------------------------------------------------------

STEPS = {
    "transpose": lambda x: x.transpose(0, -1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x.squeeze(),
    "flatten": lambda x: x.flatten(),
    "select": lambda x: x.select(0, x.shape[0] - 1),
    "slice": lambda x: x[..., ::2],
    "narrow": lambda x: x.narrow(0, 0, x.shape[0] // 2 + 1),
    "diagonal": lambda x: x.diagonal(0, 0, -1),
    "unflatten": lambda x: x.unflatten(0, (-1, 1)),
    "view_as": lambda x: x.reshape(x.shape),
    "movedim": lambda x: x.movedim(0, -1),
}


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5),
    st.lists(st.sampled_from(sorted(STEPS)), max_size=3),
)
@FEW
def test_writing_through_a_chain_of_views_reaches_everything(shape, steps, other_steps):
    ours, theirs = both(distinct(tuple(shape)), requires_grad=True)
    results = []
    for leaf in (ours, theirs):
        base = leaf * 1
        views = []
        for names in (steps, other_steps):
            view = base
            for name in names:
                try:
                    view = STEPS[name](view)
                except (RuntimeError, IndexError, ValueError):
                    continue
            views.append(view)
        views[0].mul_(2)
        total = (base * base).sum() + (views[0] * 3).sum() + (views[1] ** 2).sum()
        total.backward()
        results.append((base, *views, leaf.grad))
    for a, b in zip(*results, strict=True):
        assert_same(a, b)


def test_writing_through_a_view_whose_base_is_not_row_major():
    results = []
    for leaf in both(distinct((3, 4)), requires_grad=True):
        base = leaf.t().clone()  # the clone keeps the column-major order
        assert not base.is_contiguous()
        base.t().view(-1)[2:9].mul_(3)
        (base * base).sum().backward()
        results.append((base, leaf.grad))
    for a, b in zip(*results, strict=True):
        assert_same(a, b)


def test_writing_through_part_of_an_expanded_tensor():
    results = []
    for leaf in both(distinct((3, 1)), requires_grad=True):
        base = leaf * 1
        wide = base.expand(3, 4)
        wide[:, 1] = leaf[:, 0] * 5
        (wide * wide).sum().backward()
        results.append((base, wide, leaf.grad))
    for a, b in zip(*results, strict=True):
        assert_same(a, b)
    with pytest.raises(RuntimeError, match="single memory location"):
        ad.zeros(3, 1).expand(3, 4).zero_()


def test_writing_through_chunks_reaches_the_base():
    base = ad.zeros(4)
    first, second = base.chunk(2)
    second.fill_(7)
    assert base.tolist() == [0, 0, 7, 7]
    assert first._base is base
    computed = ad.zeros(4, requires_grad=True) * 1
    for view in (computed.chunk(2)[0], computed.unbind()[1], computed.split(1)[2]):
        with pytest.raises(RuntimeError, match="multiple views"):
            view.zero_()


METADATA = {
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.squeeze_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "t_": lambda x: x.t_(),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, 1),
}


@pytest.mark.parametrize("written", ["self", "base", "earlier view"])
@pytest.mark.parametrize("name", METADATA)
def test_methods_that_change_the_shape_in_place(name, written):
    results = []
    for leaf in both(distinct((2, 3)), requires_grad=True):
        base = leaf * 1
        x = base[:, :2] if written == "base" else base
        earlier = x[0]
        pointer = x.data_ptr()
        assert METADATA[name](x) is x
        assert x.data_ptr() == pointer
        {"self": x, "base": base, "earlier view": earlier}[written].mul_(5)
        ((x * x).sum() + earlier.sum() + base.sum()).backward()
        results.append((x, earlier, base, leaf.grad))
    for a, b in zip(*results, strict=True):
        assert_same(a, b)


def test_shape_changes_in_place_are_refused_for_leaves_that_require_grad():
    x = ad.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.t_()
    with ad.no_grad():
        x.t_()
    (x * ad.ones(3, 2)).sum().backward()
    assert x.grad.shape == (3, 2)


def test_views_share_one_version():
    x = ad.zeros(4)
    view = x[1:].unsqueeze(0)
    before = x._version_count
    view.add_(1)
    assert x._version_count == before + 1 == view._version_count


def test_views_keep_no_reference_cycles():
    gc.disable()
    try:
        x = ad.zeros(4, requires_grad=True) * 1
        views = [x[0], x.view(2, 2), *x.chunk(2), x.unsqueeze(0)]
        x.view(2, 2)[0].mul_(2)
        gone = weakref.ref(x)
        del x, views
        assert gone() is None
    finally:
        gc.enable()


def test_functions_that_move_keep_every_dtype():
    for dtype in (ad.bool, ad.uint8, ad.int16, ad.float16, ad.bfloat16, ad.complex64):
        x = ad.tensor([[0, 1], [1, 1]]).to(dtype)
        moved = [
            x.T, x.flip(0), ad.cat([x, x]), x[[0, 1]], x[:, 0], x.repeat(2, 2), x.tril(), x.diag(),
            x.roll(1), x.clone(), x.gather(0, ad.tensor([[0, 0]])), x.unfold(0, 2, 1),
            pad(x, (1, 1)), x.masked_fill(ad.tensor([True, False]), 1),
        ]  # fmt: skip
        for y in moved:
            assert y.dtype is dtype


# ---- errors --------------------------------------------------------------------------------------

ERRORS = [
    (lambda x: x.view(5), RuntimeError, r"shape '\[5\]' is invalid for input of size 24"),
    (lambda x: x.view(-1, -1), RuntimeError, "only one dimension can be inferred"),
    (lambda x: x.view(-1, 7), RuntimeError, "invalid for input of size"),
    (lambda x: x.transpose(0, 1).view(24), RuntimeError, r"Use .reshape\(...\) instead"),
    (lambda x: x.reshape("a"), TypeError, "must be ints"),
    (lambda x: x[:0].view(-1, 0), RuntimeError, "ambiguous"),
    (lambda x: x.permute(0, 1), RuntimeError, "number of dimensions"),
    (lambda x: x.permute(0, 1, 1), RuntimeError, "duplicate dims"),
    (lambda x: x.transpose(0, 5), IndexError, r"expected to be in range of \[-3, 2\], but got 5"),
    (lambda x: x.t(), RuntimeError, "<= 2 dimensions"),
    (lambda x: x[0, 0].mT, RuntimeError, "only supported on matrices"),
    (lambda x: x.H, RuntimeError, "only supported on matrices"),
    (lambda x: x.expand(2), RuntimeError, "must be greater or equal to the number of dimensions"),
    (lambda x: x.expand(2, 3, 5), RuntimeError, r"size of the tensor \(5\) must match"),
    (lambda x: x.expand(-1, 2, 3, 4), RuntimeError, "leading, non-existing dimension"),
    (lambda x: x.unsqueeze(5), IndexError, r"\[-4, 3\], but got 5"),
    (lambda x: x.squeeze(3), IndexError, "out of range"),
    (lambda x: x.flatten(2, 1), RuntimeError, "start_dim"),
    (lambda x: x.unflatten(0, (3, 1)), RuntimeError, "multiply up to the size"),
    (lambda x: x.unflatten(0, ()), RuntimeError, "non-empty"),
    (lambda x: x.movedim((0, 1), 0), RuntimeError, "same number of dims"),
    (lambda x: x.select(0, 5), IndexError, "index 5 out of range"),
    (lambda x: ad.tensor(1.0).select(0, 0), IndexError, "0-dim"),
    (lambda x: x.narrow(0, 1, 5), RuntimeError, r"start \(1\) \+ length \(5\) exceeds"),
    (lambda x: x.narrow(0, 7, 0), IndexError, "start out of range"),
    (lambda x: x.narrow(0, 0, -1), RuntimeError, "non-negative"),
    (lambda x: x.split(0), RuntimeError, "split_size"),
    (lambda x: x.split([1, 2]), RuntimeError, "sum exactly to 2"),
    (lambda x: x.chunk(0), RuntimeError, "greater than 0"),
    (lambda x: x.tensor_split(0), RuntimeError, "larger than 0"),
    (lambda x: x.hsplit(2), RuntimeError, "not divisible"),
    (lambda x: ad.tensor(1.0).unbind(), IndexError, "no dimensions"),
    (lambda x: ad.cat([]), ValueError, "non-empty list"),
    (lambda x: ad.cat([x, ad.ones(2)]), RuntimeError, "same number of dimensions: got 3 and 1"),
    (lambda x: ad.cat([x, ad.ones(2, 2, 2)]), RuntimeError, "Expected size 3 but got size 2"),
    (lambda x: ad.cat([ad.tensor(1.0)]), RuntimeError, "zero-dimensional"),
    (lambda x: ad.cat([x, 1]), TypeError, "expected a tensor"),
    (lambda x: ad.cat(3), TypeError, "expected a list of tensors"),
    (lambda x: ad.cat([x, x], 3), IndexError, "out of range"),
    (lambda x: ad.stack([x, ad.ones(2)]), RuntimeError, "equal size"),
    (lambda x: x.diagonal(0, 1, 1), RuntimeError, "cannot be identical"),
    (lambda x: x.diag(), RuntimeError, "1D or 2D"),
    (lambda x: x.trace(), RuntimeError, "expected a matrix"),
    (lambda x: x.unfold(0, 3, 1), RuntimeError, "maximum size"),
    (lambda x: x.unfold(0, 1, 0), RuntimeError, "step is 0"),
    (lambda x: x.as_strided((30,), (1,)), RuntimeError, "out of bounds"),
    (lambda x: x.as_strided((2,), (-1,)), RuntimeError, "Negative strides"),
    (lambda x: x.repeat(2), RuntimeError, "repeat dims can not be smaller"),
    (lambda x: x.repeat(1, 1, -1), RuntimeError, "negative"),
    (lambda x: x.repeat_interleave(ad.tensor([1, 2, 3]), 0), RuntimeError, "same size"),
    (lambda x: x.repeat_interleave(ad.tensor([1, -2]), 0), RuntimeError, "negative"),
    (lambda x: x.flip(0, 0), RuntimeError, "multiple times"),
    (lambda x: x.roll((1, 2), 0), RuntimeError, "must align"),
    (lambda x: x.rot90(1, (0, 0)), RuntimeError, "different"),
    (lambda x: x[0, 0].tril(), RuntimeError, "at least 2 dimensions"),
    (lambda x: pad(x, (1,)), RuntimeError, "divisible by 2"),
    (lambda x: pad(x, (4, 0), "reflect"), RuntimeError, "Padding size should be less"),
    (lambda x: pad(x, (1, 0), "around"), NotImplementedError, "Unrecognised padding mode"),
    (lambda x: pad(x, (-3, -2)), RuntimeError, "negative output size"),
    (lambda x: ad.meshgrid(x), RuntimeError, "0D or 1D"),
    (lambda x: x.combinations(), RuntimeError, "1D vector"),
    (lambda x: x.slice_scatter(x, 0, 0, 1), RuntimeError, "slice size"),
    (lambda x: ad.broadcast_tensors(x, ad.ones(5)), RuntimeError, "do not broadcast"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_name_the_values(number):
    call, error, match = ERRORS[number]
    with pytest.raises(error, match=match):
        call(ad.zeros(2, 3, 4))


def test_as_strided_of_a_leaf_that_is_not_row_major():
    """The memory around it is seen and written to; gradients are of its own elements."""

    def program(lib):
        t = lib.arange(24.0, dtype=lib.float64).view(4, 6).t().detach()[1:].requires_grad_()
        found = [t.as_strided((2, 2), (1, 2)), t.as_strided((0, 2), (1, 2)), t.as_strided((), ())]
        for size, stride, offset in [((3, 2), (2, 5), 0), ((4,), (0,), 7), ((2, 3), (1, 1), 20)]:
            y = lib.as_strided(t, size, stride, offset)
            (g,) = lib.autograd.grad((y**3).sum(), t, create_graph=True)
            found += [y, g, *lib.autograd.grad((g**2).sum(), t)]
        with lib.no_grad():
            y = t.as_strided((2, 2), (1, 2))
            y.mul_(10)
            found.append(t.clone())
            t.add_(1)
            found.append(y)
        for wrong in (((5, 5), (5, 5)), ((2,), (1,), 23)):
            with pytest.raises(RuntimeError, match="out of bounds"):
                t.as_strided(*wrong)
        return found

    for ours, theirs in zip(program(ad), program(torch), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy())


@pytest.mark.parametrize("size", [(), (1,), (2, 1)])
def test_nothing_has_no_elements_to_show(size):
    x, src = ad.zeros(0), ad.ones(size)
    calls = [
        lambda: x.as_strided(size, (0,) * len(size)),
        lambda: ad.zeros(3, 0).as_strided(size, (0,) * len(size), 0),
        lambda: ad.as_strided_copy(x, size, (0,) * len(size)),
        lambda: ad.as_strided_scatter(x, src, size, (0,) * len(size)),
    ]
    for call in calls:
        with pytest.raises(ad.ShapeError, match="out of bounds for storage of 0 elements"):
            call()
    assert x.as_strided((0, 2), (5, 1)).shape == (0, 2)


def test_as_strided_refuses_what_it_would_get_wrong():
    t = ad.arange(24.0).view(4, 6).t().detach()[1:].requires_grad_()
    with pytest.raises(ad.Unsupported, match="not row-major"):
        ad.zeros(3).expand(2, 3).detach().as_strided((2,), (1,))
    with pytest.raises(ad.Unsupported, match="not row-major"), ad.lazy():
        t.as_strided((2,), (1,), 3)
    u = t * 1
    w = u.as_strided((3,), (2,))
    w.mul_(2)
    with pytest.raises(ad.Unsupported, match="write to the tensor itself"):
        u.sum().backward()


def test_the_storage_of_strided_views():
    for t in (ad, torch):
        x = t.arange(10.0)
        y = x.as_strided((2, 2), (1, 3), 1)
        for part in (y, x[2:].unfold(0, 2, 1)):
            assert part.untyped_storage().nbytes() == 40
            assert part.untyped_storage().data_ptr() == x.data_ptr()
        assert y.detach().as_strided((3,), (2,), 4).tolist() == [4, 6, 8]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5), (0, 3)])
def test_many_small_tensors_are_joined(shape, axis):
    if not -len(shape) - 1 <= axis <= len(shape):
        return
    for dtype in (ad.float32, ad.int64, ad.bfloat16):
        parts = [ad.arange(i, i + math.prod(shape)).reshape(shape).to(dtype) for i in range(99)]
        parts[7] = parts[7].mT if len(shape) == 2 and shape[0] == shape[1] else parts[7].clone()
        expected = np.stack([x.double().numpy() for x in parts], axis)
        assert ad.stack(parts, axis).double().numpy().tolist() == expected.tolist()
        if shape and axis < len(shape):
            joined = np.concatenate([x.double().numpy() for x in parts], axis)
            assert ad.cat(parts, axis).double().numpy().tolist() == joined.tolist()
    with pytest.raises(ad.ShapeError):
        ad.stack([*parts, ad.zeros((*shape, 2), dtype=ad.bfloat16)], 0)
