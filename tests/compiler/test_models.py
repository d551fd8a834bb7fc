"""Whole models, compiled: what they give in eval mode and leave in training is as eagerly.

float64, so that only the order of sums differs.
"""

import copy

import numpy as np
import pytest

import adjoint as ad
from adjoint import models
from tests.native import needs_native

from ..sweep import swept
from .agreement import assert_equal

pytestmark = needs_native

TEXT = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24}  # fmt: skip


def tokens():
    return ad.from_numpy(np.random.default_rng(0).integers(0, 40, (3, 9)))


def images(size, channels=3, batch=2):
    return ad.randn(batch, channels, size, size, dtype=ad.float64)


MODELS = {
    "gpt2": lambda: (
        models.GPT2(
            models.GPT2Config(vocab_size=40, n_positions=16, n_embd=24, n_layer=2, n_head=2)
        ),
        tokens(),
    ),
    "llama": lambda: (
        models.Llama(models.LlamaConfig(**TEXT, num_key_value_heads=1, max_position_embeddings=32)),
        tokens(),
    ),
    "bert": lambda: (
        models.BertForSequenceClassification(
            models.BertConfig(**TEXT, max_position_embeddings=32, num_labels=3)
        ),
        tokens(),
    ),
    "vit": lambda: (
        models.ViTForImageClassification(
            models.ViTConfig(
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=24,
                image_size=16,
                patch_size=4,
                num_labels=3,
            )
        ),
        images(16),
    ),
    "resnet18": lambda: (models.resnet18(num_classes=5), images(32)),
    "mobilenet_v2": lambda: (models.mobilenet_v2(num_classes=5), images(32)),
}


SLOW = {"resnet18", "mobilenet_v2"}  # to compile


@pytest.mark.parametrize("name", [swept(name) if name in SLOW else name for name in MODELS])
def test_a_model_gives_and_trains_as_eagerly(name):
    ad.manual_seed(0)
    model, x = MODELS[name]()
    both = model.double(), copy.deepcopy(model)
    compiled = ad.compile(both[1].eval())
    with ad.no_grad():
        expected = both[0].eval()(x)
        for _ in range(2):
            assert_equal(compiled(x), expected, 1e-9, name)

    def step_of(model):
        optimizer = ad.optim.SGD(model.train().parameters(), lr=0.01, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    eager, within = step_of(both[0]), ad.compile(step_of(both[1]))
    for seed in range(3):
        ad.manual_seed(seed)
        expected = eager(x)
        ad.manual_seed(seed)
        np.testing.assert_allclose(within(x).item(), expected.item(), rtol=1e-7)
        state = both[0].state_dict()
        for (key, p), q in zip(state.items(), both[1].state_dict().values(), strict=True):
            scale = 1e-6 * float(p.double().abs().max()) + 1e-9
            if key.endswith("running_mean"):  # which may be rounding alone, beside the spread
                spread = state[key.replace("running_mean", "running_var")].max().sqrt()
                scale += 1e-6 * float(spread)
            np.testing.assert_allclose(q.numpy(), p.numpy(), rtol=0, atol=scale, err_msg=key)
    assert len(within.programs) == 1


def test_an_empty_batch_leaves_plain_averages_as_they_are():
    layer = ad.nn.BatchNorm1d(3, momentum=None)
    ad.compile(lambda x: layer(x))(ad.zeros(0, 3))
    assert layer.running_var.tolist() == [1.0] * 3 and layer.num_batches_tracked == 1
