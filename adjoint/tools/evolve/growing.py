"""Mutations of modules that keep what they compute: wider and deeper layers (Chen et al., 2016,
"Net2Net"); and narrower ones.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import adjoint as ad
from adjoint import nn

from .module_space import GROWING, Individual
from .mutations import mutation

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORM_STATE = ("weight", "bias", "running_mean", "running_var")
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# Layers that treat each channel alike, and apart from the others.
CHANNELWISE = (
    nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.ReLU6, nn.Softplus,
    nn.Hardswish, nn.Mish, nn.Identity, nn.Dropout, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d,
    nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.Flatten,
)  # fmt: skip


class GrowingLayer(NamedTuple):
    """A layer whose units may change, the norms behind it, and the layer that reads them."""

    layer: Any
    norms: list[Any]
    reader: Any

    @property
    def width(self) -> int:
        """The units."""
        return self.layer.weight.shape[0]


def places(individual: Individual) -> list[GrowingLayer]:
    """The layers of which it is known what reads their units."""
    result = []
    for _, chain in individual.chains():
        layers = list(chain)
        for i, layer in enumerate(layers):
            if type(layer) not in GROWING or getattr(layer, "groups", 1) != 1:
                continue
            norms = []
            for reader in layers[i + 1 :]:
                if type(reader) in NORMS:
                    norms.append(reader)
                elif type(reader) in GROWING:
                    if getattr(reader, "groups", 1) == 1 and _fits(layer, reader):
                        result.append(GrowingLayer(layer, norms, reader))
                    break
                elif type(reader) not in CHANNELWISE:
                    break
    shared = individual.module.named_parameters(remove_duplicate=False)
    parameters = [id(p) for _, p in shared]
    return [
        place
        for place in result  # a weight that two layers share cannot change for one of them
        if all(parameters.count(id(x.weight)) == 1 for x in (place.layer, place.reader))
    ]


def _fits(layer: Any, reader: Any) -> bool:
    """Whether the reader's inputs are the layer's units: as many, or each as often in a row."""
    units, inputs = layer.weight.shape[0], reader.weight.shape[1]
    if isinstance(layer, CONVOLUTIONS) and isinstance(reader, nn.Linear):
        return inputs % units == 0
    return units == inputs


def _resized(individual: Individual, place: GrowingLayer, index: list[int], factor: float) -> None:
    """Give a layer, and the norms behind it, the units at `index`."""
    at = ad.tensor(index)
    for layer in (place.layer, *place.norms):
        names = ("weight", "bias") if layer is place.layer else NORM_STATE
        for name in names:
            x = getattr(layer, name, None)
            if x is not None:
                value = x.detach().index_select(0, at)
                individual.replace(layer, name, value, lambda m: m.index_select(0, at), factor)
        for name in ("out_features", "out_channels", "num_features"):
            if hasattr(layer, name):
                setattr(layer, name, len(index))


def _read(individual: Individual, place: GrowingLayer, index: list[int], weight: ad.Tensor) -> None:
    """Give the reader the inputs at `index`, with a weight of shape (outputs, units, rest)."""
    reader, at = place.reader, ad.tensor(index)
    shape = reader.weight.shape
    rows, rest = shape[0], list(shape[2:])
    each = shape[1] // place.width

    def parts(x: ad.Tensor) -> ad.Tensor:
        split = x.reshape(rows, shape[1] // each, -1)
        return split.index_select(1, at).reshape(rows, len(index) * each, *rest)

    value = weight.reshape(rows, len(index) * each, *rest)
    individual.replace(reader, "weight", value, parts)
    for name in ("in_features", "in_channels"):
        if hasattr(reader, name):
            setattr(reader, name, len(index) * each)


@mutation
def wider(individual: Individual, space: Any, rng: random.Random) -> bool:
    """Copy units of a layer. A unit and its copy lead on with a half of the weights each, plus and
    minus something random, so that their sum is as before, and training parts them.
    """
    there = places(individual)
    if not there:
        return False
    place = rng.choice(there)
    units = place.width
    index = list(range(units))
    weight = place.reader.weight.detach()
    parts = weight.reshape(weight.shape[0], units, -1)
    columns = list(parts.unbind(1))
    draws = ad.Generator()
    draws.manual_seed(rng.getrandbits(48))
    for _ in range(rng.randint(1, max(1, units // 2))):
        source = rng.randrange(units)
        column = columns[source]
        apart = ad.randn(column.shape, generator=draws, dtype=column.dtype)
        apart = apart * (column.square().mean().sqrt() * 0.5)
        columns[source] = column / 2 - apart
        columns.append(column / 2 + apart)
        index.append(source)
    _read(individual, place, index, ad.stack(columns, 1))
    _resized(individual, place, index, 0.5)
    return True


@mutation
def narrower(individual: Individual, space: Any, rng: random.Random) -> bool:
    """Remove the unit of a layer whose weights lead on the least; what is computed changes."""
    there = [place for place in places(individual) if place.width > 1]
    if not there:
        return False
    place = rng.choice(there)
    weight = place.reader.weight.detach()
    parts = weight.reshape(weight.shape[0], place.width, -1)
    strength = parts.square().sum((0, 2)) * place.layer.weight.detach().reshape(
        place.width, -1
    ).square().sum(1)
    least = int(strength.argmin())
    index = [i for i in range(place.width) if i != least]
    _read(individual, place, index, parts.index_select(1, ad.tensor(index)))
    _resized(individual, place, index, 1.0)
    return True


@mutation
def deeper(individual: Individual, space: Any, rng: random.Random) -> bool:
    """Put an identity, and ReLU, behind a ReLU, whose values ReLU does not change."""
    there = []
    for path, chain in individual.chains():
        last: Any = None
        for i, layer in enumerate(chain):
            if type(layer) in GROWING:
                last = layer
            elif type(layer) is nn.ReLU and last is not None:
                there.append((path, i + 1, last))
            elif type(layer) not in NORMS and type(layer) not in (nn.Identity, nn.Dropout):
                last = None
    if not there:
        return False
    path, position, like = rng.choice(there)
    weight = like.weight
    width = weight.shape[0]
    one: Any
    if isinstance(like, nn.Linear):
        one = nn.Linear(width, width, dtype=weight.dtype)
        value = ad.eye(width, dtype=weight.dtype)
    else:
        size = 3
        one = type(like)(width, width, size, padding=size // 2, dtype=weight.dtype)
        value = ad.zeros(one.weight.shape, dtype=weight.dtype)
        middle = (slice(None), slice(None), *[size // 2] * (value.ndim - 2))
        value[middle] = ad.eye(width, dtype=weight.dtype)
    with ad.no_grad():
        one.weight.copy_(value)
        one.bias.zero_()
    individual.insert(path, position, one.train(individual.module.training), nn.ReLU())
    return True
