"""The examples in PyTorch's docstrings: their values, dtypes, shapes and errors.

With PyTorch (`run.py record docstrings`) the examples are taken out of the installed wheel, run,
and written with what they give to OUTSIDE/docstrings.jsonl; with adjoint those there are run, and
must give the same. The file has PyTorch's texts and stays where it is.
"""

from __future__ import annotations

import doctest
import fnmatch
import importlib
import inspect
import json
import math
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch

FILE = Path(os.environ["OUTSIDE"]) / "docstrings.jsonl"
OURS = "adjoint" in sys.modules
TOLERANCE = 1e-4  # beside the largest number of a tensor
# Modules and classes, and which of their names; others are added as they are run with both.
PLACES = {"torch.Tensor": "*", "torch": "[A-Zab]*"}
# Examples with these words reach for devices, processes, the network, memory nobody wrote, chance.
BESIDES = (
    ".seed()",
    "cuda",
    "torch.hub",
    "process_group",
    "dist.",
    "empty",
    "data_ptr",
    "num_workers",
    "mps",
)


def examples():
    """The sources of each docstring with examples: {name: [source, ...]}."""
    found, seen = {}, set()
    for place, pattern in PLACES.items():
        owner = torch.Tensor if place == "torch.Tensor" else importlib.import_module(place)
        for name in dir(owner):
            each = getattr(owner, name, None)
            legacy = inspect.isclass(each) and name.endswith("Tensor")  # with all that Tensor has
            chosen = fnmatch.fnmatchcase(name, pattern) and not name.startswith("_")
            if not chosen or inspect.ismodule(each) or legacy:
                continue
            parts = {name: each}
            if inspect.isclass(each):
                parts |= {f"{name}.{key}": part for key, part in vars(each).items()}
            for key, part in parts.items():
                text = getattr(part, "__doc__", None)
                if not isinstance(text, str) or ">>>" not in text:
                    continue
                try:
                    sources = [e.source for e in doctest.DocTestParser().get_examples(text)]
                except ValueError:  # its indentation is broken
                    continue
                whole = "".join(sources)
                if whole and whole not in seen and not any(word in whole for word in BESIDES):
                    seen.add(whole)
                    found[f"{place}.{key}"] = sources
    return found


def run(sources):
    """What the examples give, one after the other, and the variables that they leave."""
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "math": math}
    before, given = dict(names), []
    for source in sources:
        try:
            code = compile(source, "<docstring>", "eval")
        except SyntaxError:
            exec(compile(source, "<docstring>", "exec"), names)
        else:
            given.append(told(eval(code, names)))
    left = {k: told(v) for k, v in names.items() if k not in before and not k.startswith("_")}
    return [given, {k: v for k, v in left.items() if v is not None}]


def told(x):
    """Numbers, dtypes and shapes; None for what has none."""
    if isinstance(x, torch.Tensor):
        x = x.detach()
        kind = [str(x.dtype).rpartition(".")[2], list(x.shape)]
        if x.layout is not torch.strided or x.is_quantized:
            return [*kind, None]
        x = x.resolve_conj().resolve_neg()
        x = torch.view_as_real(x) if x.is_complex() else x
        return [*kind, x.double().flatten().tolist()]
    if isinstance(x, complex):
        return [x.real, x.imag]
    if x is None or isinstance(x, (bool, int, float)):
        return x
    if isinstance(x, dict):
        return {str(k): told(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [told(each) for each in x]
    return None


def differ(a, b, path="result"):
    """Where two are unlike, in words; None where they are not."""
    number = isinstance(a, (int, float)) and isinstance(b, (int, float))
    if number and not isinstance(a, bool) and not isinstance(b, bool):
        same = a == b or (a != a and b != b) or abs(a - b) <= TOLERANCE * max(1, abs(a), abs(b))
        return None if same else f"{path}: {a} instead of {b}"
    if isinstance(a, dict) and isinstance(b, dict):
        pairs = [(a.get(k), b.get(k), f"{path}.{k}") for k in sorted({*a, *b})]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = [(u, v, f"{path}[{i}]") for i, (u, v) in enumerate(zip(a, b, strict=True))]
    else:
        return None if a == b else f"{path}: {str(a)[:100]} instead of {str(b)[:100]}"
    return next((said for pair in pairs if (said := differ(*pair)) is not None), None)


def wanted():
    """The examples, and what is known of their results."""
    if not OURS:
        return {name: (sources, None) for name, sources in examples().items()}
    if not FILE.exists():
        raise SystemExit(f"there is no {FILE}: it is written by `run.py record docstrings`")
    rows = map(json.loads, FILE.read_text().splitlines())
    return {name: (sources, result) for name, sources, result in rows}


WANTED = wanted()


@pytest.mark.parametrize("name", list(WANTED))
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources, result = WANTED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = json.loads(json.dumps(run(sources)))
    if OURS:
        assert differ(found, result) is None, differ(found, result)
    else:
        with FILE.open("a") as file:
            file.write(json.dumps([name, sources, found]) + "\n")
