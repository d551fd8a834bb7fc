"""PyTorch's `op_db` through `ad.compile`: values and gradients are those of eager execution, or the
capture is refused for a reason that is listed.
"""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

import adjoint as ad
from adjoint.core.errors import Unsupported
from tests.native import needs_native

from ..compiler.agreement import assert_equal, error_of
from ..sweep import one_in, spread
from . import op_db

pytestmark = needs_native

# What depends on values or on memory by its nature, or is given what no tensor can be.
REASONS = (
    "the function writes to an argument", "the function calls",
    "the function returned a", "changes Python's own state", "random numbers by another way",
    "as_strided: setStorage",  # of a part of memory: arguments have none beyond themselves
    "as_strided: of memory from outside", "as_strided: of what is computed from a tensor that",
    "a write to windows",  # in which an element may stand twice
    "sparse tensors are computed with eagerly alone",
    "is computed eagerly alone",  # SciPy's LDL
)  # fmt: skip
READS = "reads a value"  # only of entries of which that is the nature
# A number for Python; a size that values decide; the ends of a range; which rows are looked up.
READING = {
    "allclose", "equal", "item",
    "argwhere", "bincount", "index_put", "linalg.lstsq", "linalg.lstsq/grad_oriented",
    "masked_scatter", "masked_select", "nn.functional.one_hot", "nonzero", "nonzero_static",
    "repeat_interleave", "tensor_split", "unique", "unique_consecutive",
    "_segment_reduce/lengths", "_segment_reduce/offsets", "histc", "histogram", "histogramdd",
    "linspace/tensor_overload", "logspace/tensor_overload", "resize_",
    "nn.functional.embedding", "nn.functional.embedding_bag",
}  # fmt: skip
SAMPLES = 3  # of each entry


def outcome(function, values, kwargs):
    """Results, and gradients of all that may have some."""
    found = function(*values, **kwargs)
    ends = [y for y in op_db.tensors_in(found) if y.requires_grad]
    wanted = [x for x in op_db.tensors_in((values, kwargs)) if x.requires_grad]
    gradients = []
    if ends and wanted:
        seeds = [(ad.arange(y.numel(), dtype=ad.float64) * 0.37 + 0.5).cos() for y in ends]
        seeds = [g.reshape(y.shape).to(y.dtype) for g, y in zip(seeds, ends, strict=True)]
        gradients = list(ad.autograd.grad(ends, wanted, seeds, allow_unused=True))
    return found, gradients


def plain(found):
    """Named tuples as tuples."""
    if isinstance(found, (list, tuple)):
        return [plain(x) for x in found]
    return found


@pytest.mark.parametrize("name", one_in(25, sorted(op_db.entries())))
def test_an_entry_compiled(name):
    entry = op_db.entries()[name]
    try:
        function = op_db.resolve(entry)
    except op_db.Missing:
        pytest.skip("a gap of op_db_gaps.txt")
    dtype = next(iter(op_db.check_dtypes(entry)), None)
    if dtype is None:
        pytest.skip("no dtype that is compared")
    wants = entry.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    compiled = ad.compile(lambda *values, **kwargs: function(*values, **kwargs))
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = entry.sample_inputs("cpu", dtype, requires_grad=wants)
        for count, sample in enumerate(spread(samples, SAMPLES)):
            given = op_db.as_leaves((sample.input, *sample.args)), op_db.as_leaves(sample.kwargs)
            values, kwargs = op_db.to_ours(given)
            torch.manual_seed(count)  # some samples draw by it
            ad.manual_seed(count)
            expected, error = error_of(outcome, function, values, kwargs)
            if error is not None or name in op_db.UNINITIALISED:
                continue  # the gaps of eager execution are listed elsewhere
            ad.manual_seed(count)
            found, error = error_of(outcome, compiled, values, kwargs)
            if isinstance(error, (Unsupported, ad.AdjointError, TypeError)):
                reasons = (*REASONS, READS) if name in READING else REASONS
                assert any(each in str(error) for each in reasons), (name, str(error))
                continue
            assert error is None, (name, repr(error))
            assert_equal(plain(found), plain(expected), 1e-6, f"{name}, sample {count}")
