"""The models beside transformers': the same files, logits, gradients and texts."""

from __future__ import annotations

import json
import os
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint import models
from adjoint.models.generation import KeyValueCache, filter_logits, positions_of

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is ever downloaded
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")

TEXT = {"vocab_size": 40, "max_position_embeddings": 24, "hidden_size": 32,
        "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}  # fmt: skip
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
GPT2 = {"vocab_size": 40, "n_positions": 24, "n_embd": 32, "n_layer": 3, "n_head": 4, **NO_TOKENS}
IMAGE = {k: TEXT[k] for k in list(TEXT)[2:]} | {"image_size": 12, "patch_size": 4}
ROPES = {
    "default": {},
    "theta": {"rope_theta": 500.0},
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 12},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12},
    "yarn, all settings": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12,
        "beta_fast": 8.0, "beta_slow": 0.5, "mscale": 0.7, "mscale_all_dim": 0.3, "truncate": False,
    },
    "longrope": {
        "rope_type": "longrope", "factor": 2.0, "original_max_position_embeddings": 12,
        "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0],
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    """These models are small: more threads only wait for each other."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(count)


def randomized(model, scale=0.3):
    """`model` with every parameter away from its special initial values (zeros, ones)."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * scale)
    return model.eval()


def pair(theirs, ours, path, dtype="float32", **saving):
    """Their model saved, and ours loaded from the directory."""
    theirs = randomized(theirs).to(getattr(torch, dtype))
    theirs.save_pretrained(path, **saving)
    return theirs, ours.from_pretrained(path)


def token_ids(shape=(3, 11), seed=0):
    return np.random.default_rng(seed).integers(1, 40, shape)


def difference(ours, theirs, where=None):
    """The largest difference between tensors of both kinds, relative to the largest value."""
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    assert a.shape == b.shape and a.dtype == b.dtype
    if where is not None:
        a, b = a[where], b[where]
    return np.abs(a - b).max() / max(1.0, np.abs(b).max())


LIMITS = {"float32": 1e-4, "float64": 1e-10}


@pytest.fixture(params=LIMITS)
def dtype(request):
    return request.param


@pytest.fixture
def exact_llama(monkeypatch):
    """transformers' Llama without its rounding to float32 of norms and angles."""
    from transformers.models.llama import modeling_llama as llama

    def norm(self, x):
        wide = x.double()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(x.dtype)

    @torch.no_grad()
    def rotary(self, x, position_ids):
        length = int(position_ids.max()) + 1
        settings = self.config.rope_parameters
        size = self.config.head_dim
        table = models.rotary.Rotary(size, self.config.max_position_embeddings, settings)
        frequencies, factor = table.frequencies(length)
        inverse = torch.tensor(frequencies, dtype=torch.float64)
        # The frequencies themselves are transformers', up to float32's rounding.
        if "dynamic" not in self.rope_type and self.rope_type != "longrope":
            np.testing.assert_allclose(inverse.numpy(), self.inv_freq.double().numpy(), rtol=1e-5)
        angles = position_ids[..., None].double() * inverse
        angles = torch.cat((angles, angles), -1)
        return (angles.cos() * factor).to(x.dtype), (angles.sin() * factor).to(x.dtype)

    monkeypatch.setattr(llama.LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(llama.LlamaRotaryEmbedding, "forward", rotary)


# ---- GPT-2 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tie_word_embeddings": False},
        {"scale_attn_by_inverse_layer_idx": True, "activation_function": "gelu", "n_inner": 20},
        {"scale_attn_weights": False, "activation_function": "relu"},
    ],
)
def test_gpt2(tmp_path, dtype, settings):
    config = transformers.GPT2Config(**{**GPT2, **settings})
    theirs, ours = pair(transformers.GPT2LMHeadModel(config), models.GPT2, tmp_path, dtype)
    ids = token_ids()
    assert difference(ours(ad.tensor(ids)), theirs(torch.tensor(ids)).logits) < LIMITS[dtype]
    types = token_ids(seed=1)
    y = theirs(torch.tensor(ids), token_type_ids=torch.tensor(types)).logits
    assert difference(ours(ad.tensor(ids), token_type_ids=ad.tensor(types)), y) < LIMITS[dtype]


def test_gpt2_with_padding(tmp_path, dtype):
    config = transformers.GPT2Config(**GPT2)
    theirs, ours = pair(transformers.GPT2LMHeadModel(config), models.GPT2, tmp_path, dtype)
    ids, mask = token_ids(), np.ones((3, 11), int)
    mask[0, :4] = mask[1, :1] = mask[2, 8:] = 0
    y = theirs(torch.tensor(ids), attention_mask=torch.tensor(mask)).logits
    assert difference(ours(ad.tensor(ids), ad.tensor(mask)), y, mask > 0) < LIMITS[dtype]
    places = np.maximum(mask.cumsum(-1) - 1, 0)
    y = theirs(
        torch.tensor(ids), attention_mask=torch.tensor(mask), position_ids=torch.tensor(places)
    ).logits
    x = ours(ad.tensor(ids), ad.tensor(mask), ad.tensor(places))
    assert difference(x, y, mask > 0) < LIMITS[dtype]
    assert positions_of(ad.tensor(mask), 11).tolist() == places.tolist()


def test_gpt2_from_a_file_without_the_head(tmp_path):
    theirs, ours = pair(
        transformers.GPT2Model(transformers.GPT2Config(**GPT2)), models.GPT2, tmp_path,
        max_shard_size="10KB",
    )  # fmt: skip
    assert len(os.listdir(tmp_path)) > 3 and not (tmp_path / "model.safetensors").exists()
    ids = token_ids()
    hidden = ours.transformer(ad.tensor(ids), None, None, None, None)
    assert difference(hidden, theirs(torch.tensor(ids)).last_hidden_state) < 1e-4


def test_gpt2_gradients_and_a_training_step(tmp_path, dtype):
    config = transformers.GPT2Config(**GPT2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    theirs, ours = pair(transformers.GPT2LMHeadModel(config), models.GPT2, tmp_path, dtype)
    theirs.train(), ours.train()
    ids = token_ids()
    optimizers = [t.optim.SGD(m.parameters(), lr=0.1) for t, m in ((torch, theirs), (ad, ours))]
    for _ in range(2):
        loss, mine = (
            t.nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), t.tensor(ids[:, 1:].reshape(-1))
            )
            for t, logits in ((torch, theirs(torch.tensor(ids)).logits), (ad, ours(ad.tensor(ids))))
        )
        assert difference(mine, loss) < LIMITS[dtype]
        for value, optimizer in zip((loss, mine), optimizers, strict=True):
            optimizer.zero_grad()
            value.backward()
        own = dict(ours.named_parameters())
        for name, parameter in theirs.named_parameters():
            assert difference(own[name].grad, parameter.grad) < LIMITS[dtype], name
        for optimizer in optimizers:
            optimizer.step()


# ---- Llama ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rope", ROPES)
def test_llama_rotary_variants(tmp_path, dtype, rope, request):
    if dtype == "float64":
        request.getfixturevalue("exact_llama")
    config = transformers.LlamaConfig(
        **TEXT, num_key_value_heads=2, rope_parameters={"rope_theta": 10000.0, **ROPES[rope]},
        **NO_TOKENS,
    )  # fmt: skip
    theirs, ours = pair(transformers.LlamaForCausalLM(config), models.Llama, tmp_path, dtype)
    for length in (11, 30):  # more than max_position_embeddings: where the variants differ
        ids = token_ids((2, length))
        y = theirs(torch.tensor(ids)).logits
        assert difference(ours(ad.tensor(ids)), y) < LIMITS[dtype]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
        {"num_key_value_heads": 4, "tie_word_embeddings": True, "head_dim": 16},
        {"hidden_act": "gelu", "rms_norm_eps": 1e-2},
    ],
)
def test_llama(tmp_path, dtype, settings, request):
    if dtype == "float64":
        request.getfixturevalue("exact_llama")
    config = transformers.LlamaConfig(**{**TEXT, **NO_TOKENS, **settings})
    theirs, ours = pair(
        transformers.LlamaForCausalLM(config), models.Llama, tmp_path, dtype, max_shard_size="20KB"
    )
    assert (tmp_path / "model.safetensors.index.json").exists()
    ids, mask = token_ids(), np.ones((3, 11), int)
    mask[0, :4] = mask[2, 8:] = 0
    assert difference(ours(ad.tensor(ids)), theirs(torch.tensor(ids)).logits) < LIMITS[dtype]
    y = theirs(torch.tensor(ids), attention_mask=torch.tensor(mask)).logits
    assert difference(ours(ad.tensor(ids), ad.tensor(mask)), y, mask > 0) < LIMITS[dtype]


def test_llama_reads_configs_of_older_files(tmp_path):
    config = transformers.LlamaConfig(
        **TEXT, rope_parameters=dict(ROPES["llama3"], rope_theta=500.0)
    )
    theirs, _ = pair(transformers.LlamaForCausalLM(config), models.Llama, tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    rope = values.pop("rope_parameters")
    values["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    values["rope_scaling"] = rope
    (tmp_path / "config.json").write_text(json.dumps(values))
    ours = models.Llama.from_pretrained(tmp_path)
    ids = token_ids()
    assert difference(ours(ad.tensor(ids)), theirs(torch.tensor(ids)).logits) < 1e-4


def test_bfloat16_files(tmp_path):
    config = transformers.LlamaConfig(**TEXT, **NO_TOKENS)
    theirs, ours = pair(transformers.LlamaForCausalLM(config), models.Llama, tmp_path, "bfloat16")
    assert {p.dtype for p in ours.parameters()} == {ad.bfloat16}
    ids = token_ids()
    rounded = theirs(torch.tensor(ids)).logits.float()
    same = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    exact = same(torch.tensor(ids)).logits
    found = ours(ad.tensor(ids)).float()
    assert difference(found, exact) < 1.5 * difference(ad.tensor(rounded.detach().numpy()), exact)
    wide = models.Llama.from_pretrained(tmp_path, dtype=ad.float32)
    assert difference(wide(ad.tensor(ids)), exact) < 1e-4


# ---- generation ----------------------------------------------------------------------------------


def generative(name, path, dtype="float32", **settings):
    if name == "gpt2":
        config = transformers.GPT2Config(**GPT2, **settings)
        return pair(transformers.GPT2LMHeadModel(config), models.GPT2, path, dtype)
    config = transformers.LlamaConfig(**TEXT, **NO_TOKENS, num_key_value_heads=2, **settings)
    return pair(transformers.LlamaForCausalLM(config), models.Llama, path, dtype)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_greedy_generation(tmp_path, name):
    theirs, ours = generative(name, tmp_path)
    ids = token_ids((3, 6))
    mask = np.ones((3, 6), int)
    mask[0, :3] = mask[1, :1] = 0
    for given in (None, mask):
        options = {} if given is None else {"attention_mask": torch.tensor(given)}
        expected = theirs.generate(
            torch.tensor(ids), max_new_tokens=14, do_sample=False, pad_token_id=0, **options
        )
        options = {} if given is None else {"attention_mask": ad.tensor(given)}
        found = ours.generate(ad.tensor(ids), max_new_tokens=14, **options)
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation_stops(tmp_path, name):
    theirs, ours = generative(name, tmp_path)
    ids = token_ids((3, 4))
    free = ours.generate(ad.tensor(ids), max_new_tokens=12)
    end = int(free[1, 6])
    expected = theirs.generate(
        torch.tensor(ids), max_new_tokens=12, do_sample=False, eos_token_id=end, pad_token_id=39,
        attention_mask=torch.ones(3, 4, dtype=torch.long),
    )  # fmt: skip
    found = ours.generate(ad.tensor(ids), max_new_tokens=12, eos_token_id=end, pad_token_id=39)
    assert found.tolist() == expected.tolist() and found[1, 7:].tolist() == [39] * len(found[1, 7:])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_cache_changes_nothing(tmp_path, name):
    _, ours = generative(name, tmp_path, "float64")
    ids = ad.tensor(token_ids((2, 10)))
    whole = ours(ids)
    cache = KeyValueCache(10)
    with ad.no_grad():
        parts = [ours(ids[:, a:b], cache=cache) for a, b in ((0, 4), (4, 5), (5, 8), (8, 10))]
    assert (ad.cat(parts, 1) - whole).abs().max() < 1e-12
    assert cache.length == 10
    with pytest.raises(ad.ShapeError, match="room for 10"):
        ours(ids[:, :1], cache=cache)


@pytest.mark.parametrize("options", [{"temperature": 0.7}, {"top_k": 5}, {"top_k": 100},
                                     {"top_p": 0.6}, {"top_p": 1.0}, {"top_p": 0.01},
                                     {"temperature": 1.5, "top_k": 9, "top_p": 0.8}])  # fmt: skip
def test_filtered_logits(options):
    from transformers.generation import logits_process as theirs

    x = np.random.default_rng(0).normal(size=(4, 20)) * 3
    y = torch.tensor(x)
    warpers = {"temperature": theirs.TemperatureLogitsWarper, "top_k": theirs.TopKLogitsWarper,
               "top_p": theirs.TopPLogitsWarper}  # fmt: skip
    for name, kind in warpers.items():
        if name in options:
            y = kind(options[name])(None, y)
    np.testing.assert_allclose(filter_logits(ad.tensor(x), **options).numpy(), y.numpy())


def test_sampling(tmp_path):
    _, ours = generative("gpt2", tmp_path)
    ids = ad.tensor(token_ids((1, 5))).expand(500, -1)

    def draw(seed, **options):
        generator = ad.Generator().manual_seed(seed)
        return ours.generate(ids, max_new_tokens=1, do_sample=True, generator=generator, **options)[
            :, -1
        ].numpy()

    options = {"temperature": 3.0, "top_k": 4}
    first = draw(1, **options)
    assert first.tolist() == draw(1, **options).tolist() != draw(2, **options).tolist()
    with ad.no_grad():
        wanted = ad.softmax(filter_logits(ours(ids[:1])[0, -1], **options), -1).numpy()
    found = np.bincount(first, minlength=40) / 500
    assert set(np.flatnonzero(found)) <= set(np.flatnonzero(wanted))
    assert np.abs(found - wanted).max() < 4 * np.sqrt(0.25 / 500)
    for bad in ({"temperature": 0.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}):
        with pytest.raises(ad.InvalidArgument, match=next(iter(bad))):
            draw(1, **bad)
    with pytest.raises(ad.InvalidArgument, match="24 fit"):
        ours.generate(ids[:1], max_new_tokens=20)


# ---- BERT ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_bert(tmp_path, dtype, kind):
    config = transformers.BertConfig(**TEXT, num_labels=5)
    ours = {"Model": models.Bert, "ForMaskedLM": models.BertForMaskedLM,
            "ForSequenceClassification": models.BertForSequenceClassification}[kind]  # fmt: skip
    theirs, ours = pair(getattr(transformers, f"Bert{kind}")(config), ours, tmp_path, dtype)
    ids, types = token_ids(), token_ids(seed=1) % 2
    mask = np.ones((3, 11), int)
    mask[0, 7:] = mask[1, :2] = 0
    for options in ({}, {"attention_mask": mask}, {"attention_mask": mask, "token_type_ids": types},
                    {"position_ids": np.arange(11)[None, ::-1].copy()}):  # fmt: skip
        y = theirs(torch.tensor(ids), **{k: torch.tensor(v) for k, v in options.items()})
        x = ours(ad.tensor(ids), **{k: ad.tensor(v) for k, v in options.items()})
        if kind == "Model":
            assert difference(x[0], y.last_hidden_state, mask > 0) < LIMITS[dtype]
            assert difference(x[1], y.pooler_output) < LIMITS[dtype]
        elif kind == "ForMaskedLM":
            assert difference(x, y.logits, mask > 0) < LIMITS[dtype]
        else:
            assert x.shape == (3, 5) and difference(x, y.logits) < LIMITS[dtype]


def test_bert_heads_may_be_another_model_s(tmp_path):
    theirs = randomized(transformers.BertForPreTraining(transformers.BertConfig(**TEXT)))
    theirs.save_pretrained(tmp_path)
    ids = token_ids()
    y = theirs(torch.tensor(ids))
    ours = models.BertForMaskedLM.from_pretrained(tmp_path)
    assert difference(ours(ad.tensor(ids)), y.prediction_logits) < 1e-4
    bare = models.Bert.from_pretrained(tmp_path)
    y = theirs.bert(torch.tensor(ids)).last_hidden_state
    assert difference(bare(ad.tensor(ids))[0], y) < 1e-4
    with pytest.warns(UserWarning, match="classifier.weight.*train before use"):
        fresh = models.BertForSequenceClassification.from_pretrained(tmp_path)
    assert fresh(ad.tensor(ids)).shape == (3, 2)


# ---- ViT -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Model", "ForImageClassification"])
@pytest.mark.parametrize("settings", [{}, {"qkv_bias": False, "hidden_act": "gelu_new"}])
def test_vit(tmp_path, dtype, kind, settings):
    config = transformers.ViTConfig(**IMAGE, num_labels=5, **settings)
    ours = models.ViT if kind == "Model" else models.ViTForImageClassification
    theirs, ours = pair(getattr(transformers, f"ViT{kind}")(config), ours, tmp_path, dtype)
    rng = np.random.default_rng(0)
    for size in ((12, 12), (20, 16)):
        image = rng.normal(size=(2, 3, *size)).astype(dtype)
        larger = size != (12, 12)
        y = theirs(torch.tensor(image), interpolate_pos_encoding=larger)
        x = ours(ad.tensor(image), interpolate_positions=larger)
        if kind == "Model":
            assert difference(x[0], y.last_hidden_state) < LIMITS[dtype]
            assert difference(x[1], y.pooler_output) < LIMITS[dtype]
        else:
            assert x.shape == (2, 5) and difference(x, y.logits) < LIMITS[dtype]
    with pytest.raises(ad.ShapeError, match="interpolate_positions"):
        ours(ad.tensor(image))


# ---- back to transformers ------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 5])
@pytest.mark.parametrize(
    ("theirs", "ours", "settings"),
    [
        ("GPT2LMHeadModel", models.GPT2, {**GPT2}),
        ("LlamaForCausalLM", models.Llama, {**TEXT, "num_key_value_heads": 2}),
        ("BertForMaskedLM", models.BertForMaskedLM, TEXT),
        ("BertForSequenceClassification", models.BertForSequenceClassification,
         {**TEXT, "num_labels": 3}),
        ("ViTForImageClassification", models.ViTForImageClassification, {**IMAGE, "num_labels": 3}),
    ],
)  # fmt: skip
def test_transformers_reads_what_we_save(tmp_path, theirs, ours, settings, shards):
    ad.manual_seed(0)
    fields = {k: v for k, v in settings.items() if k not in NO_TOKENS}
    model = ours(ours.config_class(**fields)).eval()
    model.save_pretrained(tmp_path, max_shard_size=10**9 if shards == 1 else 20_000)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shards > 1)
    twin, report = getattr(transformers, theirs).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    if "ViT" in theirs:
        x = np.random.default_rng(0).normal(size=(2, 3, 12, 12)).astype(np.float32)
    else:
        x = token_ids()
    assert difference(model(ad.tensor(x)), twin(torch.tensor(x)).logits) < 1e-4
    model.to(ad.bfloat16).save_pretrained(tmp_path / "half")
    half = getattr(transformers, theirs).from_pretrained(tmp_path / "half")
    assert half.dtype is torch.bfloat16


def test_errors(tmp_path):
    config = models.GPT2Config(vocab_size=10, n_positions=8, n_embd=4, n_layer=1, n_head=2)
    models.GPT2(config).save_pretrained(tmp_path)
    with pytest.raises(ad.CheckpointError, match="'gpt2'"):
        models.Llama.from_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())

    def load(**changes):
        (tmp_path / "config.json").write_text(json.dumps({**values, **changes}))
        return models.GPT2.from_pretrained(tmp_path)

    load()
    with pytest.raises(ad.Unsupported, match="add_cross_attention"):
        load(add_cross_attention=True)
    for bad in ({"n_layer": "3"}, {"n_embd": -1}, {"n_head": 2.5}, {"layer_norm_epsilon": None},
                {"n_layer": True}, {"n_embd": 2**40}):  # fmt: skip
        with pytest.raises(ad.CheckpointError, match=next(iter(bad))):
            load(**bad)
    with pytest.raises(ad.InvalidArgument, match="3 heads"):
        load(n_head=3)
    with pytest.raises(ad.CheckpointError, match="size mismatch"):
        load(vocab_size=11)
    with pytest.raises(ad.CheckpointError, match="lacks"):
        load(n_layer=2)
    with pytest.raises(ad.CheckpointError, match="besides"):
        load(n_layer=0)
    with pytest.raises(ad.Unsupported, match="activation 'mish2'"):
        load(activation_function="mish2")
    for text in ("", "[]", "{", "[" * 100_000):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ad.CheckpointError, match=r"config\.json"):
            models.GPT2.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError):
        models.GPT2.from_pretrained(tmp_path / "nowhere")
    linear = {"rope_type": "linear"}
    for bad in ({"rope_type": "new"}, linear, {**linear, "factor": "2"}, {"rope_theta": "x"}):
        with pytest.raises((ad.CheckpointError, ad.Unsupported), match="rope"):
            models.Llama(models.LlamaConfig.from_dict({**TEXT, "rope_parameters": bad}))
