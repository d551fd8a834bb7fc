"""Models that come from a directory as Hugging Face lays it out: `config.json`, safetensors."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

from ..core.dtype import as_dtype
from ..core.errors import CheckpointError, InvalidArgument, Unsupported
from ..io.atomic import replacing
from ..io.sharded import load_sharded, saved_sharded
from ..nn import Module

MAX_CONFIG = 1 << 20  # bytes of a config.json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Base of model configurations. The fields have the names, meanings and defaults of
    transformers.

    >>> ad.models.GPT2Config.from_dict({"n_layer": 2, "something_else": 1}).n_layer
    2
    """

    model_type: ClassVar[str]
    fixed: ClassVar[Mapping[str, Any]] = {}  # settings of transformers of which one value is built

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Any:
        """A config from the values in a config.json; what shapes no model is left out.

        Errors: CheckpointError for another model's config and for values of a wrong type;
        Unsupported for settings that this implementation has not.
        """
        found = values.get("model_type", cls.model_type)
        if found != cls.model_type:
            raise CheckpointError(
                f"{cls.__name__}: the config is a {found!r}'s, not a {cls.model_type!r}'s; use "
                "that model's class"
            )
        for name, built in cls.fixed.items():
            if values.get(name, built) != built:
                raise Unsupported(
                    f"{cls.__name__}: {name}={values[name]!r:.60} is not built, only {built!r}"
                )
        known = [f for f in dataclasses.fields(cls) if f.name in values]
        for each in known:
            if not _fits(values[each.name], each):
                raise CheckpointError(f"{cls.__name__}: {each.name} is {values[each.name]!r:.60}")
        return cls(**{each.name: values[each.name] for each in known})

    def to_dict(self) -> dict[str, Any]:
        """The values of a config.json.

        >>> ad.models.GPT2Config(n_layer=2).to_dict()["n_layer"]
        2
        """
        return {"model_type": self.model_type, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(Config):
    """A config of models that may end in a classifier; transformers names the labels."""

    num_labels: int = 2

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Any:
        """A config from the values in a config.json, which counts the labels by `id2label`."""
        labels = values.get("id2label")
        if isinstance(labels, dict):
            values = {**values, "num_labels": len(labels)}
        return super().from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """The values of a config.json."""
        values = super().to_dict()
        names = {i: f"LABEL_{i}" for i in range(values.pop("num_labels"))}
        return {**values, "id2label": names, "label2id": {v: k for k, v in names.items()}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(ClassifierConfig):
    """A config of models that encode; the sizes are those of the base models."""

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12


def _fits(value: Any, field: Any) -> bool:
    """Whether a config.json's `value` is of the field's type."""
    kind = str(field.type)
    if value is None:
        return "None" in kind
    if isinstance(value, bool):
        return kind.startswith("bool")
    if isinstance(value, int):
        return kind.startswith(("int", "float")) and 0 <= value < 2**31
    return kind.startswith(type(value).__name__)


class Pretrained(Module):
    """A module made from a config, whose parameters have Hugging Face's names."""

    config_class: ClassVar[type[Config]]
    base: ClassVar[str] = ""  # the name of the part that other models of the family share
    heads: ClassVar[tuple[str, ...]] = ()  # what a file of another model of the family may lack
    ignored: ClassVar[tuple[str, ...]] = ()  # ends of names that files have and nobody needs
    architecture: ClassVar[str] = ""  # the class of transformers that has the same parameters

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def from_pretrained(cls, path: Any, *, dtype: Any = None) -> Any:
        """The model in a directory with `config.json` and safetensors, sharded or not.

        The parameters keep the file's dtype unless `dtype` names another. A head that the file
        lacks starts anew, with a warning. The model is in evaluation mode: call `train()` to
        fine-tune it.

        Errors: FileNotFoundError; CheckpointError where names or shapes do not match; Unsupported
        for settings that this implementation has not.
        Source: https://huggingface.co/docs/transformers/main_classes/model

        >>> import tempfile
        >>> config = ad.models.GPT2Config(
        ...     vocab_size=10, n_positions=8, n_embd=4, n_layer=1, n_head=2)
        >>> directory = tempfile.mkdtemp()
        >>> ad.models.GPT2(config).save_pretrained(directory)
        >>> ad.models.GPT2.from_pretrained(directory)(ad.tensor([[1, 2]])).shape
        adjoint.Size([1, 2, 10])
        """
        path = os.fspath(path)
        model = cls(cls.config_class.from_dict(_read_config(os.path.join(path, "config.json"))))
        tensors = model._under_own_names(load_sharded(path))
        if dtype is not None:
            kind = as_dtype(dtype)
            tensors = {k: t.to(kind) if t.is_floating_point() else t for k, t in tensors.items()}
        keys = model.load_state_dict(tensors, strict=False, assign=True)
        missing = [key for key in keys.missing_keys if not key.startswith(cls.heads)]
        if missing or keys.unexpected_keys:
            raise CheckpointError(
                f"{cls.__name__}.from_pretrained: {path!r} lacks {missing[:5]} and has "
                f"{keys.unexpected_keys[:5]} besides; is it another model's?"
            )
        if keys.missing_keys:
            warnings.warn(
                f"{cls.__name__}: {path!r} has no {', '.join(keys.missing_keys)}; they start with "
                "random values, so train before use",
                stacklevel=2,
            )
            model.to(next(iter(tensors.values())).dtype)
        return model.eval()

    def save_pretrained(self, path: Any, *, max_shard_size: int = 5_000_000_000) -> None:
        """Write the directory that `from_pretrained` reads, here and in transformers.

        Errors: OSError where it cannot be written.
        Source: https://huggingface.co/docs/transformers/main_classes/model

        >>> import os, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> config = ad.models.GPT2Config(
        ...     vocab_size=10, n_positions=8, n_embd=4, n_layer=1, n_head=2)
        >>> ad.models.GPT2(config).save_pretrained(directory)
        >>> sorted(os.listdir(directory))
        ['config.json', 'model.safetensors']
        """
        path = os.fspath(path)
        kind = next(self.parameters()).dtype.name
        values = {"architectures": [self.architecture], "dtype": kind, **self.config.to_dict()}
        config = os.path.join(path, "config.json")

        def remove_config() -> None:
            """Where what follows fails, no other model's settings are read beside the weights."""
            with contextlib.suppress(FileNotFoundError):
                os.unlink(config)

        saved_sharded(self.state_dict(), path, max_shard_size, before=remove_config)
        with replacing(config) as file:
            file.write(json.dumps(values, indent=2).encode())

    def _under_own_names(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors of a file of this family: the shared part may have a prefix or none."""
        own = self.state_dict().keys()
        prefix = self.base + "."
        inside = any(key.startswith(prefix) for key in tensors)
        if inside and not any(key.startswith(prefix) for key in own):
            named = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
        elif not inside:
            named = {k if k in own else prefix + k: t for k, t in tensors.items()}
        else:  # other models' heads lie outside of the shared part
            named = {k: t for k, t in tensors.items() if k in own or k.startswith(prefix)}
        heads = (*self.heads, prefix + "pooler.")
        return {
            key: tensor
            for key, tensor in named.items()
            if key in own or not (key.endswith(self.ignored) or key.startswith(heads))
        }


def _read_config(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        raw = file.read(MAX_CONFIG + 1)
    try:
        values = json.loads(raw.decode()) if len(raw) <= MAX_CONFIG else None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"load: {path!r} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"load: {path!r} holds no config")
    return values


def head_size(width: int, heads: int, name: str) -> int:
    """The width of one attention head."""
    if heads < 1 or width % heads:
        raise InvalidArgument(f"{name}: width {width} does not divide into {heads} heads")
    return width // heads
