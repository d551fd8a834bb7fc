"""oneDNN's C API through ctypes: loading, memory descriptors, primitives, errors.

Nothing is loaded before the first use; `unavailable()` says why oneDNN cannot be used here. The
library runs every primitive on the thread that calls it: `onednn_plan` hands out the parts.
Source: https://uxlfoundation.github.io/oneDNN/v3.2/ (the constants are those of dnnl_types.h)
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from typing import Any, NamedTuple

from ....core import config, fork_safety, policy
from ....core.errors import AdjointError, Unsupported

PACKAGE = "onednn-cpu-gomp"
FILE = "libdnnl.so"
MAJOR = 3  # the version of the interface declared here
RUNTIMES = (1, 2)  # sequential and OpenMP: those that can run on the calling thread alone

MAX_DIMS = 12
DATA_TYPES = {"bfloat16": 2, "float32": 3}
FORMAT_ANY = 1
# aBc8b, aBc16b and so on, by dimensions and channels in a block
_BLOCKS = {(3, 8): 69, (3, 16): 56, (4, 8): 102, (4, 16): 78, (5, 8): 142, (5, 16): 121}
INFERENCE, TRAINING = 96, 64
CONVOLUTION_DIRECT, DECONVOLUTION_DIRECT = 1, 0xA
POOL_MAX, POOL_AVERAGE = 0x1FF, 0x2FF  # the average with padding counted
LINEAR, REDUCTION_SUM, BINARY_ADD = 0x26, 0x2FFF4, 0x1FFF0
QUERY_IMPLEMENTATION = 8
QUERY_WORKSPACE, QUERY_SCRATCHPAD, QUERY_ARGUMENT = 135, 136, 255
# arguments of an execution
SRC, DST, WEIGHTS, BIAS, WORKSPACE, SCRATCHPAD = 1, 17, 33, 41, 64, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 129, 145, 161
MULTIPLE = 1024  # the first of several sources
POST_OPERAND, POST_OPERANDS = 32770, 32768  # of the first operation that follows; to the next
Activation = tuple[int, float, float]  # algorithm, alpha, beta
ACTIVATIONS: dict[str, Activation] = {
    "relu": (0x20, 0.0, 0.0),
    "tanh": (0x21, 0.0, 0.0),
    "elu": (0x22, 1.0, 0.0),
    "sigmoid": (0x29, 0.0, 0.0),
    "gelu_tanh": (0x2B, 0.0, 0.0),
    "silu": (0x2C, 1.0, 0.0),
    "gelu": (0x31, 0.0, 0.0),
}
_UNIMPLEMENTED = 3


class LibraryError(AdjointError, RuntimeError):
    """oneDNN refused or failed."""


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    )


class ExecutionArgument(ctypes.Structure):
    """`dnnl_exec_arg_t`."""

    _fields_ = (("argument", c_int), ("memory", c_void_p))


_OUT = POINTER(c_void_p)
_DIMS = c_int64 * MAX_DIMS
_PADDED = (_DIMS,) * 4  # strides, dilates, padding before, padding after
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "dnnl_engine_create": (_OUT, c_int, c_size_t),
    "dnnl_stream_create": (_OUT, c_void_p, c_uint),
    "dnnl_memory_desc_create_with_strides": (_OUT, c_int, _DIMS, c_int, _DIMS),
    "dnnl_memory_desc_create_with_tag": (_OUT, c_int, _DIMS, c_int, c_int),
    "dnnl_memory_desc_create_submemory": (_OUT, c_void_p, _DIMS, _DIMS),
    "dnnl_memory_desc_clone": (_OUT, c_void_p),
    "dnnl_memory_desc_destroy": (c_void_p,),
    "dnnl_memory_create": (_OUT, c_void_p, c_void_p, c_void_p),
    "dnnl_memory_set_data_handle": (c_void_p, c_void_p),
    "dnnl_memory_destroy": (c_void_p,),
    "dnnl_primitive_attr_create": (_OUT,),
    "dnnl_primitive_attr_set_scratchpad_mode": (c_void_p, c_int),
    "dnnl_primitive_attr_set_post_ops": (c_void_p, c_void_p),
    "dnnl_primitive_attr_destroy": (c_void_p,),
    "dnnl_post_ops_create": (_OUT,),
    "dnnl_post_ops_append_eltwise": (c_void_p, c_int, c_float, c_float),
    "dnnl_post_ops_append_binary": (c_void_p, c_int, c_void_p),
    "dnnl_post_ops_destroy": (c_void_p,),
    "dnnl_primitive_desc_query": (c_void_p, c_int, c_int, c_void_p),
    "dnnl_primitive_desc_next_impl": (c_void_p,),
    "dnnl_primitive_desc_destroy": (c_void_p,),
    "dnnl_primitive_create": (_OUT, c_void_p),
    "dnnl_primitive_execute": (c_void_p, c_void_p, c_int, c_void_p),
    "dnnl_primitive_destroy": (c_void_p,),
    "dnnl_reorder_primitive_desc_create": (_OUT, *(c_void_p,) * 5),
    "dnnl_sum_primitive_desc_create": (
        *(_OUT, c_void_p, c_void_p, c_int, POINTER(c_float), _OUT, c_void_p),
    ),
    "dnnl_eltwise_forward_primitive_desc_create": (
        *(_OUT, c_void_p, c_int, c_int, c_void_p, c_void_p, c_float, c_float, c_void_p),
    ),
    "dnnl_reduction_primitive_desc_create": (
        *(_OUT, c_void_p, c_int, c_void_p, c_void_p, c_float, c_float, c_void_p),
    ),
    "dnnl_matmul_primitive_desc_create": (_OUT, *(c_void_p,) * 6),
    "dnnl_convolution_forward_primitive_desc_create": (
        *(_OUT, c_void_p, c_int, c_int, *(c_void_p,) * 4, *_PADDED, c_void_p),
    ),
    "dnnl_deconvolution_forward_primitive_desc_create": (
        *(_OUT, c_void_p, c_int, c_int, *(c_void_p,) * 4, *_PADDED, c_void_p),
    ),
    "dnnl_convolution_backward_data_primitive_desc_create": (
        *(_OUT, c_void_p, c_int, *(c_void_p,) * 3, *_PADDED, c_void_p, c_void_p),
    ),
    "dnnl_convolution_backward_weights_primitive_desc_create": (
        *(_OUT, c_void_p, c_int, *(c_void_p,) * 4, *_PADDED, c_void_p, c_void_p),
    ),
    "dnnl_pooling_forward_primitive_desc_create": (
        *(_OUT, c_void_p, c_int, c_int, c_void_p, c_void_p, *(_DIMS,) * 5, c_void_p),
    ),
    "dnnl_pooling_backward_primitive_desc_create": (
        *(_OUT, c_void_p, c_int, c_void_p, c_void_p, *(_DIMS,) * 5, c_void_p, c_void_p),
    ),
}


class Library:
    """The loaded library, its one CPU engine, and a guard for what its own locks do not survive.

    `lock` is held whenever oneDNN builds something; a fork waits for it, so that a child never
    inherits oneDNN's primitive cache in the middle of a change.
    """

    def __init__(self, path: str) -> None:
        # Its own libgomp and its own symbols, whatever PyTorch or another library has loaded.
        mode = os.RTLD_LOCAL | os.RTLD_NOW | getattr(os, "RTLD_DEEPBIND", 0)
        self.path = path
        self.dll = ctypes.CDLL(path, mode=mode)
        self.version, runtime = self._version()
        if int(self.version.split(".")[0]) != MAJOR or runtime not in RUNTIMES:
            raise OSError(f"version {self.version} with CPU runtime {runtime} is not supported")
        for name, arguments in _SIGNATURES.items():
            function = getattr(self.dll, name)
            function.argtypes, function.restype = arguments, c_int
        self.dll.dnnl_status2str.argtypes = (c_int,)
        self.dll.dnnl_status2str.restype = c_char_p
        self.dll.dnnl_memory_desc_get_size.argtypes = (c_void_p,)
        self.dll.dnnl_memory_desc_get_size.restype = c_size_t
        self.dll.dnnl_primitive_desc_query_md.argtypes = (c_void_p, c_int, c_int)
        self.dll.dnnl_primitive_desc_query_md.restype = c_void_p
        self.threads = self._threads() if runtime == 2 else None
        self.lock = fork_safety.lock()
        engine = c_void_p()
        self.check(self.dll.dnnl_engine_create(byref(engine), 1, 0), "making an engine")
        kept = self.dll.dnnl_set_primitive_cache_capacity(policy.ONEDNN_PRIMITIVES)
        self.check(kept, "keeping primitives")
        self.engine = engine

    def _version(self) -> tuple[str, int]:
        self.dll.dnnl_version.restype = POINTER(_Version)
        v = self.dll.dnnl_version().contents
        return f"{v.major}.{v.minor}.{v.patch}", int(v.cpu_runtime)

    def _threads(self) -> tuple[Any, Any]:
        """OpenMP's functions that set and get the calling thread's number of threads."""
        set_threads, get_threads = self.dll.omp_set_num_threads, self.dll.omp_get_max_threads
        set_threads.argtypes, set_threads.restype = (c_int,), None
        get_threads.argtypes, get_threads.restype = (), c_int
        return set_threads, get_threads

    def check(self, status: int, what: object) -> None:
        """Turn a status other than success into an error that says what failed."""
        if status == _UNIMPLEMENTED:
            raise Unsupported(f"{what}: not implemented by oneDNN {self.version}; use NumPy's")
        if status:
            raise LibraryError(f"{what}: oneDNN says {self.word(status)}")

    def word(self, status: int) -> str:
        """The library's name of a status."""
        return str(self.dll.dnnl_status2str(status).decode())

    def make(self, name: str, what: object, *arguments: Any) -> c_void_p:
        """Call a function whose first argument is where it puts a new object. What it is becomes
        text in an error only: a plan takes a hundred of these calls.
        """
        result = c_void_p()
        status = getattr(self.dll, name)(byref(result), *arguments)
        if status:
            self.check(status, what)
        return result


class single_threaded:  # noqa: N801 - reads as what it does
    """A block in which oneDNN holds its lock and plans for one thread."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def __enter__(self) -> None:
        self.library.lock.acquire()
        if self.library.threads:
            set_threads, get_threads = self.library.threads
            self.before = get_threads()
            set_threads(1)

    def __exit__(self, *exc: Any) -> None:
        if self.library.threads:
            self.library.threads[0](self.before)
        self.library.lock.release()


_loaded: Library | str | None = None
_loading = fork_safety.lock()


def _path() -> str:
    wanted = config.read("ADJOINT_ONEDNN")
    if wanted == "off":
        raise OSError("switched off by ADJOINT_ONEDNN=off")
    if wanted != "auto":
        return wanted
    try:
        files = importlib.metadata.files(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise OSError(f"not installed; pip install {PACKAGE}") from None
    for file in files or ():
        if file.name == FILE:
            return str(file.locate())
    raise OSError(f"the package {PACKAGE} has no {FILE}")


def _load() -> Library | str:
    global _loaded
    with _loading:
        if _loaded is None:
            try:
                _loaded = Library(_path())
            except (OSError, AttributeError, AdjointError) as error:
                _loaded = str(error)
    return _loaded


def unavailable() -> str | None:
    """The reason why oneDNN cannot be used here, or None where it can.

    >>> from adjoint.backends.native.onednn import api as onednn
    >>> onednn.unavailable() is None or isinstance(onednn.unavailable(), str)
    True
    """
    loaded = _loaded or _load()
    return loaded if isinstance(loaded, str) else None


def library() -> Library:
    """The library, loaded on first use.

    Errors: Unsupported where it is missing or cannot be loaded; the message says why.
    """
    loaded = _loaded or _load()
    if isinstance(loaded, str):
        raise Unsupported(f"oneDNN: {loaded}; NumPy is used instead")
    return loaded


class _Owned:
    """A handle that is destroyed with this object."""

    destroy: str

    def __init__(self, handle: c_void_p) -> None:
        self.handle = handle

    def __del__(self) -> None:
        if self.handle and isinstance(_loaded, Library):
            getattr(_loaded.dll, self.destroy)(self.handle)


class _MemoryName(NamedTuple):
    """Name of a memory in errors."""

    shape: Sequence[int]
    rest: str = ""
    numbers: Sequence[int] | int | str = ""

    def __str__(self) -> str:
        numbers = self.numbers if isinstance(self.numbers, (int, str)) else tuple(self.numbers)
        return f"memory of shape {tuple(self.shape)}{self.rest}{numbers}"


class Descriptor(_Owned):
    """Shape, type and layout of a memory; `any_layout` leaves the layout to the primitive."""

    destroy = "dnnl_memory_desc_destroy"

    @property
    def size(self) -> int:
        """Bytes."""
        return int(library().dll.dnnl_memory_desc_get_size(self.handle))

    def part(self, shape: Sequence[int], offsets: Sequence[int]) -> Descriptor:
        """A rectangle of this memory; where the layout is blocked, at the blocks' borders."""
        handle = library().make(
            "dnnl_memory_desc_create_submemory",
            f"part {tuple(shape)} at {tuple(offsets)}",
            self.handle,
            _DIMS(*shape),
            _DIMS(*offsets),
        )
        return Descriptor(handle)


class _Lent(Descriptor):
    """The memory of a primitive's argument, which the primitive's description keeps."""

    def __init__(self, handle: c_void_p, owner: _Owned) -> None:
        super().__init__(handle)
        self.owner = owner

    def __del__(self) -> None:
        """Nothing to destroy: the owner does."""


@functools.cache
def data_type(dtype: Any) -> int:
    """oneDNN's number of a NumPy dtype."""
    number = DATA_TYPES.get(dtype.name)
    if number is None:
        raise Unsupported(f"oneDNN for {dtype.name}; use NumPy's function")
    return number


def described(shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Descriptor:
    """A memory of this shape and these strides, in elements."""
    if not shape or len(shape) > MAX_DIMS:
        raise Unsupported(f"oneDNN for {len(shape)} dimensions; use NumPy's function")
    handle = library().make(
        "dnnl_memory_desc_create_with_strides",
        _MemoryName(shape, " and strides ", strides),
        len(shape),
        _DIMS(*shape),
        data_type(dtype),
        _DIMS(*strides),
    )
    return Descriptor(handle)


def contiguous(shape: Sequence[int], dtype: Any) -> Descriptor:
    """A memory of this shape in row-major order."""
    return described(shape, contiguous_strides(shape), dtype)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of row-major order, in elements."""
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def any_layout(shape: Sequence[int], dtype: Any) -> Descriptor:
    """A memory whose layout the primitive chooses."""
    handle = library().make(
        "dnnl_memory_desc_create_with_tag",
        _MemoryName(shape),
        len(shape),
        _DIMS(*shape),
        data_type(dtype),
        FORMAT_ANY,
    )
    return Descriptor(handle)


def in_blocks(shape: Sequence[int], block: int, dtype: Any) -> Descriptor:
    """A memory of images (n, channels, *size) as (n, channels / block, *size, block)."""
    tag = _BLOCKS.get((len(shape), block))
    if tag is None:
        raise Unsupported(f"oneDNN for {len(shape)} dimensions in blocks of {block}")
    handle = library().make(
        "dnnl_memory_desc_create_with_tag",
        _MemoryName(shape, " in blocks of ", block),
        len(shape),
        _DIMS(*shape),
        data_type(dtype),
        tag,
    )
    return Descriptor(handle)


class Description(_Owned):
    """A primitive to be: what it does, by which implementation, on which memories."""

    destroy = "dnnl_primitive_desc_destroy"

    def __init__(self, handle: c_void_p, what: object, implementation: str) -> None:
        super().__init__(handle)
        self.what, self.implementation = what, implementation

    def memory(self, query: int, index: int) -> Descriptor:
        """A memory that it asks for, which keeps this description."""
        handle = library().dll.dnnl_primitive_desc_query_md(self.handle, query, index)
        return _Lent(c_void_p(handle), self)


class Primitive(_Owned):
    """An operation compiled for given memories; several threads may execute it at once.

    `memory(SRC)` and its like describe what it reads and writes.
    """

    destroy = "dnnl_primitive_destroy"

    def __init__(self, description: Description) -> None:
        self.description = description
        handle = library().make("dnnl_primitive_create", description.what, description.handle)
        super().__init__(handle)

    @property
    def implementation(self) -> str:
        """Name of the library's implementation."""
        return self.description.implementation

    def memory(self, argument: int) -> Descriptor:
        """The memory that an argument of the execution needs."""
        return self.description.memory(QUERY_ARGUMENT, argument)

    def optional(self, query: int) -> Descriptor | None:
        """The workspace or the scratchpad, None where there is none."""
        descriptor = self.description.memory(query, 0)
        return descriptor if descriptor.size else None


def _implementation(description: Any) -> str:
    result = c_char_p()
    library().dll.dnnl_primitive_desc_query(description, QUERY_IMPLEMENTATION, 0, byref(result))
    return (result.value or b"").decode()


def same_layout(a: Descriptor, b: Descriptor) -> bool:
    """Whether two memories are laid out alike."""
    return bool(library().dll.dnnl_memory_desc_equal(a.handle, b.handle))


class _Attributes(_Owned):
    """Scratch memory is the caller's; activations, and sums with other memories, may follow."""

    destroy = "dnnl_primitive_attr_destroy"

    def __init__(self, following: Sequence[Activation | Descriptor], what: object) -> None:
        lib = library()
        super().__init__(lib.make("dnnl_primitive_attr_create", what))
        lib.check(lib.dll.dnnl_primitive_attr_set_scratchpad_mode(self.handle, 1), what)
        if not following:
            return
        post = lib.make("dnnl_post_ops_create", what)
        try:
            for each in following:
                if isinstance(each, Descriptor):
                    arguments = (post, BINARY_ADD, each.handle)
                    lib.check(lib.dll.dnnl_post_ops_append_binary(*arguments), what)
                else:
                    lib.check(lib.dll.dnnl_post_ops_append_eltwise(post, *each), what)
            lib.check(lib.dll.dnnl_primitive_attr_set_post_ops(self.handle, post), what)
        finally:
            lib.dll.dnnl_post_ops_destroy(post)


def primitive(kind: str, what: object, *arguments: Any, **options: Any) -> Primitive:
    """Build a primitive, as `described_by` describes it."""
    return Primitive(described_by(kind, what, *arguments, **options))


def described_by(
    kind: str,
    what: object,
    *arguments: Any,
    activation: Activation | None = None,
    following: Sequence[Activation | Descriptor] = (),
    prefer: str = "",
    refuse: str = "ref",
) -> Description:
    """Describe a primitive: `kind` as in dnnl_<kind>_primitive_desc_create, then the activation, or
    the operations `following`: activations, and memories that are added (arguments POST_OPERAND,
    + POST_OPERANDS for each operation before).

    The first implementation is taken whose name begins with `prefer`, else the first; one whose
    name begins with `refuse` counts as none. Descriptors among `arguments` stand for their handles.
    """
    lib = library()
    attributes = _Attributes([activation] if activation else following, what)
    handles = [a.handle if isinstance(a, _Owned) else a for a in arguments]
    create = f"dnnl_{kind}_primitive_desc_create"
    description = lib.make(create, what, *handles, attributes.handle)
    implementation = _implementation(description)
    if prefer and not implementation.startswith(prefer):
        other = lib.make(create, what, *handles, attributes.handle)
        while not lib.dll.dnnl_primitive_desc_next_impl(other):
            if _implementation(other).startswith(prefer):
                description, other = other, description
                break
        lib.dll.dnnl_primitive_desc_destroy(other)
        implementation = _implementation(description)
    if implementation.startswith(refuse):
        lib.dll.dnnl_primitive_desc_destroy(description)
        raise Unsupported(f"{what}: no fast implementation in oneDNN {lib.version}; use NumPy's")
    return Description(description, what, implementation)


def dims(sizes: Sequence[int]) -> Any:
    """Sizes as the library takes them."""
    return _DIMS(*sizes)


def reorder(source: Descriptor, target: Descriptor, what: object) -> Description:
    """Copies a memory into another layout."""
    engine = library().engine
    return described_by("reorder", what, source, engine, target, engine, refuse="none")


def sum_of(target: Descriptor, sources: Sequence[Descriptor], what: object) -> Primitive:
    """The sum of memories, in their order."""
    count = len(sources)
    handles = (c_void_p * count)(*(s.handle for s in sources))
    scales = (c_float * count)(*(1.0,) * count)
    return primitive("sum", what, library().engine, target, count, scales, handles)
