"""Mixed precision beside PyTorch: autocast (PyTorch's CPU autocast for the CPU's lists, its own
test lists for CUDA's), its regions, its cache of parameters, and GradScaler.
"""

import asyncio
import gc
import math
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists

import adjoint as ad
from adjoint.amp.casting import Casting, CastTarget
from adjoint.amp.lists import CPU, CUDA
from adjoint.core.mode import MODE, mode_with
from adjoint.utils.checkpoint import checkpoint
from tests.sweep import one_in

F = ad.nn.functional


class Maker:
    """The same tensors from both libraries."""

    def __init__(self, m):
        self.m = m

    def wide(self, *shape):
        """float32 between 0.25 and 0.75."""
        values = np.random.default_rng(math.prod(shape)).random(shape) / 2 + 0.25
        return self.m.tensor(values.astype(np.float32))

    def low(self, *shape):
        """The same in bfloat16."""
        return self.wide(*shape).bfloat16()

    def ints(self, values):
        """int64."""
        return self.m.tensor(values, dtype=self.m.int64)


# Calls whose dtype is compared with PyTorch's; they are evaluated for both libraries.
CALLS = """
F.avg_pool3d(low(1, 1, 4, 4, 4), 2)
F.max_pool3d(low(1, 1, 4, 4, 4), 2)
F.adaptive_avg_pool3d(low(1, 1, 4, 4, 4), 2)
F.max_pool2d(low(1, 1, 4, 4), 2)
F.avg_pool2d(low(1, 1, 4, 4), 2)
F.avg_pool1d(low(1, 1, 4), 2)
F.adaptive_max_pool3d(low(1, 1, 4, 4, 4), 2)
F.adaptive_max_pool2d(low(1, 1, 4, 4), 2)
F.fractional_max_pool2d(low(1, 1, 4, 4), 2, output_size=2)
F.max_unpool2d(low(1, 1, 2, 2), ints([[[[0, 2], [8, 10]]]]), 2)
F.grid_sample(low(1, 1, 4, 4), low(1, 2, 2, 2))
m.polar(low(2), low(2))
m.prod(low(3))
m.quantile(low(5), 0.5)
m.nanquantile(low(5), 0.5)
m.stft(low(64), 16, return_complex=True)
m.cdist(low(2, 3), low(2, 3))
m.trace(m.eye(3).bfloat16())
m.view_as_complex(low(3, 2))
m.linalg.cholesky(m.eye(3).bfloat16())
m.cholesky_inverse(m.eye(3).bfloat16())
m.cholesky_solve(m.eye(3).bfloat16(), m.eye(3).bfloat16())
m.inverse(m.eye(3).bfloat16())
m.pinverse(m.eye(3).bfloat16())
m.linalg.matrix_power(m.eye(3).bfloat16(), 3)
m.linalg.matrix_rank(m.eye(3).bfloat16())
m.linalg.cond(m.eye(3).bfloat16())
m.linalg.solve(m.eye(3).bfloat16(), m.eye(3).bfloat16())
m.linalg.lstsq(m.eye(3).bfloat16(), m.eye(3).bfloat16())[0]
m.linalg.qr(m.eye(3).bfloat16())[0]
m.linalg.svd(m.eye(3).bfloat16())[0]
m.linalg.svdvals(m.eye(3).bfloat16())
m.linalg.eigh(m.eye(3).bfloat16())[0]
m.linalg.eigvalsh(m.eye(3).bfloat16())
m.linalg.eigvals(m.eye(3).bfloat16())
m.triangular_solve(m.eye(3).bfloat16(), m.eye(3).bfloat16())[0]
m.geqrf(m.eye(3).bfloat16())[0]
m.ormqr(m.eye(3).bfloat16(), low(3), m.eye(3).bfloat16())
m.orgqr(m.eye(3).bfloat16(), low(3))
m.lu_solve(m.eye(3).bfloat16(), m.eye(3).bfloat16(), ints([1, 2, 3]).int())
m.linalg.tensorinv(m.eye(3).bfloat16(), ind=1)
m.linalg.tensorsolve(m.eye(3).bfloat16(), low(3))
m.linalg.norm(m.eye(3).bfloat16())
m.linalg.matrix_norm(m.eye(3).bfloat16())
m.linalg.vector_norm(m.eye(3).bfloat16())
m.norm(m.eye(3).bfloat16())
m.dist(m.eye(3).bfloat16(), m.eye(3).bfloat16())
m.linalg.cross(m.eye(3).bfloat16(), m.eye(3).bfloat16())
m.fft.fft(low(4))
m.fft.rfft(low(4))
m.fft.fftshift(low(4))
F.pad(low(1, 1, 4), (1, 1), "reflect")
F.pad(low(1, 1, 4, 4), (1, 1, 1, 1), "reflect")
F.pad(low(1, 1, 4, 4, 4), (1, )*6, "reflect")
F.pad(low(1, 1, 4), (1, 1), "replicate")
F.pad(low(1, 1, 4, 4), (1, 1, 1, 1), "replicate")
F.pad(low(1, 1, 4), (1, 1), "circular")
F.pad(low(1, 1, 4), (1, 1))
F.binary_cross_entropy(low(3), low(3))
F.binary_cross_entropy_with_logits(low(3), low(3))
F.mse_loss(low(3), low(3))
F.l1_loss(low(3), low(3))
F.huber_loss(low(3), low(3))
F.smooth_l1_loss(low(3), low(3))
F.cross_entropy(low(3, 3), ints([0, 1, 2]))
F.nll_loss(low(3, 3), ints([0, 1, 2]))
F.kl_div(low(3, 3), low(3, 3))
F.soft_margin_loss(low(3, 3), low(3, 3))
F.multilabel_soft_margin_loss(low(3, 3), low(3, 3))
F.multilabel_margin_loss(low(3, 3), ints([[0, 1, -1]] * 3))
F.multi_margin_loss(low(3, 3), ints([0, 1, 2]))
F.gaussian_nll_loss(low(3), low(3), low(3))
F.poisson_nll_loss(low(3), low(3))
F.cosine_embedding_loss(low(3, 3), low(3, 3), m.ones(3))
F.hinge_embedding_loss(low(3), m.ones(3))
F.margin_ranking_loss(low(3), low(3), m.ones(3))
F.triplet_margin_loss(low(3, 3), low(3, 3), low(3, 3))
F.ctc_loss(low(5, 1, 4).log_softmax(-1), ints([[1, 2]]), ints([5]), ints([2]))
F.cosine_similarity(low(3, 3), low(3, 3))
F.pairwise_distance(low(3, 3), low(3, 3))
low(3).softmax(0)
low(3).sum()
low(3).exp()
F.layer_norm(low(3), (3, ))
F.group_norm(low(1, 4, 2), 2)
F.rms_norm(low(3), (3, ))
F.batch_norm(low(3, 3), None, None, training=True)
low(3).logsumexp(0)
m.mv(wide(3, 3), wide(3))
m.dot(wide(3), wide(3))
m.vdot(wide(3), wide(3))
m.outer(wide(3), wide(3))
m.inner(wide(3), wide(3))
m.addmv(wide(3), wide(3, 3), wide(3))
m.addr(wide(3, 3), wide(3), wide(3))
m.ger(wide(3), wide(3))
m.kron(wide(3, 3), wide(3, 3))
m.tensordot(wide(3, 3), wide(3, 3), 1)
m.einsum("ij, jk->ik", wide(3, 3), wide(3, 3))
m.einsum("i, j->ij", wide(3), wide(3))
m.einsum("i, i->", wide(3), wide(3))
m.chain_matmul(wide(3, 3), wide(3, 3))
m.linalg.multi_dot([wide(3, 3), wide(3, 3)])
m.linalg.vecdot(wide(3, 3), wide(3, 3))
m.linalg.matmul(wide(3, 3), wide(3, 3))
wide(3)@wide(3)
wide(3, 3)@wide(3)
wide(2, 3, 3)@wide(3, 3)
m.addmm(wide(3, 3), wide(3, 3), wide(3, 3))
m.baddbmm(wide(2, 3, 3), wide(2, 3, 3), wide(2, 3, 3))
m.addbmm(wide(3, 3), wide(2, 3, 3), wide(2, 3, 3))
F.linear(wide(3, 3), wide(3, 3), wide(3))
F.bilinear(wide(3, 3), wide(3, 3), wide(2, 3, 3), wide(2))
F.conv1d(wide(1, 1, 4), wide(1, 1, 2), wide(1))
F.conv_transpose2d(wide(1, 1, 4, 4), wide(1, 1, 2, 2), wide(1))
F.prelu(wide(3), wide(1))
F.scaled_dot_product_attention(wide(1, 1, 3, 4), wide(1, 1, 3, 4), wide(1, 1, 3, 4))
F.scaled_dot_product_attention(wide(1, 3, 4), low(1, 3, 4), wide(1, 3, 4), attn_mask=wide(3, 3))
m.cov(wide(3, 3))
m.nn.GRU(3, 4)(wide(2, 1, 3))[0]
m.nn.RNN(3, 4)(wide(2, 1, 3))[0]
m.nn.LSTMCell(3, 4)(wide(1, 3))[0]
m.nn.LSTMCell(3, 4)(wide(1, 3))[1]
m.nn.GRUCell(3, 4)(wide(1, 3))
wide(3)*low(3)
m.cat([wide(3), low(3)])
m.stack([wide(3), low(3)])
m.addcmul(low(3), low(3), low(3))
m.index_copy(wide(3), 0, ints([0]), low(1))
F.embedding(ints([0]), wide(3, 3))
wide(3, 3).double()@wide(3, 3).double()
wide(3, 3).half()@wide(3, 3).half()
m.ones(3, 3, dtype=m.int64)@m.ones(3, 3, dtype=m.int64)
m.linalg.matrix_power(wide(3, 3), 3)
m.linalg.matrix_exp(wide(3, 3))
m.cdist(wide(30, 3), wide(30, 3))
F.softplus(low(3))
low(3).cumsum(0)
low(3).mean()
low(3)**2.5
low(3).std()
F.interpolate(low(1, 1, 4, 4), scale_factor=2, mode="bilinear")
m.bmm(low(1, 2, 2), wide(1, 2, 2))
F.unfold(low(1, 1, 4, 4), 2)
m.istft(m.stft(wide(64), 16, return_complex=True), 16)
m.view_as_real(m.polar(wide(2), wide(2)))
m.linalg.householder_product(m.eye(3).bfloat16(), low(3))
m.renorm(low(3, 3), 2, 0, 1.0)
"""


def call(text, m):
    make = Maker(m)
    names = {"m": m, "F": m.nn.functional, "low": make.low, "wide": make.wide, "ints": make.ints}
    return eval(text, names)


def dtype_name(x):
    return str(x.dtype).rpartition(".")[2]


@pytest.mark.parametrize("text", one_in(2, CALLS.split("\n")[1:-1]))
def test_dtype_and_value_are_pytorch_s(text):
    with ad.autocast("cpu"), torch.autocast("cpu"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated functions
        ours, theirs = call(text, ad), call(text, torch)
    assert dtype_name(ours) == dtype_name(theirs)
    assert tuple(ours.shape) == tuple(theirs.shape)
    if "RNN" in text or "GRU" in text or "LSTM" in text or "fractional" in text:
        return  # parameters or places are drawn
    kind = ours.dtype
    ours, theirs = (
        x.to(x.dtype if kind.is_complex else m.float64) for x, m in ((ours, ad), (theirs, torch))
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0.02, atol=0.02)


def test_float16_is_chosen_by_dtype():
    x = ad.ones(2, 2)
    with ad.autocast("cpu", dtype=ad.float16):
        assert (x @ x).dtype is ad.float16
        assert (x.bfloat16() @ x).dtype is ad.float16


def test_lstm_computes_its_state_in_float32():
    x = ad.ones(2, 1, 3)
    with ad.autocast("cpu"):
        assert ad.nn.LSTM(3, 4)(x)[0].dtype is ad.float32  # as PyTorch's without oneDNN


@pytest.mark.parametrize("name", sorted({*CPU.functions, *CUDA.functions}))
def test_every_listed_function_exists_and_is_reached(name):
    space, _, short = name.rpartition(".")
    spaces = {"": (ad, F), "linalg": (ad.linalg,), "fft": (ad.fft,)}[space]
    found = [vars(s)[short] for s in spaces if short in vars(s)]
    assert found
    assert all(f.__code__.co_filename.endswith("wiring.py") for f in found)


# ---- CUDA's lists, on the CPU --------------------------------------------------------------------


@pytest.fixture
def cuda_lists():
    outside = MODE.get()
    casting = Casting({"cpu": CastTarget(ad.float16, True, CUDA)}, True, {})
    MODE.set(mode_with(outside, autocast=casting))
    yield
    MODE.set(outside)


def ours(value):
    """PyTorch's tensors in `value` as ours."""
    if isinstance(value, torch.Tensor):
        return ad.tensor(value.float().numpy()).to(getattr(ad, dtype_name(value)))
    if isinstance(value, (list, tuple)):
        return type(value)([ours(each) for each in value])
    return value


def listed(*names):
    """PyTorch's own test inputs: (function's name, arguments, keywords)."""
    lists = AutocastTestLists(torch.device("cpu"))
    aliases = {"linalg_vecdot": "vecdot", "linalg_multi_dot": "multi_dot"}
    for name in names:
        for entry in getattr(lists, name):
            function = aliases.get(entry[0], entry[0])
            args = entry[1] if isinstance(entry[1], tuple) else (entry[1],)
            if function in ("convolution", "poisson_nll_loss") or function.startswith("cudnn_"):
                continue  # with other arguments than the public functions', or refused
            if function.endswith("_cell"):
                continue  # as in nn.LSTMCell, the products inside are converted
            if any(hasattr(space, function) for space in (ad, F, ad.linalg)):
                kwargs = next((x for x in entry[2:] if isinstance(x, dict)), {})
                if function == "einsum":  # entered with shapes that its equation does not fit
                    args = ("ij,jk->ik", *entry[2])
                yield pytest.param(function, args, kwargs, id=f"{name}-{function}")


def run(function, args, kwargs):
    found = next(getattr(s, function) for s in (ad, F, ad.linalg) if hasattr(s, function))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "reduction: 'mean' divides")
        return found(*ours(args), **kwargs)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"), list(listed("torch_fp16", "nn_fp16", "linalg_fp16"))
)
def test_cuda_float16_list(cuda_lists, function, args, kwargs):
    found = run(function, args, kwargs)
    each = found if isinstance(found, tuple) else (found,)  # lstm_cell gives two
    assert all(x.dtype is ad.float16 for x in each)


@pytest.mark.parametrize(("function", "args", "kwargs"), list(listed("torch_fp32", "nn_fp32")))
def test_cuda_float32_list(cuda_lists, function, args, kwargs):
    assert run(function, args, kwargs).dtype is ad.float32


@pytest.mark.parametrize(
    ("function", "args", "kwargs"), list(listed("torch_need_autocast_promote"))
)
def test_cuda_promote_list(cuda_lists, function, args, kwargs):
    assert run(function, args, kwargs).dtype is ad.float32


def test_cuda_refuses_binary_cross_entropy(cuda_lists):
    with pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(ad.ones(2), ad.ones(2))


def test_cuda_leaves_other_functions(cuda_lists):
    x = ad.ones(2, 2).half()
    unlisted = (
        F.gelu, F.silu, F.relu, F.elu, F.selu, F.celu, F.logsigmoid, F.softsign, F.mish,
        F.hardswish, ad.tanh, ad.sigmoid, ad.sqrt, ad.mean, ad.nansum, ad.trace, ad.var, ad.amax,
    )  # fmt: skip
    for function in unlisted:
        assert function(x).dtype is ad.float16, function.__name__


# ---- regions -------------------------------------------------------------------------------------


def product():
    return (ad.ones(2, 2) @ ad.ones(2, 2)).dtype


def test_regions_nest_and_can_be_disabled():
    assert product() is ad.float32
    with ad.autocast("cpu"):
        assert product() is ad.bfloat16
        with ad.autocast("cpu", enabled=False):
            assert product() is ad.float32
            with ad.autocast("cpu", dtype=ad.float16):
                assert product() is ad.float16
            assert product() is ad.float32
        with ad.no_grad(), ad.autocast("cpu"):
            assert product() is ad.bfloat16
        with ad.autocast("cpu", dtype=ad.float16), ad.enable_grad():
            assert ad.get_autocast_dtype("cpu") is ad.float16
        assert product() is ad.bfloat16
        assert ad.get_autocast_dtype("cpu") is ad.bfloat16
    assert product() is ad.float32
    assert MODE.get().autocast is None


def test_exceptions_leave_the_region():
    with pytest.raises(ad.ShapeError, match="cannot be multiplied"), ad.autocast("cpu"):
        ad.ones(2, 3) @ ad.ones(2, 3)
    assert not ad.is_autocast_enabled("cpu")
    assert product() is ad.float32


def test_one_object_is_used_again_and_nested():
    region = ad.autocast("cpu")
    with region, region:
        assert product() is ad.bfloat16
    assert product() is ad.float32
    with region:
        assert product() is ad.bfloat16


def test_decorators_of_functions_methods_and_generators():
    class Model(ad.nn.Module):
        @ad.autocast("cpu")
        def forward(self, x):
            return x @ x

        @ad.autocast("cpu", enabled=False)
        def outside(self, x):
            return x @ x

    @ad.autocast("cpu")
    def several():
        yield product()
        yield product()

    assert Model()(ad.ones(2, 2)).dtype is ad.bfloat16
    with ad.autocast("cpu"):
        assert Model().outside(ad.ones(2, 2)).dtype is ad.float32
    steps = several()
    assert next(steps) is ad.bfloat16
    assert product() is ad.float32
    assert next(steps) is ad.bfloat16
    with pytest.raises(TypeError, match="requires a callable"):
        ad.autocast("cpu")(3)


def test_regions_are_of_one_thread_and_one_task():
    seen = []
    with ad.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append(product()))
        thread.start()
        thread.join()
    assert seen == [ad.float32]

    async def inside(region, first, second):
        with region:
            first.set()
            await second.wait()
            return product()

    async def both():
        a, b = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(
            inside(ad.autocast("cpu"), a, b), inside(ad.autocast("cpu", enabled=False), b, a)
        )

    assert asyncio.run(both()) == [ad.bfloat16, ad.float32]


def test_switches():
    outside = MODE.get()
    try:
        ad.set_autocast_dtype("cpu", ad.float16)
        ad.set_autocast_enabled("cpu", True)
        assert ad.is_autocast_enabled("cpu")
        assert product() is ad.float16
        with ad.autocast("cpu"):
            assert product() is ad.float16  # the dtype that was set
        ad.set_autocast_cache_enabled(False)
        assert not ad.is_autocast_cache_enabled()
    finally:
        MODE.set(outside)
    assert product() is ad.float32


def test_what_cannot_be_is_refused_or_disabled_with_a_warning():
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'fpga'"):
        ad.autocast("fpga")
    with pytest.raises(ValueError, match="of type `str`"):
        ad.autocast(ad.device("cpu"))
    with pytest.warns(UserWarning, match="only supports dtypes of"):
        region = ad.autocast("cpu", dtype=ad.float64)
    with region:
        assert product() is ad.float32


@pytest.mark.skipif(ad.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_disabled():
    with pytest.warns(UserWarning, match="CUDA is not available"):
        region = ad.autocast("cuda")
    with region:
        assert not ad.is_autocast_enabled("cuda")
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = ad.amp.GradScaler()
    assert scaler.get_scale() == 1.0


def test_older_names():
    with pytest.warns(FutureWarning, match="deprecated"):
        region = ad.cpu.amp.autocast()
    with region:
        assert product() is ad.bfloat16
    with pytest.warns(FutureWarning, match="deprecated"):
        assert ad.cpu.amp.GradScaler().is_enabled()
    assert ad.amp.autocast is ad.autocast
    assert ad.amp.GradScaler is ad.GradScaler
    with pytest.warns(FutureWarning, match="deprecated"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "User provided device_type")
        assert ad.cuda.amp.autocast(enabled=False).device == "cuda"


# ---- what autocast leaves alone ------------------------------------------------------------------


def test_in_place_and_out_keep_their_tensor_s_dtype():
    values = 1 + ad.arange(4.0).reshape(2, 2) / 1000  # differ in float32 only
    exact = values + values @ values
    x, out = values.clone(), ad.empty(2, 2)
    with ad.autocast("cpu"):
        x.addmm_(values, values)
        ad.mm(values, values, out=out)
    assert ad.equal(x, exact)
    assert ad.equal(out, values @ values)


def test_float64_and_integers_are_left():
    x, n = ad.ones(2, 2, dtype=ad.float64), ad.ones(2, 2, dtype=ad.int64)
    with ad.autocast("cpu"):
        assert (x @ x).dtype is ad.float64
        assert (n @ n).dtype is ad.int64
        with pytest.raises(RuntimeError, match="same dtype"):
            x @ ad.ones(2, 2)


def test_the_fast_path_is_as_without():
    assert MODE.get().run is None
    with ad.autocast("cpu", enabled=False):
        assert MODE.get().plain
        assert MODE.get().run is None


# ---- gradients and the cache of parameters -------------------------------------------------------


def casts(y):
    """The Cast nodes above `y`."""
    seen, stack = {}, [y.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and id(node) not in seen:
            seen[id(node)] = node
            stack.extend(parent for parent, _ in getattr(node, "next_functions", ()))
    return sum("Cast" in node.name() for node in seen.values())


def test_gradients_have_the_parameters_dtype():
    w = ad.ones(2, 2, requires_grad=True)
    v = ad.ones(2, 2, dtype=ad.bfloat16, requires_grad=True)
    with ad.autocast("cpu"):
        y = (w @ v).sum()
    y.backward()
    assert w.grad.dtype is ad.float32
    assert v.grad.dtype is ad.bfloat16


def test_a_parameter_is_converted_once_in_an_outermost_region():
    w, x = ad.ones(2, 2, requires_grad=True), ad.ones(2, 2)
    with ad.autocast("cpu"):
        with ad.autocast("cpu"):
            first = x @ w
        both = first + x @ w
    assert casts(both) == 1
    with ad.autocast("cpu", cache_enabled=False):
        both = x @ w + x @ w
    assert casts(both) == 2
    with ad.autocast("cpu"):
        again = x @ w
    assert casts(again + first) == 2  # another region, another copy


def test_the_cache_notices_changes():
    w, x = ad.ones(2, 2, requires_grad=True), ad.ones(2, 2)
    with ad.autocast("cpu"):
        assert (x @ w)[0, 0] == 2
        with ad.no_grad():
            w.mul_(3)
        assert (x @ w)[0, 0] == 6
        w.data = ad.full((2, 2), 5.0)
        assert (x @ w)[0, 0] == 10
        ad.clear_autocast_cache()
        assert (x @ w)[0, 0] == 10


def test_the_cache_tells_no_grad_from_grad():
    w, x = ad.ones(2, 2, requires_grad=True), ad.ones(2, 2)
    with ad.autocast("cpu"):
        with ad.no_grad():
            assert not (x @ w).requires_grad
        y = (x @ w).sum()
    y.backward()
    assert ad.equal(w.grad, ad.full((2, 2), 2.0))


def test_the_cache_keeps_no_parameter_and_ends_with_the_region():
    with ad.autocast("cpu"):
        w = ad.ones(2, 2, requires_grad=True)
        reference = weakref.ref(w)
        w @ w
        cache = MODE.get().autocast.cache
        (held,) = cache.values()
        value = weakref.ref(held.value)
        del w, held
        gc.collect()
        assert reference() is None
        assert len(cache) == 1
        del cache
    gc.collect()
    assert value() is None


def test_two_backwards_in_one_region():
    w, x = ad.ones(2, 2, requires_grad=True), ad.ones(2, 2)
    with ad.autocast("cpu"):
        for _ in range(2):
            (x @ w).sum().backward()
    assert ad.equal(w.grad, ad.full((2, 2), 4.0))


# ---- with the rest of the package ----------------------------------------------------------------


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_recomputes_in_the_same_precision(use_reentrant):
    w = ad.ones(2, 2, requires_grad=True)
    x = ad.rand(2, 2, requires_grad=True)
    seen = []

    def block(v):
        y = v @ w
        seen.append(y.dtype)
        return y.exp()

    with ad.autocast("cpu"):
        y = checkpoint(block, x, use_reentrant=use_reentrant).sum()
    y.backward()
    assert seen == [ad.bfloat16, ad.bfloat16]
    found = w.grad.clone(), x.grad.clone()
    w.grad = x.grad = None
    with ad.autocast("cpu"):
        block(x).sum().backward()
    assert ad.equal(found[0], w.grad)
    assert ad.equal(found[1], x.grad)


def test_custom_functions():
    seen = []

    def make(cast_inputs):
        class Product(ad.autograd.Function):
            @staticmethod
            @ad.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                y = a @ b
                seen.append(y.dtype)
                return y

            @staticmethod
            @ad.amp.custom_bwd(device_type="cpu")
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                seen.append((g.float() @ b.float().mT).dtype)
                return g.to(b.dtype) @ b.mT, a.mT @ g.to(a.dtype)

        return Product

    def use(cast_inputs, enabled):
        seen.clear()
        a = ad.ones(2, 2, requires_grad=True)
        with ad.autocast("cpu", enabled=enabled):
            y = make(cast_inputs).apply(a, a)
        y.sum().backward()
        assert a.grad.dtype is ad.float32
        assert a.grad[0, 0] == 4
        return list(seen)

    assert use(None, True) == [ad.bfloat16, ad.bfloat16]
    assert use(ad.float32, True) == [ad.float32, ad.float32]
    assert use(ad.float16, True) == [ad.float16, ad.float32]
    assert use(ad.float16, False) == [ad.float32, ad.float32]


def test_lazy_values_are_converted_too():
    w, x = ad.rand(2, 2, requires_grad=True), ad.rand(2, 2)
    with ad.autocast("cpu"):
        eager = F.mse_loss(x @ w, x)
        with ad.lazy():
            inside = F.mse_loss(x @ w, x)
    with ad.lazy():
        with ad.autocast("cpu"):
            outside = F.mse_loss(x @ w, x)
        kept = x * 1
    with ad.autocast("cpu"):
        settled = kept @ kept  # recorded before, used eagerly inside
    assert settled.dtype is ad.bfloat16
    for y in (inside, outside):
        assert y.dtype is ad.float32
        assert ad.equal(y, eager)
    gradients = []
    for y in (eager, inside, outside):
        w.grad = None
        y.backward()
        gradients.append(w.grad.clone())
    assert ad.equal(gradients[0], gradients[1])
    assert ad.equal(gradients[0], gradients[2])


def test_graphs_record_what_autocast_does():
    model = ad.nn.Linear(2, 2)
    graph = ad.Graph()
    x = graph.input(ad.ones(1, 2), name="x")
    with graph:
        wide = model(x)
        with ad.autocast("cpu"):
            low = model(x)
            loss = F.mse_loss(low, ad.zeros(1, 2))
        again = model(x)
    assert wide.dtype is again.dtype is ad.float32
    assert low.dtype is ad.bfloat16
    assert loss.dtype is ad.float32
    before = loss.item()
    x.set([[2.0, 2.0]])
    with ad.autocast("cpu"):
        expected = F.mse_loss(model(ad.full((1, 2), 2.0)), ad.zeros(1, 2))
    assert loss.item() == expected.item() != before
    loss.backward()
    assert model.weight.grad.dtype is ad.float32


def test_modules_that_mix_precisions():
    model = ad.nn.Sequential(
        ad.nn.Conv2d(1, 4, 3), ad.nn.BatchNorm2d(4), ad.nn.ReLU(), ad.nn.Flatten(),
        ad.nn.Linear(16, 8), ad.nn.LayerNorm(8), ad.nn.GELU(), ad.nn.Linear(8, 2),
    )  # fmt: skip
    with ad.autocast("cpu"):
        y = model(ad.rand(3, 1, 4, 4))
        loss = F.cross_entropy(y, ad.tensor([0, 1, 0]))
    assert y.dtype is ad.bfloat16
    assert loss.dtype is ad.float32
    loss.backward()
    assert all(p.grad.dtype is ad.float32 for p in model.parameters())
    assert model[1].running_mean.dtype is ad.float32


# ---- training and the scaler, beside PyTorch -----------------------------------------------------


def models():
    theirs = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.LayerNorm(16), torch.nn.Tanh(), torch.nn.Linear(16, 3)
    )
    ours = ad.nn.Sequential(
        ad.nn.Linear(6, 16), ad.nn.LayerNorm(16), ad.nn.Tanh(), ad.nn.Linear(16, 3)
    )
    ours.load_state_dict(
        {name: ad.tensor(p.detach().numpy()) for name, p in theirs.state_dict().items()}
    )
    return ours, theirs


def train(m, model, dtype, x, t):
    """Losses and scales of 25 steps, with an inf among the inputs in two of them."""
    optimizer = m.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scaler = m.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
    losses, scales = [], []
    for step in range(25):
        inputs = m.tensor(x)
        if step in (3, 12):
            inputs[0, 0] = float("inf")
        optimizer.zero_grad()
        with m.autocast("cpu", dtype=dtype):
            loss = m.nn.functional.cross_entropy(model(inputs), m.tensor(t))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        m.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append((scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))
    return losses, scales


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_training_is_pytorch_s(dtype):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 6)).astype(np.float32)
    t = rng.integers(0, 3, 32)
    ours, theirs = models()
    losses, scales = train(ad, ours, getattr(ad, dtype), x, t)
    expected, expected_scales = train(torch, theirs, getattr(torch, dtype), x, t)
    assert scales == expected_scales
    assert min(s for s, _ in scales) < 1024 < max(s for s, _ in scales)
    np.testing.assert_allclose(losses, expected, atol=0.03)
    assert losses[-1] < 0.6 * losses[0]
    for name, p in ours.state_dict().items():
        np.testing.assert_allclose(p.numpy(), theirs.state_dict()[name].numpy(), atol=0.05)


def scaler_run(m, settings, gradients):
    """The scaler's states while an optimizer gets `gradients`, and the parameter."""
    w = m.ones(3, requires_grad=True)
    optimizer = m.optim.SGD([w], lr=0.5)
    scaler = m.amp.GradScaler("cpu", **settings)
    states = []
    for gradient in gradients:
        scaler.scale(m.ones(1))
        w.grad = m.tensor(gradient) * scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        states.append(scaler.state_dict())
    return states, w.detach().numpy()


@pytest.mark.parametrize(
    "settings",
    [
        {"init_scale": 4.0, "growth_interval": 2},
        {"init_scale": 3.0, "growth_interval": 1, "growth_factor": 1.7, "backoff_factor": 0.3},
        {"init_scale": 2.0**126, "growth_interval": 1},
        {"init_scale": 1e-3, "backoff_factor": 0.9},
    ],
)
def test_scaler_states_are_pytorch_s(settings):
    rng = np.random.default_rng(1)
    gradients = [[0.25, -1.0, 0.5] for _ in range(40)]
    for i in rng.choice(40, 12, replace=False):
        gradients[i][rng.integers(3)] = float(rng.choice([np.inf, -np.inf, np.nan]))
    ours, w = scaler_run(ad, settings, gradients)
    theirs, expected = scaler_run(torch, settings, gradients)
    assert ours == theirs
    np.testing.assert_array_equal(w, expected)


def test_a_skipped_step_changes_nothing():
    w = ad.ones(2, requires_grad=True)
    optimizer = ad.optim.Adam([w], lr=0.1)
    scaler = ad.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(w.sum())
    w.grad = ad.tensor([1.0, float("nan")])
    assert scaler.step(optimizer) is None
    assert ad.equal(w, ad.ones(2))
    assert not optimizer.state
    scaler.update()
    assert scaler.get_scale() == 1.0


def test_several_optimizers_are_skipped_one_by_one():
    for m in (ad, torch):
        a, b = m.ones(2, requires_grad=True), m.ones(2, requires_grad=True)
        first, second = m.optim.SGD([a], lr=1.0), m.optim.SGD([b], lr=1.0)
        scaler = m.amp.GradScaler("cpu", init_scale=2.0)
        scaled = scaler.scale([a.sum(), (b * float("inf")).sum()])
        sum(scaled).backward()
        scaler.step(first)
        scaler.step(second)
        scaler.update()
        assert a.tolist() == [0, 0]
        assert b.tolist() == [1, 1]
        assert scaler.get_scale() == 1.0


def make_scaler(m):
    w = m.ones(2, requires_grad=True)
    optimizer = m.optim.SGD([w], lr=1.0)
    scaler = m.amp.GradScaler("cpu")
    scaler.scale(w.sum()).backward()
    return w, optimizer, scaler


MISUSE = {
    "unscale twice": lambda m, w, o, s: (s.unscale_(o), s.unscale_(o)),
    "unscale after step": lambda m, w, o, s: (s.step(o), s.unscale_(o)),
    "step twice": lambda m, w, o, s: (s.step(o), s.step(o)),
    "closure": lambda m, w, o, s: s.step(o, closure=lambda: 0),
    "update before step": lambda m, w, o, s: s.update(),
    "no gradients": lambda m, w, o, s: (o.zero_grad(), s.step(o)),
    "step before scale": lambda m, w, o, s: m.amp.GradScaler("cpu").step(o),
    "unscale before scale": lambda m, w, o, s: m.amp.GradScaler("cpu").unscale_(o),
    "update before scale": lambda m, w, o, s: m.amp.GradScaler("cpu").update(),
    "no tensor": lambda m, w, o, s: s.scale(3),
    "growth factor": lambda m, w, o, s: m.amp.GradScaler("cpu", growth_factor=1.0),
    "backoff factor": lambda m, w, o, s: m.amp.GradScaler("cpu", backoff_factor=1.0),
    "new scale": lambda m, w, o, s: s.update(m.ones(2)),
    "empty state": lambda m, w, o, s: s.load_state_dict({}),
    "missing state": lambda m, w, o, s: s.load_state_dict({"scale": 2.0}),
    "float16 gradients": lambda m, w, o, s: s.unscale_(m.optim.SGD([half(m)], lr=1.0)),
}


def half(m):
    x = m.ones(2, dtype=m.float16, requires_grad=True)
    x.grad = m.ones(2, dtype=m.float16)
    return x


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_raises_as_pytorch_s(name):
    with pytest.raises(Exception) as theirs:
        MISUSE[name](torch, *make_scaler(torch))
    w, optimizer, scaler = make_scaler(ad)
    with pytest.raises(theirs.type):
        MISUSE[name](ad, w, optimizer, scaler)
    if "factor" not in name and "scale" not in name:
        assert scaler.get_scale() == 65536.0


def test_state_goes_to_another_scaler():
    scaler = ad.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    w = ad.ones(2, requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=1.0)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    other = ad.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    theirs = torch.amp.GradScaler("cpu")
    theirs.load_state_dict(scaler.state_dict())
    assert theirs.state_dict() == scaler.state_dict()
    scaler.update(ad.tensor(3.0))
    assert scaler.get_scale() == 3.0


def test_a_disabled_scaler_does_nothing():
    w = ad.ones(2, requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=1.0)
    scaler = ad.amp.GradScaler("cpu", enabled=False)
    loss = w.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0, 0]
    assert scaler.state_dict() == {}


LOSS_MODULES = (
    "L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss", "BCELoss",
    "SoftMarginLoss", "PoissonNLLLoss", "KLDivLoss", "HingeEmbeddingLoss",
    "MultiLabelSoftMarginLoss",
)  # fmt: skip


@pytest.mark.parametrize("name", LOSS_MODULES)
def test_loss_modules_are_as_pytorch_s(name):
    dtypes = []
    for m, region in ((ad, ad.autocast("cpu")), (torch, torch.autocast("cpu"))):
        make = Maker(m)
        settings = {"reduction": "batchmean"} if name == "KLDivLoss" else {}
        with region:
            y = getattr(m.nn, name)(**settings)(make.low(2, 3), make.low(2, 3))
        dtypes.append(dtype_name(y))
    assert dtypes[0] == dtypes[1]


def test_methods_are_as_functions():
    x = ad.eye(2).bfloat16()
    with ad.autocast("cpu"):
        assert x.prod().dtype is x.trace().dtype is x.inverse().dtype is ad.float32
        assert x.float().addmm(x, x).dtype is ad.bfloat16
        assert x.float().mv(x.float()[0]).dtype is ad.float32
        assert x.float().__matmul__(x).dtype is ad.bfloat16


def test_a_block_puts_back_what_it_has_switched_and_nothing_else():
    for t in (ad, torch):
        before = t.get_autocast_dtype("cpu")
        try:
            with t.no_grad():
                t.set_autocast_dtype("cpu", t.float16)
                t.autograd.set_detect_anomaly(True)
                t.set_grad_enabled(True)
            assert t.get_autocast_dtype("cpu") is t.float16 and t.is_anomaly_enabled()
            assert t.is_grad_enabled()
            with t.autocast("cpu", dtype=t.bfloat16):  # whose own dtype comes back
                t.set_autocast_dtype("cpu", t.bfloat16)
                t.set_grad_enabled(False)
            assert t.get_autocast_dtype("cpu") is t.float16 and not t.is_grad_enabled()
            with pytest.raises(ValueError), t.enable_grad():
                t.set_autocast_enabled("cpu", True)
                raise ValueError
            assert t.is_autocast_enabled("cpu") and not t.is_grad_enabled()
        finally:
            t.set_autocast_enabled("cpu", False)
            t.set_autocast_dtype("cpu", before)
            t.autograd.set_detect_anomaly(False)
            t.set_grad_enabled(True)
