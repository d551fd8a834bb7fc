"""Linear algebra, named as in `torch.linalg`.

Source: https://docs.pytorch.org/docs/stable/linalg.html

>>> ad.linalg.solve(ad.tensor([[2., 0.], [0., 4.]]), ad.tensor([2., 2.]))
tensor([1.0000, 0.5000])
"""

from __future__ import annotations

from ..core.errors import LinalgError as LinAlgError
from ..ops.linalg.contraction import multi_dot, vecdot
from ..ops.linalg.householder import householder_product
from ..ops.linalg.linalg import (
    det,
    inv,
    inv_ex,
    lstsq,
    matrix_exp,
    matrix_power,
    pinv,
    slogdet,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
    vander,
)
from ..ops.linalg.linalg import linalg_cross as cross
from ..ops.linalg.linalg import linalg_diagonal as diagonal
from ..ops.linalg.linalg import linalg_lu_solve as lu_solve
from ..ops.linalg.matrix_factors import (
    cholesky,
    cholesky_ex,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    lu,
    lu_factor,
    lu_factor_ex,
    svdvals,
)
from ..ops.linalg.matrix_factors import linalg_qr as qr
from ..ops.linalg.matrix_factors import linalg_svd as svd
from ..ops.linalg.matrix_product import matmul
from ..ops.linalg.norms import cond, matrix_norm, matrix_rank, norm, vector_norm

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh",
    "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex",
    "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet",
    "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve",
    "vander", "vecdot", "vector_norm",
]  # fmt: skip


_LDL = ("ldl_factor", "ldl_factor_ex", "ldl_solve")  # SciPy's, imported on first use


def __getattr__(name: str) -> object:
    if name in _LDL:
        from ..ops.linalg import ldl

        return getattr(ldl, name)
    from ..core.missing_names import missing

    raise missing("linalg", name)
