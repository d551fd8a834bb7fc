"""`adjoint info`: what this installation consists of and what the machine offers."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...backends import native
from ...core import config, extensions

OPTIONAL = {
    "sklearn": "digits data (extra: demo)",
    "matplotlib": "pictures (extra: demo)",
    "tqdm": "progress bars (extra: demo)",
}
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
_NOTABLE = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
    "asimd", "asimdhp", "asimddp", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip


HELP = "show version, backends, threads and instruction sets"


def add_arguments(add: Callable[..., Any]) -> None:
    """Add the command's arguments."""
    add("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the facts."""
    facts = collect()
    print(json.dumps(facts, indent=2) if options.json else as_text(facts))
    return 0


def collect() -> dict[str, Any]:
    """The facts, as JSON has them."""
    model, flags = processor()
    return {
        "adjoint": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "core": extensions.state(),
        "numpy": np.__version__,
        "blas": blas(),
        "backends": {"numpy": "reference, always there", "native": native_backend()},
        "optional": {name: _version_of(name) for name in OPTIONAL},
        "processor": model,
        "instruction_sets": [flag for flag in _NOTABLE if flag in flags],
        "threads": threads(),
        "switches": {switch.name: config.read(switch.name) for switch in config.SWITCHES},
    }


def native_backend() -> str:
    """The libraries with which the native backend computes, or why it is off."""
    off = native.reason_off()
    if off is not None:
        return f"off: {off}"
    from ...backends.native.onednn import api as onednn

    missing = onednn.unavailable()
    return "generated kernels, " + ("oneDNN" if missing is None else f"no oneDNN: {missing}")


def _version_of(name: str) -> str | None:
    """The version of an optional library, without importing it; None where it is missing."""
    if importlib.util.find_spec(name) is None:
        return None
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"


def blas() -> str:
    """The library that NumPy multiplies matrices with."""
    configuration: Any = np.show_config(mode="dicts")
    found = configuration.get("Build Dependencies", {}).get("blas", {})
    return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()


def processor(path: str = "/proc/cpuinfo") -> tuple[str, set[str]]:
    """The processor's name and its feature flags, where the system tells."""
    model = platform.processor() or platform.machine()
    flags: set[str] = set()
    try:
        text = Path(path).read_text()
    except OSError:
        return model, flags
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
    return model, flags


def threads() -> dict[str, Any]:
    """Numbers of processors and threads: how many there are, how many this process may use, and
    what limits it.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limits = {
        name: os.environ[name]
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        if name in os.environ
    }
    return {"processors": os.cpu_count(), "usable": usable, "limits": limits}


def as_text(facts: dict[str, Any]) -> str:
    """The facts, for people."""
    found = facts["threads"]
    limits = ", ".join(f"{name}={value}" for name, value in found["limits"].items())
    rows = [
        ("adjoint", facts["adjoint"]),
        ("Python", facts["python"]),
        ("system", facts["system"]),
        ("core", facts["core"]),
        ("NumPy", f"{facts['numpy']}, matrix products by {facts['blas']}"),
        ("processor", facts["processor"]),
        ("instructions", " ".join(facts["instruction_sets"]) or "unknown"),
        ("threads", f"{found['usable']} of {found['processors']} {limits}".strip()),
    ]
    lines = [f"{name:<13} {value}" for name, value in rows]
    lines += ["", "backends"]
    lines += [f"  {name:<11} {note}" for name, note in facts["backends"].items()]
    lines += ["", "optional libraries"]
    for name, version in facts["optional"].items():
        lines.append(f"  {name:<11} {version or 'not installed':<14} {OPTIONAL[name]}")
    lines += ["", "switches"]
    for switch in config.SWITCHES:
        value = facts["switches"][switch.name] or "(not set)"
        lines.append(f"  {switch.name:<17} {value:<10} {switch.meaning}")
    return "\n".join(lines)
