"""`nn.utils.prune` and the old spectral norm beside PyTorch's."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import adjoint as ad
import adjoint.nn.utils.prune

import torch.nn.utils.prune  # isort: skip

WEIGHT = np.random.default_rng(0).normal(size=(4, 3)).astype("f4")
BIAS = np.arange(4, dtype="f4") / 7 - 0.2
LEFT = (np.abs(WEIGHT) < np.abs(WEIGHT).max(1, keepdims=True)).astype("f4")  # all but the largest
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def linear(lib):
    layer = lib.nn.Linear(3, 4)
    with lib.no_grad():
        layer.weight.copy_(lib.tensor(WEIGHT))
        layer.bias.copy_(lib.tensor(BIAS))
    return layer


def state(module):
    return {k: v.detach().clone().numpy() for k, v in module.state_dict().items()}


def same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        np.testing.assert_allclose(value, theirs[key], rtol=1e-5, atol=1e-6, err_msg=key)


def both(program):
    """What is left of `program(library, prune, layer)`, in its state, outputs and gradients."""
    found = []
    for lib in (ad, torch):
        layer = linear(lib)
        program(lib, lib.nn.utils.prune, layer)
        x = lib.tensor(WEIGHT, requires_grad=True)
        y = layer(x)
        y.sin().sum().backward()
        gradients = {n: np.asarray(p.grad) for n, p in layer.named_parameters()}
        found.append(({**state(layer), "y": np.asarray(y.detach())}, gradients))
    same(found[0][0], found[1][0])
    same(found[0][1], found[1][1])


class Scores:
    """What programs below give as importance."""

    values = np.linspace(1, 0, 12).reshape(4, 3).astype("f4")


PROGRAMS = {
    "part": lambda lib, p, m: p.l1_unstructured(m, "weight", 0.4),
    "count": lambda lib, p, m: p.l1_unstructured(m, "weight", 5),
    "none": lambda lib, p, m: p.l1_unstructured(m, "weight", 0),
    "all": lambda lib, p, m: p.l1_unstructured(m, "weight", 1.0),
    "scores": lambda lib, p, m: p.l1_unstructured(
        m, "weight", 5, importance_scores=lib.tensor(Scores.values)),
    "rows": lambda lib, p, m: p.ln_structured(m, "weight", 2, n=2, dim=0),
    "columns": lambda lib, p, m: p.ln_structured(m, "weight", 0.34, n=1, dim=-1),
    "infinity": lambda lib, p, m: p.ln_structured(m, "weight", 1, n=float("inf"), dim=1),
    "mask": lambda lib, p, m: p.custom_from_mask(m, "bias", lib.tensor([0, 1, 1, 0])),
    "identity": lambda lib, p, m: p.identity(m, "weight"),
    "again": lambda lib, p, m: [p.l1_unstructured(m, "weight", 0.25) for _ in range(3)],
    "rows_after": lambda lib, p, m: [
        p.l1_unstructured(m, "weight", 3), p.ln_structured(m, "weight", 1, n=2, dim=0),
        p.ln_structured(m, "weight", 1, n=2, dim=0), p.l1_unstructured(m, "weight", 1)],
    "rows_of_what_is_left": lambda lib, p, m: [
        p.custom_from_mask(m, "weight", lib.tensor(LEFT)),
        p.ln_structured(m, "weight", 2, n=2, dim=0)],
    "removed": lambda lib, p, m: p.remove(p.l1_unstructured(m, "weight", 0.5), "weight"),
    "global": lambda lib, p, m: p.global_unstructured(
        [(m, "weight"), (m, "bias")], p.L1Unstructured, amount=7),
    "global_again": lambda lib, p, m: [
        p.l1_unstructured(m, "weight", 4),
        p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.3)],
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_pruning(name):
    both(PROGRAMS[name])


@pytest.mark.parametrize("amount", [5, 0.3, 0, 12])
def test_the_same_seed_prunes_what_pytorch_prunes(amount):
    found = []
    ad.random.follow_torch()
    try:
        for lib in (ad, torch):
            lib.manual_seed(3)
            layer = linear(lib)
            lib.nn.utils.prune.random_unstructured(layer, "weight", amount)
            found.append(state(layer))
        if amount == 5:
            for lib in (ad, torch):
                layer = linear(lib)
                lib.nn.utils.prune.random_structured(layer, "weight", 2, 0)
                found.append(state(layer))
    finally:
        ad.random.follow_torch(False)
    for ours, theirs in zip(found[::2], found[1::2], strict=True):
        same(ours, theirs)


def test_random_pruning_leaves_as_many():
    prune = ad.nn.utils.prune
    for function, args, left in (
        (prune.random_unstructured, (5,), 7), (prune.random_structured, (2, 0), 6),
        (prune.random_structured, (0.34, 1), 8),
    ):  # fmt: skip
        layer = linear(ad)
        kept = set()
        for _ in range(8):
            again = function(copy.deepcopy(layer), "weight", *args)
            assert again.weight_mask.sum() == left == (again.weight != 0).sum()
            kept.add(str(again.weight_mask.tolist()))
        assert len(kept) > 1


def test_a_pruned_parameter_stays_so_in_training():
    layer = ad.nn.utils.prune.l1_unstructured(linear(ad), "weight", 6)
    zeros = layer.weight == 0
    optimizer = ad.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        layer(ad.tensor(WEIGHT)).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    layer(ad.tensor(WEIGHT))
    assert zeros.equal(layer.weight == 0)
    assert ad.nn.utils.prune.is_pruned(ad.nn.Sequential(layer))
    loaded = ad.nn.utils.prune.identity(linear(ad), "weight")
    loaded.load_state_dict(layer.state_dict())
    assert loaded(ad.tensor(WEIGHT)).equal(layer(ad.tensor(WEIGHT)))
    assert not ad.nn.utils.prune.is_pruned(ad.nn.utils.prune.remove(layer, "weight"))


REFUSED = {
    "negative": lambda lib, p, m: p.l1_unstructured(m, "weight", -1),
    "part": lambda lib, p, m: p.l1_unstructured(m, "weight", 1.5),
    "many": lambda lib, p, m: p.l1_unstructured(m, "weight", 13),
    "text": lambda lib, p, m: p.l1_unstructured(m, "weight", "1"),
    "vector": lambda lib, p, m: p.ln_structured(m, "bias", 1, n=2, dim=0),
    "dim": lambda lib, p, m: p.ln_structured(m, "weight", 1, n=2, dim=2),
    "not_pruned": lambda lib, p, m: p.remove(m, "weight"),
    "type": lambda lib, p, m: p.global_unstructured([(m, "weight")], p.LnStructured, amount=1, n=2),
    "name": lambda lib, p, m: p.identity(m, "other"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    layer = linear(ad)
    before = state(layer)
    with pytest.raises(Exception) as theirs:
        REFUSED[name](torch, torch.nn.utils.prune, linear(torch))
    with pytest.raises(type(theirs.value)):
        REFUSED[name](ad, ad.nn.utils.prune, layer)
    same(state(layer), before)  # as it was


def test_spectral_norm():
    found = []
    start = None
    for lib in (torch, ad):
        layer = lib.nn.utils.spectral_norm(linear(lib), n_power_iterations=2)
        if start is None:
            start = state(layer)
        layer.load_state_dict({k: lib.tensor(v) for k, v in start.items()})
        x = lib.tensor(WEIGHT)
        outputs = [layer(x), layer(x)]
        outputs[1].sum().backward()
        layer.eval()
        outputs.append(layer(x))
        gradient = layer.weight_orig.grad
        removed = lib.nn.utils.remove_spectral_norm(layer)
        found.append({
            **state(removed), "gradient": np.asarray(gradient),
            **{str(i): np.asarray(y.detach()) for i, y in enumerate(outputs)},
        })  # fmt: skip
    same(found[1], found[0])
    with pytest.raises(RuntimeError, match="two spectral_norm"):
        ad.nn.utils.spectral_norm(ad.nn.utils.spectral_norm(linear(ad)))
    with pytest.raises(ValueError, match="not found"):
        ad.nn.utils.remove_spectral_norm(linear(ad))
    with pytest.raises(ValueError, match="positive"):
        ad.nn.utils.spectral_norm(linear(ad), n_power_iterations=0)
    transposed = ad.nn.utils.spectral_norm(ad.nn.ConvTranspose1d(2, 3, 4))
    assert transposed.weight_u.shape == (3,) and transposed.weight_v.shape == (8,)
