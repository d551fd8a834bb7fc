"""Rotary position embedding, and the ways in which models stretch it to longer texts.

Dimension pairs of queries and keys are turned by an angle that grows with the position, each pair
at its own frequency, so that a query and a key know how far apart they are.

Source: Su et al., 2021, https://arxiv.org/abs/2104.09864
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.dtype import float32, float64
from ..core.errors import CheckpointError, Unsupported
from ..ops.create.creation import tensor
from ..ops.shape.concatenation import cat
from ..runtime.fused import fused


class Rotary:
    """The cosines and sines by which queries and keys of `size` dimensions are turned.

    `settings` are the `rope_parameters` of a config: `rope_theta`, `rope_type` and what that type
    needs. `length` is the number of positions that the model was trained on.

    Errors: Unsupported for an unknown type; CheckpointError for settings that lack something.
    """

    def __init__(self, size: int, length: int, settings: Mapping[str, Any]) -> None:
        self.size = size
        self.length = length
        self.settings = settings
        self.kind = settings.get("rope_type", settings.get("type", "default"))
        if self.kind not in _KINDS:
            raise Unsupported(f"rope_type {self.kind!r}; known: {', '.join(_KINDS)}")
        try:
            self.frequencies(1)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise CheckpointError(
                f"rope_parameters of type {self.kind!r} are malformed: {error!r}"
            ) from error

    def frequencies(self, length: int) -> tuple[list[float], float]:
        """Radians per position of each pair in a text of `length`; the factor of both waves."""
        return _KINDS[self.kind](self, length)

    def waves(self, positions: Any, dtype: Any) -> tuple[Any, Any]:
        """Cosines and sines (..., 1, length, 2, size/2) for positions (..., length): for each half
        of the dimensions; sines of the first half are subtracted.
        """
        varies = self.kind in ("dynamic", "longrope")
        length = int(positions.max()) + 1 if varies else self.length
        frequencies, factor = self.frequencies(length)
        wide = float64 if dtype is float64 else float32  # half precision cannot count positions
        angles = positions[..., None].to(wide) * tensor(
            frequencies, dtype=wide, device=positions.device
        )
        angles = angles.unsqueeze(-3).unsqueeze(-2)
        cos, sin = angles.cos() * factor, angles.sin() * factor
        return cat([cos, cos], -2).to(dtype), cat([-sin, sin], -2).to(dtype)

    def base_frequencies(self, base: float | None = None) -> list[float]:
        """theta^(-2i/size) for each pair i."""
        theta = self.settings["rope_theta"] if base is None else base
        return [theta ** (-i / self.size) for i in range(0, self.size, 2)]


def turn(x: Any, waves: tuple[Any, Any]) -> Any:
    """Queries or keys (batch, heads, length, size), turned; pairs lie half the size apart."""
    return _turned(x, *waves)


@fused
def _turned(x: Any, cos: Any, sin: Any) -> Any:
    halves = x.unflatten(-1, (2, -1))
    return (halves * cos + halves.flip(-2) * sin).flatten(-2)


# ---- the kinds -----------------------------------------------------------------------------------


def _default(rotary: Rotary, length: int) -> tuple[list[float], float]:
    return rotary.base_frequencies(), 1.0


def _linear(rotary: Rotary, length: int) -> tuple[list[float], float]:
    """Linearly scaled frequencies, all slower by a factor: positions are squeezed together."""
    return [f / rotary.settings["factor"] for f in rotary.base_frequencies()], 1.0


def _dynamic(rotary: Rotary, length: int) -> tuple[list[float], float]:
    """A base that grows with the text, so that the slowest wave is stretched as far as needed."""
    factor, size = rotary.settings["factor"], rotary.size
    stretch = factor * max(length, rotary.length) / rotary.length - (factor - 1)
    base = rotary.settings["rope_theta"] * stretch ** (size / (size - 2))
    return rotary.base_frequencies(base), 1.0


def _llama3(rotary: Rotary, length: int) -> tuple[list[float], float]:
    """Slow waves slower by a factor, fast ones kept, a mixture in between."""
    settings = rotary.settings
    factor, trained = settings["factor"], settings["original_max_position_embeddings"]
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]

    def scaled(frequency: float) -> float:
        turns: float = trained * frequency / (2 * math.pi)  # over a text as long as trained on
        kept: float = min(max((turns - low) / (high - low), 0.0), 1.0)
        return kept * frequency + (1 - kept) * frequency / float(factor)

    return [scaled(f) for f in rotary.base_frequencies()], 1.0


def _yarn(rotary: Rotary, length: int) -> tuple[list[float], float]:
    """YaRN frequencies: as llama3's by the number of turns, but mixed evenly along the pairs (Peng
    et al., 2023, https://arxiv.org/abs/2309.00071).
    """
    settings = rotary.settings
    trained, theta = settings["original_max_position_embeddings"], settings["rope_theta"]
    factor = settings["factor"]
    if factor is None:
        factor = rotary.length / trained

    def pair_of(turns: float) -> float:
        """The pair that turns so often over a text as long as trained on."""
        length = trained / (turns * 2 * math.pi)
        return float(rotary.size * math.log(length) / (2 * math.log(theta)))

    first = pair_of(settings.get("beta_fast") or 32)
    last = pair_of(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotary.size - 1)
    width = last - first or 0.001
    mixed = []
    for pair, frequency in enumerate(rotary.base_frequencies()):
        slowed = min(max((pair - first) / width, 0.0), 1.0)
        mixed.append(slowed * frequency / factor + (1 - slowed) * frequency)
    return mixed, _yarn_factor(settings, factor)


def _yarn_factor(settings: Mapping[str, Any], factor: float) -> float:
    """Factor by which both waves grow, to sharpen attention over longer texts."""

    def growth(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    given = settings.get("attention_factor")
    if given is not None:
        return float(given)
    weight, divisor = settings.get("mscale"), settings.get("mscale_all_dim")
    return growth(weight) / growth(divisor) if weight and divisor else growth(1)


def _longrope(rotary: Rotary, length: int) -> tuple[list[float], float]:
    """LongRoPE frequencies: each one slower by its own factor, one list for short texts and one for
    long ones (Ding et al., 2024, https://arxiv.org/abs/2402.13753).
    """
    settings = rotary.settings
    trained = settings["original_max_position_embeddings"]
    factors: Sequence[float] = settings["long_factor" if length > trained else "short_factor"]
    frequencies = [f / by for f, by in zip(rotary.base_frequencies(), factors, strict=True)]
    factor = settings.get("factor") or rotary.length / trained
    given = settings.get("attention_factor")
    if given is None:
        given = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))
    return frequencies, float(given)


_KINDS: dict[str, Any] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
