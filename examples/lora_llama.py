"""LoRA: a Llama of the package transformers learns a second task in a few added weights.

It first learns to count up. Then all of its weights are frozen, and beside each matrix of its
attention and its feed-forward layers there are two small ones, whose product, of rank 4, is added
(Hu et al., 2021): these learn to count in threes, and switched off the model counts up as before.
transformers knows nothing of adjoint: the first lines let its `import torch` be adjoint.

Expected: share of threes continued at least 0.99
Run: python examples/lora_llama.py   (needs the package transformers)
"""

import os

import adjoint

torch = adjoint.as_torch()

import torch.nn.functional as F  # noqa: E402 - transformers imports torch, which is adjoint now
from torch import nn  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 150
LENGTH, DIGITS, RANK = 12, 10, 4


class LoRA(nn.Module):
    """A frozen linear layer, and a product of two matrices that is added to it; first it is 0."""

    def __init__(self, frozen):
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(RANK, frozen.in_features) / frozen.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, RANK))
        self.active = True

    def forward(self, x):
        y = self.frozen(x)
        return y + F.linear(F.linear(x, self.down), self.up) if self.active else y


def adapt(model):
    """Freeze `model`, and put a LoRA in the place of each linear layer but the last; they."""
    model.requires_grad_(False)
    made = []
    for parent in list(model.model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear):
                made.append(LoRA(layer))
                setattr(parent, name, made[-1])
    return made


def sequences(count, step):
    """Digits that go up by `step`, and begin again at 0 after 9."""
    first = torch.randint(0, DIGITS, (count, 1))
    return (first + step * torch.arange(LENGTH)) % DIGITS


def fit(model, step, steps):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=5e-3)
    for _ in range(steps):
        ids = sequences(32, step)
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
    return loss.item()


def continued(model, step):
    """How often the most likely next digit is right, from the second on."""
    ids = sequences(100, step)
    with torch.no_grad():
        guesses = model(input_ids=ids).logits[:, :-1].argmax(-1)
    return (guesses == ids[:, 1:]).float().mean().item()


def main():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=DIGITS, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=LENGTH,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    fit(model, 1, STEPS)
    print(f"share of ones continued: {continued(model, 1):.4f}")

    layers = adapt(model)
    added = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"weights that learn: {added} of {sum(p.numel() for p in model.parameters())}")
    before = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    loss = fit(model, 3, STEPS)
    print(f"loss: {loss:.4f}")
    print(f"share of threes continued: {continued(model, 3):.4f}")

    for layer in layers:
        layer.active = False
    print(f"without what was added, share of ones continued: {continued(model, 1):.4f}")
    frozen = dict(model.named_parameters())
    assert all(torch.equal(frozen[name], value) for name, value in before.items())


if __name__ == "__main__":
    main()
