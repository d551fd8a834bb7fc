"""Losses, initializers, transforms and utilities where all tensors are on a device of PyTorch's:
nothing makes a tensor on the host beside them.
"""

# ruff: noqa: E501 - one case of a table is one line

from __future__ import annotations

from typing import Any

import pytest

import adjoint as ad

D, F, nn, U = ad.distributions, ad.nn.functional, ad.nn, ad.nn.utils


class There:
    """What makes tensors on a device."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __call__(self, values: Any) -> Any:
        return ad.tensor(values, device=self.device)

    def x(self, *shape: int) -> Any:
        return (
            (ad.arange(1.0, 1 + ad.Size(shape).numel()).reshape(shape) * 0.07)
            .to(self.device)
            .requires_grad_()
        )

    def ones(self, *shape: int) -> Any:
        return ad.ones(*shape, device=self.device)

    def linear(self) -> Any:
        return nn.Linear(3, 2).to(self.device)

    def with_gradients(self) -> Any:
        layer = self.linear()
        layer(self.x(2, 3)).sum().backward()
        return layer


def assert_there(value: Any, device: str) -> None:
    if isinstance(value, ad.Tensor):
        assert value.device.type == device
    elif isinstance(value, (list, tuple)):
        for each in value:
            assert_there(each, device)


LOSSES: dict[str, Any] = {
    "AdaptiveLogSoftmaxWithLoss": None,  # a layer: below
    "BCELoss": lambda t: (t.x(3, 4).sigmoid(), t.ones(3, 4)),
    "BCEWithLogitsLoss": lambda t: (t.x(3, 4), t.ones(3, 4)),
    "CTCLoss": lambda t: (
        F.log_softmax(t.x(5, 2, 4), 2),
        t([[1, 2], [1, 3]]),
        t([5, 5]),
        t([2, 2]),
    ),
    "CosineEmbeddingLoss": lambda t: (t.x(3, 4), t.x(3, 4), t.ones(3)),
    "CrossEntropyLoss": lambda t: (t.x(3, 4), t([0, 1, 2])),
    "GaussianNLLLoss": lambda t: (t.x(3, 4), t.x(3, 4), t.ones(3, 4)),
    "HingeEmbeddingLoss": lambda t: (t.x(3, 4), t.ones(3, 4)),
    "HuberLoss": lambda t: (t.x(3, 4), t.ones(3, 4)),
    "KLDivLoss": lambda t: (t.x(3, 4), t.x(3, 4).softmax(1)),
    "L1Loss": lambda t: (t.x(3, 4), t.ones(3, 4)),
    "LinearCrossEntropyLoss": None,
    "MSELoss": lambda t: (t.x(3, 4), t.ones(3, 4)),
    "MarginRankingLoss": lambda t: (t.x(3), t.x(3), t.ones(3)),
    "MultiLabelMarginLoss": lambda t: (t.x(3, 4), t([[3, 0, -1, 1]] * 3)),
    "MultiLabelSoftMarginLoss": lambda t: (t.x(3, 4), t.ones(3, 4)),
    "MultiMarginLoss": lambda t: (t.x(3, 4), t([0, 1, 2])),
    "NLLLoss": lambda t: (t.x(3, 4), t([0, 1, 2])),
    "PoissonNLLLoss": lambda t: (t.x(3, 4), t.ones(3, 4)),
    "SmoothL1Loss": lambda t: (t.x(3, 4), t.ones(3, 4)),
    "SoftMarginLoss": lambda t: (t.x(3, 4), t.ones(3, 4)),
    "TripletMarginLoss": lambda t: (t.x(3, 4), t.ones(3, 4), t.x(3, 4) * 2),
    "TripletMarginWithDistanceLoss": lambda t: (t.x(3, 4), t.ones(3, 4), t.x(3, 4) * 2),
}


@pytest.mark.parametrize("name", [name for name, inputs in LOSSES.items() if inputs])
def test_losses(name, device):
    inputs = LOSSES[name](There(device))
    for reduction in ("mean", "sum", "none"):
        if name == "KLDivLoss" and reduction == "mean":
            reduction = "batchmean"
        loss = getattr(nn, name)(reduction=reduction)(*inputs)
        assert_there(loss, device)
        loss.sum().backward(retain_graph=True)
    assert_there([x.grad for x in inputs if x.is_leaf and x.requires_grad], device)


def test_every_loss_is_here():
    assert {name for name in dir(nn) if name.endswith("Loss")} == set(LOSSES)


INITIALIZERS = sorted(
    name for name in dir(nn.init)
    if name.endswith("_") and name[0] != "_" and name != "uniform_bound_"
)  # fmt: skip


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initializers(name, device):
    shape = (4, 4, 3) if name == "dirac_" else (4, 4)
    arguments = {"constant_": (1.0,), "sparse_": (0.5,)}.get(name, ())
    weight = nn.Parameter(ad.empty(shape, device=device))
    assert_there(getattr(nn.init, name)(weight, *arguments), device)
    assert weight.isfinite().all()


TRANSFORMS = {
    "exp": lambda t: D.ExpTransform(), "power": lambda t: D.PowerTransform(t(2.0)),
    "sigmoid": lambda t: D.SigmoidTransform(), "tanh": lambda t: D.TanhTransform(),
    "abs": lambda t: D.AbsTransform(), "affine": lambda t: D.AffineTransform(t(1.0), t(2.0)),
    "softmax": lambda t: D.SoftmaxTransform(), "softplus": lambda t: D.SoftplusTransform(),
    "stick": lambda t: D.StickBreakingTransform(), "reshape": lambda t: D.ReshapeTransform((2,), (2, 1)),
    "compose": lambda t: D.ComposeTransform([D.ExpTransform(), D.AffineTransform(t(1.0), t(2.0))]),
    "independent": lambda t: D.IndependentTransform(D.ExpTransform(), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_transforms(name, device):
    t = There(device)
    transform, x = TRANSFORMS[name](t), t([0.3, 0.7])
    y = transform(x)
    assert_there([y, transform.inv(y)], device)
    if name not in ("abs", "softmax"):
        assert_there(transform.log_abs_det_jacobian(x, y), device)


UTILITIES = {
    "clip_grad_norm_": lambda t: U.clip_grad_norm_(t.with_gradients().parameters(), 0.1),
    "clip_grad_norm_ inf": lambda t: U.clip_grad_norm_(t.with_gradients().parameters(), 0.1, float("inf")),
    "clip_grad_value_": lambda t: U.clip_grad_value_(t.with_gradients().parameters(), 0.1),
    "get_total_norm": lambda t: U.get_total_norm([p.grad for p in t.with_gradients().parameters()]),
    "clip_grads_with_norm_": lambda t: U.clip_grads_with_norm_(t.with_gradients().parameters(), 0.1, t(1.0)),
    "parameters_to_vector": lambda t: U.parameters_to_vector(t.linear().parameters()),
    "vector_to_parameters": lambda t: U.vector_to_parameters(t.x(8).detach(), t.linear().parameters()),
    "weight_norm": lambda t: U.parametrizations.weight_norm(t.linear())(t.x(2, 3)),
    "spectral_norm": lambda t: U.parametrizations.spectral_norm(t.linear())(t.x(2, 3)),
    "fuse_conv_bn_eval": lambda t: U.fuse_conv_bn_eval(
        nn.Conv2d(1, 1, 1).to(t.device).eval(), nn.BatchNorm2d(1).to(t.device).eval()).weight,
    "fuse_linear_bn_eval": lambda t: U.fuse_linear_bn_eval(
        nn.Linear(2, 2).to(t.device).eval(), nn.BatchNorm1d(2).to(t.device).eval()).weight,
    "packed": lambda t: nn.LSTM(3, 2).to(t.device)(
        U.rnn.pack_padded_sequence(t.x(4, 2, 3), ad.tensor([4, 2])))[0].data,
    "pad_sequence": lambda t: U.rnn.pad_sequence([t.x(4, 3), t.x(2, 3)]),
    "unpad_sequence": lambda t: U.rnn.unpad_sequence(t.x(4, 2, 3), ad.tensor([4, 2])),
    "checkpoint": lambda t: ad.utils.checkpoint.checkpoint(t.linear(), t.x(2, 3), use_reentrant=False),
    "functional_call": lambda t: ad.func.functional_call(
        t.linear(), {"weight": t.x(2, 3) * 2}, (t.x(2, 3),)),
    "jacobian": lambda t: ad.autograd.functional.jacobian(lambda a: a * a, t.x(2)),
    "hessian": lambda t: ad.autograd.functional.hessian(lambda a: (a * a).sum(), t.x(2)),
    "make_tensor": lambda t: ad.testing.make_tensor((2,), dtype=ad.float32, device=t.device),
    "adaptive softmax": lambda t: nn.AdaptiveLogSoftmaxWithLoss(16, 6, [2, 4]).to(t.device)(
        t.x(3, 16), t([0, 3, 5])).loss,
    "soft targets": lambda t: nn.CrossEntropyLoss()(t.x(3, 4), t.ones(3, 4) / 4),
    "weights, smoothing": lambda t: nn.CrossEntropyLoss(t.ones(4), label_smoothing=0.1)(
        t.x(3, 4), t([0, 1, 2])),
    "pos_weight": lambda t: nn.BCEWithLogitsLoss(pos_weight=t.ones(4))(t.x(3, 4), t.ones(3, 4)),
    "linear cross entropy": lambda t: F.linear_cross_entropy(t.x(3, 4), t.x(5, 4), t([0, 1, 2])),
    "fractional pooling": lambda t: F.fractional_max_pool2d(t.x(1, 1, 6, 6), 2, 3),
    "gumbel_softmax": lambda t: F.gumbel_softmax(t.x(3, 4), hard=True),
}  # fmt: skip


@pytest.mark.parametrize("name", list(UTILITIES))
def test_utilities(name, device):
    assert_there(UTILITIES[name](There(device)), device)


def test_comparing_and_summaries(device):
    t = There(device)
    ad.testing.assert_close(t.ones(2), t.ones(2))
    with pytest.raises(AssertionError, match="not close"):
        ad.testing.assert_close(t.ones(2), t.ones(2) * 2)
    with pytest.raises(AssertionError, match="device"):
        ad.testing.assert_close(t.ones(2), ad.ones(2))
    assert "Linear" in str(ad.summary(t.linear(), (2, 3)))


def test_exported_as_on_the_cpu(device, tmp_path):
    pytest.importorskip("onnx")
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)
    ).eval()
    x = ad.randn(1, 1, 4, 4)
    wanted = model(x)
    ad.onnx.export(model, x, tmp_path / "here.onnx")
    model.to(device)
    ad.onnx.export(model, x.to(device), tmp_path / "there.onnx")
    assert (tmp_path / "there.onnx").read_bytes() == (tmp_path / "here.onnx").read_bytes()
    assert {p.device.type for p in model.parameters()} == {device}
    ad.testing.assert_close(ad.onnx.load(tmp_path / "there.onnx")(x), wanted)


def test_frozen_there():
    layer = nn.Linear(3, 2)
    x = ad.randn(4, 3)
    wanted = layer(x).detach()
    layer.to("torch")
    program = ad.inference.freeze(layer, x.to("torch"))
    for given in (x.to("torch"), x.to("torch")[:2], x.to("torch").T.contiguous().T):
        found = program(given)
        assert found.device.type == "torch"
        ad.testing.assert_close(found.cpu(), wanted[: len(given)])
    assert layer.weight.device.type == "torch"
    for place, other in ((layer, x), (nn.Linear(3, 2), x.to("torch"))):
        with pytest.raises(ad.DeviceError, match=r"an input is on .* frozen on .* move it with"):
            ad.inference.freeze(place, other)
    mixed = nn.Sequential(layer, nn.Linear(2, 2))
    with pytest.raises(ad.DeviceError, match=r"cpu, torch.*\.cpu\(\)"):
        ad.inference.freeze(mixed, x)


def test_a_gradient_of_another_device_is_refused(device):
    here, there = ad.ones(2, requires_grad=True), ad.ones(2, device=device, requires_grad=True)
    with pytest.raises(ad.DeviceError, match=f"is on {device}.*tensor on cpu.*to\\('cpu'\\)"):
        here.grad = there.detach()
    with pytest.raises(ad.DeviceError, match=f"is on cpu.*tensor on {device}"):
        there.grad = here.detach()
    there.grad = there.detach() * 2
    assert there.grad.tolist() == [2.0, 2.0]
