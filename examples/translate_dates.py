"""A transformer (Vaswani et al., 2017) that translates dates: "thursday 26 november 2026".

The encoder reads a date as people write it, in one of several ways, the decoder writes it as
2026-11-26, one character after the other; in training it sees the right ones before. The measure is
how many new dates are right in every character.

Expected: dates translated at least 0.9
Run: python examples/translate_dates.py
"""

import datetime
import os

import adjoint as torch
import adjoint.nn.functional as F
from adjoint import nn
from adjoint.utils.progress import progress

STEPS = 2 if os.environ.get("ADJOINT_SMOKE") else 900
FIRST, DAYS = datetime.date(1970, 1, 1).toordinal(), 36524  # a century
FORMS = ("%d %B %Y", "%B %d, %Y", "%A %d %B %Y", "%d/%m/%y", "%b %d %Y", "%d.%m.%Y")
CHARACTERS = " ,./-0123456789abcdefghijklmnopqrstuvwxyz"
PAD, START = 0, len(CHARACTERS) + 1
LENGTH = 27  # of the longest one
WIDTH, BATCH = 64, 64


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS) + 2, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.transformer = nn.Transformer(
            WIDTH, nhead=4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=128,
            dropout=0.0, batch_first=True,
        )  # fmt: skip
        self.head = nn.Linear(WIDTH, len(CHARACTERS) + 2)

    def embed(self, x):
        return self.characters(x) + self.places[: x.shape[1]]

    def forward(self, source, target):
        later = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        empty = torch.where(source == PAD, float("-inf"), 0.0)
        h = self.transformer(
            self.embed(source), self.embed(target), tgt_mask=later,
            src_key_padding_mask=empty, memory_key_padding_mask=empty, tgt_is_causal=True,
        )  # fmt: skip
        return self.head(h)


def build_model():
    return Translator()


def numbers(texts, length):
    rows = [[CHARACTERS.index(c) + 1 for c in text] for text in texts]
    return torch.tensor([row + [PAD] * (length - len(row)) for row in rows])


def dates(days, forms):
    """What is read, and what is to be written behind a start."""
    found = [datetime.date.fromordinal(FIRST + day) for day in days.tolist()]
    ways = [FORMS[form] for form in forms.tolist()]
    read = [date.strftime(way).lower() for date, way in zip(found, ways, strict=True)]
    target = numbers([date.isoformat() for date in found], 10)
    start = torch.full((len(target), 1), START)
    return numbers(read, LENGTH), torch.cat([start, target], dim=1)


def some(count, new):
    """Dates of days that are divided by seven without rest, those of the test, or of others."""
    days = 7 * torch.randint(0, DAYS // 7, (count,))
    days = days if new else days + torch.randint(1, 7, (count,))
    return dates(days, torch.randint(0, len(FORMS), (count,)))


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    losses = []
    model.train()
    for _ in progress(range(steps)):
        source, target = some(BATCH, new=False)
        optimizer.zero_grad()
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def translate(model, source):
    """The likeliest character each time."""
    written = torch.full((len(source), 1), START)
    for _ in range(10):
        following = model(source, written)[:, -1].argmax(dim=1, keepdim=True)
        written = torch.cat([written, following], dim=1)
    return written


def text_of(row):
    return "".join(CHARACTERS[n - 1] if 0 < n < START else " " for n in row.tolist()).strip()


def main():
    torch.manual_seed(0)
    model = build_model()
    train(model, STEPS)
    source, target = some(300, new=True)
    written = translate(model.eval(), source)
    for k in range(4):
        print(f"{text_of(source[k]):27} {text_of(written[k])}")
    right = (written == target).all(dim=1).float().mean().item()
    print(f"dates translated: {right:.4f}")


if __name__ == "__main__":
    main()
