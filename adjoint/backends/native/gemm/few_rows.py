"""Products of one to four rows, or of one column: which they are, and how threads share them.

Their time is that of reading the other matrix, the weight. Machine code reads it once, as it lies
(`few_rows_code`); parts are columns of it, of as many bytes as are worth a thread's coming.
"""

from __future__ import annotations

from typing import Any

from ....core import policy
from .few_rows_code import MOST

Strides = tuple[int, ...]


def are_few(m: int, k: int, n: int) -> bool:
    """Whether a product of these sizes is one of few rows, if its operands lie as `fits` says."""
    if k < 2 or m < 1 or n < 1 or (n > 1 and m > MOST):
        return False
    return k * (m if n == 1 else n) >= policy.PRODUCT_WEIGHT_LEAST


def fits(m: int, k: int, n: int, a: Strides, b: Strides, c_row: int) -> bool:
    """Whether machine code for few rows computes a product of these sizes and strides of rows and
    columns, in elements. What it multiplies with columns of a weight must have no gaps.
    """
    if not are_few(m, k, n):
        return False
    if n == 1:
        return (m == 1 or c_row == 1) and (b[0] == 1 or a[1] != 1)
    return b[0] != 1 or a[1] == 1


def must_be_copied(a: Any, b: Any) -> bool:
    """Whether an operand of the product of two arrays has to be copied, as `fits` says."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    if not are_few(m, k, n):
        return False
    item = a.itemsize
    if n == 1:
        return bool(a.strides[-1] == item != b.strides[-2])
    return bool(b.strides[-2] == item != a.strides[-1])


def parts(m: int, k: int, n: int, itemsize: int, count: int, workers: int) -> int:
    """Parts of each of `count` products; the bits do not depend on how many there are."""
    size = k * (m if n == 1 else n) * itemsize
    wanted = -(-2 * workers // count) if workers > 1 else 1
    return max(1, min(wanted, size // policy.PRODUCT_PART_BYTES))


def are_shared(m: int, k: int, n: int, itemsize: int, count: int) -> bool:
    """Whether so many products are worth more than one thread."""
    return k * (m if n == 1 else n) * itemsize * count >= 2 * policy.PRODUCT_PART_BYTES
