"""peft: adapters of several kinds train, are saved and loaded, and are merged."""

from __future__ import annotations

import tempfile

import peft
import torch
from common import fill, gradients
from transformers import LlamaConfig, LlamaForCausalLM

TARGETS = ["q_proj", "v_proj"]
IDS = torch.arange(24).reshape(2, 12) % 64


def base():
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=64,
    )  # fmt: skip
    return fill(LlamaForCausalLM(config))


def adapted(config):
    """Losses of a few steps, logits after them, after a file, and merged."""
    torch.manual_seed(0)
    model = peft.get_peft_model(base(), config)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses, first = [], None
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(input_ids=IDS, labels=IDS).loss
        loss.backward()
        first = first or gradients(model)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        logits = model(input_ids=IDS).logits
        model.save_pretrained(folder)
        again = peft.PeftModel.from_pretrained(base(), folder).eval()
        found = [losses, first, logits, again(input_ids=IDS).logits]
        return [*found, model.merge_and_unload()(input_ids=IDS).logits]


def case_lora():
    return adapted(
        peft.LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS, task_type="CAUSAL_LM")
    )


def case_dora():
    return adapted(
        peft.LoraConfig(r=4, use_dora=True, target_modules=TARGETS, task_type="CAUSAL_LM")
    )


def case_ia3():
    more = {"feedforward_modules": ["down_proj"], "task_type": "CAUSAL_LM"}
    return adapted(peft.IA3Config(target_modules=["k_proj", "down_proj"], **more))


def case_lokr():
    return adapted(peft.LoKrConfig(r=4, target_modules=TARGETS))


def case_prefix():
    torch.manual_seed(0)
    config = peft.PrefixTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM")
    model = peft.get_peft_model(base(), config)
    loss = model(input_ids=IDS, labels=IDS).loss
    loss.backward()
    return [loss, gradients(model)]
