"""Matrix products, einsum and linear algebra beside PyTorch: values, gradients, errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)


def real(*shape):
    return rng.normal(size=shape)


def cplx(*shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def outputs(value):
    return tuple(value) if isinstance(value, tuple) else (value,)


def compare(function, *arrays, tolerance=1e-8, gradients=True, name=""):
    """`function(library, *tensors)` gives the same values and gradients with both libraries."""
    xs = [torch.tensor(a, requires_grad=gradients) for a in arrays]
    ys = [ad.tensor(a, requires_grad=gradients) for a in arrays]
    theirs, ours = outputs(function(torch, *xs)), outputs(function(ad, *ys))
    assert len(theirs) == len(ours)
    for t, a in zip(theirs, ours, strict=True):
        assert tuple(a.shape) == tuple(t.shape), name
        assert a.dtype.name == str(t.dtype).removeprefix("torch."), name
        np.testing.assert_allclose(
            a.detach().numpy(), t.detach().resolve_conj().numpy(), atol=tolerance, rtol=tolerance
        )
    if not gradients:
        return
    weights = [np.random.default_rng(i).normal(size=tuple(t.shape)) for i, t in enumerate(theirs)]
    pairs = [(t, a, w) for t, a, w in zip(theirs, ours, weights, strict=True) if t.requires_grad]
    loss = sum((t * torch.tensor(w)).sum().abs() for t, _, w in pairs)
    loss.backward()
    loss = sum((a * ad.tensor(w)).sum().abs() for _, a, w in pairs)
    loss.backward()
    for x, y in zip(xs, ys, strict=True):
        if x.grad is None:
            continue
        np.testing.assert_allclose(
            y.grad.numpy(), x.grad.resolve_conj().numpy(), atol=tolerance * 10, rtol=tolerance * 10
        )


def second_order(function, *arrays):
    ys = [ad.tensor(a, requires_grad=True) for a in arrays]
    assert ad.autograd.gradcheck(function, ys)
    assert ad.autograd.gradgradcheck(function, ys)


# ---- products ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [real, cplx])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 1, 2, 3), (4, 3, 2)),
        ((2, 5, 2, 3), (3, 4)), ((0, 3), (3, 4)), ((2, 0), (0, 4)), ((0, 2, 3), (3, 4)),
    ],
)  # fmt: skip
def test_matmul_shapes(make, a, b):
    compare(lambda lib, x, y: lib.matmul(x, y), make(*a), make(*b))


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated:UserWarning")
def test_products_by_name():
    m, n, v, w = real(3, 4), real(4, 5), real(4), real(4)
    compare(lambda lib, x, y: lib.mm(x, y), m, n)
    compare(lambda lib, x, y: lib.mv(x, y), m, v)
    compare(lambda lib, x, y: lib.dot(x, y), v, w)
    compare(lambda lib, x, y: lib.vdot(x, y), cplx(4), cplx(4))
    compare(lambda lib, x, y: lib.inner(x, y), real(2, 3, 4), real(5, 4))
    compare(lambda lib, x, y: lib.outer(x, y), v, real(3))
    compare(lambda lib, x, y: lib.ger(x, y), v, real(3))
    compare(lambda lib, x, y: lib.bmm(x, y), real(2, 3, 4), real(2, 4, 5))
    compare(lambda lib, x, y: lib.kron(x, y), real(2, 3), real(4, 1, 2))
    compare(lambda lib, x, y: lib.cross(x, y, 0), real(3, 2), real(3, 2))
    compare(lambda lib, x, y: lib.linalg.cross(x, y), real(2, 3), real(1, 3))
    compare(lambda lib, x, y: lib.linalg.vecdot(x, y), cplx(2, 3), cplx(3))
    compare(lambda lib, *x: lib.chain_matmul(*x), real(2, 3), real(3, 4), real(4, 2))
    compare(lambda lib, *x: lib.linalg.multi_dot(x), real(3), real(3, 4), real(4, 2), real(2))


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2.0), (0, 1), (2, -1)])
def test_products_with_addition(beta, alpha):
    options = {"beta": beta, "alpha": alpha}
    batches = real(3, 2, 4), real(3, 4, 5)
    for shape in ((2, 5), (5,), (1, 1)):
        compare(
            lambda lib, c, x, y: lib.addmm(c, x, y, **options),
            real(*shape),
            *(b[0] for b in batches),
        )
        compare(lambda lib, c, x, y: lib.baddbmm(c, x, y, **options), real(*shape), *batches)
        compare(lambda lib, c, x, y: lib.addbmm(c, x, y, **options), real(*shape), *batches)
        compare(lambda lib, c, x, y: lib.addr(c, x, y, **options), real(*shape), real(2), real(5))
    compare(lambda lib, c, x, y: lib.addmv(c, x, y, **options), real(2), real(2, 4), real(4))


def test_beta_of_zero_ignores_nan():
    c = ad.full((2, 2), math.nan)
    assert ad.addmm(c, ad.ones(2, 3), ad.ones(3, 2), beta=0).tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_integers_and_low_precision():
    a, b = rng.integers(-5, 5, (3, 4)), rng.integers(-5, 5, (4, 2))
    compare(lambda lib, x, y: lib.matmul(x, y), a, b, gradients=False)
    compare(lambda lib, x, y: lib.einsum("ij,jk->k", x, y), a, b, gradients=False)
    x = (np.ones((1, 4096)) * 0.1).astype(np.float16)  # a float16 sum would stall
    compare(lambda lib, u: lib.matmul(u, u.T), x, gradients=False, tolerance=1e-3)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), (0, 3), (2, 1, 2, 3)])
def test_linear(shape, bias):
    arrays = [real(*shape), real(5, 3)] + ([real(5)] if bias else [])

    def function(lib, *xs):
        return torch.nn.functional.linear(*xs) if lib is torch else ad.linear(*xs)

    compare(function, *arrays)
    if bias:
        second_order(ad.linear, *arrays)


def test_linear_is_one_node():
    y = ad.linear(ad.ones(2, 3), ad.ones(4, 3, requires_grad=True), ad.ones(4, requires_grad=True))
    assert all(type(n).__name__ == "Leaf" or n is None for n in y.grad_fn.parents)


def test_batches_fold_into_rows():
    """The weight's gradient is one product, not a batch of them that is summed."""
    w = ad.ones(3, 4, requires_grad=True)
    y = ad.ones(5, 6, 3) @ w
    product = y.grad_fn.parents[0]
    assert type(product.op).__name__ == "MatMul"
    assert product.shape == (30, 4)


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ij->ji", (2, 3)), ("ii", (3, 3)),
    ("ii->i", (3, 3)), ("...ii->...i", (2, 3, 3)), ("ij->", (2, 3)), ("i,j->ij", (2,), (3,)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("bi,oij,bj->bo", (8, 3), (5, 3, 4), (8, 4)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)), ("ij,ij->", (2, 3), (2, 3)),
    ("ij,ij->i", (2, 3), (2, 3)), ("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)),
    ("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 5), (5, 2)), ("i,i,i->i", (3,), (3,), (3,)),
    ("iij,jk->ik", (3, 3, 2), (2, 4)), ("b...,b...->b", (2, 3, 4), (2, 3, 4)),
    ("i...->...", (2, 3)), ("...,...", (2, 3), (3,)), ("ij,kj->ik", (2, 1), (4, 3)),
    ("a b c , c -> b a", (2, 3, 4), (4,)), ("Bi,iC", (2, 3), (3, 2)), (",ij->ij", (), (2, 3)),
    ("ij,jk->ik", (2, 0), (0, 4)), ("abcd,cdef->abef", (2, 3, 2, 2), (2, 2, 3, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: f"{c[0]}{c[1:]}")
@pytest.mark.parametrize("make", [real, cplx])
def test_einsum(case, make):
    equation, *shapes = case
    compare(lambda lib, *xs: lib.einsum(equation, *xs), *(make(*s) for s in shapes))


def test_einsum_sublists_and_lists():
    compare(lambda lib, x, y: lib.einsum(x, [0, 1], y, [1, 2], [2, 0]), real(2, 3), real(3, 4))
    compare(lambda lib, x, y: lib.einsum(x, [0, 1], y, [1, 2]), real(2, 3), real(3, 4))
    compare(lambda lib, x: lib.einsum(x, [..., 0, 0], [..., 0]), real(2, 3, 3))
    compare(lambda lib, x, y: lib.einsum("ij,jk", [x, y]), real(2, 3), real(3, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ij,jk", ad.ones(2, 3)), "operands"),
        (("ij", ad.ones(2)), "number of subscripts"),
        (("ij,jk->ik", ad.ones(2, 3), ad.ones(4, 2)), "does not broadcast"),
        (("ij->k", ad.ones(2, 3)), "does not appear"),
        (("ij->ii", ad.ones(2, 3)), "more than once"),
        (("i1", ad.ones(2, 3)), "invalid subscript"),
        (("ii", ad.ones(2, 3)), "repeated"),
        (("i......", ad.ones(2, 3)), "more than once"),
    ],
)
def test_einsum_errors(arguments, message):
    with pytest.raises(ad.AdjointError, match=message):
        ad.einsum(*arguments)


def test_tensordot():
    a, b = real(2, 3, 4), real(3, 4, 5)
    for dims in (2, ([1, 2], [0, 1]), ([2, 1], [1, 0])):
        compare(lambda lib, x, y, d=dims: lib.tensordot(x, y, dims=d), a, b)
    compare(lambda lib, x, y: lib.tensordot(x, y, dims=0), real(2), real(3))
    compare(lambda lib, x, y: lib.tensordot(x, y, dims=([0], [1])), real(2, 3), real(4, 2))
    with pytest.raises(ad.ShapeError, match="need to match"):
        ad.tensordot(ad.ones(2, 3), ad.ones(4, 2), dims=1)


# ---- linear algebra ------------------------------------------------------------------------------


def spd(x):
    return x @ x.mH + 2 * (torch if isinstance(x, torch.Tensor) else ad).eye(x.shape[-1])


MATRICES = [(3, 3), (2, 3, 3), (1, 1), (2, 2, 2, 2)]


@pytest.mark.parametrize("make", [real, cplx])
@pytest.mark.parametrize("shape", MATRICES)
def test_square_functions(shape, make):
    a = make(*shape)
    b = make(*shape[:-1], 2)
    for name in ("det", "inv", "slogdet"):
        compare(lambda lib, x, n=name: getattr(lib.linalg, n)(x), a, name=name)
    compare(lambda lib, x: lib.logdet(lib.matmul(x, x)), a)
    compare(lambda lib, x, y: lib.linalg.solve(x, y), a, b)
    compare(
        lambda lib, x, y: lib.linalg.solve(x, y, left=False), a, make(*shape[:-2], 2, shape[-1])
    )
    compare(lambda lib, x: lib.linalg.cholesky(spd(x)), a)
    compare(lambda lib, x: lib.linalg.cholesky(spd(x), upper=True), a)
    compare(lambda lib, x: lib.linalg.eigvalsh(spd(x)), a)
    compare(lambda lib, x: lib.linalg.eigh(spd(x))[1].abs(), a, tolerance=1e-6)
    compare(lambda lib, x: lib.linalg.matrix_exp(x), a)
    for n in (-2, 0, 1, 3, 5):
        compare(lambda lib, x, k=n: lib.linalg.matrix_power(x, k), a, tolerance=1e-7)
    for upper, left, unit in itertools.product([False, True], repeat=3):
        rhs = b if left else make(*shape[:-2], 2, shape[-1])
        options = {"upper": upper, "left": left, "unitriangular": unit}
        compare(lambda lib, x, y, o=options: lib.linalg.solve_triangular(x, y, **o), a, rhs)


@pytest.mark.parametrize("make", [real, cplx])
@pytest.mark.parametrize("shape", [*MATRICES, (4, 2), (2, 4), (2, 5, 3), (2, 3, 5)])
def test_rectangular_functions(shape, make):
    a = make(*shape)
    for mode in ("reduced", "complete", "r"):
        differentiable = mode == "reduced" or (mode == "complete" and shape[-2] <= shape[-1])
        compare(lambda lib, x, m=mode: tuple(lib.linalg.qr(x, mode=m)), a, gradients=differentiable)
    compare(lambda lib, x: lib.linalg.svdvals(x), a)
    compare(lambda lib, x: lib.linalg.pinv(x), a, tolerance=1e-7)
    for full in (False, True):  # what does not depend on the signs of U and V

        def rebuilt(lib, x, full=full):
            u, s, vh = lib.linalg.svd(x, full_matrices=full)
            k = s.shape[-1]
            u, vh = u[..., :k], vh[..., :k, :]
            return (u * s.unsqueeze(-2).square()) @ vh, u.abs(), vh.abs()

        compare(rebuilt, a, tolerance=1e-6, gradients=not full)
    compare(lambda lib, x: tuple(lib.svd(x))[1], a)
    b = make(*shape[:-1], 2)
    compare(lambda lib, x, y: lib.linalg.lstsq(x, y).solution, a, b, tolerance=1e-7)


def test_gradients_through_one_triangle():
    """Of matrices that are not symmetric, one triangle is read; the gradient is symmetric."""
    a = real(3, 3) + 4 * np.eye(3)
    for uplo in "LU":
        compare(lambda lib, x, u=uplo: lib.linalg.eigh(x, u)[0], a)
        compare(lambda lib, x, u=uplo: lib.linalg.eigh(x, u)[1].abs(), a)
    for upper in (False, True):
        compare(lambda lib, x, u=upper: lib.linalg.cholesky(x, upper=u), a)


def test_eig():
    a = real(4, 4)
    for make in (real(4, 4), cplx(4, 4), real(2, 3, 3)):

        def function(lib, x):
            values, vectors = lib.linalg.eig(x)
            # No dependence on the order or on the phases.
            return values.sum(-1).abs(), (
                (vectors * values.unsqueeze(-2)) @ lib.linalg.inv(vectors)
            )

        compare(function, make, tolerance=1e-7)
    compare(lambda lib, x: lib.linalg.eigvals(x).abs().sum(), a)


def test_lu():
    for make, shape in itertools.product(
        (real, cplx), [(3, 3), (2, 4, 4), (4, 2), (2, 4), (70, 70)]
    ):
        a = make(*shape)
        square = shape[-1] == shape[-2] and shape[-1] < 10
        compare(lambda lib, x: lib.linalg.lu(x), a, gradients=shape[-1] < 10)
        compare(lambda lib, x: lib.linalg.lu_factor(x), a, gradients=False)
        if square:
            b = make(*shape[:-1], 2)
            for left, adjoint in itertools.product([False, True], repeat=2):
                compare(
                    lambda lib, x, y, left=left, adjoint=adjoint: lib.linalg.lu_solve(
                        *lib.linalg.lu_factor(x), y if left else y.mT, left=left, adjoint=adjoint
                    ),
                    a,
                    b,
                    gradients=False,
                )


@pytest.mark.filterwarnings("ignore:torch.* is deprecated:UserWarning")
def test_older_names():
    a, b = real(3, 3), real(3, 2)
    compare(lambda lib, x: lib.inverse(x), a)
    compare(lambda lib, x: lib.pinverse(x), real(3, 2))
    compare(lambda lib, x: lib.cholesky(spd(x)), a)
    compare(lambda lib, x: tuple(lib.qr(x)), a)
    compare(lambda lib, x, y: lib.cholesky_solve(y, lib.linalg.cholesky(spd(x))), a, b)
    compare(
        lambda lib, x, y: lib.cholesky_solve(y, lib.linalg.cholesky(spd(x), upper=True), True), a, b
    )
    compare(lambda lib, x: lib.cholesky_inverse(lib.linalg.cholesky(spd(x))), a)
    for upper in (False, True):  # the factor's gradient is whole, as it is taken for any matrix
        compare(lambda lib, x, y, upper=upper: lib.cholesky_solve(y, spd(x), upper), a, b)
        compare(lambda lib, x, upper=upper: lib.cholesky_inverse(spd(x), upper), a)
    compare(lambda lib, x, y: lib.triangular_solve(y, x, transpose=True)[0], a, b)
    compare(lambda lib, x: lib.linalg.tensorinv(x.reshape(3, 3, 9)), real(9, 9))
    compare(lambda lib, x, y: lib.linalg.tensorsolve(x.reshape(3, 3, 9), y), real(9, 9), a)
    compare(lambda lib, x: lib.linalg.vander(x, N=4), real(2, 3))
    compare(lambda lib, x: lib.linalg.diagonal(x, offset=1), real(2, 3, 4))
    for method in ("det", "logdet", "slogdet", "inverse", "pinverse", "svd", "qr", "matrix_exp"):
        assert callable(getattr(ad.Tensor, method))


ORDERS = [2, 1, 0, 3, 0.5, -1, -2, math.inf, -math.inf]


@pytest.mark.parametrize("make", [real, cplx])
def test_norms(make):
    a = make(3, 4, 5)
    for order in ORDERS:
        for dim, keepdim in ((None, False), (1, True), ((0, 2), False)):
            compare(lambda lib, x, o=order, d=dim, k=keepdim: lib.linalg.vector_norm(x, o, d, k), a)
    for order in ("fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2):
        for dim, keepdim in (((-2, -1), False), ((2, 0), True)):
            compare(lambda lib, x, o=order, d=dim, k=keepdim: lib.linalg.matrix_norm(x, o, d, k), a)
        compare(lambda lib, x, o=order: lib.linalg.norm(x, o), make(3, 3))
    for p in (None, 2, -2, 1, -1, math.inf, "fro", "nuc"):
        shape = (3, 3) if p in (None, 2, -2) else (2, 3, 3)
        differentiable = p in (None, 2, -2)  # PyTorch changes a saved tensor for the others
        compare(
            lambda lib, x, p=p: lib.linalg.cond(x, p),
            make(*shape),
            tolerance=1e-6,
            gradients=differentiable,
        )
    compare(lambda lib, x: lib.linalg.norm(x), a)
    compare(lambda lib, x: lib.linalg.norm(x, dim=1), a)


def test_rank_and_tolerances():
    a = real(2, 4, 2) @ real(2, 2, 3)
    compare(lambda lib, x: lib.linalg.matrix_rank(x), a, gradients=False)
    compare(lambda lib, x: lib.linalg.matrix_rank(x, atol=1.0), a, gradients=False)
    compare(lambda lib, x: lib.linalg.matrix_rank(x, rtol=0.9), a, gradients=False)
    compare(
        lambda lib, x: lib.linalg.matrix_rank(x, atol=lib.tensor([0.1, 100.0], dtype=lib.float64)),
        a,
        gradients=False,
    )
    s = real(3, 3)
    compare(lambda lib, x: lib.linalg.matrix_rank(x, hermitian=True), s + s.T, gradients=False)
    compare(lambda lib, x: lib.linalg.pinv(x, rtol=1e-8), a, gradients=False)
    compare(lambda lib, x: lib.linalg.pinv(x, atol=1.0), a, gradients=False)
    compare(lambda lib, x: lib.linalg.pinv(x, hermitian=True), s + s.T, gradients=False)


def test_lstsq_results():
    a, b = real(5, 3), real(5, 2)
    for driver in (None, "gelsy", "gels", "gelsd", "gelss"):
        compare(lambda lib, x, y, d=driver: lib.linalg.lstsq(x, y, driver=d), a, b, gradients=False)
    compare(lambda lib, x, y: lib.linalg.lstsq(x, y)[0], real(3, 5), real(3, 2), gradients=False)


def test_determinant_of_singular_matrices_has_a_gradient():
    a = real(2, 3, 3)
    a[0, 0] = a[0, 1] + a[0, 2]  # rank 2: the cofactors have rank 1
    a[1] = np.outer(a[1, 0], a[1, 1])  # rank 1: the cofactors are 0
    x = ad.tensor(a, requires_grad=True)
    ad.det(x).sum().backward()
    minors = np.zeros_like(a)
    for i, r, c in np.ndindex(2, 3, 3):
        minors[i, r, c] = (-1) ** (r + c) * np.linalg.det(np.delete(np.delete(a[i], r, 0), c, 1))
    np.testing.assert_allclose(x.grad.numpy(), minors, atol=1e-10)


@pytest.mark.parametrize("make", [real, cplx])
def test_second_order(make):
    a, b = make(3, 3) + 3 * np.eye(3), make(3, 2)
    second_order(lambda x: ad.linalg.cholesky(spd(x)), a)
    second_order(lambda x: ad.linalg.eigvalsh(spd(x)), a)
    second_order(lambda x: ad.linalg.svdvals(x), make(3, 2))
    second_order(lambda x: ad.linalg.solve(x, ad.tensor(b)), a)
    second_order(lambda x: ad.logdet(spd(x)), a)
    second_order(lambda x: ad.linalg.norm(x, "nuc"), make(3, 2))
    second_order(lambda x: ad.linalg.lu(x).L, a)
    second_order(lambda x: ad.matrix_exp(x), a)
    second_order(lambda x: ad.linalg.eigvals(x).abs().sum(), a)

    def projection(x):  # independent of the phases of the singular vectors
        u, _, vh = ad.linalg.svd(x, full_matrices=False)
        return u @ vh, u[:, :1] @ u[:, :1].mH

    second_order(projection, make(3, 2))
    second_order(lambda x: ad.linalg.eigh(spd(x))[1].abs(), a)


def test_empty_matrices():
    e = np.zeros((0, 0))
    for name in ("det", "inv", "slogdet", "eigvalsh", "svdvals", "matrix_exp"):
        compare(lambda lib, x, n=name: getattr(lib.linalg, n)(x), e, gradients=False, name=name)
    compare(lambda lib, x: lib.linalg.svd(x), np.zeros((2, 0)), gradients=False)
    compare(lambda lib, x: lib.linalg.qr(x), np.zeros((3, 0)), gradients=False)
    compare(lambda lib, x: lib.linalg.pinv(x), np.zeros((0, 3)), gradients=False)
    compare(lambda lib, x: lib.linalg.det(x), np.zeros((0, 2, 2)), gradients=False)
    compare(lambda lib, x, y: lib.linalg.solve(x, y), e, np.zeros((0, 2)), gradients=False)


SINGULAR = np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, 4.0]])])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ad.linalg.inv(ad.tensor(SINGULAR)), ad.LinalgError,
         r"\(Batch element 1\): The diagonal element 2 is zero"),
        (lambda: ad.linalg.inv(ad.zeros(2, 2)), ad.LinalgError, "diagonal element 1 is zero"),
        (lambda: ad.linalg.solve(ad.tensor(SINGULAR), ad.ones(2, 2).double()), ad.LinalgError,
         r"linalg.solve: \(Batch element 1\)"),
        (lambda: ad.cholesky(ad.tensor([[1.0, 2.0], [2.0, 1.0]])), ad.LinalgError,
         "leading minor of order 2 is not positive-definite"),
        (lambda: ad.linalg.svd(ad.full((2, 2), math.nan)), ad.LinalgError, "failed to converge"),
        (lambda: ad.linalg.inv(ad.ones(2, 3)), ad.ShapeError, "2 by 3 matrices"),
        (lambda: ad.linalg.inv(ad.ones(3)), ad.ShapeError, "at least 2 dimensions"),
        (lambda: ad.linalg.inv(ad.ones(2, 2, dtype=ad.int64)), ad.DTypeError, "floating point"),
        (lambda: ad.linalg.inv(ad.ones(2, 2, dtype=ad.float16)), ad.DTypeError, "Low precision"),
        (lambda: ad.linalg.solve(ad.eye(2), ad.ones(3, 1)), ad.ShapeError, "Incompatible shapes"),
        (lambda: ad.linalg.qr(ad.eye(2), mode="full"), ad.InvalidArgument, "unrecognized mode"),
        (lambda: ad.linalg.eigh(ad.eye(2), "X"), ad.InvalidArgument, "UPLO"),
        (lambda: ad.linalg.matrix_norm(ad.eye(2), 3), ad.InvalidArgument, "Order 3"),
        (lambda: ad.linalg.vector_norm(ad.arange(3)), ad.DTypeError, "floating point"),
        (lambda: ad.linalg.multi_dot([ad.ones(2, 3), ad.ones(2, 3)]), ad.ShapeError,
         "cannot be multiplied"),
        (lambda: ad.linalg.multi_dot([ad.ones(2, 3)]), ad.InvalidArgument, "at least 2"),
        (lambda: ad.mm(ad.ones(2, 3), ad.ones(2, 3)), ad.ShapeError, "2x3 and 2x3"),
        (lambda: ad.mm(ad.ones(3), ad.ones(3, 2)), ad.ShapeError, "must be a 2D tensor"),
        (lambda: ad.bmm(ad.ones(2, 2, 2), ad.ones(3, 2, 2)), ad.ShapeError, "batch2"),
        (lambda: ad.matmul(ad.ones(2, 2), ad.ones(2, 2).double()), ad.DTypeError, "same dtype"),
        (lambda: ad.matmul(ad.tensor(1.0), ad.ones(2)), ad.ShapeError, "at least 1D"),
        (lambda: ad.matmul(ad.ones(2), 3), ad.InvalidType, "argument 'other', got int"),
        (lambda: ad.matmul(ad.ones(2, 2), ad.ones(3, 2, 2, 2)[:2].expand(2, 2, 2, 2)[:, :1, 0]),
         ad.ShapeError, "cannot be multiplied"),
        (lambda: ad.dot(ad.ones(2), ad.ones(3)), ad.ShapeError, "same number of elements"),
        (lambda: ad.linear(ad.ones(2, 3), ad.ones(4, 2)), ad.ShapeError, "cannot be multiplied"),
        (lambda: ad.addmm(ad.ones(3), ad.ones(2, 2), ad.ones(2, 2)), ad.ShapeError, "expand|broad"),
        (lambda: ad.cross(ad.ones(2), ad.ones(2)), ad.ShapeError, "size 3"),
        (lambda: ad.linalg.lstsq(ad.ones(3, 2), ad.ones(2, 2)), ad.ShapeError, "should match"),
    ],
)  # fmt: skip
def test_errors_name_the_values(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_functions_that_report_instead_of_raising():
    x = ad.tensor(SINGULAR)
    inverse, info = ad.linalg.inv_ex(x)
    assert info.tolist() == [0, 2]
    np.testing.assert_array_equal(inverse[0].numpy(), np.eye(2))
    factor, info = ad.linalg.cholesky_ex(ad.tensor(np.stack([np.eye(2), -np.eye(2)])))
    assert info.tolist() == [0, 1]
    np.testing.assert_array_equal(factor[0].numpy(), np.eye(2))
    assert ad.linalg.solve_ex(x, ad.ones(2, 2).double()).info.tolist() == [0, 2]
    assert ad.linalg.lu_factor_ex(x).info.tolist() == [0, 2]
    with pytest.raises(ad.LinalgError):
        ad.linalg.lu_factor_ex(x, check_errors=True)
    assert issubclass(ad.linalg.LinAlgError, RuntimeError)


@pytest.mark.parametrize("rows", [2, 3, 5])
@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_determinants_of_singular_matrices(rows, lost):
    """Second derivatives of det, which is a polynomial, beside differences of exact first ones."""
    rank = max(rows - lost, 0)
    left, right = (np.random.default_rng(i).standard_normal((rows, rank)) for i in range(2))
    a = ad.tensor(left @ right.T, requires_grad=True)
    (g,) = ad.autograd.grad(ad.linalg.det(a), a, create_graph=True)
    v = ad.tensor(np.random.default_rng(2).standard_normal((rows, rows)))
    (found,) = ad.autograd.grad((g * v).sum(), a)

    def first(x):
        x = ad.tensor(x, requires_grad=True)
        return (ad.autograd.grad(ad.linalg.det(x), x)[0] * v).sum().item()

    for i, j in np.ndindex(rows, rows):
        step = np.zeros((rows, rows))
        step[i, j] = 0.5
        wanted = first(a.detach().numpy() + step) - first(a.detach().numpy() - step)
        np.testing.assert_allclose(found[i, j].item(), wanted, atol=1e-9)


def test_logdet_of_singular_matrices():
    """Its gradient is infinite there, and does not keep a batch from having one."""
    inf, m = float("inf"), [[1.0, 2.0], [2.0, 4.0]]
    for lib in (ad, torch):
        for f in (lib.logdet, lambda x, lib=lib: lib.linalg.slogdet(x)[1]):
            x = lib.tensor(m, dtype=lib.float64, requires_grad=True)
            assert lib.autograd.grad(f(x), x)[0].tolist() == [[-inf, inf], [inf, -inf]]
            x = lib.tensor([m, [[1.0, 0.0], [0.0, 2.0]]], requires_grad=True)
            (g,) = lib.autograd.grad(f(x)[1], x)
            assert g[1].tolist() == [[1, 0], [0, 0.5]]


def test_einsum_of_two_dtypes_over_sizes_of_one():
    for t in (torch, ad):
        y = t.einsum("ij,jk->ik", t.full((2, 1), 3.0), t.full((1, 2), 2))
        assert y.dtype is t.float32 and y.tolist() == [[6.0, 6.0]] * 2
        with pytest.raises(RuntimeError):
            t.einsum("ij,jk->ik", t.ones(2, 3), t.ones(3, 2, dtype=t.float64))


@pytest.mark.parametrize("pivots", [[1, 2, 4], [0, 1, 2], [9, 9, 9], [-1, 2, 3], [1, 2, -3],
                                    [-1, 1, -1], [-4, -4, 3], [1, 2, -2**62]])  # fmt: skip
def test_ldl_solve_refuses_rows_that_there_are_not(pivots):
    with pytest.raises(ad.InvalidArgument, match="pivots must be as"):
        ad.linalg.ldl_solve(ad.eye(3), ad.tensor(pivots), ad.ones(3, 2))
    both = ad.tensor([[1, 2, 3], pivots])
    with pytest.raises(ad.InvalidArgument, match="pivots must be as"):
        ad.linalg.ldl_solve(ad.eye(3).expand(2, 3, 3), both, ad.ones(2, 3, 2))


@pytest.mark.parametrize("pivots", [[0, 2], [-1, 2], [3, 2], [1, 2**40]])
def test_pivots_are_rows(pivots):
    a, wrong = ad.eye(2), ad.tensor(pivots)
    calls = {
        "lu_unpack": lambda: ad.lu_unpack(a, wrong),
        "lu_solve": lambda: ad.linalg.lu_solve(a, wrong, ad.ones(2, 1)),
    }
    for name, call in calls.items():
        with pytest.raises(ad.InvalidArgument, match=f"{name}: pivots must be from 1 to 2"):
            call()


@pytest.mark.parametrize("shapes", [
    ((3, 3), (2,), (3, 2)), ((3, 3), (6,), (3, 2)), ((3, 3), (3,), (2, 2)), ((3, 3), (3,), (3,)),
    ((2, 3), (3,), (3, 2)), ((2, 3, 3), (3,), (3, 2)), ((3, 3), (2, 3), (3, 2)),
])  # fmt: skip
def test_lu_solve_refuses_the_shapes_that_pytorch_refuses(shapes):
    for lib, error in ((torch, RuntimeError), (ad, ad.ShapeError)):
        lu, pivots, b = (lib.ones(shape) for shape in shapes)
        with pytest.raises(error, match=r"lu_solve: |must be batches of square"):
            lib.linalg.lu_solve(lu, pivots.to(lib.int32), b)
    with pytest.raises(ad.ShapeError, match="XA = B"):
        ad.linalg.lu_solve(ad.eye(3), ad.tensor([1, 2, 3]), ad.ones(3, 2), left=False)
