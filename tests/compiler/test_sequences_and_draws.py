"""What reinforcement learning and sequences need of a compiled function: distributions that check
their arguments, averages of weights, packed sequences.
"""

from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import InvalidArgument
from adjoint.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from tests.native import needs_native

pytestmark = needs_native
D = ad.distributions

POLICIES = {
    "Normal": lambda x: D.Normal(x, x.exp()).rsample(),
    "log_prob": lambda x: D.Normal(x, x.exp()).log_prob(x * 2).sum(-1),
    "Categorical": lambda x: D.Categorical(logits=x).entropy(),
    "classes": lambda x: D.Categorical(logits=x).log_prob(x.argmax(-1)),
    "Independent": lambda x: D.Independent(D.Normal(x, x.exp()), 1).log_prob(x),
    "TransformedDistribution": lambda x: D.TransformedDistribution(
        D.Normal(x, x.exp()), [D.transforms.TanhTransform(cache_size=1)]
    ).rsample(),
    "Beta": lambda x: D.Beta(x.exp(), x.exp()).log_prob(x.sigmoid()),
    "Bernoulli": lambda x: D.Bernoulli(x.sigmoid()).sample(),
    "Uniform": lambda x: D.Uniform(x, x + 1).sample(),
    "Geometric": lambda x: D.Geometric(x.sigmoid()).log_prob(x.round().abs()),
    "kl": lambda x: D.kl_divergence(D.Normal(x, x.exp()), D.Normal(x + 1, x.exp())),
}


@pytest.mark.parametrize("name", POLICIES)
def test_distributions_validate_as_by_default(name):
    policy = POLICIES[name]
    compiled = ad.compile(policy)
    inputs = [ad.randn(4, 3) for _ in range(3)]
    ad.manual_seed(0)
    expected = [policy(x) for x in inputs]
    ad.manual_seed(0)
    for x, y in zip(inputs, expected, strict=True):
        ad.testing.assert_close(compiled(x), y)
    assert len(compiled.programs) == 1


def test_an_invalid_parameter_or_value_is_an_error_of_its_run():
    sampled = ad.compile(lambda scale: D.Normal(0.0, scale).log_prob(scale))
    for _ in range(2):
        sampled(ad.ones(2))
        with pytest.raises(InvalidArgument, match=r"parameter scale .* Normal to satisfy"):
            sampled(-ad.ones(2))
    outside = ad.compile(lambda x: D.Uniform(0.0, 1.0).log_prob(x))
    outside(ad.ones(2) / 2)
    with pytest.raises(InvalidArgument, match=r"value argument .* within the support"):
        outside(ad.ones(2) * 2)


AVERAGES = {
    "mean": {},
    "by function": {"avg_fn": ad.optim.swa_utils.get_ema_avg_fn(0.9)},
    "moving": {"multi_avg_fn": ad.optim.swa_utils.get_ema_multi_avg_fn(0.9)},
    "buffers": {"use_buffers": True},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_weights_are_those_of_eager_steps(name):
    def trained(wrap):
        ad.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        average = ad.optim.swa_utils.AveragedModel(model, **AVERAGES[name])
        optimizer = ad.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            return loss

        step = wrap(step)
        for _ in range(4):
            step(ad.randn(8, 3))
        return average.state_dict()

    expected, found = trained(lambda step: step), trained(ad.compile)
    assert found["n_averaged"] == 4
    for key, x in expected.items():
        np.testing.assert_allclose(found[key].numpy(), x.numpy(), rtol=1e-5, atol=1e-6)


LENGTHS = [[5, 2, 3], [4, 4, 1], [5, 2, 3], [1, 1, 1]]


def test_sequences_that_are_packed_within_by_a_list():
    lstm, x = nn.LSTM(3, 4, batch_first=True), ad.randn(3, 5, 3)

    def padded(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(lstm(packed)[0], batch_first=True)

    compiled = ad.compile(padded)
    for lengths in LENGTHS:
        for y, z in zip(compiled(x, lengths), padded(x, lengths), strict=True):
            ad.testing.assert_close(y, z)
    assert len(compiled.programs) == 3


def test_packed_sequences_are_arguments_results_and_in_variables():
    rnn, x = nn.GRU(3, 4, batch_first=True), ad.randn(3, 5, 3)
    compiled = ad.compile(lambda packed: rnn(packed)[0])
    for lengths in LENGTHS:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, z = compiled(packed), rnn(packed)[0]
        assert type(y) is PackedSequence and y.batch_sizes.equal(z.batch_sizes)
        ad.testing.assert_close(y.data, z.data)
        held = ad.compile(lambda packed=packed: rnn(packed)[1].sum())
        ad.testing.assert_close(held(), rnn(packed)[1].sum())
    assert len(compiled.programs) == 3


def test_a_step_on_packed_sequences_trains_as_eagerly():
    def trained(wrap):
        ad.manual_seed(0)
        lstm = nn.LSTM(3, 4, batch_first=True)
        optimizer = ad.optim.Adam(lstm.parameters())

        def step(packed):
            optimizer.zero_grad()
            loss = lstm(packed)[0].data.square().sum()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        packs = [
            pack_padded_sequence(ad.randn(3, 5, 3), n, batch_first=True, enforce_sorted=False)
            for n in LENGTHS
        ]
        return [step(packed).item() for packed in packs]

    np.testing.assert_allclose(trained(ad.compile), trained(lambda step: step), rtol=1e-5)
