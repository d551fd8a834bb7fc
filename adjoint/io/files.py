"""`save` and `load` for every format: by a path's extension, and by what a file holds."""

from __future__ import annotations

import os
from typing import Any

from ..core.errors import CheckpointError, Unsupported
from ..runtime.public import naming
from .placement import place  # the formats are imported when first met

_PYTORCH = (".pt", ".pth")


def save(obj: Any, f: Any) -> None:
    """Write tensors and the containers around them to one file.

    Takes nested dicts, lists and tuples of tensors, None, bool, int, float, complex, str, bytes,
    and NumPy's numbers and arrays (of which `.pt` files hold Python's numbers, and no arrays).
    Tensors that share memory still share it when loaded. A path's extension says the format:

    - `.pt`, `.pth`: PyTorch's, as `torch.load(weights_only=True)` reads it; also whole modules and
      other objects, under PyTorch's names of its classes, which need `weights_only=False` to be
      read (with hooks, which are stored by their names: `serialization.trust`, too);
    - `.npz`: NumPy's, a dict of tensors;
    - anything else, and file objects: safetensors, with the structure in its metadata.

    The file is written to a temporary file first and then renamed, so that a crash leaves the old
    one whole. To go on with training later exactly where it was: `utils.Checkpoint`.

    Dtypes: all.
    Errors: InvalidType for other values (with their path: lambdas, open files, generators), OSError
    where the file cannot be written.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.save.html

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
    >>> ad.save({"w": ad.ones(2), "step": 3}, path)
    >>> ad.load(path)
    {'w': tensor([1., 1.]), 'step': 3}
    """
    extension = ""
    if isinstance(f, (str, os.PathLike)):
        extension = os.path.splitext(os.fsdecode(os.fspath(f)))[1].lower()
    if extension in _PYTORCH:
        from .atomic import replacing
        from .pytorch_file import write_pytorch

        with replacing(os.fspath(f)) as file:
            write_pytorch(obj, file)
    elif extension == ".npz":
        from .npz import save_npz

        save_npz(obj, f)
    else:
        from . import checkpoint

        checkpoint.save(obj, f)


@naming
def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
) -> Any:
    """Read a model file of any format, which its content tells, not its name.

    What `save` wrote comes back as it was. PyTorch's files (`.pt`, `.pth`) are read without
    PyTorch. With `weights_only=False` they may hold modules whose classes are imported already,
    and records such as `argparse.Namespace`; classes of other objects are allowed one by one
    (`adjoint.serialization.safe_globals`), or the file is trusted. safetensors files of
    other tools give a dict of tensors, and so does a directory of shards, or its
    `model.safetensors.index.json`; so does `.npz`.

    Loading runs no code that the file names, whatever `weights_only` says, but inside of
    `adjoint.serialization.trust(path)`; it is read as a whole, whatever `mmap` says.
    `map_location` says where the tensors go: a device, a dict of names of devices, a function of a
    tensor and the name of its device; without it, to where they were saved from (PyTorch's and
    other tools' files: the CPU).

    Errors: CheckpointError for a file that is truncated, corrupt, of a newer version, or names what
    only a program could need; FileNotFoundError where there is none; Unsupported for a
    `pickle_module` but Python's own.
    Source: https://docs.pytorch.org/docs/stable/generated/torch.load.html

    >>> import io
    >>> file = io.BytesIO()
    >>> ad.save([ad.zeros(1), "text"], file)
    >>> _ = file.seek(0)
    >>> ad.load(file)
    [tensor([0.]), 'text']
    """
    from .others import refuse_others
    from .source import named, opened

    if getattr(pickle_module, "__name__", "pickle") != "pickle":
        raise Unsupported(
            f"load: pickle_module={pickle_module!r}; files are read by adjoint's own reader, which "
            "runs no programs"
        )

    if isinstance(f, (str, os.PathLike)):
        path = os.fsdecode(os.fspath(f))
        if os.path.isdir(path) or path.endswith(".index.json"):
            from .sharded import load_sharded

            return place(load_sharded(path), map_location)
    weights_only = weights_only is not False
    with opened(f) as source:
        head = source.head(64)
        refuse_others(f, head)
        is_safetensors = head[8:9] == b"{"
        if not is_safetensors and (head[:2] == b"PK" or head[:1] == b"\x80"):
            with named(source):
                read = _read_zip if head[:2] == b"PK" else _read_pickle
                value = read(source, head, f, weights_only)
            return place(value, map_location)
        if source.is_copy:
            source.file.seek(0)
            f = source.file
        from . import checkpoint

        return checkpoint.load(f, map_location)


def _read_pickle(source: Any, head: bytes, f: Any, weights_only: bool) -> Any:
    from .pytorch_file import is_legacy, read_legacy, reader_for

    if not is_legacy(head):
        raise CheckpointError(
            "the file is a pickle that PyTorch did not write; unpickle it where you trust it, and "
            "write its arrays with adjoint.save or numpy.savez"
        )
    return read_legacy(source, reader_for(f, weights_only))


def _read_zip(source: Any, head: bytes, f: Any, weights_only: bool) -> Any:
    from .npz import read_npz
    from .others import refuse_programs
    from .pytorch_file import read_pytorch, reader_for
    from .zip_archive import Archive

    archive = Archive(source)
    refuse_programs(archive.members)
    if any(name.endswith(".npy") for name in archive.members):
        return read_npz(archive)
    return read_pytorch(archive, reader_for(f, weights_only))
