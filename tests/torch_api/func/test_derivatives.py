"""What PyTorch's own tests of `func` showed: derivatives that were dropped, and writes within."""

import pytest

import adjoint as ad
from adjoint.autograd import forward_ad
from adjoint.func import hessian, jacfwd, jacrev, jvp, vmap
from adjoint.testing import assert_close


@pytest.mark.parametrize("transform", [jacrev, jacfwd, hessian])
def test_jacobians_of_complex_numbers_are_refused_and_not_half_of_them_returned(transform):
    with pytest.raises(ad.AutogradError, match="inputs to be real"):
        transform(lambda x: (x * x.conj()).real.sum())(ad.tensor([1 + 2j]))
    with pytest.raises(ad.AutogradError, match="outputs to be real"):
        transform(lambda x: (x * (2 + 1j)).sum())(ad.ones(2))


@pytest.mark.parametrize("size", [0, 1, 15])
def test_jvp_computes_tangents_where_they_are_switched_off_outside(size):
    x = ad.randn(size)
    with forward_ad._set_fwd_grad_enabled(False):
        assert_close(jvp(ad.sin, (x,), (ad.ones(size),))[1], x.cos())
    assert_close(jvp(ad.sin, (x,), (ad.ones(size),))[1], x.cos())


@pytest.mark.parametrize("captured", [True, False])
def test_a_jvp_where_they_are_switched_off_gives_the_jvp_around_none(captured):
    def derivative(x):
        with forward_ad._set_fwd_grad_enabled(False):
            function = (lambda y: x.sin() * y) if captured else ad.sin
            return jvp(function, (x,), (ad.ones(3),))[1]

    x = ad.randn(3)
    value, tangent = jvp(derivative, (x,), (ad.ones(3),))
    assert_close(value, x.sin() if captured else x.cos())
    assert_close(tangent, ad.zeros(3))


def test_jvp_goes_through_a_jacobian_of_autograd_functional():
    def function(x):
        return ad.autograd.functional.jacobian(lambda y: y.sin().sum(), x, create_graph=True).sum()

    x = ad.randn(3)
    assert_close(jvp(function, (x,), (ad.ones(3),))[1], -x.sin().sum())
    assert_close(jacfwd(function)(x), -x.sin())


def test_jvp_of_nothing_is_refused():
    with pytest.raises(ad.InvalidArgument, match="at least one Tensor"):
        jvp(ad.sin, (), ())
    with pytest.raises(ad.InvalidArgument, match="at least one Tensor"):
        jvp(ad.sin, ((),), ((),))


def test_jvp_of_what_is_no_tensor_is_refused():
    with pytest.raises(RuntimeError, match="only contain Tensors"):
        jvp(ad.sin, (1.0,), (ad.ones(1),))
    with pytest.raises(RuntimeError, match="only contain Tensors"):
        jvp(ad.sin, (ad.ones(1),), (1.0,))


class OneReturn(ad.autograd.Function):
    """A function whose rule for batches forgets `out_dims`."""

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x):
        return x * 2


def test_a_rule_for_batches_without_out_dims_is_refused():
    with pytest.raises(RuntimeError, match="two returns"):
        vmap(OneReturn.apply)(ad.ones(2, 3))


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_jacobians_go_through_a_write_to_another_argument_which_the_caller_sees(transform):
    def function(x, y):
        y[1:] = x[:2] * 3
        return y

    x, y = ad.randn(3), ad.zeros(3)
    expected = ad.tensor([[0.0, 0, 0], [3, 0, 0], [0, 3, 0]])
    assert_close(transform(function)(x, y), expected)
    assert_close(y, ad.cat([ad.zeros(1), x[:2] * 3]))


def test_vmap_writes_one_value_for_all_entries_to_a_tensor_outside():
    kept = ad.zeros(3)

    def function(x):
        jvp(lambda y: y * 2, (x,), (x,))
        kept[1:] = ad.ones(2) * 2
        return x.sum()

    assert_close(vmap(function)(ad.ones(2, 3)), ad.tensor([3.0, 3.0]))
    assert_close(kept, ad.tensor([0.0, 2.0, 2.0]))
    with pytest.raises(NotImplementedError, match="more elements"):
        vmap(lambda x: kept.copy_(x))(ad.ones(2, 3))


class Reading(ad.autograd.Function):
    """A function whose backward reads values, which no batch of gradients can."""

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        assert g.nonzero().shape[1] == g.ndim
        return g * 2


@pytest.mark.parametrize("shape", [(2, 3), (1,), ()])
def test_jacrev_of_one_row_at_a_time_asks_no_rule_of_vmap(shape):
    x = ad.randn(shape)
    count = x.numel()
    expected = (ad.eye(count) * 2).reshape(*shape, *shape)
    assert_close(jacrev(Reading.apply, chunk_size=1)(x), expected)
    if count > 1:
        with pytest.raises(NotImplementedError, match="vmap"):
            jacrev(Reading.apply, chunk_size=2)(x)
    both = jacrev(lambda a, b: a * b.sum(), argnums=(0, 1), chunk_size=1)(x, ad.ones(2))
    assert_close(both[0], expected)
    assert both[1].shape == (*shape, 2)


def _written_by_detached(x):
    y = x * 1
    y.detach().mul_(2)
    return y * y


def _detached_sees_numbers_alone(x):
    y = x * 1
    d = y.detach()
    y.mul_(3)
    return d * 1


def _made_inside_and_detached_before(x):
    y = ad.zeros(2)
    d = y.detach()
    y.copy_(x)
    return d * 1


def _made_inside_and_written_by_detached(x):
    y = ad.zeros(2)
    y.detach().copy_(x)
    return y * 1


def _view_of_detached(x):
    y = x * 1
    y.detach()[0].mul_(5)
    return y * y


def _detached_view(x):
    y = x * 1
    y[0].detach().mul_(5)
    return y * y


def _two_detached(x):
    y = x * 1
    first, second = y.detach(), y.detach()
    first.copy_(x * 2)
    return second + first


def _part_of_a_detached_view(x):
    part = (x * 1)[:2].detach()
    part[0].copy_(x[1] * 3)
    return part * 1


def _data(x):
    y = x * 1
    y.data[1] = 7
    return y * y


WRITES = [  # PyTorch's value and tangent at [1, 1] along [1, 1]
    (_written_by_detached, [4.0, 4.0], [4.0, 4.0]),
    (_detached_sees_numbers_alone, [3.0, 3.0], [0.0, 0.0]),
    (_made_inside_and_detached_before, [1.0, 1.0], [0.0, 0.0]),
    (_made_inside_and_written_by_detached, [1.0, 1.0], [0.0, 0.0]),
    (_view_of_detached, [25.0, 1.0], [10.0, 2.0]),
    (_detached_view, [25.0, 1.0], [10.0, 2.0]),
    (_two_detached, [4.0, 4.0], [2.0, 2.0]),
    (_part_of_a_detached_view, [3.0, 1.0], [3.0, 0.0]),
    (_data, [1.0, 49.0], [2.0, 14.0]),
]


@pytest.mark.parametrize(("function", "value", "tangent"), WRITES)
def test_tangents_do_not_cross_what_was_detached_and_writes_leave_them(function, value, tangent):
    x, t = ad.ones(2), ad.ones(2)
    expected = ad.tensor(value), ad.tensor(tangent)
    assert_close(jvp(function, (x,), (t,)), expected)
    double = jvp(lambda x: jvp(function, (x,), (t,))[0], (x,), (t,))
    assert_close(double, expected)
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(function(forward_ad.make_dual(x.clone(), t.clone())))
        assert_close(dual.primal.clone(), expected[0])
        found = ad.zeros(2) if dual.tangent is None else dual.tangent.clone()
        assert_close(found, expected[1])


@pytest.mark.parametrize(("function", "value", "tangent"), [WRITES[i] for i in (0, 1, 4, 5, 6)])
def test_gradients_through_vmap_leave_what_was_detached(function, value, tangent):
    x = ad.ones(3, 2)
    assert_close(vmap(function)(x), ad.tensor([value] * 3))
    gradient = ad.func.grad(lambda x: vmap(function)(x * 1).sum())(x)
    assert_close(gradient, ad.tensor([tangent] * 3))
    both = vmap(lambda x: jvp(function, (x,), (ad.ones(2),)))(x)
    assert_close(both, (ad.tensor([value] * 3), ad.tensor([tangent] * 3)))


def test_vmap_returns_the_tensor_that_was_written_in_place():
    x = ad.rand(2, 3)
    before = x.clone()
    result = vmap(ad.Tensor.acos_)(x)
    assert result is x
    assert_close(result, before.acos())
    result = vmap(vmap(ad.Tensor.neg_))(x)
    assert result is x
    turned = vmap(ad.Tensor.neg_, 1, 1)(x)
    turned.zero_()
    assert_close(x, ad.zeros(2, 3))
    x = ad.rand(2, 4, 3)
    inner = vmap(vmap(lambda t: t.mul_(3)[:1], in_dims=1, out_dims=1), in_dims=2, out_dims=1)
    before, part = x.clone(), inner(x)
    assert_close(x, before * 3)
    part.zero_()
    assert_close(x[0], ad.zeros(4, 3))
    assert_close(x[1], before[1] * 3)
    x = ad.rand(2, 3, requires_grad=True)
    y = x * 1
    kept = x.detach().exp()
    assert_close(ad.autograd.grad(vmap(ad.Tensor.exp_)(y).sum(), x), (kept,))


def test_hooks_of_saved_tensors_that_would_drop_tangents_are_refused():
    hooks = ad.autograd.graph.saved_tensors_hooks

    def function(x, pack=lambda t: t.detach().numpy(), unpack=ad.tensor):
        with hooks(pack, unpack):
            return x.exp().sin().sum()

    def kept(x):
        return function(x, lambda t: t, lambda t: t)

    def plain(x):
        return x.exp().sin().sum()

    x = ad.tensor([0.1, 0.2, 0.3])
    with pytest.raises(ad.AutogradError, match="lacks the tangent"):
        hessian(function)(x)
    with forward_ad.dual_level(), pytest.raises(ad.AutogradError, match="lacks the tangent"):
        y = forward_ad.make_dual(x.clone().requires_grad_(), ad.ones(3))
        function(y).backward()
    assert_close(hessian(kept)(x), hessian(plain)(x))
    assert_close(jacrev(jacrev(function))(x), hessian(plain)(x))
    y = x.clone().requires_grad_()
    with forward_ad.dual_level():
        z = function(forward_ad.make_dual(y, ad.ones(3)))
    z.backward()  # nobody asks for tangents any more
    assert_close(y.grad, ad.func.grad(plain)(x))


@pytest.mark.parametrize("transform", [vmap, lambda f: lambda x: jvp(f, (x,), (x,))])
def test_data_is_not_replaced_inside_of_transforms(transform):
    def function(x):
        x.data = ad.ones(3)
        return x

    with pytest.raises(NotImplementedError, match="copy_"):
        transform(function)(ad.ones(3, 3))
