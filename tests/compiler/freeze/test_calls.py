"""How frozen programs are called, and what they return: as the function that was frozen."""

from __future__ import annotations

import collections
import dataclasses
import io

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.inference import freeze

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Found:
    logits: ad.Tensor
    hidden: tuple[ad.Tensor, ...] | None = None
    count: int = 0


@dataclasses.dataclass
class Items(collections.OrderedDict):
    """As transformers have them: fields that are items, too."""

    loss: ad.Tensor | None = None
    logits: ad.Tensor | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


def numbers(found):
    """The values of all tensors, in the form of what has them."""
    if isinstance(found, ad.Tensor):
        return found.tolist()
    if isinstance(found, (Items, collections.OrderedDict)):
        return type(found), [(k, numbers(v)) for k, v in found.items()], numbers(vars(found))
    if dataclasses.is_dataclass(found):
        return type(found), numbers(vars(found))
    if isinstance(found, dict):
        return {k: numbers(v) for k, v in found.items()}
    return type(found), [*map(numbers, found)] if isinstance(found, (list, tuple)) else found


class Net(nn.Module):
    def forward(self, x, mask=None, *, scale=1.0, mode="add"):
        x = x * scale if mode == "add" else x - scale
        return x if mask is None else x * mask


def test_calls_by_name_and_without_what_has_a_default():
    net, x, m = Net(), ad.tensor([1.0, 2.0]), ad.tensor([3.0, 4.0])
    for args, named in (((x,), {}), ((x, m), {"scale": 2.0}), ((), {"x": x, "mask": m})):
        program = freeze(net, *args, **named)
        for more, others in (
            ((x,), {}), ((x, m), {}), ((), {"mask": m, "x": x}), ((m,), {"mask": x, "scale": 3}),
            ((x,), {"mode": "less"}), ((x, None), {"scale": -0.0}), ((x, m), {"scale": 0.0}),
            ((m,), {"mode": "less", "scale": 2}),
        ):  # fmt: skip
            wanted, found = net(*more, **others), program(*more, **others)
            assert found.tolist() == wanted.tolist(), (args, named, more, others)
            assert str(found) == str(wanted)  # signs of zeros
    for wrong in ({"y": x}, {"x": x, "scal": 1}):
        with pytest.raises(ad.InvalidArgument, match=r"Net: .*argument.*it takes \(x, mask=None"):
            program(**wrong)


def test_values_are_kept_apart():
    program = freeze(lambda x, k: x + k, ad.ones(2, dtype=ad.int64), 1)
    for k in (1, 1.0, True, 2, 1, 1.0):
        wanted = ad.ones(2, dtype=ad.int64) + k
        found = program(ad.ones(2, dtype=ad.int64), k)
        assert found.dtype is wanted.dtype and found.tolist() == wanted.tolist()


def test_structures_as_inputs():
    def function(batch, pair, found, *more, **rest):
        values = [batch["a"], *batch["b"], pair.first, pair.second, found.logits, *more]
        values += [rest[name] for name in sorted(rest)]
        total = values[0]
        for i, x in enumerate(values):
            total = total + x * i
        return total

    def call(seed):
        rng = np.random.default_rng(seed)
        a, b, c, d, e, f, g, h = rng.random((8, 3), np.float32)
        t = ad.tensor
        return ({"a": t(a), "b": [t(b), c]}, Pair(d, t(e)), Found(t(f)), t(g)), {"z": h}

    args, named = call(0)
    program = freeze(function, *args, **named)
    for seed in (0, 1, 2):
        args, named = call(seed)
        # as tensors, since a product of an array and a number is NumPy's
        wanted = function(*args, **named)
        np.testing.assert_allclose(program(*args, **named).numpy(), wanted.numpy(), rtol=1e-6)
    assert len(program._plans) == 1
    args[0]["b"].append(ad.ones(3))  # of another form: captured again
    np.testing.assert_allclose(
        program(*args, **named).numpy(), function(*args, **named).numpy(), rtol=1e-6
    )
    assert len(program._plans) == 2


def test_what_has_no_dtype_takes_the_example_s():
    program = freeze(lambda x, i: x[i], ad.ones(3, 2), ad.tensor([0, 1]))
    found = program([[1, 2], [3, 4]], [1, 1, 0])
    assert found.dtype is ad.float32 and found.tolist() == [[3, 4], [3, 4], [1, 2]]
    assert program(np.ones((3, 2)), np.int32([1])).dtype is ad.float64  # what has one keeps it
    program = freeze(lambda x, size: x.reshape(size), ad.ones(4), [2, 2])
    assert program([1, 2, 3, 4], [4, 1]).tolist() == [[1], [2], [3], [4]]
    assert program(ad.ones(4), (1, 4)).shape == (1, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: {"a": x + 1, "b": [x, None]},
        lambda x: collections.OrderedDict(a=x * 2, b=(x,)),
        lambda x: Pair(x, Pair(x * 2, None)),
        lambda x: Found(x, (x + 1, x), 3),
        lambda x: Items(logits=x * 3),
        lambda x: [x, (x, "name", 2.5)],
        lambda x: None,
    ],
)
def test_returns_what_the_function_returns(function):
    program = freeze(function, ad.ones(2))
    for x in (ad.ones(2), ad.zeros(3)):
        assert numbers(program(x)) == numbers(function(x))
    first, second = program(ad.ones(2)), program(ad.zeros(2))  # each call has its own
    assert numbers(first) == numbers(function(ad.ones(2)))
    assert numbers(second) == numbers(function(ad.zeros(2)))


def test_a_loaded_graph_takes_its_names():
    pytest.importorskip("onnx")
    file = io.BytesIO()
    ad.onnx.export(nn.Bilinear(2, 3, 4), (ad.ones(5, 2), ad.ones(5, 3)), file, ["left", "right"])
    loaded = ad.onnx.load(file.getvalue())
    left, right = ad.rand(5, 2), ad.rand(5, 3)
    program = freeze(loaded, ad.ones(5, 2), ad.ones(5, 3))
    wanted = loaded(left, right).detach().numpy()
    for found in (program(right=right, left=left), program(left, right=right.numpy())):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)
    with pytest.raises(ad.InvalidArgument, match="expected the inputs left, right"):
        program(left, wrong=right)


def test_what_is_no_input_is_named():
    with pytest.raises(ad.InvalidType, match="an input has a set"):
        freeze(lambda x: x, {1, 2})
    with pytest.raises(ad.InvalidType, match=r"an input is an array of <U1"):
        freeze(lambda x: x, np.array(["a"]))


def test_programs_of_such_calls_are_shown_and_saved(tmp_path):
    pytest.importorskip("onnx")
    program = freeze(Net(), x=ad.ones(2), mask=ad.ones(2), scale=2.0)
    assert "%0 = x0" in str(program) and "Net" in repr(program)
    program.save(tmp_path / "net.onnx")
    assert ad.onnx.load(tmp_path / "net.onnx")(ad.ones(2), 3 * ad.ones(2)).tolist() == [6, 6]
