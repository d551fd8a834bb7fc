"""PyTorch's older and lesser names beside PyTorch's: what both give, or which error both raise."""

import copy
import pathlib
import pickle
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.faces import FILES
from adjoint.core.mode import DEFAULT, MODE

torch = pytest.importorskip("torch")


def plain(value):
    """What both libraries give, in one form."""
    if isinstance(value, (ad.Tensor, torch.Tensor)):
        if value.layout in (ad.sparse_coo, torch.sparse_coo):
            return "sparse", plain(value._indices()), plain(value._values()), tuple(value.shape)
        return str(value.dtype).rpartition(".")[2], value.detach().tolist()
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if isinstance(value, (ad.dtype, torch.dtype, ad.qscheme, torch.qscheme)):
        return str(value).rpartition(".")[2]
    return value


def outcome(function, space):
    """What a function of a library gives, or the error that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(function(space))
        except Exception as error:
            return error


def S(t):
    return t.tensor([[0, 2.0], [3, 0], [0, 0]]).to_sparse()


def D(t):
    return t.tensor([[1.0, 2, 3], [4, 5, 6]])


BITS = ("bit", "bits16", "bits1x8", "bits2x4", "bits4x2", "bits8", "float4_e2m1fn_x2", "qint32",
        "qint8", "quint2x4", "quint4x2", "quint8", *(f"int{n}" for n in range(1, 8)),
        *(f"uint{n}" for n in range(1, 8)))  # fmt: skip
CALLS = [
    # switches and questions
    lambda t: t.get_deterministic_debug_mode(),
    lambda t: t.set_deterministic_debug_mode("foo"),
    lambda t: t.set_deterministic_debug_mode(3),
    lambda t: t.set_deterministic_debug_mode(1.5),
    lambda t: (t.set_deterministic_debug_mode("warn"), t.get_deterministic_debug_mode(),
               t.are_deterministic_algorithms_enabled(),
               t.is_deterministic_algorithms_warn_only_enabled(),
               t.set_deterministic_debug_mode(2), t.get_deterministic_debug_mode(),
               t.set_deterministic_debug_mode(0), t.get_deterministic_debug_mode()),
    lambda t: (t.is_warn_always_enabled(), t.set_warn_always(True), t.is_warn_always_enabled(),
               t.set_warn_always(False), t.is_warn_always_enabled()),
    lambda t: t.set_warn_always(1),
    lambda t: (t.set_anomaly_enabled(True, False), t.is_anomaly_enabled(),
               t.is_anomaly_check_nan_enabled(), t.set_anomaly_enabled(False),
               t.is_anomaly_enabled(), t.is_anomaly_check_nan_enabled()),
    lambda t: t.set_anomaly_enabled(1),
    lambda t: (t.set_default_tensor_type(t.DoubleTensor), t.ones(1),
               t.set_default_tensor_type("torch.FloatTensor"), t.ones(1)),
    lambda t: t.set_default_tensor_type(t.LongTensor),
    lambda t: t.set_default_tensor_type(t.float32),
    lambda t: t.set_default_tensor_type("torch.cuda.FloatTensor"),
    lambda t: t.get_device_module("cpu") is t.cpu, lambda t: t.get_device_module() is t.cpu,
    lambda t: t.get_device(t.ones(1)), lambda t: t.is_distributed(t.ones(1)),
    lambda t: t.is_same_size(t.ones(2), t.ones(2, 1)), lambda t: t.init_num_threads(),
    lambda t: t.thread_safe_generator(), lambda t: t.is_vulkan_available(),
    lambda t: t.cudnn_is_acceptable(t.ones(1)), lambda t: t.has_lapack, lambda t: t.has_spectral,
    # autocast
    *(lambda t, d=d: getattr(t, f"get_autocast_{d}_dtype")() for d in ("cpu", "gpu", "ipu", "xla")),
    *(lambda t, d=d: getattr(t, f"is_autocast_{d}_enabled")() for d in ("cpu", "ipu", "xla")),
    *(lambda t, d=d: (
        getattr(t, f"set_autocast_{d}_dtype")(t.float16), getattr(t, f"get_autocast_{d}_dtype")(),
        getattr(t, f"set_autocast_{d}_dtype")(t.bfloat16), getattr(t, f"get_autocast_{d}_dtype")(),
        getattr(t, f"set_autocast_{d}_enabled")(True), getattr(t, f"is_autocast_{d}_enabled")(),
        t.is_autocast_enabled(d), t.get_autocast_dtype(d),
        getattr(t, f"set_autocast_{d}_enabled")(False), getattr(t, f"is_autocast_{d}_enabled")(),
    ) for d in ("cpu", "xla")),
    lambda t: t.set_autocast_cpu_dtype("x"), lambda t: t.set_autocast_cpu_enabled(1),
    lambda t: (t.autocast_increment_nesting(), t.autocast_increment_nesting(),
               t.autocast_decrement_nesting(), t.autocast_decrement_nesting()),
    # numbers that may be symbols
    lambda t: (t.sym_float(3), t.sym_int(3.7), t.sym_int(-3.7), t.sym_int(True), t.sym_max(1, 2.0),
               t.sym_max(3, 2.0), t.sym_min(1, 2.0), t.sym_not(True), t.sym_not(1), t.sym_sqrt(4),
               t.sym_sum([1, 2, 3]), t.sym_sum([]), t.sym_sum(1, 2), t.sym_sum((1, 2.0)),
               t.sym_ite(True, 1, 2), t.sym_fresh_size(3), t.sym_constrain_range(3, min=1, max=5),
               t.sym_constrain_range_for_size(3, min=1, max=5)),
    lambda t: t.sym_ite(1, 1, 2), lambda t: t.sym_ite(True, 1, 2.0), lambda t: t.sym_max("a", 1),
    lambda t: t.sym_sqrt(-1), lambda t: t.sym_constrain_range(3, min=1, max=2),
    lambda t: t.sym_constrain_range_for_size(1, min=0, max=2),
    # dtypes that are but names
    *(lambda t, n=n: (str(getattr(t, n)).rpartition(".")[2], getattr(t, n).itemsize,
                      getattr(t, n).is_floating_point, getattr(t, n).is_complex,
                      getattr(t, n) == t.int8, isinstance(getattr(t, n), t.dtype)) for n in BITS),
    *(lambda t, n=n: getattr(t, n).is_signed for n in BITS),
    *(lambda t, n=n: t.tensor([1], dtype=getattr(t, n)) for n in BITS),
    *(lambda t, n=n: t.iinfo(getattr(t, n)) for n in ("int4", "uint1", "bits8")),
    lambda t: t.finfo(t.int4),
    lambda t: t.promote_types(t.int4, t.int4), lambda t: t.promote_types(t.bits8, t.float32),
    # quantized numbers
    lambda t: (t.per_tensor_affine, t.per_channel_symmetric, isinstance(t.per_tensor_affine,
                                                                        t.qscheme)),
    lambda t: t.qscheme(),
    lambda t: t.dequantize(t.tensor([1, 2])), lambda t: t.tensor([1.5]).double().dequantize(),
    lambda t: t.dequantize([t.ones(1)]),
    *(lambda t, n=n: getattr(t, n)(t.ones(2)) for n in (
        "int_repr", "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points",
        "q_scale", "q_zero_point")),
    *(lambda t, n=n: getattr(t.ones(2), n)() for n in (
        "int_repr", "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points",
        "q_scale", "q_zero_point", "qscheme")),
    lambda t: t.quantized_max_pool1d(t.ones(1, 1, 4), 2),
    lambda t: t.quantized_batch_norm(t.ones(1, 3, 4, 4), None, None, t.ones(3), t.ones(3), 1e-5,
                                     0.1, 0),
    lambda t: t.empty_quantized((2,), t.ones(2)),
    # other libraries
    lambda t: t.cudnn_convolution(t.ones(1, 1, 3, 3), t.ones(1, 1, 2, 2), (0, 0), (1, 1), (1, 1), 1,
                                  True, True, True),
    lambda t: t.miopen_convolution(t.ones(1, 1, 3, 3), t.ones(1, 1, 2, 2), None, (0, 0), (1, 1),
                                   (1, 1), 1, True, True),
    lambda t: t.mkldnn_max_pool2d(t.ones(1, 1, 2, 2), 2),
    lambda t: t.batch_norm_stats(t.ones(2, 3), 1e-5),
    lambda t: t.cudnn_grid_sampler(t.ones(1, 1, 2, 2), t.ones(1, 2, 2, 2)),
    # sparse tensors
    *(lambda t, n=n: getattr(t, n)(S(t), D(t)) for n in ("smm", "dsmm", "spmm", "hspmm", "hsmm")),
    lambda t: S(t).smm(D(t)), lambda t: t.smm(D(t), D(t)), lambda t: t.smm(S(t), S(t).t()),
    lambda t: t.smm(S(t), t.ones(3, 3)), lambda t: t.hspmm(D(t), D(t)),
    lambda t: t.sspaddmm(t.eye(3).to_sparse(), S(t), D(t), beta=2, alpha=3),
    lambda t: t.eye(3).to_sparse().sspaddmm(S(t), D(t)),
    lambda t: t.saddmm(t.eye(3).to_sparse(), S(t), D(t)),
    lambda t: t.saddmm(t.ones(3, 3), S(t), D(t)),
    lambda t: t.sspaddmm(t.eye(2).to_sparse(), S(t), D(t)),
    lambda t: t.smm(S(t), D(t)).is_coalesced(),
    lambda t: t.indices_copy(D(t)), lambda t: t.row_indices_copy(D(t)),
    lambda t: t.crow_indices_copy(S(t).to_sparse_csr()),
    lambda t: t.col_indices_copy(S(t).to_sparse_csr()),
    lambda t: t.ccol_indices_copy(S(t).to_sparse_csr()),
    lambda t: S(t).sparse_resize_((4, 3), 2, 0), lambda t: S(t).sparse_resize_((2, 2), 2, 0),
    lambda t: S(t).sparse_resize_((4, 3), 1, 1), lambda t: D(t).sparse_resize_((4, 3), 2, 0),
    lambda t: S(t).sparse_resize_and_clear_((2, 3), 1, 1),
    lambda t: t.zeros(1, 1).to_sparse().resize_as_sparse_(S(t)),
    lambda t: t.resize_as_sparse_(t.zeros(1).to_sparse(), S(t)),
    lambda t: D(t).resize_as_sparse_(S(t)),
    lambda t: (t.sparse.check_sparse_tensor_invariants.is_enabled(),
               t.sparse.check_sparse_tensor_invariants.enable(),
               t.sparse.check_sparse_tensor_invariants.is_enabled(),
               t.sparse.check_sparse_tensor_invariants.disable(),
               t.sparse.check_sparse_tensor_invariants.is_enabled()),
    lambda t: t.sparse.check_sparse_tensor_invariants()(
        t.sparse.check_sparse_tensor_invariants.is_enabled)(),
    # methods of tensors
    lambda t: t.ones(2).apply_(lambda v: v + 1),
    lambda t: t.tensor([[1, 2]]).t().apply_(lambda v: 1.5),
    lambda t: t.ones(2, dtype=t.bool).apply_(lambda v: 1),
    lambda t: t.ones(2, dtype=t.bfloat16).apply_(lambda v: v + 1), lambda t: t.ones(2).apply_(1),
    lambda t: t.ones(0).apply_(lambda v: v + 1), lambda t: t.ones(()).apply_(lambda v: v + 1),
    lambda t: t.ones(2).apply_(lambda v: "a"),
    lambda t: t.ones(2, requires_grad=True).apply_(lambda v: v + 1),
    lambda t: t.ones(2, 3).map_(t.arange(3.0), lambda a, b: a + b),
    lambda t: t.ones(2).map_(t.ones(3), lambda a, b: a),
    lambda t: t.ones(2).map_(1, lambda a, b: a),
    lambda t: t.ones(2).map_(t.ones(2).long(), lambda a, b: a),
    lambda t: t.ones(2).map2_(t.ones(2), t.ones(1), lambda a, b, c: a + b + c),
    lambda t: t.arange(6).resize(3, 2),
    lambda t: t.arange(6).resize(5),
    lambda t: t.arange(6).resize((6,)),
    lambda t: t.arange(6).resize_as(t.ones(2, 3)), lambda t: t.arange(6).resize_as(t.ones(2)),
    *(lambda t, n=n: getattr(t.ones(2, 2), n)(t.ones(2, 2)) for n in (
        "eig", "lstsq", "solve", "symeig")),
    *(lambda t, n=n: getattr(t.ones(2, 2), n)() for n in ("ipu", "xpu", "mtia")),
    lambda t: t.ones(1).record_stream(None), lambda t: t.ones(1).to_padded_tensor(0.0),
    lambda t: t.ones(1).reinforce(1), lambda t: (t.ones(1).name, t.ones(1).volatile),
    lambda t: t.ones(1).grad_dtype, lambda t: (t.ones(1, requires_grad=True) * 2).grad_dtype,
    lambda t: t.conj_physical_(t.tensor([1 + 2j])),
    lambda t: (lambda x: x.const_data_ptr() == x.data_ptr())(t.ones(1)),
    *(lambda t, d=d: t.hash_tensor(t.tensor([0, 1, 2, 5]).to(getattr(t, d))) for d in (
        "float32", "bfloat16", "int32", "bool", "uint8", "float64")),
    lambda t: t.arange(6.0).reshape(2, 3).hash_tensor(1),
    lambda t: t.arange(30.0).reshape(2, 3, 5).hash_tensor((0, 2), keepdim=True),
    lambda t: t.hash_tensor(t.tensor([-1, 7])), lambda t: t.hash_tensor(t.tensor([-0.0])),
    lambda t: t.hash_tensor(t.ones(2), mode=1), lambda t: t.hash_tensor(t.zeros(0)),
    lambda t: t.hash_tensor(t.zeros(0, 3), 0), lambda t: t.hash_tensor(t.tensor([1j])),
    lambda t: t.hash_tensor(t.tensor(3.0)),
    # storages
    lambda t: t.FloatStorage([1, 2]).tolist(), lambda t: t.FloatStorage(3).size(),
    lambda t: t.FloatStorage().size(), lambda t: t.BoolStorage([1, 0]).tolist(),
    lambda t: [isinstance(t.ones(2).storage(), k) for k in (t.FloatStorage, t.LongStorage)],
    lambda t: t.ones(2).storage_type() is t.FloatStorage,
    lambda t: t.ones(2).long().storage_type() is t.LongStorage, lambda t: t.FloatStorage.dtype,
    lambda t: t.tensor([]).set_(t.FloatStorage([1, 2, 3])),
    lambda t: t.FloatStorage(wrap_storage=t.ones(2).untyped_storage()).tolist(),
    lambda t: t.FloatStorage([1, 2]).fill_(3).tolist(), lambda t: t.FloatStorage([1.5])[0],
    # modules and functions
    lambda t: [t.nn.factory_kwargs(k) for k in ({}, None, {"device": "cpu", "dtype": 1}, {
        "device": "cpu", "factory_kwargs": {"dtype": 2}})],
    lambda t: t.nn.factory_kwargs({"a": 1}),
    lambda t: t.nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"device": "cpu"}}),
    lambda t: str(t.nn.Container(a=t.nn.ReLU())), lambda t: str(t.nn.NLLLoss2d()),
    lambda t: (str(t.nn.UninitializedBuffer()),
               t.nn.UninitializedBuffer(persistent=False).persistent,
               t.nn.parameter.is_lazy(t.nn.UninitializedBuffer())),
    lambda t: (t.nn.functional.GRID_SAMPLE_INTERPOLATION_MODES,
               t.nn.functional.GRID_SAMPLE_PADDING_MODES,
               [e.value for e in t.nn.functional.ScalingType.__members__.values()],
               t.nn.functional.assert_int_or_pair(3, "a", "m {}"),
               t.nn.functional.assert_int_or_pair((3, 4), "a", "m {}")),
    lambda t: t.nn.functional.assert_int_or_pair("abc", "a", "m {}"),
    lambda t: t.nn.functional.conv_tbc(t.ones(3, 1, 1), t.ones(2, 1, 1), t.zeros(1)),
    lambda t: t.func.rearrange(t.arange(24).reshape(2, 3, 4), "a b c -> (c a) b"),
    lambda t: t.func.rearrange(t.arange(24).reshape(2, 12), "a (b c) -> c 1 (a b)", b=3),
    lambda t: t.func.rearrange(t.arange(24).reshape(2, 3, 4), "... c -> c ..."),
    lambda t: t.func.rearrange(t.arange(24).reshape(2, 3, 4), "a b -> b a"),
    lambda t: t.func.rearrange([t.ones(2), t.zeros(2)], "a b -> b a"),
    lambda t: t.func.rearrange(t.ones(2, 3), "a b -> a c"),
    lambda t: t.func.debug_unwrap(t.ones(2)), lambda t: t.autograd.variable(1.0),
    lambda t: (t.autograd.set_multithreading_enabled(False), t.autograd.is_multithreading_enabled(),
               t.autograd.set_multithreading_enabled(True),
               t.autograd.is_multithreading_enabled())[1::2],
    lambda t: t.lobpcg(t.diag(t.arange(1.0, 10)), k=4),
    lambda t: t.from_file("/nowhere/at/all", size=3),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(CALLS)))
def test_both_give_the_same(place):
    ours, theirs = outcome(CALLS[place], ad), outcome(CALLS[place], torch)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), (ours, theirs)
    else:
        assert ours == theirs


def test_every_name_that_comes_later_is_there():
    for name in " ".join(FILES.values()).split():
        assert getattr(ad, name) is not None and name in dir(ad), name


def test_switches_of_autocast_are_autocasts():
    x = ad.ones(2, 2)
    ad.set_autocast_cpu_dtype(ad.float16)
    ad.set_autocast_cpu_enabled(True)
    try:
        assert (x @ x).dtype is ad.float16
    finally:
        ad.set_autocast_cpu_enabled(False)
        ad.set_autocast_cpu_dtype(ad.bfloat16)
    assert (x @ x).dtype is ad.float32 and MODE.get() is DEFAULT


@pytest.mark.parametrize("space", [ad, torch], ids=["adjoint", "torch"])
def test_anomaly_mode_without_looking_for_nan(space):
    for check in (True, False):
        x = space.tensor(-1.0, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with space.autograd.set_detect_anomaly(True, check_nan=check):
                y = space.sqrt(x)
                if check:
                    with pytest.raises(RuntimeError, match="nan"):
                        y.backward()
                else:
                    y.backward()
                    assert x.grad.isnan()
    assert not space.is_anomaly_enabled()


def test_dtypes_of_few_bits_are_copied_and_named():
    for name in BITS:
        kind = getattr(ad, name)
        assert pickle.loads(pickle.dumps(kind)) is kind and copy.deepcopy(kind) is kind
    assert ad.bit is ad.uint1
    with pytest.raises(RuntimeError, match="there are no tensors of"):
        ad.zeros(2, dtype=ad.int4)


X = np.array([0.05, 0.15, 0.25, -0.05, -0.15, 100, -100, 0.33, 0.62], "f4")


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("zero", [0, 1, 3])
@pytest.mark.parametrize("form", ["numbers", "tensors", "channels", "between"])
def test_rounding_to_levels(dtype, zero, form):
    def ran(t):
        x = t.from_numpy(np.stack([X, X * 0.7])).to(getattr(t, dtype)).requires_grad_()
        scale = t.tensor([0.1, 0.07])
        if form == "numbers":
            y = t.fake_quantize_per_tensor_affine(x, 0.1, zero, -8, 7)
        elif form == "tensors":
            args = scale[:1], t.tensor([zero], dtype=t.int32)
            y = t.fake_quantize_per_tensor_affine(x, *args, -8, 7)
        else:
            zeros = t.tensor([zero, 2], dtype=t.int32)
            zeros = zeros + 0.25 if form == "between" else zeros
            y = t.fake_quantize_per_channel_affine(x, scale, zeros, 0, -8, 7)
        (y * y).sum().backward()
        return y.detach().float().numpy(), x.grad.float().numpy(), str(y.dtype).rpartition(".")[2]

    (y, g, kind), (z, h, other) = ran(ad), ran(torch)
    np.testing.assert_allclose(y, z, rtol=1e-6)
    np.testing.assert_allclose(g, h, rtol=1e-6)
    assert kind == other


@pytest.mark.parametrize("call", [
    lambda t: t.fake_quantize_per_tensor_affine(t.ones(2), 0.1, 0, 5, 1),
    lambda t: t.fake_quantize_per_tensor_affine(t.ones(2), 0.1, 300, -128, 127),
    lambda t: t.fake_quantize_per_tensor_affine(t.ones(2).long(), 0.1, 0, -128, 127),
    lambda t: t.fake_quantize_per_tensor_affine(t.ones(2), t.ones(2), t.zeros(2).int(), -8, 7),
    lambda t: t.fake_quantize_per_tensor_affine(
        t.ones(2), t.ones(1, requires_grad=True), t.zeros(1).int(), -8, 7),
    lambda t: t.fake_quantize_per_channel_affine(
        t.ones(2, 3), t.ones(2), t.zeros(2).int(), 1, 0, 7),
    lambda t: t.fake_quantize_per_channel_affine(
        t.ones(2, 3), t.ones(2), t.zeros(2).int(), 2, 0, 7),
    lambda t: t.fake_quantize_per_channel_affine(
        t.ones(2, 3), t.ones(2), t.zeros(2).long(), 0, 0, 7),
    lambda t: t.fake_quantize_per_channel_affine(
        t.ones(2, 3), t.ones(2).double(), t.zeros(2).int(), 0, 0, 7),
    lambda t: t.fake_quantize_per_channel_affine(
        t.ones(2, 3), t.ones(2), t.zeros(2).int() + 9, 0, 0, 7),
])  # fmt: skip
def test_levels_that_are_none_are_refused(call):
    theirs = outcome(call, torch)
    assert isinstance(theirs, Exception) and isinstance(outcome(call, ad), type(theirs))


def test_rounding_in_graphs_and_lazily():
    x = ad.tensor([0.14, 0.31])
    expected = ad.fake_quantize_per_tensor_affine(x, 0.125, 0, 0, 15).tolist()
    with ad.lazy():
        assert ad.fake_quantize_per_tensor_affine(x, 0.125, 0, 0, 15).tolist() == expected
    graph = ad.Graph()
    with graph:
        source = graph.input(x)
        y = ad.fake_quantize_per_tensor_affine(source, 0.125, 0, 0, 15)
        assert y.tolist() == expected
        source.set(ad.tensor([1.0, 9.0]))
        assert y.tolist() == [1.0, 1.875]


def test_functions_of_python_in_graphs():
    graph = ad.Graph()
    with graph:
        x = graph.input(ad.ones(2))
        y = (x * 2).apply_(lambda v: v + 1)
        assert y.tolist() == [3, 3]
        x.set(ad.zeros(2))
        with pytest.raises(ad.GraphError, match="apply_"):
            y.tolist()
    with ad.lazy():
        assert (ad.ones(2) * 2).apply_(lambda v: v + 1).tolist() == [3, 3]


# ---- linear algebra ------------------------------------------------------------------------------


def symmetric(dtype, *batch, n=4):
    draw = np.random.default_rng(0)
    a = draw.standard_normal((*batch, n, n))
    if dtype.startswith("c"):
        a = a + 1j * draw.standard_normal(a.shape)
    return a.astype(dtype)


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("batch", [(), (3,), (0,), (2, 1)])
def test_ldl(dtype, batch, hermitian):
    a = symmetric(dtype, *batch)
    a = a + np.swapaxes(a.conj() if hermitian else a, -1, -2)
    b = symmetric(dtype, *batch)[..., :2]
    found = []
    for t in (ad, torch):
        ld, pivots, info = t.linalg.ldl_factor_ex(t.from_numpy(a), hermitian=hermitian)
        x = t.linalg.ldl_solve(ld, pivots, t.from_numpy(b.copy()), hermitian=hermitian)
        found.append((ld.numpy(), pivots.numpy(), info.numpy(), x.numpy()))
    for mine, theirs in zip(*found, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(
            mine, theirs, rtol=2e-3 if a.dtype.itemsize < 9 else 1e-8, atol=1e-4
        )


@pytest.mark.parametrize("t", [ad, torch], ids=["adjoint", "torch"])
def test_ldl_refuses_what_pytorch_refuses(t):
    zero = t.zeros(2, 2)
    assert t.linalg.ldl_factor_ex(zero).info.item() == 1
    factor = t.linalg.ldl_factor(t.eye(2))
    leaf = t.ones(2, 1, requires_grad=True)
    for call in (lambda: t.linalg.ldl_factor(zero), lambda: t.linalg.ldl_factor(t.ones(2, 3)),
                 lambda: t.linalg.ldl_factor(t.ones(2, 2).long()),
                 lambda: t.linalg.ldl_solve(*factor, t.ones(3, 1)),
                 lambda: t.linalg.ldl_solve(*factor, leaf).sum().backward()):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()


def test_ldl_is_computed_eagerly():
    with ad.lazy(), pytest.raises(ad.Unsupported, match="eagerly alone"):
        ad.linalg.ldl_factor(ad.eye(2) * 2)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("general", [True, False])
def test_lobpcg(largest, general):
    a = symmetric("f8", n=12)
    a, b = a + a.T, a @ a.T + np.eye(12)
    values = []
    for t in (ad, torch):
        t.manual_seed(0)
        options = {"B": t.from_numpy(b)} if general else {}
        A = t.from_numpy(a).requires_grad_(not general)
        found, x = t.lobpcg(A, k=3, largest=largest, niter=200, **options)
        right = x if not general else t.from_numpy(b) @ x
        residue = t.from_numpy(a) @ x - right * found
        assert residue.detach().abs().max() < 1e-3 and x.shape == (12, 3)
        values.append(found.detach().numpy())
        if not general:
            found.sum().backward()
            values[-1] = np.concatenate([values[-1], A.grad.numpy().ravel()])
    np.testing.assert_allclose(*values, atol=1e-3)


# ---- modules, optimizers, functions --------------------------------------------------------------


def test_a_buffer_that_comes_later():
    for t in (ad, torch):
        module = t.nn.Module()
        module.register_buffer("b", t.nn.UninitializedBuffer(dtype=t.float64))
        module.b.materialize((2, 3))
        assert type(module.b) is t.Tensor and module.b.shape == (2, 3)
        assert module.b.dtype is t.float64 and "b" in module.state_dict()


def test_weights_of_convolutions_change_their_memory_format():
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype("f4")
    for t in (ad, torch):
        net = t.nn.Sequential(t.nn.Conv2d(2, 3, 2), t.nn.ConvTranspose2d(3, 2, 2), t.nn.ReLU())
        before = net(t.from_numpy(x))
        same = t.nn.utils.convert_conv2d_weight_memory_format(net, t.channels_last)
        assert same is net
        assert t.allclose(net(t.from_numpy(x)), before, atol=1e-6)
        assert isinstance(net[0].weight, t.nn.Parameter)
    with pytest.raises(ValueError, match="one of"):
        ad.nn.utils.convert_conv2d_weight_memory_format(net, "nonsense")


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_an_optimizer_steps_others_for_a_while(kind):
    found = []
    for t in (ad, torch):
        own, other = (t.nn.Parameter(t.ones(3)) for _ in range(2))
        optimizer = getattr(t.optim, kind)(
            [own], lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {})
        )
        own.grad = t.tensor([1.0, 2.0, 3.0])
        optimizer.step()
        state = copy.deepcopy(optimizer.state_dict())
        state["param_groups"][0]["lr"] = 0.5
        other.grad = t.tensor([3.0, 2.0, 1.0])
        before = own.tolist()
        swap = t.optim.swap_in_optimizer_params_and_state
        with swap(optimizer, {"w": other}, state):
            optimizer.step()
        assert own.tolist() == before and optimizer.param_groups[0]["lr"] == 0.1
        optimizer.step()
        found.append(own.tolist() + other.tolist())
    np.testing.assert_allclose(*found, rtol=1e-5)
    with pytest.raises(ValueError, match="groups"):
        ad.optim.swap_in_optimizer_params_and_state(
            ad.optim.SGD([ad.nn.Parameter(ad.ones(1))], 0.1), {}, state
        ).__enter__()


def test_products_of_groups():
    draw = np.random.default_rng(0).standard_normal
    a, b = draw((8, 8)).astype("f4"), draw((3, 8, 8)).astype("f4")
    cases = [((8, 8), 3, a, b), ((3, 8, 8), 0, b, a), ((8, 8), 0, a, a), ((3, 8, 8), 3, b, b)]
    for _, _, left, right in cases:
        found = []
        for t in (ad, torch):
            x, y = (t.from_numpy(v.copy()).requires_grad_() for v in (left, right))
            both = left.ndim == right.ndim == 3
            offs = None if both else t.tensor([2, 5, 8], dtype=t.int32)
            z = t.nn.functional.grouped_mm(x, y, offs=offs)
            z.sin().sum().backward()
            found.append([v.detach().numpy() for v in (z, x.grad, y.grad)])
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    for wrong in (None, [5, 2, 8], [2, 5, 9]):
        offs = None if wrong is None else ad.tensor(wrong, dtype=ad.int32)
        with pytest.raises(RuntimeError):
            ad.nn.functional.grouped_mm(ad.from_numpy(a), ad.from_numpy(b), offs=offs)


def test_what_a_transform_wraps():
    seen = []

    def inner(x):
        seen.append(ad.func.debug_unwrap(x, recurse=False))
        seen.append(ad.func.debug_unwrap(x))
        return x.sum()

    ad.func.vmap(ad.func.vmap(inner))(ad.ones(2, 3, 4))
    assert seen[0].shape == (3, 4) and seen[1].shape == (2, 3, 4)


@pytest.mark.filterwarnings("ignore:Sparse invariant")
def test_gradients_of_functions_of_sparse_tensors_are_checked():
    for t in (ad, torch):
        check = t.sparse.as_sparse_gradcheck(t.autograd.gradcheck)
        x = t.tensor([[0.0, 2.0], [3.0, 0.0]], dtype=t.float64).to_sparse().requires_grad_()
        y = t.ones(2, 2, dtype=t.float64, requires_grad=True)
        assert check(t.sparse.mm, (x, y), masked=True)
    with pytest.raises(ValueError, match="masked=True"):
        ad.sparse.as_sparse_gradcheck(ad.autograd.gradcheck)(lambda x: x.to_dense(), (x_of(ad),))


def x_of(t):
    return t.eye(2, dtype=t.float64).to_sparse().requires_grad_()


def test_gradients_of_products_that_stay_sparse():
    for name in ("smm", "hspmm"):
        x, d = x_of(ad), ad.ones(2, 3, dtype=ad.float64, requires_grad=True)
        y = getattr(ad, name)(x, d)
        (y.to_dense() * ad.arange(6.0).reshape(2, 3)).sum().backward()
        assert d.grad.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert x.grad.to_dense().tolist() == [[3, 0], [0, 12]]


def test_a_file_as_a_tensor(tmp_path: pathlib.Path):
    for t in (ad, torch):
        path = tmp_path / f"{t.__name__}.bin"
        path.write_bytes(np.arange(4, dtype="f4").tobytes())
        x = t.from_file(str(path), size=3)
        x[0] = 9
        assert x.tolist() == [9, 1, 2] and np.fromfile(path, "f4")[0] == 0
        shared = t.from_file(str(path), shared=True, size=6, dtype=t.float32)
        shared[5] = 7
        assert np.fromfile(path, "f4").tolist() == [0, 1, 2, 3, 0, 7]


# ---- pipes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [ad.utils.data, torch.utils.data], ids=["adjoint", "torch"])
def test_pipes(data):
    name = "test_older_names_plus"
    data.IterDataPipe.functions.pop(name, None)

    @data.functional_datapipe(name)
    class Plus(data.IterDataPipe):
        def __init__(self, source, n):
            self.source, self.n = source, n

        def __iter__(self):
            for x in self.source:
                yield x + self.n

    class Numbers(data.IterDataPipe):
        def __iter__(self):
            yield from range(3)

    assert list(getattr(Numbers(), name)(2)) == [2, 3, 4] and repr(Numbers()).endswith("Numbers")
    assert name in dir(Numbers())
    with pytest.raises(AttributeError):
        _ = Numbers().no_such_pipe
    with pytest.raises(Exception, match="already taken"):
        data.functional_datapipe(name)(Plus)
    pipe = Numbers()
    first = iter(pipe)
    assert next(first) == 0
    assert next(iter(pipe)) == 0
    with pytest.raises(RuntimeError, match="invalidated"):
        next(first)
    assert data.DataChunk([1, 2]).as_str() == "[1, 2]"
    assert list(data.DataChunk([1, 2]).raw_iterator()) == [1, 2]

    class Squares(data.MapDataPipe):
        def __getitem__(self, i):
            return i * i

    assert Squares()[3] == 9 and data.DFIterDataPipe()._is_dfpipe()
    Random = data.non_deterministic(Numbers)
    assert list(Random()) == [0, 1, 2]
    with data.guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="determinis"):
        Random()
    with pytest.raises(TypeError):
        data.non_deterministic(int)


def test_types_of_pipes_are_checked():  # PyTorch's own fails: its pipes have no `type` any more
    data = ad.utils.data

    class Numbers(data.IterDataPipe):
        @data.argument_validation
        def __init__(self, source: data.IterDataPipe | None = None, n: data.IterDataPipe = None):
            self.source = source

        def __iter__(self):
            return iter(range(3))

    assert list(Numbers()) == [0, 1, 2] and Numbers(n=Numbers()).source is None
    with pytest.raises(TypeError, match="'n' as a IterDataPipe"):
        Numbers(n=[1])

    class Wrong(data.IterDataPipe):
        @data.runtime_validation
        def __iter__(self) -> Iterator[int]:
            yield from ["a"]

    with pytest.raises(RuntimeError, match="Expected an instance"):
        list(Wrong())
    with data.runtime_validation_disabled():
        assert list(Wrong()) == ["a"]
    with pytest.raises(TypeError, match="Can not decorate"):
        data.runtime_validation(lambda self: None)


def test_pipes_go_into_a_loader():
    class Numbers(ad.utils.data.IterDataPipe):
        def __iter__(self):
            return iter(range(4))

    assert [b.tolist() for b in ad.data.DataLoader(Numbers(), batch_size=2)] == [[0, 1], [2, 3]]
