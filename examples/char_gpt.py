"""A small character GPT (Radford et al., 2019), trained on the standard library's source.

Two blocks of causal self-attention over 64 characters. The test text is a module of its own. It
writes with a cache of keys and values: a character costs a pass over itself alone. Guessing
each of the 96 characters with equal probability costs 6.6 bits a character.

Expected: test bits per character at most 2.4
Run: python examples/char_gpt.py
"""

import math
import os
import sysconfig
from pathlib import Path

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 1200
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
BATCH, CONTEXT = 16, 64


def load(*modules: str) -> torch.Tensor:
    """The source of standard modules, as numbers of characters."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = "".join((folder / f"{name}.py").read_text("utf-8") for name in modules)
    number = {character: i for i, character in enumerate(CHARACTERS)}
    return torch.tensor([number[character] for character in text if character in number])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, x, past=None):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        if past:  # the keys and values of what was read before
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=not past)
        if past is not None:
            past[:] = k, v
        return self.proj(y.transpose(1, 2).reshape(b, t, c))

    def forward(self, x, past=None):
        x = x + self.attend(self.norm1(x), past)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=96, heads=4, blocks=2):
        super().__init__()
        self.token = nn.Embedding(len(CHARACTERS), width)
        self.position = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(CHARACTERS), bias=False)
        self.apply(self.init)
        self.token.weight = self.head.weight  # tied

    @staticmethod
    def init(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, x, past=None):
        """With `past`, a list for each block, `x` goes on where the last call ended: one character
        then, if there was one.
        """
        begin = past[0][0].shape[2] if past and past[0] else 0
        h = self.token(x) + self.position(torch.arange(begin, begin + x.shape[1]))
        for k, block in enumerate(self.blocks):
            h = block(h, None if past is None else past[k])
        return self.head(self.norm(h))


def build_model():
    return GPT()


def train(model, steps):
    text = load("argparse", "ast", "calendar", "configparser", "datetime", "difflib", "inspect")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[20])
    losses = []
    for _ in progress(range(steps)):
        starts = torch.randint(0, len(text) - CONTEXT, (BATCH, 1))
        places = starts + torch.arange(CONTEXT)
        logits = model(text[places])
        loss = F.cross_entropy(logits.flatten(0, 1), text[places + 1].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def bits_per_character(model, text):
    rows = (len(text) - 1) // CONTEXT
    logits = model(text[: rows * CONTEXT].reshape(rows, CONTEXT))
    return F.cross_entropy(logits.flatten(0, 1), text[1 : rows * CONTEXT + 1]).item() / math.log(2)


@torch.no_grad()
def write(model, begin, length, temperature=0.6):
    numbers = [CHARACTERS.index(character) for character in begin]
    past, read = [[] for _ in model.blocks], 0  # how much of what is read at once is kept
    for _ in range(length):
        if read == CONTEXT:  # there are no more places: begin anew with the last half
            past, read = [[] for _ in model.blocks], 0
        fresh = numbers[-1:] if read else numbers[-CONTEXT // 2 :]
        logits = model(torch.tensor([fresh]), past)[0, -1]
        read += len(fresh)
        drawn = torch.multinomial(F.softmax(logits / temperature, dim=-1), 1)
        numbers.append(int(drawn.item()))
    return "".join(CHARACTERS[i] for i in numbers)


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    print(write(model, "    def ", 5 if os.environ.get("ADJOINT_SMOKE") else 300))
    print(f"test bits per character: {bits_per_character(model, load('shlex')):.4f}")


if __name__ == "__main__":
    main()
