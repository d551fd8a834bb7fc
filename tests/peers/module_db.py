"""Run one entry of PyTorch's `module_db` against adjoint: the constructor's arguments, the names
in `state_dict`, `repr`, outputs, gradients of inputs and parameters, buffers after the call.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from typing import Any

import torch

import adjoint as ad

from . import op_db

TOLERANCE = 1e-8
# These draw random numbers in training: there only shapes can agree.
RANDOM = {
    "RReLU": True,
    "FractionalMaxPool2d": False,
    "FractionalMaxPool3d": False,
}  # whether only in training


def to_ours(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """A PyTorch value as adjoint's, modules and functions too; what is one tensor stays one."""
    seen = {} if seen is None else seen
    if isinstance(value, torch.Tensor):
        if id(value) not in seen:
            seen[id(value)] = op_db.to_ours(value)
        return seen[id(value)]
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return ad.nn.utils.rnn.PackedSequence(*(to_ours(part, seen) for part in value))
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        return ad.nn.TransformerEncoderLayer(
            value.linear1.in_features,
            value.self_attn.num_heads,
            value.linear1.out_features,
            value.dropout.p,
            to_ours(value.activation),
            value.norm1.eps,
            value.self_attn.batch_first,
            value.norm_first,
            value.linear1.bias is not None,
            dtype=ad.float64,
        )
    if type(value).__name__ == "LinearCrossEntropyOptions":  # which PyTorch has since 2.13
        return ad.nn.LinearCrossEntropyOptions(
            **{name: to_ours(getattr(value, name)) for name in value.__dataclass_fields__}
        )
    if isinstance(value, torch.nn.Module):
        raise TypeError(f"no conversion of {type(value).__name__}")
    if inspect.isbuiltin(value) or (
        inspect.isfunction(value) and value.__module__ == "torch.nn.functional"
    ):
        return getattr(ad.nn.functional, value.__name__)
    if type(value) in (list, tuple):
        return type(value)(to_ours(v, seen) for v in value)
    if isinstance(value, dict):
        return {k: to_ours(v, seen) for k, v in value.items()}
    return op_db.to_ours(value)


WAYS = {"eager": contextlib.nullcontext, "lazy": ad.lazy, "graph": ad.Graph}


def run_entry(entry: Any, most: int = 1000, way: str = "eager") -> int:
    """Check an entry's samples in training and evaluation mode; the number that were compared."""
    name = entry.module_cls.__name__
    made = getattr(ad.nn, name, None)
    if made is None:
        raise op_db.Missing(f"no adjoint.nn.{name}")
    count = 0
    for training in (True, False):
        torch.manual_seed(0)
        samples = entry.module_inputs_func(
            entry, device="cpu", dtype=torch.float64, requires_grad=True, training=training
        )
        for sample in samples[:most]:
            if sample.forward_input is not None:
                count += 1
                mode = "train" if training else "eval"
                label = f"{mode} sample {count} {sample.desc}"
                run_sample(entry, made, sample, training, label, WAYS[way])
    assert count, f"{name} has no samples"
    return count


def run_sample(entry: Any, made: Any, sample: Any, training: bool, label: str, way: Any) -> None:
    """Build both modules, give ours the other's weights, compare what they do; ours is called
    inside the context that `way` makes.
    """
    args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
    inputs, options = sample.forward_input.args, sample.forward_input.kwargs
    my_args, my_kwargs = to_ours(args), to_ours(kwargs)
    label += f" {op_db.shapes(args)} {op_db.shapes(tuple(kwargs.items()))}"
    theirs = entry.module_cls(*args, **kwargs).to(torch.float64).train(training)
    ours = made(*my_args, **my_kwargs).to(ad.float64).train(training)
    my_inputs, my_options = to_ours((inputs, options))
    if entry.is_lazy:  # the first call makes the parameters
        theirs(*inputs, **options)
        ours(*my_inputs, **my_options)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state), f"{label}: {list(ours.state_dict())}"
    ours.load_state_dict({key: to_ours(value) for key, value in state.items()})
    if torch.__version__ >= "2.13":  # older ones do not print a norm's bias
        assert repr(ours) == repr(theirs), f"{label}: repr {ours!r} for {theirs!r}"
    expected = theirs(*inputs, **options)
    with way():
        found = ours(*my_inputs, **my_options)
        if type(theirs).__name__ in RANDOM and (training or not RANDOM[type(theirs).__name__]):
            for a, b in zip(op_db.tensors_in(found), op_db.tensors_in(expected), strict=True):
                assert tuple(a.shape) == tuple(b.shape), f"{label}: {a.shape} for {b.shape}"
            return
        op_db.assert_same(found, expected, label, TOLERANCE)
        op_db.assert_same(
            list(ours.state_dict().values()), list(theirs.state_dict().values()),
            f"{label}: state after the call", TOLERANCE,
        )  # fmt: skip
        op_db.compare_gradients(
            found, expected,
            op_db.tensors_in((my_inputs, my_options)) + list(ours.parameters()),
            op_db.tensors_in((inputs, options)) + list(theirs.parameters()),
            label, TOLERANCE,
        )  # fmt: skip


@functools.cache
def entries() -> dict[str, Any]:
    """All entries of `module_db` by the name of their class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db

        return {entry.module_cls.__name__: entry for entry in module_db}


def main() -> None:
    """Print which entries pass, and why the others do not: `python -m tests.peers.module_db`."""
    import sys

    warnings.simplefilter("ignore")
    passed, failed = [], {}
    for name, entry in entries().items():
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        try:
            run_entry(entry)
            passed.append(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    for name, reason in failed.items():
        print(f"{name}: {reason}")
    print(f"{len(passed)} of {len(passed) + len(failed)} pass")


if __name__ == "__main__":
    main()
