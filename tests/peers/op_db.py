"""Run an entry of PyTorch's `op_db` against adjoint: values, dtypes, gradients of its samples."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.testing._internal import common_utils

import adjoint as ad

# It looks for the TestCase that asks for samples through the whole stack, in a tenth of a second.
common_utils.extract_test_fn = lambda: None

TOLERANCE = {
    "float64": 1e-7, "complex128": 1e-7, "float32": 1e-4, "complex64": 1e-4,
    "float16": 1e-2, "bfloat16": 3e-2,
}  # fmt: skip


class Missing(Exception):
    """adjoint has no function of that name."""


# Where PyTorch's own values are less precise than the dtype.
IMPRECISE = {
    "special.bessel_j0": 1e-5,  # seven digits near the second zeros (mpmath agrees with ours)
    "special.bessel_y1": 1e-5,
}


# ---- what cannot be compared as it is ------------------------------------------------------------

# Entries whose values are drawn: the generators differ, so that shapes and dtypes are compared.
DRAWN = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
    "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu",
    "normal/in_place", "normal/number_mean", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "uniform",
}  # fmt: skip
DRAWN.add("nn.functional.feature_alpha_dropout/with_train")

# Entries whose values are what happened to be in memory.
UNINITIALISED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip

# Entries that return values and indices, where PyTorch does not say which of equal values it
# points to: the values are compared, and that each index points to its value.
TIED = {"kthvalue", "mode", "topk"}


def is_drawn(name: str, sample: Any) -> bool:
    """Whether one sample's values are drawn: attention with dropout, and a matrix of higher rank
    than `svd_lowrank` is asked for.
    """
    if name == "svd_lowrank":
        return sample.kwargs.get("M") is not None
    if name == "nn.functional.multi_head_attention_forward":
        return bool(sample.args[9])
    return bool(sample.kwargs.get("dropout_p"))


# Entries whose gradient PyTorch 2.13 has wrong: that of the input is one where elements are
# replaced, and zero where they stay. Ours is compared with differences (`scattered_gradient`).
WRONG_THERE = {"as_strided_scatter"}


def scattered_gradient(values: Any, kwargs: Any, label: str) -> None:
    """Both gradients beside finite differences."""
    x, src, *rest = values
    assert ad.autograd.gradcheck(
        lambda x, src: ad.as_strided_scatter(x, src, *rest, **kwargs), (x, src)
    ), label


def in_place(name: str) -> Any:
    """The function that changes a copy by the method `name`."""
    return lambda x, *args, **kwargs: getattr(x.clone(), name)(*args, **kwargs)


# Entries whose `op` is a lambda of its own: the same lambda on adjoint.
LAMBDAS: dict[str, Any] = {
    **{name: in_place(f"{name}_") for name in (
        "cauchy", "exponential", "geometric", "log_normal", "uniform",
    )},
    "normal/in_place": in_place("normal_"),
    "zero_": in_place("zero_"),
    "resize_as_": in_place("resize_as_"),
    "T": lambda x: x.T,
    "H": lambda x: x.H,
    "mT": lambda x: x.mT,
    "mH": lambda x: x.mH,
    "where": lambda x, condition, other, **kwargs: ad.where(condition, x, other, **kwargs),
    "nn.functional.embedding": lambda weight, index, **kwargs: ad.nn.functional.embedding(
        index, weight, **kwargs
    ),
    "normal/number_mean": lambda std, mean, *args, **kwargs: ad.normal(mean, std, *args, **kwargs),
    "linalg.lstsq/grad_oriented": lambda a, b, driver: ad.linalg.lstsq(a, b, driver=driver)[:2],
    "einsum": lambda operands, equation: ad.einsum(equation, *operands),
    "lu": lambda x, *args, **kwargs: x.lu(*args, **kwargs),
    "nn.functional.embedding_bag": lambda weight, index, **kwargs: ad.nn.functional.embedding_bag(
        index, weight, **kwargs
    ),
    "linalg.pinv/singular": lambda a, b: ad.linalg.pinv(a @ b.mT),
    "svd_lowrank": lambda a, b, **kwargs: ad.svd_lowrank(a @ b.mT, **kwargs),
    "pca_lowrank": lambda a, b, **kwargs: ad.pca_lowrank(a @ b.mT, **kwargs),
    "_segment_reduce/lengths": lambda *args, **kwargs: ad.segment_reduce(*args, **kwargs),
    "_segment_reduce/offsets": lambda *args, **kwargs: ad.segment_reduce(*args, **kwargs),
    **{f"polygamma/polygamma_n_{n}": lambda x, n, **kwargs: ad.polygamma(n, x, **kwargs)
       for n in range(5)},
    "special.polygamma/special_polygamma_n_0": lambda x, n, **kwargs: ad.special.polygamma(
        n, x, **kwargs
    ),
}  # fmt: skip


# ---- from PyTorch to adjoint ---------------------------------------------------------------------


def resolve(entry: Any) -> Any:
    """adjoint's function of an entry ("linalg.det", "nn.functional.relu", or a method)."""
    name = entry.name
    special = LAMBDAS.get(full_name(entry))
    if special is not None:
        return special
    found: Any = None if name.startswith("__") else ad
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None or not callable(found):
        method = getattr(ad.Tensor, name, None)
        if not callable(method):
            raise Missing(f"no adjoint.{name}")
        return method
    return found


def to_ours(value: Any) -> Any:
    """A PyTorch value as adjoint's: tensors, dtypes, devices, and containers of them."""
    if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
        return sparse_to_ours(value).requires_grad_(value.requires_grad)
    if isinstance(value, torch.Tensor):
        return ad.from_numpy(same_layout(value)).requires_grad_(value.requires_grad)
    if isinstance(value, (torch.dtype, torch.memory_format)):
        return getattr(ad, str(value).removeprefix("torch."))
    if isinstance(value, torch.layout):
        return getattr(ad, str(value).removeprefix("torch."))
    if isinstance(value, torch.nn.PairwiseDistance):
        return ad.nn.PairwiseDistance(value.norm, value.eps, value.keepdim)
    if isinstance(value, torch.device):
        return ad.device(str(value))
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (list, tuple)):
        return type(value)(to_ours(v) for v in value)
    if isinstance(value, dict):
        return {k: to_ours(v) for k, v in value.items()}
    return value


def sparse_to_ours(value: torch.Tensor) -> Any:
    """A sparse tensor, of a layout that is there."""
    x = value.detach()
    if x.layout is torch.sparse_coo:
        parts = to_ours(x._indices()), to_ours(x._values()), tuple(x.shape)
        return ad.sparse_coo_tensor(*parts, is_coalesced=x.is_coalesced() or None)
    parts = x.crow_indices(), x.col_indices(), x.values()  # others have none of these
    return ad.sparse_csr_tensor(*map(to_ours, parts), tuple(x.shape))


def as_leaves(value: Any) -> Any:
    """A nested value whose tensors have no history."""
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(as_leaves(v) for v in value)
    if isinstance(value, dict):
        return {k: as_leaves(v) for k, v in value.items()}
    return value


def same_layout(tensor: torch.Tensor) -> Any:
    """A tensor's values as an array with the same strides into memory of the same size."""
    data = tensor.detach()
    if data._is_zerotensor():
        data = torch.zeros(data.shape, dtype=data.dtype)
    data = data.resolve_conj().resolve_neg()
    memory = torch.empty(0, dtype=data.dtype).set_(data.untyped_storage())
    if data.dtype is torch.bfloat16:
        whole = memory.view(torch.int16).numpy().copy().view(ml_dtypes.bfloat16)
    else:
        whole = memory.numpy().copy()
    item = whole.itemsize
    return np.ndarray(
        tuple(data.shape), whole.dtype, whole, data.storage_offset() * item,
        [step * item for step in data.stride()],
    )  # fmt: skip


def tensors_in(value: Any) -> list[Any]:
    """The tensors of a nested value, in order."""
    if isinstance(value, (torch.Tensor, ad.Tensor)):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_in(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v)]
    return []


def array_of(tensor: Any) -> Any:
    """The values, in a dtype that NumPy compares; all elements of a sparse tensor."""
    if "strided" not in str(tensor.layout):
        tensor = tensor.to_dense()
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.detach()
        if tensor._is_zerotensor():
            tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
        tensor = tensor.resolve_conj().resolve_neg()
        return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    array = tensor.detach().numpy()
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


def assert_same(ours: Any, theirs: Any, what: str, tolerance: float, values: bool = True) -> None:
    """Equal structure, shapes, dtypes and, with `values`, values."""
    mine, others = tensors_in(ours), tensors_in(theirs)
    assert len(mine) == len(others), f"{what}: {len(mine)} tensors for {len(others)}"
    if not others:
        theirs = to_ours(theirs)
        assert ours == theirs or (ours != ours and theirs != theirs), f"{what}: {ours} for {theirs}"
    for a, b in zip(mine, others, strict=True):
        assert tuple(a.shape) == tuple(b.shape), f"{what}: {tuple(a.shape)} for {tuple(b.shape)}"
        assert a.dtype.name == str(b.dtype).removeprefix("torch."), (
            f"{what}: {a.dtype} for {b.dtype}"
        )
        if values:
            np.testing.assert_allclose(
                array_of(a), array_of(b), rtol=tolerance, atol=tolerance, err_msg=what
            )


def assert_points_to(input: Any, dim: int, indices: Any, values: Any, what: str) -> None:
    """Each index is a place in `input` where its value is."""
    if indices.ndim < input.ndim:
        indices, values = indices.unsqueeze(dim), values.unsqueeze(dim)
    found = ad.take_along_dim(input, indices, dim) if input.ndim else input.expand(indices.shape)
    assert ad.equal(found, values.to(found.dtype)), f"{what}: indices do not point to the values"


def run_entry(entry: Any, dtype: torch.dtype, most: int = 40) -> int:
    """Check an entry's samples of one dtype; the number of samples that were compared."""
    name = full_name(entry)
    function = resolve(entry)
    gradients = entry.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    tolerance = IMPRECISE.get(name, TOLERANCE.get(str(dtype).removeprefix("torch."), 1e-4))
    count = 0
    torch.manual_seed(0)
    for sample in entry.sample_inputs("cpu", dtype, requires_grad=gradients):
        if count >= most:
            break
        count += 1
        values, kwargs = as_leaves((sample.input, *sample.args)), as_leaves(sample.kwargs)
        theirs = entry.op(*values, **kwargs)
        my_values, my_kwargs = to_ours(values), to_ours(kwargs)
        compare = not (name in DRAWN or name in UNINITIALISED or is_drawn(name, sample))
        ours = function(*my_values, **my_kwargs)
        label = f"sample {count} {shapes(values)} {shapes(tuple(kwargs.items()))}"
        if sample.output_process_fn_grad is not None:
            theirs = sample.output_process_fn_grad(theirs)
            ours = sample.output_process_fn_grad(ours)
        if name in TIED:
            place = {"mode": 0}.get(name, 1)
            dim = sample.kwargs.get("dim", (*sample.args, *(-1,) * 3)[place])
            assert_same(ours[1], theirs[1], label, tolerance, values=False)
            assert_points_to(my_values[0], dim, ours[1], ours[0].detach(), label)
            assert_same(ours[0], theirs[0], label, tolerance)
            if not np.array_equal(array_of(ours[1]), array_of(theirs[1])):
                continue  # the gradients go to different places
        assert_same(ours, theirs, label, tolerance, compare)
        if gradients and name in WRONG_THERE:
            scattered_gradient(my_values, my_kwargs, label)
        elif gradients and compare:
            compare_gradients(
                ours, theirs, tensors_in((my_values, my_kwargs)),
                tensors_in((values, kwargs)), label, tolerance,
            )  # fmt: skip
    return count


def compare_gradients(
    ours: Any, theirs: Any, my_inputs: Any, inputs: Any, label: str, tolerance: float
) -> None:
    """Send the same random cotangents back through both."""
    rng = np.random.default_rng(0)
    my_roots, roots, my_seeds, seeds = [], [], [], []
    for a, b in zip(tensors_in(ours), tensors_in(theirs), strict=True):
        assert a.requires_grad == b.requires_grad, f"{label}: requires_grad {a.requires_grad}"
        if b.requires_grad:
            seed = rng.standard_normal(tuple(b.shape))
            seed = torch.from_numpy(np.asarray(seed)).to(b.dtype)
            roots.append(b)
            seeds.append(seed)
            my_roots.append(a)
            my_seeds.append(to_ours(seed))
    if not roots:
        return
    wanted = [t for t in inputs if t.requires_grad]
    mine = [t for t in my_inputs if t.requires_grad]
    try:
        expected = torch.autograd.grad(roots, wanted, seeds, allow_unused=True)
    except NotImplementedError:  # PyTorch has no gradient: neither may we return one
        with contextlib.suppress(ad.Unsupported):
            ad.autograd.grad(my_roots, mine, my_seeds, allow_unused=True)
            raise AssertionError(f"{label}: PyTorch has no gradient, adjoint has") from None
        return
    found = ad.autograd.grad(my_roots, mine, my_seeds, allow_unused=True)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if b is None or a is None:
            other = a if b is None else b
            zero = other is None or not np.any(array_of(other))
            assert zero, f"{label}: gradient {i} is {a} for {b}"
            continue
        if a.layout is not ad.strided and b.layout is torch.strided:
            b = b.sparse_mask(wanted[i].detach())  # the places that a sparse tensor's gradient has
        assert_same(a, b, f"{label}: gradient {i}", tolerance * 10)


def shapes(value: Any) -> str:
    """A short text for a sample's arguments."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(shapes, value)) + ")"
    return repr(value)[:60]


@functools.cache
def entries() -> dict[str, Any]:
    """All entries of `op_db` by name and variant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

        return {full_name(e): e for e in op_db}


def full_name(entry: Any) -> str:
    """An entry's name and variant."""
    variant = entry.variant_test_name
    return f"{entry.name}/{variant}" if variant else str(entry.name)


def check_dtypes(entry: Any) -> list[torch.dtype]:
    """float64 where the entry has it, and int64; else the first it has."""
    supported = entry.supported_dtypes("cpu")
    wanted = [d for d in (torch.float64, torch.int64) if d in supported]
    return wanted or sorted(supported, key=str)[:1]


def main() -> None:
    """Print which entries pass, and why the others do not:
    `python -m tests.peers.op_db [--dtypes float32,bool] [word of a name ...]`.
    """
    import argparse

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("words", nargs="*", help="parts of the names of entries")
    parser.add_argument("--dtypes", default="", help="these instead of float64 and int64")
    parser.add_argument("--most", type=int, default=40, help="samples for each entry")
    given = parser.parse_args()
    dtypes = [getattr(torch, name) for name in given.dtypes.split(",") if name]
    warnings.simplefilter("ignore")
    passed, failed = [], {}
    for name, entry in entries().items():
        if given.words and not any(word in name for word in given.words):
            continue
        supported = entry.supported_dtypes("cpu")
        try:
            for dtype in dtypes or check_dtypes(entry):
                if dtype in supported:
                    run_entry(entry, dtype, given.most)
            passed.append(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    for name, reason in failed.items():
        print(f"{name}: {reason}")
    print(f"{len(passed)} of {len(passed) + len(failed)} pass")


if __name__ == "__main__":
    main()
