"""What was given where a tensor is due: each message names the function, the argument, what was
given, and the way out; and dtypes by their names.
"""

# ruff: noqa: E501 - one mistake of the table is one line

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")

ARRAY = "numpy.ndarray of shape (2, 3)"
THEIRS = "torch.Tensor of shape (2, 3)"
LIST = "list: [[1.0, 2.0, 3.0]]"
NOTHING = "None"
REMEDIES = {
    "numpy.ndarray": "convert it with adjoint.from_numpy(), or adjoint.tensor() for a copy",
    "torch.Tensor": "convert it with adjoint.from_dlpack(), or import one framework alone",
    "None": "is a return missing where it was made?",
}

TABLE = [  # the mistake, the function and argument that are named, what was given, what is due
    ('F.relu(A)', 'relu', 'input', ARRAY),
    ('F.relu(L)', 'relu', 'input', LIST),
    ('F.relu(P)', 'relu', 'input', THEIRS),
    ('F.relu(None)', 'relu', 'input', NOTHING),
    ('F.relu(3)', 'relu', 'input', 'int: 3'),
    ('F.gelu("x")', 'gelu', 'input', "str: 'x'"),
    ('F.softmax(A, 1)', 'softmax', 'input', ARRAY),
    ('F.log_softmax(L, 1)', 'log_softmax', 'input', LIST),
    ('F.sigmoid(A)', 'sigmoid', 'input', ARRAY),
    ('F.tanh(P)', 'tanh', 'input', THEIRS),
    ('F.silu(None)', 'silu', 'input', NOTHING),
    ('F.elu(A)', 'elu', 'input', ARRAY),
    ('F.leaky_relu(L)', 'leaky_relu', 'input', LIST),
    ('F.dropout(A)', 'dropout', 'input', ARRAY),
    ('F.dropout(3)', 'dropout', 'input', 'int: 3'),
    ('F.dropout2d(L)', 'dropout2d', 'input', LIST),
    ('F.linear(L, x)', 'linear', 'input', LIST),
    ('F.linear(x, A)', 'linear', 'weight', ARRAY),
    ('F.linear(x, None)', 'linear', 'weight', NOTHING),
    ('F.linear(P, x)', 'linear', 'input', THEIRS, "a tensor or a number"),
    ('F.embedding([0, 1], x)', 'embedding', 'input', 'list: [0, 1]'),
    ('F.embedding(np.array([0, 1]), x)', 'embedding', 'input', 'numpy.ndarray of shape (2,)'),
    ('F.embedding(P, x)', 'embedding', 'input', THEIRS),
    ('F.one_hot([0, 1])', 'one_hot', 'tensor', 'list: [0, 1]'),
    ('F.conv2d(x[None, None], np.ones((1, 1, 1, 1)))', 'conv2d', 'weight', 'numpy.ndarray of shape (1, 1, 1, 1)'),
    ('F.max_pool1d(A, 2)', 'max_pool1d', 'input', ARRAY),
    ('F.max_pool2d(P, 2)', 'max_pool2d', 'input', THEIRS),
    ('F.avg_pool2d(L, 2)', 'avg_pool2d', 'input', LIST),
    ('F.adaptive_avg_pool2d(A, 1)', 'adaptive_avg_pool2d', 'input', ARRAY),
    ('F.interpolate(A[None], scale_factor=2)', 'interpolate', 'input', 'numpy.ndarray of shape (1, 2, 3)'),
    ('F.pad(A, (1, 1))', 'pad', 'input', ARRAY),
    ('F.unfold(A, 1)', 'unfold', 'input', ARRAY),
    ('F.pixel_shuffle(L, 2)', 'pixel_shuffle', 'input', LIST),
    ('F.normalize(A)', 'normalize', 'input', ARRAY),
    ('F.layer_norm(A, (3,))', 'layer_norm', 'input', ARRAY),
    ('F.batch_norm(A, x, x)', 'batch_norm', 'input', ARRAY),
    ('F.group_norm(L, 1)', 'group_norm', 'input', LIST),
    ('F.cross_entropy(x, np.array([0, 1]))', 'cross_entropy', 'target', 'numpy.ndarray of shape (2,)'),
    ('F.cross_entropy(x, [0, 1])', 'cross_entropy', 'target', 'list: [0, 1]'),
    ('F.cross_entropy(A, t)', 'cross_entropy', 'input', ARRAY),
    ('F.cross_entropy(None, t)', 'cross_entropy', 'input', NOTHING),
    ('F.nll_loss(x, np.array([0, 1]))', 'nll_loss', 'target', 'numpy.ndarray of shape (2,)'),
    ('F.mse_loss(x, P)', 'mse_loss', 'target', THEIRS, "a tensor or a number"),
    ('F.mse_loss(x, L)', 'mse_loss', 'target', LIST),
    ('F.mse_loss(None, x)', 'mse_loss', 'input', NOTHING),
    ('F.l1_loss(L, x)', 'l1_loss', 'input', LIST),
    ('F.smooth_l1_loss(x, P)', 'smooth_l1_loss', 'target', THEIRS, "a tensor or a number"),
    ('F.huber_loss(A, A)', 'huber_loss', 'input', ARRAY),
    ('F.binary_cross_entropy(x, A)', 'binary_cross_entropy', 'target', ARRAY),
    ('F.binary_cross_entropy_with_logits(x, L)', 'binary_cross_entropy_with_logits', 'target', LIST),
    ('F.kl_div(A, A, reduction="sum")', 'kl_div', 'input', ARRAY),
    ('F.cosine_similarity(A, A)', 'cosine_similarity', 'x1', ARRAY),
    ('F.ctc_loss(A, t, t, t)', 'ctc_loss', 'log_probs', ARRAY),
    ('F.scaled_dot_product_attention(A, A, A)', 'scaled_dot_product_attention', 'query', ARRAY),
    ('nn.Linear(3, 2)(L)', 'Linear', 'input', LIST),
    ('nn.Linear(3, 2)(P)', 'Linear', 'input', THEIRS, "a tensor or a number"),
    ('nn.Linear(3, 2)(None)', 'Linear', 'input', NOTHING),
    ('nn.Conv2d(1, 1, 1)(A[None, None])', 'Conv2d', 'input', 'numpy.ndarray of shape (1, 1, 2, 3)'),
    ('nn.BatchNorm1d(3)(A)', 'BatchNorm1d', 'input', ARRAY),
    ('nn.LayerNorm(3)(A)', 'LayerNorm', 'input', ARRAY),
    ('nn.GroupNorm(1, 3)(A)', 'GroupNorm', 'input', ARRAY),
    ('nn.ReLU()(A)', 'ReLU', 'input', ARRAY),
    ('nn.Dropout()(A)', 'Dropout', 'input', ARRAY),
    ('nn.MaxPool1d(2)(A)', 'MaxPool1d', 'input', ARRAY),
    ('nn.Flatten()(A)', 'Flatten', 'input', ARRAY),
    ('nn.Embedding(5, 2)([1, 2])', 'Embedding', 'input', 'list: [1, 2]'),
    ('nn.Embedding(5, 2)(np.array([1, 2]))', 'Embedding', 'input', 'numpy.ndarray of shape (2,)'),
    ('nn.LSTM(3, 2)(A)', 'LSTM', 'input', ARRAY),
    ('nn.GRU(3, 2)(L)', 'GRU', 'input', LIST),
    ('nn.MultiheadAttention(3, 1)(A, A, A)', 'MultiheadAttention', 'query', ARRAY),
    ('nn.TransformerEncoderLayer(4, 2)(A)', 'TransformerEncoderLayer', 'src', ARRAY),
    ('nn.Bilinear(3, 3, 2)(A, A)', 'Bilinear', 'input1', ARRAY),
    ('nn.Sequential(nn.Flatten(), nn.Linear(3, 2))(L)', 'Sequential', 'input', LIST),
    ('nn.CrossEntropyLoss()(x, np.array([0, 1]))', 'CrossEntropyLoss', 'target', 'numpy.ndarray of shape (2,)'),
    ('nn.MSELoss()(x, P)', 'MSELoss', 'target', THEIRS, "a tensor or a number"),
    ('nn.L1Loss()(L, x)', 'L1Loss', 'input', LIST),
    ('nn.Parameter(A)', 'Parameter', 'data', ARRAY),
    ('nn.Parameter([1.0])', 'Parameter', 'data', 'list: [1.0]'),
    ('nn.utils.clip_grad_norm_(A, 1)', 'clip_grad_norm_', 'parameters', ARRAY),
    ('nn.utils.clip_grad_norm_([A], 1)', 'clip_grad_norm_', 'parameters[0]', ARRAY),
    ('ad.exp(A)', 'exp', 'input', ARRAY),
    ('ad.exp(L)', 'exp', 'input', LIST),
    ('ad.exp(None)', 'exp', 'input', NOTHING),
    ('ad.exp(P)', 'exp', 'input', THEIRS),
    ('ad.sum(A)', 'sum', 'input', ARRAY),
    ('ad.mean(L)', 'mean', 'input', LIST),
    ('ad.max(A)', 'max', 'input', ARRAY),
    ('ad.argmax(P, 1)', 'argmax', 'input', THEIRS),
    ('ad.std(A)', 'std', 'input', ARRAY),
    ('ad.cumsum(L, 0)', 'cumsum', 'input', LIST),
    ('ad.sort(A)', 'sort', 'input', ARRAY),
    ('ad.topk(A, 1)', 'topk', 'input', ARRAY),
    ('ad.matmul(A, x)', 'matmul', 'input', ARRAY),
    ('ad.matmul(x, L)', 'matmul', 'other', LIST),
    ('ad.mm(x, None)', 'mm', 'mat2', NOTHING),
    ('ad.bmm(A, A)', 'bmm', 'input', ARRAY),
    ('ad.einsum("ij->i", A)', 'einsum', 'operands[0]', ARRAY),
    ('ad.tensordot(A, x)', 'tensordot', 'a', ARRAY),
    ('ad.cat([A, x])', 'cat', 'tensors[0]', ARRAY),
    ('ad.cat([x, None])', 'cat', 'tensors[1]', NOTHING),
    ('ad.stack([A, A])', 'stack', 'tensors[0]', ARRAY),
    ('ad.stack([x, P])', 'stack', 'tensors[1]', THEIRS),
    ('ad.where(A > 0, x, x)', 'where', 'condition', ARRAY),
    ('ad.where([True], x, x)', 'where', 'condition', 'list: [True]'),
    ('ad.gather(A, 1, t)', 'gather', 'input', ARRAY),
    ('x.gather(1, np.array([[0]]))', 'gather', 'index', 'numpy.ndarray of shape (1, 1)'),
    ('x.index_select(0, [0])', 'index_select', 'index', 'list: [0]'),
    ('x.masked_fill([True], 0.0)', 'masked_fill', 'mask', 'list: [True]'),
    ('x.scatter(0, [0], 1.0)', 'scatter', 'index', 'list: [0]'),
    ('ad.reshape(A, (3, 2))', 'reshape', 'input', ARRAY),
    ('ad.transpose(A, 0, 1)', 'transpose', 'input', ARRAY),
    ('ad.permute(L, (1, 0))', 'permute', 'input', LIST),
    ('ad.unsqueeze(A, 0)', 'unsqueeze', 'input', ARRAY),
    ('ad.flatten(L)', 'flatten', 'input', LIST),
    ('ad.squeeze(None)', 'squeeze', 'input', NOTHING),
    ('ad.clone(L)', 'clone', 'input', LIST),
    ('ad.clamp(A, 0, 1)', 'clamp', 'input', ARRAY),
    ('ad.lerp(x, A, 0.5)', 'lerp', 'end', ARRAY),
    ('ad.add(x, L)', 'add', 'other', LIST, "a tensor or a number"),
    ('ad.add(None, x)', 'add', 'input', NOTHING, "a tensor or a number"),
    ('ad.mul("a", x)', 'mul', 'input', "str: 'a'", "a tensor or a number"),
    ('x + P', 'add', 'other', THEIRS, "a tensor or a number"),
    ('x + None', 'add', 'other', NOTHING, "a tensor or a number"),
    ('x - "a"', 'sub', 'other', "str: 'a'", "a tensor or a number"),
    ('P * x', 'mul', 'other', THEIRS, "a tensor or a number"),
    ('x @ A.T', 'matmul', 'other', 'numpy.ndarray of shape (3, 2)'),
    ('x @ None', 'matmul', 'other', NOTHING),
    ('A.T @ x', 'matmul', 'input', 'numpy.ndarray of shape (3, 2)'),
    ('x.matmul(P)', 'matmul', 'other', THEIRS),
    ('x.pow("2")', 'pow', 'exponent', "str: '2'", "a tensor or a number"),
    ('x.add_(L)', 'add', 'other', LIST, "a tensor or a number"),
    ('x.copy_(A)', 'copy_', 'src', ARRAY),
    ('ad.exp_(A)', 'exp_', 'input', ARRAY),
    ('ad.linalg.inv(A)', 'inv', 'A', ARRAY),
    ('ad.linalg.norm(A)', 'norm', 'A', ARRAY),
    ('ad.fft.fft(A)', 'fft', 'input', ARRAY),
    ('ad.special.i0e(L)', 'i0e', 'input', LIST),
    ('(r * 1).sum().backward(np.ones(()))', 'backward', 'gradient', 'numpy.ndarray of shape ()', "a tensor or None"),
    ('setattr(x, "data", L)', 'data', 'value', LIST),
    ('ad.distributions.Normal(A, A)', 'Normal', 'loc', ARRAY, "a tensor or a number"),
    ('ad.distributions.Normal(0.0, 1.0).log_prob(A)', 'Normal', 'value', ARRAY),
]  # fmt: skip

TABLE += [
    ('x.is_same_size(L)', 'is_same_size', 'other', LIST),
    ('x.is_same_size(A)', 'is_same_size', 'other', ARRAY),
    ('ad.ones(1, 2, 2).baddbmm_(L, x)', 'baddbmm', 'batch1', LIST),
    ('ad.ones(1, 2, 2).baddbmm_(ad.ones(1, 2, 2), None)', 'baddbmm', 'batch2', NOTHING),
    ('x.addmm_(L, x)', 'addmm', 'mat1', LIST),
    ('ad.linalg.diagonal(L)', 'linalg_diagonal', 'A', LIST),
    ('ad.linalg.diagonal(3)', 'linalg_diagonal', 'A', 'int: 3'),
    ('ad.clone(3)', 'clone', 'input', 'int: 3'),
    ('ad.clone(None)', 'clone', 'input', NOTHING),
    ('ad.linalg.lu_solve(x, L, x)', 'lu_solve', 'pivots', LIST),
    ('ad.lu_unpack(x, A)', 'lu_unpack', 'LU_pivots', ARRAY),
]  # fmt: skip

OTHERS = [  # those whose message is another
    ('x.clone(3)', 'clone: too many positional arguments; it is called as clone(input, *, memory_format=None)'),
    ('ad.linalg.lu_solve(x, x, x)', 'lu_solve: pivots number rows, as linalg.lu_factor gives them, got adjoint.float32; convert them with .to(int32)'),
    ('ad.lu_unpack(x, x)', 'lu_unpack: pivots number rows, as linalg.lu_factor gives them, got adjoint.float32; convert them with .to(int32)'),
    ('nn.Linear(3, 2)()', "Linear: missing a required argument: 'input'; it is called as Linear(input)"),
    ('nn.Linear(3, 2)(x, x)', 'Linear: too many positional arguments; it is called as Linear(input)'),
    ('nn.Linear(3, 2).to([1])', 'to: expected a device, a dtype or a tensor, got list: [1]; make one with adjoint.tensor()'),
    ('ad.cat(3)', "cat: expected a list of tensors for argument 'tensors', got int: 3; put what there is in a list"),
    ('x.sum(dtype="floot32")', "sum: dtype: unknown name 'floot32'; known: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128, uint16, uint32, uint64"),
    ('x.transpose()', "transpose: missing a required argument: 'dim0'; it is called as transpose(input, dim0, dim1)"),
    ('x.to("floot32")', "device: Invalid device string: 'floot32'; Expected one of cpu, cuda, torch, meta device type at start of device string: floot32"),
    ('ad.optim.SGD([A], lr=0.1)', 'SGD: optimizer can only optimize Tensors, but one of the params is numpy.ndarray of shape (2, 3); convert it with adjoint.from_numpy(), or adjoint.tensor() for a copy'),
    ('setattr(r, "grad", A)', 'grad: expected a tensor or None, got numpy.ndarray of shape (2, 3); convert it with adjoint.from_numpy(), or adjoint.tensor() for a copy'),
    ('F.relu(F.relu)', "relu: expected a tensor for argument 'input', got the function relu; call it first, or give what it is to be applied to"),
    ('F.relu(nn.ReLU)', "relu: expected a tensor for argument 'input', got the class ReLU; call it first, or give what it is to be applied to"),
    ('F.relu([x, x])', "relu: expected a tensor for argument 'input', got list of 2 with tensors; join its tensors with adjoint.stack()"),
    ('F.relu((x,))', "relu: expected a tensor for argument 'input', got tuple of 1 with tensors; join its tensors with adjoint.stack()"),
]  # fmt: skip


def message_of(mistake: str) -> str:
    """What is said of an expression, of A (an array), L (a list), P (of PyTorch) and tensors."""
    names = {
        "ad": ad, "np": np, "nn": ad.nn, "F": ad.nn.functional,
        "A": np.ones((2, 3), np.float32), "L": [[1.0, 2.0, 3.0]], "P": torch.ones(2, 3),
        "x": ad.ones(2, 3), "t": ad.tensor([0, 1]), "r": ad.ones(2, 3, requires_grad=True),
    }  # fmt: skip
    with pytest.raises(ad.AdjointError) as caught:
        eval(mistake, names)
    return str(caught.value)


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_mistake(row):
    mistake, function, argument, given, due = (*row, "a tensor")[:5]
    remedy = REMEDIES.get(given.partition(" of ")[0], "make one with adjoint.tensor()")
    wanted = f"{function}: expected {due} for argument '{argument}', got {given}; {remedy}"
    assert message_of(mistake) == wanted


@pytest.mark.parametrize(("mistake", "wanted"), OTHERS, ids=[row[0] for row in OTHERS])
def test_other_mistake(mistake, wanted):
    assert message_of(mistake) == wanted


def test_errors_of_the_users_own_code_stay():
    class Model(ad.nn.Module):
        def forward(self, x):
            return self.missing(x)

    class Careless(ad.nn.Module):
        def forward(self, x):
            return x.shape

    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        Model()(ad.ones(1))
    with pytest.raises(AttributeError, match="'list' object has no attribute 'shape'"):
        Careless()([1.0])

    def hook(module, args):
        raise TypeError("mine")

    layer = ad.nn.Linear(3, 2)
    layer.register_forward_pre_hook(hook)
    with pytest.raises(TypeError, match=r"^mine$"):
        layer(ad.ones(1, 3))


def test_a_layer_within_a_users_module_is_named():
    class Model(ad.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = ad.nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x)

    with pytest.raises(
        ad.InvalidType, match=r"^in layer: Linear: .* 'input', got list of 1 with tensors; .*stack"
    ):
        Model()([ad.ones(3)])


DTYPES = {
    "ones": lambda d: ad.ones(2, dtype=d), "zeros": lambda d: ad.zeros(2, dtype=d),
    "full": lambda d: ad.full((2,), 1, dtype=d), "tensor": lambda d: ad.tensor([1], dtype=d),
    "Tensor": lambda d: ad.Tensor([1], dtype=d), "Tensor of sizes": lambda d: ad.Tensor(2, 3, dtype=d),
    "empty": lambda d: ad.empty(2, dtype=d), "arange": lambda d: ad.arange(3, dtype=d),
    "linspace": lambda d: ad.linspace(0, 1, 3, dtype=d), "eye": lambda d: ad.eye(2, dtype=d),
    "rand": lambda d: ad.rand(2, dtype=d), "randn": lambda d: ad.randn(2, dtype=d),
    "zeros_like": lambda d: ad.zeros_like(ad.ones(1), dtype=d), "asarray": lambda d: ad.asarray([1], dtype=d),
    "new_zeros": lambda d: ad.ones(1).new_zeros(2, dtype=d), "new_tensor": lambda d: ad.ones(1).new_tensor([1], dtype=d),
    "to": lambda d: ad.ones(1).to(d), "to dtype=": lambda d: ad.ones(1).to(dtype=d),
    "to device and dtype": lambda d: ad.ones(1).to("cpu", d), "type": lambda d: ad.ones(1).type(d),
    "view": lambda d: ad.ones(2, dtype=ad.complex64).view(d), "sum": lambda d: ad.ones(2).sum(dtype=d),
    "mean": lambda d: ad.ones(2).mean(dtype=d), "prod": lambda d: ad.ones(2).prod(dtype=d),
    "cumsum": lambda d: ad.ones(2).cumsum(0, dtype=d), "softmax": lambda d: ad.ones(2).softmax(0, dtype=d),
    "log_softmax": lambda d: ad.nn.functional.log_softmax(ad.ones(2), 0, dtype=d),
    "nansum": lambda d: ad.nansum(ad.ones(2), dtype=d), "norm": lambda d: ad.linalg.vector_norm(ad.ones(2), dtype=d),
    "Module.to": lambda d: ad.nn.Linear(1, 1).to(d).weight, "Module.type": lambda d: ad.nn.Linear(1, 1).type(d).bias,
    "layer": lambda d: ad.nn.Linear(1, 1, dtype=d).weight,
}  # fmt: skip


@pytest.mark.parametrize("name", list(DTYPES))
def test_dtypes_have_names(name):
    for text in ("float64", "torch.float64", "double"):
        assert DTYPES[name](text).dtype is ad.float64, text
    with pytest.raises(ad.AdjointError, match="floot32"):
        DTYPES[name]("floot32")


def test_defaults_and_promotion_take_names():
    assert ad.promote_types("int32", "float16") is ad.float16
    assert ad.can_cast("int32", "float64")
    assert ad.finfo("float16").max == 65504 and ad.iinfo("int8").max == 127
    for ambiguous in ("float", "int"):  # 64 bits in NumPy, 32 here
        with pytest.raises(ad.DTypeError, match="known: bool"):
            ad.ones(1, dtype=ambiguous)


def test_constructor():
    x = ad.Tensor([1, 2], dtype=ad.float64, device="cpu", requires_grad=True)
    assert x.dtype is ad.float64 and x.requires_grad and x.is_leaf
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    assert ad.Tensor([1, 2]).dtype is ad.float32
    assert ad.Tensor(ad.ones(1), dtype="int64").dtype is ad.int64
    assert ad.Tensor(2, 3, requires_grad=True).shape == (2, 3)
    with pytest.raises(ad.AutogradError, match="int64"):
        ad.Tensor([1], dtype="int64", requires_grad=True)


FAILING = {
    "cat": lambda x: ad.cat([x, ad.ones(2, 2)]),
    "operator": lambda x: x + ad.ones(4),
    "method": lambda x: x.view(7),
    "in place": lambda x: x.mul_(ad.ones(5)),
    "out": lambda x: ad.matmul(x, ad.ones(4, 4), out=ad.empty(1)),
    "index": lambda x: x[5],
    "layer": lambda x: ad.nn.functional.linear(x, ad.ones(2, 2)),
    "no tensor": lambda x: ad.dot(x, "a"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_call_that_fails_keeps_nothing(name):
    """No cycle of the error, its frames and the tensors in these waits for the collector."""
    x = ad.ones(3)
    alive = weakref.ref(x)
    gc.disable()
    try:
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
            FAILING[name](x)
        del x
        assert alive() is None
    finally:
        gc.enable()


WORDS = [
    (lambda t: t.ones(1, device="notadevice"), "device type at start of device string: notadevice"),
    (lambda t: t.device(""), "Device string must not be empty"),
    (lambda t: t.nn.functional.pad(t.ones(1, 3), (1, 1), mode="typo"), "padding mode typo"),
    (lambda t: t.func.vmap(lambda x: t.rand(2) + x)(t.ones(2, 2)),
     "called random operation while in randomness error mode"),
    (lambda t: t.func.grad(t.sum, argnums="x")(t.ones(2)), "must be int or Tuple"),
    (lambda t: t.func.grad(t.sum, argnums=())(t.ones(2)), "argnums must be non-empty"),
    (lambda t: t.func.grad(t.sum, argnums=(0, "x"))(t.ones(2)), "argnum must be int, got"),
    (lambda t: t.func.grad(t.sum, argnums=(0, 0))(t.ones(2)), "elements must be unique, got"),
    (lambda t: t.func.grad(t.sum, has_aux=True)(t.ones(2)), "tuple: .output, aux. if has_aux is"),
    (lambda t: t.func.grad(t.exp)(t.ones(2)), "return a scalar Tensor, got tensor with 1 dims"),
    (lambda t: t.func.grad(lambda x: 3.0)(t.ones(2)), "return a Tensor, got <class 'float'>"),
    (lambda t: t.rand(2**32, 2**32), "Storage size calculation overflowed"),
    (lambda t: t.eye(2**40), "overflow"),
    (lambda t: t.conv1d(t.ones(1, 1, 5), t.ones(1, 1, 2), padding=2**63 - 1), "to be at most"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), WORDS)
def test_programs_catch_the_same_errors(call, words):
    with pytest.raises(Exception, match=words) as theirs:
        call(torch)
    with pytest.raises(theirs.type, match=words):
        call(ad)


def test_sizes_beyond_memory_are_shape_errors():
    x = ad.ones(1)
    for call in (
        lambda: ad.zeros(2**32, 2**32), lambda: x.expand(2**63 - 1), lambda: ad.randn(2**62),
        lambda: ad.arange(2**62), lambda: x.repeat(2**62), lambda: ad.hann_window(2**62),
        lambda: ad.outer(x.expand(2**32), x.expand(2**32)), lambda: ad.bincount(x.long() << 60),
    ):  # fmt: skip
        with pytest.raises(ad.ShapeError, match="overflowed"):
            call()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_is_refused_as_pytorch_refuses_it():
    for call in (lambda: ad.ones(1).cuda(), lambda: ad.nn.Linear(1, 1).cuda()):
        with pytest.raises(AssertionError, match="CUDA"):
            call()
