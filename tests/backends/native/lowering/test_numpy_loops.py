"""NumPy's inner loops within programs, or routines where there are many small matrices: the bits of
eager execution, its errors, and no Python.
"""

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.errors import LinalgError
from tests.native import needs_native

pytestmark = needs_native
FUNCTIONS = {
    "inv": lambda a, b: ad.linalg.inv(a),
    "solve": lambda a, b: ad.linalg.solve(a, b),
    "of a vector": lambda a, b: ad.linalg.solve(a, b[..., 0]),
    "det": lambda a, b: ad.linalg.det(a),
    "slogdet": lambda a, b: tuple(ad.linalg.slogdet(a)),
    "of a transpose": lambda a, b: ad.linalg.solve(a.mT, b.flip(0)),
}


def flat(found):
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 15, 40])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_bits_are_numpys(name, n, batch):
    function = FUNCTIONS[name]
    compiled = ad.compile(lambda a, b: function(a + 0, b * 1))
    for seed in range(2):
        ad.manual_seed(seed)
        a = ad.randn(*batch, n, n, dtype=ad.float64) + 2 * ad.eye(n, dtype=ad.float64)
        b = ad.randn(*batch, n, 2, dtype=ad.float64)
        for x, y in zip(flat(compiled(a, b)), flat(function(a, b)), strict=True):
            assert x.shape == y.shape
            np.testing.assert_array_equal(x.numpy(), y.numpy())
    if batch in ((), (3,)) and name != "of a vector":
        assert not compiled.explain(a, b).host_calls


@pytest.mark.parametrize("dtype", [ad.float32, ad.complex128])
def test_other_dtypes_are_numpys_too(dtype):
    a = ad.randn(3, 3, dtype=dtype)
    compiled = ad.compile(lambda a: ad.linalg.inv(a + 0))
    np.testing.assert_array_equal(compiled(a).numpy(), ad.linalg.inv(a).numpy())
    assert "inverse" in [row.name for row in compiled.explain(a).host_calls]


def test_singular_matrices_are_named_and_nan_is_let_through():
    compiled = ad.compile(lambda a: ad.linalg.inv(a * 1) + 1)
    good = ad.eye(3, dtype=ad.float64)
    singular = ad.stack([good, good * 0])
    for _ in range(2):
        with pytest.raises(LinalgError) as eager:
            ad.linalg.inv(singular)
        with pytest.raises(LinalgError) as caught:
            compiled(singular)
        assert str(caught.value).splitlines()[0] in str(eager.value)
        assert compiled(ad.stack([good, good])).tolist() == (ad.stack([good, good]) + 1).tolist()
    nothing = good * float("nan")
    single = ad.compile(lambda a: ad.linalg.solve(a * 1, a))
    np.testing.assert_array_equal(
        single(nothing).numpy(), ad.linalg.solve(nothing, nothing).numpy()
    )
    assert single(good).tolist() == good.tolist()


def test_a_singular_matrix_in_a_turn_is_named():
    def f(c, xs):
        return ad.scan(lambda c, x: (ad.linalg.solve(x, c), c), c, xs)

    compiled = ad.compile(f)
    c, xs = ad.randn(3, 2, dtype=ad.float64), ad.randn(9, 3, 3, dtype=ad.float64)
    found = compiled(c, xs)
    for x, y in zip(found, f(c, xs), strict=True):  # small systems are solved in the loop itself
        np.testing.assert_allclose(x.numpy(), y.numpy(), 1e-10)
    wrong = xs.clone()
    wrong[7] = 0
    with pytest.raises(LinalgError) as caught:
        compiled(c, wrong)
    assert any("scan: in turn 7" in note for note in caught.value.__notes__)
    np.testing.assert_array_equal(compiled(c, xs)[0].numpy(), found[0].numpy())
