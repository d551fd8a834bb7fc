"""The arguments of every function, as the standard writes them, and the names of the namespace."""

from __future__ import annotations

import inspect

import pytest

# From the standard's pages, annotations left out. What follows a function's name is its page.
MAIN = """
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
asarray(obj, /, *, dtype=None, device=None, copy=None)
empty(shape, *, dtype=None, device=None)
empty_like(x, /, *, dtype=None, device=None)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
from_dlpack(x, /, *, device=None, copy=None)
full(shape, fill_value, *, dtype=None, device=None)
full_like(x, /, fill_value, *, dtype=None, device=None)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
meshgrid(*arrays, indexing='xy')
ones(shape, *, dtype=None, device=None)
ones_like(x, /, *, dtype=None, device=None)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
zeros(shape, *, dtype=None, device=None)
zeros_like(x, /, *, dtype=None, device=None)
astype(x, dtype, /, *, copy=True, device=None)
can_cast(from_, to, /)
finfo(type, /)
iinfo(type, /)
isdtype(dtype, kind)
result_type(*arrays_and_dtypes)
clip(x, /, min=None, max=None)
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
__array_namespace_info__()
matmul(x1, x2, /)
matrix_transpose(x, /)
tensordot(x1, x2, /, *, axes=2)
vecdot(x1, x2, /, *, axis=-1)
broadcast_arrays(*arrays)
broadcast_to(x, /, shape)
concat(arrays, /, *, axis=0)
expand_dims(x, /, axis)
flip(x, /, *, axis=None)
moveaxis(x, source, destination, /)
permute_dims(x, /, axes)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
roll(x, /, shift, *, axis=None)
squeeze(x, /, axis)
stack(arrays, /, *, axis=0)
tile(x, repetitions, /)
unstack(x, /, *, axis=0)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
count_nonzero(x, /, *, axis=None, keepdims=False)
nonzero(x, /)
searchsorted(x1, x2, /, *, side='left', sorter=None)
where(condition, x1, x2, /)
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
argsort(x, /, *, axis=-1, descending=False, stable=True)
sort(x, /, *, axis=-1, descending=False, stable=True)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
min(x, /, *, axis=None, keepdims=False)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
"""
UNARY = """
abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite
isinf isnan log log10 log1p log2 logical_not negative positive real reciprocal round sign signbit
sin sinh sqrt square tan tanh trunc
"""
BINARY = """
add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide
equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or
logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract
"""
LINALG = """
cholesky(x, /, *, upper=False)
cross(x1, x2, /, *, axis=-1)
det(x, /)
diagonal(x, /, *, offset=0)
eigh(x, /)
eigvalsh(x, /)
inv(x, /)
matmul(x1, x2, /)
matrix_norm(x, /, *, keepdims=False, ord='fro')
matrix_power(x, n, /)
matrix_rank(x, /, *, rtol=None)
matrix_transpose(x, /)
outer(x1, x2, /)
pinv(x, /, *, rtol=None)
qr(x, /, *, mode='reduced')
slogdet(x, /)
solve(x1, x2, /)
svd(x, /, *, full_matrices=True)
svdvals(x, /)
tensordot(x1, x2, /, *, axes=2)
trace(x, /, *, offset=0, dtype=None)
vecdot(x1, x2, /, *, axis=-1)
vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
"""
FFT = """
fft(x, /, *, n=None, axis=-1, norm='backward')
ifft(x, /, *, n=None, axis=-1, norm='backward')
fftn(x, /, *, s=None, axes=None, norm='backward')
ifftn(x, /, *, s=None, axes=None, norm='backward')
rfft(x, /, *, n=None, axis=-1, norm='backward')
irfft(x, /, *, n=None, axis=-1, norm='backward')
rfftn(x, /, *, s=None, axes=None, norm='backward')
irfftn(x, /, *, s=None, axes=None, norm='backward')
hfft(x, /, *, n=None, axis=-1, norm='backward')
ihfft(x, /, *, n=None, axis=-1, norm='backward')
fftfreq(n, /, *, d=1.0, dtype=None, device=None)
rfftfreq(n, /, *, d=1.0, dtype=None, device=None)
fftshift(x, /, *, axes=None)
ifftshift(x, /, *, axes=None)
"""
CONSTANTS = ("e", "inf", "nan", "newaxis", "pi")
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip

TABLE = [
    *(("", line) for line in MAIN.split("\n") if line),
    *(("", f"{name}(x, /)") for name in UNARY.split()),
    *(("", f"{name}(x1, x2, /)") for name in BINARY.split()),
    *(("linalg", line) for line in LINALG.split("\n") if line),
    *(("fft", line) for line in FFT.split("\n") if line),
]
INFO = (
    "capabilities()", "default_device()", "default_dtypes(*, device=None)", "devices()",
    "dtypes(*, device=None, kind=None)",
)  # fmt: skip


def signature_of(text):
    """The signature that a line of the table writes down."""
    names = {}
    exec(f"def {text}: ...", names)  # from our own table
    return inspect.signature(names[text.partition("(")[0]])


def shape_of(signature):
    """Names, kinds and defaults; the name of a positional-only argument is nobody's business."""
    return [
        ("" if p.kind is p.POSITIONAL_ONLY else p.name, p.kind, p.default)
        for p in signature.parameters.values()
    ]


@pytest.mark.parametrize(("extension", "line"), TABLE, ids=lambda value: value.partition("(")[0])
def test_arguments(ours, extension, line):
    name = line.partition("(")[0]
    home = getattr(ours, extension) if extension else ours
    assert shape_of(inspect.signature(getattr(home, name))) == shape_of(signature_of(line))
    assert name in home.__all__


@pytest.mark.parametrize("line", INFO)
def test_arguments_of_the_inspection_object(ours, line):
    method = getattr(ours.__array_namespace_info__(), line.partition("(")[0])
    assert shape_of(inspect.signature(method)) == shape_of(signature_of(line))


def test_the_table_is_right_for_array_api_strict(request):
    """The peer has newer versions' arguments in a few places; everything else must be equal."""
    strict = pytest.importorskip("array_api_strict")
    unlike = []
    for extension, line in TABLE:
        name = line.partition("(")[0]
        home = getattr(strict, extension) if extension else strict
        if shape_of(inspect.signature(getattr(home, name))) != shape_of(signature_of(line)):
            unlike.append(name)
    assert unlike == ["from_dlpack", "astype"]  # "not given" in place of None


def test_namespace_holds_what_the_standard_names_and_nothing_else(ours):
    main = [line.partition("(")[0] for extension, line in TABLE if not extension]
    expected = {*main, *CONSTANTS, *DTYPES, "linalg", "fft", "__array_api_version__"}
    assert set(ours.__all__) == expected
    assert len(ours.__all__) == len(expected)
    for extension in ("linalg", "fft"):
        names = {line.partition("(")[0] for home, line in TABLE if home == extension}
        assert set(getattr(ours, extension).__all__) == names
    assert ours.__array_api_version__ == "2024.12"
    assert all(hasattr(ours, name) for name in expected)


def test_constants(ours):
    import math

    assert (ours.e, ours.pi, ours.inf, ours.newaxis) == (math.e, math.pi, math.inf, None)
    assert math.isnan(ours.nan)


def test_count_of_functions():
    names = {(extension, line.partition("(")[0]) for extension, line in TABLE}
    assert len(TABLE) == len(names) == 134 + 23 + 14
