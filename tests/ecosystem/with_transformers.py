"""transformers: BERT, GPT-2, Llama, T5, ViT, tiny: forward, trained, generated, saved, Trainer."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers as tf
from common import data, fill, gradients, labels, told, train


def _trained(model, batch, lr=0.01):
    for each in model.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
    fill(model).eval()
    with torch.no_grad():
        before = model(**batch)
    told_before = [before.loss, before.logits]
    return told(told_before), train(model.train(), lambda: model(**batch).loss, lr=lr)


def _ids(*shape, seed=0):
    return labels(50, *shape, seed=seed) + 3


def _mask():
    return torch.tensor([[1] * 7, [1] * 4 + [0] * 3])


SMALL = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
}
PLAIN = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT2 = {
    "vocab_size": 60,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def case_bert():
    config = tf.BertConfig(**SMALL, **PLAIN)
    ids = _ids(2, 7)
    masked = {"input_ids": ids, "attention_mask": _mask(), "labels": ids}
    classified = {"input_ids": ids, "attention_mask": _mask(), "labels": torch.tensor([0, 1])}
    return [
        _trained(tf.BertForMaskedLM(config), masked),
        _trained(tf.BertForSequenceClassification(config), classified),
    ]


def case_bert_eager_attention():
    config = tf.BertConfig(**SMALL, **PLAIN, attn_implementation="eager")
    model = fill(tf.BertModel(config)).eval()
    out = model(
        _ids(2, 7), attention_mask=_mask(), output_attentions=True, output_hidden_states=True
    )
    return [out.last_hidden_state, out.pooler_output, out.attentions[1], out.hidden_states[1]]


def case_gpt2():
    ids = _ids(2, 7)
    return _trained(tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2)), {"input_ids": ids, "labels": ids})


def case_llama():
    config = tf.LlamaConfig(**SMALL, num_key_value_heads=2)
    ids = _ids(2, 7)
    batch = {"input_ids": ids, "labels": ids, "attention_mask": _mask()}
    return _trained(tf.LlamaForCausalLM(config), batch)


T5 = {
    "vocab_size": 60,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}


def case_t5():
    batch = {"input_ids": _ids(2, 7), "labels": _ids(2, 5, seed=1), "attention_mask": _mask()}
    return _trained(tf.T5ForConditionalGeneration(tf.T5Config(**T5)), batch)


def case_vit():
    config = tf.ViTConfig(**{**SMALL, **PLAIN}, image_size=16, patch_size=4, num_labels=3)
    return _trained(
        tf.ViTForImageClassification(config),
        {"pixel_values": data(2, 3, 16, 16), "labels": torch.tensor([0, 2])},
    )


def case_generate():
    gpt2 = fill(tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2))).eval()
    llama = fill(tf.LlamaForCausalLM(tf.LlamaConfig(**SMALL, num_key_value_heads=2))).eval()
    t5 = fill(tf.T5ForConditionalGeneration(tf.T5Config(**T5))).eval()
    prompt = _ids(2, 4)
    found = []
    for model in (gpt2, llama, t5):
        given = {"pad_token_id": 0, "max_new_tokens": 8}
        found += [
            model.generate(prompt, do_sample=False, **given).tolist(),
            model.generate(prompt, num_beams=3, do_sample=False, **given).tolist(),
            model.generate(prompt, do_sample=True, top_k=1, temperature=0.7, **given).tolist(),
            model.generate(
                prompt, do_sample=False, repetition_penalty=1.3, no_repeat_ngram_size=2, **given
            ).tolist(),
        ]
    return found


def case_generate_padded():
    model = fill(tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2))).eval()
    ids = _ids(2, 5)
    ids[1, :2] = 0
    mask = (ids != 0).long()
    out = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=5,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    cached = model(ids, use_cache=True)
    after = model(_ids(2, 1), past_key_values=cached.past_key_values)
    return [out.sequences.tolist(), torch.stack(out.scores), after.logits]


def case_from_pretrained():
    found = []
    for kind, config in (
        (tf.BertModel, tf.BertConfig(**SMALL)),
        (tf.GPT2LMHeadModel, tf.GPT2Config(**GPT2)),
        (tf.LlamaForCausalLM, tf.LlamaConfig(**SMALL)),
        (tf.T5ForConditionalGeneration, tf.T5Config(**T5)),
    ):
        model = fill(kind(config)).eval()
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again, info = kind.from_pretrained(folder, output_loading_info=True)
            half = kind.from_pretrained(folder, dtype=torch.bfloat16)
        same = all(
            torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
        )
        found.append([same, sorted(map(str, info["missing_keys"])), str(half.dtype)])
        given = {"decoder_input_ids": _ids(1, 2)} if kind is tf.T5ForConditionalGeneration else {}
        found.append(again(_ids(2, 5)[:1], **given)[0])
    return found


class Pairs(torch.utils.data.Dataset):
    def __init__(self, count=12):
        self.ids, self.labels = _ids(count, 6), labels(2, count, seed=3)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


def case_trainer_checkpoints():
    """Saved after each epoch, and gone on with from the first."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = tf.TrainingArguments(
            folder, num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1,
            report_to=[], save_strategy="epoch", use_cpu=True, disable_tqdm=True, seed=3,
        )  # fmt: skip
        losses = []
        for start in (None, f"{folder}/checkpoint-3"):
            model = fill(tf.BertForSequenceClassification(tf.BertConfig(**SMALL, **PLAIN)))
            trainer = tf.Trainer(model, arguments, train_dataset=Pairs())
            trainer.train(resume_from_checkpoint=start)
            losses.append([each["loss"] for each in trainer.state.log_history if "loss" in each])
        saved = sorted(each.name for each in Path(folder, "checkpoint-6").iterdir())
    return [losses[0] == losses[1], saved, losses[0][:3]]


def case_trainer():
    model = fill(tf.BertForSequenceClassification(tf.BertConfig(**SMALL, **PLAIN)))

    class InOrder(tf.Trainer):
        def _get_train_sampler(self, *args, **kwargs):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    with tempfile.TemporaryDirectory() as folder:
        arguments = tf.TrainingArguments(
            folder,
            max_steps=6,
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            warmup_steps=2,
            weight_decay=0.01,
            lr_scheduler_type="cosine",
            disable_tqdm=True,
            eval_strategy="steps",
            eval_steps=3,
            gradient_accumulation_steps=1,
        )
        trainer = InOrder(
            model,
            arguments,
            train_dataset=Pairs(),
            eval_dataset=Pairs(8),
            compute_metrics=lambda p: {
                "right": float((p.predictions.argmax(-1) == p.label_ids).mean())
            },
        )
        trainer.train()
        history = [
            [
                entry[k]
                for k in ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_right")
                if k in entry
            ]
            for entry in trainer.state.log_history
        ]
        predicted = trainer.predict(Pairs(8)).predictions
        return [history, np.asarray(predicted)]


def case_others():
    found = []
    vit = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    for kind, config in (
        (tf.RobertaModel, tf.RobertaConfig(**SMALL)),
        (tf.Qwen2Model, tf.Qwen2Config(**SMALL, num_key_value_heads=2)),
        (tf.MistralModel, tf.MistralConfig(**SMALL, num_key_value_heads=2)),
        (tf.GemmaModel, tf.GemmaConfig(**SMALL, num_key_value_heads=2, head_dim=8)),
        (tf.MixtralModel, tf.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=2)),
        (tf.CLIPVisionModel, tf.CLIPVisionConfig(**vit, image_size=16, patch_size=4)),
        (
            tf.DistilBertModel,
            tf.DistilBertConfig(vocab_size=60, dim=32, n_layers=2, n_heads=4, hidden_dim=48),
        ),
    ):
        model = fill(kind(config)).eval()
        given = data(2, 3, 16, 16) if kind is tf.CLIPVisionModel else _ids(2, 6)
        out = model(given)
        out.last_hidden_state.sum().backward()
        found.append(out.last_hidden_state)
    return found


def case_compiled():
    """A whole training step and a forward pass as programs; with PyTorch itself as they are."""
    compiled = sys.modules["adjoint"].compile if "adjoint" in sys.modules else (lambda f: f)
    ids = _ids(2, 7)
    told_of = []
    for model in (
        tf.BertForMaskedLM(tf.BertConfig(**SMALL, **PLAIN)),
        tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2)),
        tf.LlamaForCausalLM(tf.LlamaConfig(**SMALL, num_key_value_heads=2)),
    ):
        fill(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        @compiled
        def step(ids, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            return loss

        @compiled
        @torch.no_grad()
        def forward(ids, model=model):
            return model(input_ids=ids).logits

        losses = [step(_ids(2, 7, seed=n)).item() for n in range(3)]
        told_of.append([losses, gradients(model), told(forward(ids))])
        told_of.append([told(p) for p in list(model.parameters())[::5]])
    return told_of


def case_optimizers():
    model = fill(tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2)))
    ids = _ids(2, 7)
    optimizer = tf.Adafactor(model.parameters(), lr=1e-3, relative_step=False)
    trained = train(model, lambda: model(ids, labels=ids).loss, optimizer=optimizer)
    rates = []
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for name in ("linear", "cosine", "polynomial", "inverse_sqrt", "constant_with_warmup"):
        schedule = tf.get_scheduler(name, optimizer, 2, 8)
        for _ in range(6):
            optimizer.step()
            schedule.step()
            rates.append(schedule.get_last_lr()[0])
    return trained, rates
