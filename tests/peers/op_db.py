"""Run one entry of PyTorch's `op_db` against adjoint: values, dtypes and gradients of its samples."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import torch

import adjoint as ad

TOLERANCE = {"float64": 1e-7, "complex128": 1e-7, "float32": 1e-4, "complex64": 1e-4}


class Missing(Exception):
    """adjoint has no function of that name."""


def resolve(name: str) -> Any:
    """adjoint's function called `name` ("linalg.det", "nn.functional.relu", or a method)."""
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
    if isinstance(value, torch.Tensor):
        data = value.detach().resolve_conj().resolve_neg()
        array = (
            data.float().numpy().astype(ml_dtypes.bfloat16)
            if data.dtype is torch.bfloat16
            else data.numpy().copy()
        )
        return ad.from_numpy(array).requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return getattr(ad, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return ad.device(str(value))
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (list, tuple)):
        return type(value)(to_ours(v) for v in value)
    if isinstance(value, dict):
        return {k: to_ours(v) for k, v in value.items()}
    return value


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
    """The values, in a dtype that NumPy compares."""
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.detach().resolve_conj().resolve_neg()
        return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    array = tensor.detach().numpy()
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


def assert_same(ours: Any, theirs: Any, what: str, tolerance: float) -> None:
    """Equal structure, shapes, dtypes and values."""
    mine, others = tensors_in(ours), tensors_in(theirs)
    assert len(mine) == len(others), f"{what}: {len(mine)} tensors for {len(others)}"
    if not others:
        assert ours == theirs or (ours != ours and theirs != theirs), f"{what}: {ours} for {theirs}"
    for a, b in zip(mine, others, strict=True):
        assert tuple(a.shape) == tuple(b.shape), f"{what}: {tuple(a.shape)} for {tuple(b.shape)}"
        assert a.dtype.name == str(b.dtype).removeprefix("torch."), (
            f"{what}: {a.dtype} for {b.dtype}"
        )
        np.testing.assert_allclose(
            array_of(a), array_of(b), rtol=tolerance, atol=tolerance, err_msg=what
        )


def run_entry(entry: Any, dtype: torch.dtype, most: int = 40) -> int:
    """Check an entry's samples of one dtype; the number of samples that were compared."""
    function = resolve(entry.name)
    gradients = entry.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    tolerance = TOLERANCE.get(str(dtype).removeprefix("torch."), 1e-4)
    count = 0
    torch.manual_seed(0)
    for sample in entry.sample_inputs("cpu", dtype, requires_grad=gradients):
        if count >= most:
            break
        count += 1
        values = (sample.input, *sample.args)
        theirs = entry.op(*values, **sample.kwargs)
        my_values, my_kwargs = to_ours(values), to_ours(sample.kwargs)
        ours = function(*my_values, **my_kwargs)
        label = f"sample {count} {shapes(values)} {shapes(tuple(sample.kwargs.items()))}"
        if sample.output_process_fn_grad is not None:
            theirs = sample.output_process_fn_grad(theirs)
            ours = sample.output_process_fn_grad(ours)
        assert_same(ours, theirs, label, tolerance)
        if gradients:
            compare_gradients(
                ours, theirs, tensors_in((my_values, my_kwargs)),
                tensors_in((values, sample.kwargs)), label, tolerance,
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
    expected = torch.autograd.grad(roots, wanted, seeds, allow_unused=True)
    found = ad.autograd.grad(my_roots, mine, my_seeds, allow_unused=True)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if b is None or a is None:
            other = a if b is None else b
            zero = other is None or not np.any(array_of(other))
            assert zero, f"{label}: gradient {i} is {a} for {b}"
            continue
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

        return {
            f"{e.name}/{e.variant_test_name}" if e.variant_test_name else e.name: e for e in op_db
        }


def main() -> None:
    """Print which entries pass, and why the others do not: `python -m tests.peers.op_db [name]`."""
    import sys

    warnings.simplefilter("ignore")
    passed, failed = [], {}
    for name, entry in entries().items():
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        try:
            for dtype in check_dtypes(entry):
                run_entry(entry, dtype)
            passed.append(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    for name, reason in failed.items():
        print(f"{name}: {reason}")
    print(f"{len(passed)} of {len(passed) + len(failed)} pass")


def check_dtypes(entry: Any) -> list[torch.dtype]:
    """float64 where the entry has it, and int64; else the first it has."""
    supported = entry.supported_dtypes("cpu")
    wanted = [d for d in (torch.float64, torch.int64) if d in supported]
    return wanted or sorted(supported, key=str)[:1]


if __name__ == "__main__":
    main()
