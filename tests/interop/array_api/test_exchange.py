"""Other libraries take our tensors, and we take their arrays."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import adjoint as ad

xp = ad.array_api

# SciPy's functions that do not look at the namespace of what they are given (in version 1.17), and
# scikit-learn's that call it with arguments which the standard does not have (in version 1.9):
# PyTorch's and array_api_strict's arrays fare the same.
GIVE_NUMPY_ARRAYS = {
    "scipy.stats.Normal", "scipy.signal.periodogram", "scipy.signal.welch", "scipy.signal.decimate",
    "scipy.linalg.inv", "scipy.linalg.svdvals", "scipy.linalg.expm", "scipy.spatial.cdist",
}  # fmt: skip
FAIL_THEMSELVES = {"sklearn.matthews_corrcoef", "sklearn.roc_auc_score"}


@pytest.fixture(scope="module")
def verdicts():
    pytest.importorskip("scipy", minversion="1.17")
    pytest.importorskip("sklearn", minversion="1.8")
    root = Path(__file__).parents[3]
    result = subprocess.run(
        [sys.executable, "-m", "tests.interop.array_api.libraries"],
        env=os.environ | {"SCIPY_ARRAY_API": "1"}, cwd=root, capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout)


def test_scipy_and_scikit_learn_compute_with_tensors(verdicts):
    others = GIVE_NUMPY_ARRAYS | FAIL_THEMSELVES
    wrong = {name: found for name, found in verdicts.items() if found != "ok"}
    assert {name: found for name, found in wrong.items() if name not in others} == {}
    assert all(wrong.get(name, "gave a ndarray") == "gave a ndarray" for name in GIVE_NUMPY_ARRAYS)
    assert len(verdicts) - len(wrong) >= 155


# ---- memory shared by DLPack ---------------------------------------------------------------------


def test_torch_shares_memory_both_ways():
    torch = pytest.importorskip("torch")
    x = ad.arange(6.0).reshape(2, 3)
    theirs = torch.from_dlpack(x)
    theirs[0, 0] = 9
    assert x[0, 0].item() == 9
    back = xp.from_dlpack(theirs)
    assert back.data_ptr() == theirs.data_ptr() == x.data_ptr()
    assert torch.as_tensor(x.numpy()).data_ptr() == x.data_ptr()
    assert xp.from_dlpack(theirs, copy=True).data_ptr() != x.data_ptr()


JAX = """
import jax, numpy as np, adjoint as ad, adjoint.array_api as xp
for dtype in ("float32", "int32", "bool", "bfloat16", "complex64", "uint32"):
    x = ad.tensor([[1, 0, 2]]).to(getattr(ad, dtype))
    theirs = jax.numpy.from_dlpack(x)
    assert theirs.dtype == dtype
    assert np.asarray(theirs).tolist() == x.tolist()
    back = xp.from_dlpack(theirs)
    assert back.dtype is x.dtype
    assert back.tolist() == x.tolist()
    assert jax.numpy.asarray(x.float()).sum() == x.float().sum().item()
print("all")
"""


def test_jax_takes_and_gives():
    """In a process of its own: JAX's threads make every later fork in this one dangerous."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    done = subprocess.run([sys.executable, "-c", JAX], capture_output=True, text=True, timeout=600)
    assert done.stdout == "all\n", done.stderr


def test_numpy_takes_and_gives():
    x = ad.arange(4.0)
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert np.shares_memory(np.from_dlpack(x), x.numpy())
    assert np.asarray(x, dtype=np.int64).tolist() == [0, 1, 2, 3]
    assert np.concatenate([x, x]).shape == (8,)
    assert np.asarray([x, x]).shape == (2, 4)
    assert type(np.ones(4) + x) is ad.Tensor
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(ad.ones(1, requires_grad=True))


def test_array_api_compat_finds_the_namespace():
    compat = pytest.importorskip("array_api_compat")
    x = ad.ones(2, 3)
    assert compat.array_namespace(x, x) is xp
    assert compat.is_array_api_obj(x)
    assert compat.device(x) == x.device
    assert compat.size(x) == 6
    assert compat.to_device(x, "cpu") is x
    with pytest.raises(TypeError):
        compat.array_namespace(x, np.ones(2))


# ---- einops --------------------------------------------------------------------------------------


@pytest.fixture
def einops():
    pytest.importorskip("einops")
    import einops

    import adjoint.einops

    assert adjoint.einops.rearrange is einops.rearrange
    return einops


def test_einops_functions(einops):
    a = np.random.default_rng(0).random((2, 3, 4)).astype(np.float32)
    x = ad.tensor(a)
    for pattern, sizes in (("a b c -> b (a c)", {}), ("a b (c d) -> (a c) d b", {"d": 2})):
        found = einops.rearrange(x, pattern, **sizes)
        np.testing.assert_array_equal(found.numpy(), einops.rearrange(a, pattern, **sizes))
    for operation in ("min", "max", "sum", "mean", "prod"):
        found = einops.reduce(x, "a b c -> b", operation)
        np.testing.assert_allclose(found.numpy(), einops.reduce(a, "a b c -> b", operation), 1e-6)
    assert einops.repeat(x, "a b c -> a r b c", r=5).shape == (2, 5, 3, 4)
    assert einops.einsum(x, x, "a b c, a d c -> b d").shape == (3, 3)
    packed, shapes = einops.pack([x, x[:, 0]], "a * c")
    assert packed.shape == (2, 4, 4)
    assert [part.shape for part in einops.unpack(packed, shapes, "a * c")] == [(2, 3, 4), (2, 4)]
    assert einops.rearrange([x, x], "n a b c -> a (n b c)").shape == (2, 24)
    assert einops.parse_shape(x, "a _ c") == {"a": 2, "c": 4}
    assert einops.asnumpy(x).tolist() == a.tolist()
    with pytest.raises(einops.EinopsError):
        einops.rearrange(x, "a b -> b a")


def test_gradients_flow_through_einops(einops):
    x = ad.ones(2, 3, requires_grad=True)
    (einops.reduce(x, "a b -> b", "mean") * ad.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [[0.5, 1.0, 1.5]] * 2


def test_einops_layers(einops):
    from adjoint.einops import EinMix, Rearrange, Reduce

    ad.manual_seed(0)
    model = ad.nn.Sequential(
        Rearrange("b (h w) -> b h w", h=2),
        EinMix("b h w -> b h v", weight_shape="w v", bias_shape="v", w=3, v=5),
        ad.nn.ReLU(),
        Reduce("b h v -> b v", "max"),
    )
    x = ad.rand(7, 6)
    assert model(x).shape == (7, 5)
    model(x).sum().backward()
    assert model[1].weight.grad.shape == (3, 5)
    assert len(list(model.parameters())) == 2
    assert model.state_dict().keys() == {"1.weight", "1.bias"}
    expected = ad.einsum("bhw,wv->bhv", x.reshape(7, 2, 3), model[1].weight) + model[1].bias
    assert model(x).allclose(expected.relu().amax(1))
    assert "b (h w) -> b h w" in repr(model[0])


# ---- tables and pictures -------------------------------------------------------------------------


def test_pandas():
    pd = pytest.importorskip("pandas")
    x = ad.arange(6.0).reshape(2, 3)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    assert frame.equals(pd.DataFrame(x.numpy(), columns=["a", "b", "c"]))
    assert pd.DataFrame({"a": x[0], "b": x[1]})["b"].tolist() == [3.0, 4.0, 5.0]
    assert pd.Series(ad.arange(3)).dtype == np.int64
    assert pd.DataFrame({"a": [1, 2, 3]}).assign(b=x[0])["b"].sum() == 3.0
    assert ad.tensor(frame.to_numpy()).equal(x)
    assert xp.asarray(frame["a"]).tolist() == [0.0, 3.0]


def test_matplotlib():
    matplotlib = pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    assert matplotlib
    x, y, image = ad.arange(4), ad.tensor([1.0, 3.0, 2.0, 5.0]), ad.rand(4, 5)
    axes = Figure().subplots()
    (line,) = axes.plot(x, y)
    assert line.get_ydata().tolist() == y.tolist()
    assert len(axes.plot(image)) == 5
    assert axes.scatter(x, y, c=y, s=y).get_offsets().shape == (4, 2)
    assert axes.hist(y, bins=2)[0].tolist() == [2.0, 2.0]
    assert [bar.get_height() for bar in axes.bar(x, y)] == y.tolist()
    assert axes.imshow(image).get_array().shape == (4, 5)
    axes.fill_between(x, y, y + 1)
    axes.errorbar(x, y, yerr=y / 10)
    axes.contour(image)
    axes.figure.canvas.draw()
