"""A character LSTM that learns to write Python, from the standard library's source.

Text is read in long rows, and the state is carried from one piece of a row to the next, cut off
from its history by `detach()` (truncated backpropagation through time). The test text is a module
of its own. Guessing each of the 96 characters with equal probability costs 6.6 bits a character.

Expected: test bits per character at most 2.2
Run: python examples/char_lstm.py
"""

import math
import os
import sysconfig
from pathlib import Path

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 3 if os.environ.get("ADJOINT_SMOKE") else 1500
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
ROWS, PIECE = 32, 40


def load(*modules: str) -> torch.Tensor:
    """The source of standard modules, as numbers of characters."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = "".join((folder / f"{name}.py").read_text("utf-8") for name in modules)
    number = {character: i for i, character in enumerate(CHARACTERS)}
    return torch.tensor([number[character] for character in text if character in number])


class CharLSTM(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.embedding = nn.Embedding(len(CHARACTERS), 32)
        self.lstm = nn.LSTM(32, hidden, batch_first=True)
        self.decoder = nn.Linear(hidden, len(CHARACTERS))

    def forward(self, x, state=None):
        out, state = self.lstm(self.embedding(x), state)
        return self.decoder(out), state


def build_model():
    return CharLSTM()


def train(model, steps):
    text = load("argparse", "ast", "calendar", "configparser", "datetime", "difflib", "inspect")
    length = (len(text) - 1) // ROWS
    inputs = text[: ROWS * length].reshape(ROWS, length)
    targets = text[1 : ROWS * length + 1].reshape(ROWS, length)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    state, start = None, 0
    for _ in progress(range(steps)):
        if start + PIECE > length:
            state, start = None, 0
        logits, state = model(inputs[:, start : start + PIECE], state)
        state = tuple(part.detach() for part in state)
        target = targets[:, start : start + PIECE]
        loss = F.cross_entropy(logits.reshape(-1, len(CHARACTERS)), target.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        start += PIECE
    return losses


@torch.no_grad()
def bits_per_character(model, text):
    logits, _ = model(text[None, :-1])
    return F.cross_entropy(logits[0], text[1:]).item() / math.log(2)


@torch.no_grad()
def write(model, begin, length, temperature=0.6):
    text, state = begin, None
    x = torch.tensor([[CHARACTERS.index(character) for character in begin]])
    for _ in range(length):
        logits, state = model(x, state)
        x = torch.multinomial(F.softmax(logits[:, -1] / temperature, dim=-1), 1)
        text += CHARACTERS[int(x.item())]
    return text


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    print(write(model, "    def ", 5 if os.environ.get("ADJOINT_SMOKE") else 300))
    print(f"test bits per character: {bits_per_character(model, load('shlex')):.4f}")


if __name__ == "__main__":
    main()
