"""Gradients of gradients: create_graph, penalties, Hessians, every family of operations."""

from __future__ import annotations

from .harness import SCENARIOS, const, leaf, raises, scenario, see


@scenario
def second_derivative(t):
    x = leaf(t, 2.0)
    (g,) = t.autograd.grad(x**3, x, create_graph=True)
    (gg,) = t.autograd.grad(g, x)
    return g, gg, g.requires_grad, gg.requires_grad


@scenario
def four_derivatives_of_a_sine(t):
    y = x = leaf(t, 0.7)
    y = x.sin()
    found = []
    for _ in range(4):
        (y,) = t.autograd.grad(y, x, create_graph=True)
        found.append(y)
    return found


@scenario
def derivatives_of_a_polynomial_until_zero(t):
    x = leaf(t, 1.5)
    y = x**4
    found = []
    for _ in range(4):
        (y,) = t.autograd.grad(y, x, create_graph=True)
        found.append(y)
    return found


@scenario
def backward_with_create_graph_twice(t):
    x = leaf(t, 2.0)
    (x**3).backward(create_graph=True)
    g = x.grad
    first = see(g)
    x.grad = None
    g.backward()
    return first, g.requires_grad, x.grad


@scenario
def gradient_of_an_accumulated_grad(t):
    x = leaf(t, 2.0)
    (x**3).backward(create_graph=True)
    (x.grad * x).backward()
    return x.grad, x.grad.requires_grad


@scenario
def gradient_penalty(t):
    w, x = leaf(t, [[0.5, -0.3], [0.2, 0.8]]), leaf(t, [[1.0, 2.0]])
    score = (x @ w).tanh().sum()
    (gx,) = t.autograd.grad(score, x, create_graph=True)
    penalty = (gx.norm() - 1) ** 2
    (score + 10 * penalty).backward()
    return gx, penalty, w.grad, x.grad


@scenario
def penalty_on_the_squared_gradient_of_a_relu_net(t):
    w1, w2 = leaf(t, [[0.5, -0.3], [0.2, 0.8]]), leaf(t, [[1.0], [-2.0]])
    x = leaf(t, [[1.0, 2.0], [-1.0, 0.5]])
    y = (x @ w1).relu() @ w2
    (gx,) = t.autograd.grad(y.sum(), x, create_graph=True)
    gx.pow(2).sum().backward()
    return gx, w1.grad, w2.grad, x.grad


@scenario
def hessian_vector_product(t):
    x, v = leaf(t, [1.0, 2.0, 3.0]), const(t, [1.0, -1.0, 0.5])
    (g,) = t.autograd.grad((x.prod() + (x**3).sum()), x, create_graph=True)
    (hv,) = t.autograd.grad((g * v).sum(), x)
    (hv2,) = t.autograd.grad((x.prod() + (x**3).sum()), x, create_graph=True)
    (hv2,) = t.autograd.grad(hv2, x, grad_outputs=v)
    return hv, hv2


@scenario
def full_hessian_row_by_row(t):
    x = leaf(t, [0.5, 1.5])
    y = (x[0] * x[1]).sin() + x[0] ** 3
    (g,) = t.autograd.grad(y, x, create_graph=True)
    return [t.autograd.grad(g[i], x, retain_graph=True)[0] for i in range(2)]


@scenario
def forward_mode_by_double_backward(t):
    x, v = leaf(t, [1.0, 2.0]), const(t, [0.5, -1.0])
    y = x.exp() * x.sum()
    u = t.zeros(2, dtype=t.float64, requires_grad=True)
    (g,) = t.autograd.grad(y, x, grad_outputs=u, create_graph=True)
    (jv,) = t.autograd.grad(g, u, grad_outputs=v)
    return jv


@scenario
def inner_step_differentiated_as_in_maml(t):
    w, x, target = leaf(t, [0.5, -0.5]), const(t, [1.0, 2.0]), const(t, 3.0)
    inner = ((w * x).sum() - target) ** 2
    (g,) = t.autograd.grad(inner, w, create_graph=True)
    adapted = w - 0.1 * g
    outer = ((adapted * x).sum() - 2 * target) ** 2
    outer.backward()
    return adapted, w.grad


@scenario
def learning_rate_learned_through_three_steps(t):
    rate, w0 = leaf(t, 0.1), const(t, [1.0, -2.0])
    w = w0.clone().requires_grad_()
    for _ in range(3):
        (g,) = t.autograd.grad((w**4).sum(), w, create_graph=True)
        w = w - rate * g
    (w**2).sum().backward()
    return w, rate.grad


@scenario
def double_backward_through_broadcasting(t):
    a, b = leaf(t, [[1.0], [2.0]]), leaf(t, [3.0, 4.0])
    (ga, gb) = t.autograd.grad((a * b).pow(2).sum(), (a, b), create_graph=True)
    (ga.sum() * gb.sum()).backward()
    return ga, gb, a.grad, b.grad


@scenario
def double_backward_through_views_and_indexing(t):
    x = leaf(t, [[1.0, 2.0], [3.0, 4.0]])
    y = x.t()[0].unsqueeze(0) * x[[1, 0]][:, 1]
    (g,) = t.autograd.grad((y**2).sum(), x, create_graph=True)
    (gg,) = t.autograd.grad((g**2).sum(), x)
    return g, gg


@scenario
def double_backward_through_an_in_place_write(t):
    x = leaf(t, [1.0, 2.0, 3.0])
    y = x**2
    y[1:].mul_(x[:2])
    (g,) = t.autograd.grad((y**2).sum(), x, create_graph=True)
    (gg,) = t.autograd.grad(g.sum(), x)
    return g, gg


@scenario
def mixed_partials_are_symmetric(t):
    x, y = leaf(t, 0.4), leaf(t, 1.3)
    f = (x * y).exp() * x.sin()
    gx, gy = t.autograd.grad(f, (x, y), create_graph=True)
    (gxy,) = t.autograd.grad(gx, y, retain_graph=True)
    (gyx,) = t.autograd.grad(gy, x)
    return gxy, gyx


@scenario
def gradient_with_respect_to_the_cotangent(t):
    x, v = leaf(t, [1.0, 2.0]), leaf(t, [3.0, 4.0])
    (g,) = t.autograd.grad(x**2, x, grad_outputs=v, create_graph=True)
    g.sum().backward()
    return v.grad, x.grad


@scenario
def linear_function_has_a_gradient_without_history(t):
    x = leaf(t, [1.0, 2.0])
    (g,) = t.autograd.grad((x * 3).sum(), x, create_graph=True)
    return g, g.requires_grad, raises(lambda: g.sum().backward(), "does not require grad")


@scenario
def second_derivative_at_zero_of_a_product_with_zero(t):
    x = leaf(t, [0.0, 1.0, 2.0])
    (g,) = t.autograd.grad(x.prod(), x, create_graph=True)
    (gg,) = t.autograd.grad((g * const(t, [1.0, 2.0, 3.0])).sum(), x)
    return g, gg


@scenario
def create_graph_keeps_the_graph(t):
    x = leaf(t, 2.0)
    y = x**3
    (a,) = t.autograd.grad(y, x, create_graph=True)
    (b,) = t.autograd.grad(y, x)
    return a, b, raises(lambda: t.autograd.grad(y, x), "second time")


@scenario
def create_graph_without_retain(t):
    x = leaf(t, 2.0)
    y = x**3
    (g,) = t.autograd.grad(y, x, create_graph=True, retain_graph=False)
    return g, g.requires_grad


@scenario
def no_create_graph_gives_constants(t):
    x = leaf(t, 2.0)
    (g,) = t.autograd.grad(x**3, x)
    return g, g.requires_grad


@scenario
def retain_graph_gives_equal_gradients(t):
    x = leaf(t, [1.0, 2.0])
    y = x.exp().sum()
    found = []
    for retain in (True, True, False):
        y.backward(retain_graph=retain)
        found.append(see(x.grad))
    return found, raises(lambda: y.backward(), "second time", "retain_graph=True")


FAMILIES = {
    "arithmetic": lambda t, x: (x * x.T + x / (x + 2) - 3 / (x + 1)).sum(),
    "power": lambda t, x: (x**2.5 + 2**x + x**x).sum(),
    "exponential": lambda t, x: (x.exp() + x.expm1() + x.exp2()).sum(),
    "logarithm": lambda t, x: (x.log() + x.log1p() + x.log2() + x.log10()).sum(),
    "trigonometric": lambda t, x: (x.sin() * x.cos() + x.tan() + (x / 9).asin() + x.atan()).sum(),
    "arc_cosine": lambda t, x: ((x / 9).acos() + t.atan2(x, x.T + 1)).sum(),
    "hyperbolic": lambda t, x: (x.sinh() / x.cosh() + x.tanh() + x.asinh() + (x + 1).acosh()).sum(),
    "roots": lambda t, x: (x.sqrt() + x.rsqrt() + x.reciprocal() + x.square()).sum(),
    "sigmoid_logit": lambda t, x: (x.sigmoid() + (x / 9).logit() + x.sigmoid().log()).sum(),
    "error_function": lambda t, x: (x.erf() + x.erfc() + (x / 9).erfinv()).sum(),
    "gamma": lambda t, x: (x.lgamma() + x.digamma()).sum(),
    "absolute_and_sign": lambda t, x: ((x - 1.1).abs() * x + x.sign() * x**2).sum(),
    "clamp": lambda t, x: (x.clamp(0.6, 1.4) * x**2).sum(),
    "maximum": lambda t, x: (t.maximum(x**2, x.T * 1.5) + t.minimum(x, x.T**2)).pow(2).sum(),
    "where": lambda t, x: t.where(x > 1, x**3, x.exp()).sum(),
    "lerp": lambda t, x: t.lerp(x**2, x.exp(), x).sum(),
    "addcmul": lambda t, x: t.addcmul(x, x, x.T, value=2).addcdiv(x, x + 1).pow(2).sum(),
    "sum_mean": lambda t, x: (x.sum(0) ** 2).mean() + (x.mean(1) ** 3).sum(),
    "prod": lambda t, x: x.prod() + (x.prod(0) ** 2).sum(),
    "variance": lambda t, x: x.var() ** 2 + (x.std(0) ** 3).sum() + x.var(1, correction=0).prod(),
    "norm": lambda t, x: x.norm() ** 3 + x.norm(p=1, dim=0).prod() + x.norm(p=3, dim=1).sum(),
    "logsumexp": lambda t, x: (x.logsumexp(0) ** 2).sum() + x.logsumexp((0, 1)).exp(),
    "cumsum": lambda t, x: (x.cumsum(0) ** 2).sum() + (x.cumsum(1).exp()).sum(),
    "cumprod": lambda t, x: (x.cumprod(0) ** 2).sum() + x.cumprod(1).sin().sum(),
    "logcumsumexp": lambda t, x: (x.logcumsumexp(0) ** 2).sum(),
    "extrema": lambda t, x: (x.max(0).values ** 3 + x.amin(1) ** 2).sum() + x.max() ** 2,
    "median_sort": lambda t, x: (x.sort(0).values * x).pow(2).sum() + x.median() ** 3,
    "topk": lambda t, x: (x.topk(1, dim=1).values ** 3).sum(),
    "matmul": lambda t, x: (x @ x @ x.T).pow(2).sum(),
    "matrix_vector": lambda t, x: (x @ x[0]).dot(x[:, 1]) ** 2 + t.outer(x[0], x[1]).pow(2).sum(),
    "bmm": lambda t, x: t.bmm(x.unsqueeze(0), (x * 2).unsqueeze(0)).pow(2).sum(),
    "addmm": lambda t, x: t.addmm(x, x, x, beta=0.5, alpha=2).pow(2).sum(),
    "einsum": lambda t, x: t.einsum("ij,jk,ik->i", x, x, x.exp()).pow(2).sum(),
    "kron": lambda t, x: (t.kron(x, x) ** 2).sum(),
    "reshape_permute": lambda t, x: (x.reshape(-1)[:3] * x.T.flatten()[1:]).pow(2).sum(),
    "expand_repeat": lambda t, x: (x.expand(3, 2, 2) ** 3).sum() + (x.repeat(2, 1) ** 3).sum(),
    "cat_stack": lambda t, x: (t.cat([x, x**2]) ** 2).sum() + (t.stack([x, x.exp()], 1) ** 2).sum(),
    "flip_roll": lambda t, x: (x.flip(0) * x.roll(1, 1) * x).sum(),
    "pad": lambda t, x: (t.nn.functional.pad(x, (1, 1), value=2.0) ** 3).sum(),
    "tril_diag": lambda t, x: (x.tril() ** 3).sum() + (x.diagonal() ** 3).sum() + x.trace() ** 2,
    "indexing": lambda t, x: (x[[0, 0, 1]] ** 3).sum() + (x[x > 1] ** 2).sum() + x[1, 0] ** 3,
    "gather": lambda t, x: (x.gather(1, t.tensor([[0, 0], [1, 0]])) ** 3).sum(),
    "index_select": lambda t, x: (x.index_select(0, t.tensor([1, 1])) ** 3).sum(),
    "scatter_add": lambda t, x: (x.scatter_add(0, t.tensor([[0, 1], [1, 1]]), x**2) ** 2).sum(),
    "masked": lambda t, x: (
        (x.masked_fill(x > 1.5, 0.0) ** 3).sum() + x.masked_select(x < 1).pow(3).sum()
    ),
    "relu_family": lambda t, x: ((x - 1).relu() ** 3 + t.nn.functional.elu(x - 1) ** 2).sum(),
    "gelu": lambda t, x: t.nn.functional.gelu(x - 1).sum(),
    "gelu_tanh": lambda t, x: t.nn.functional.gelu(x - 1, approximate="tanh").sum(),
    "silu_mish": lambda t, x: (t.nn.functional.silu(x - 1) + t.nn.functional.mish(x - 1)).sum(),
    "softplus": lambda t, x: t.nn.functional.softplus(x, beta=2).sum(),
    "logsigmoid": lambda t, x: t.nn.functional.logsigmoid(x).sum(),
    "softmax": lambda t, x: (x.softmax(1) * x).sum() + (x.log_softmax(0) ** 2).sum(),
    "glu": lambda t, x: (t.nn.functional.glu(x, 1) ** 2).sum(),
    "prelu": lambda t, x: (t.prelu(x - 1, x[0, :1]) ** 2).sum(),
    "determinant": lambda t, x: t.linalg.det(x) ** 2 + t.linalg.slogdet(x)[1],
    "inverse": lambda t, x: (t.linalg.inv(x) ** 2).sum() + t.linalg.solve(x, x[0]).pow(2).sum(),
    "cholesky": lambda t, x: (t.linalg.cholesky(x @ x.T + t.eye(2, dtype=t.float64)) ** 2).sum(),
    "eigenvalues": lambda t, x: (t.linalg.eigvalsh(x + x.T) ** 3).sum(),
    "singular_values": lambda t, x: (t.linalg.svdvals(x) ** 3).sum(),
    "qr": lambda t, x: (t.linalg.qr(x)[1] ** 2).sum(),
    "fft": lambda t, x: (t.fft.fft(x).abs() ** 3).sum() + (t.fft.rfft(x).real ** 3).sum(),
    "convolution": lambda t, x: (
        t.nn.functional.conv1d(x[None], x[None, :, :1]) * x.sum(0)
    ).sum(),
    "cross_entropy": lambda t, x: t.nn.functional.cross_entropy(x, t.tensor([0, 1])) ** 2,
    "mse_loss": lambda t, x: t.nn.functional.mse_loss(x, x.T.detach()) ** 2,
    "nan_to_num": lambda t, x: (x.nan_to_num() ** 3).sum(),
    "cosine_of_rows": lambda t, x: ((x[0] * x[1]).sum() / (x[0].norm() * x[1].norm())) ** 2,
}  # fmt: skip


def _family(name, function):
    def family(t):
        x = leaf(t, [[0.5, 1.3], [2.1, 0.8]])
        y = function(t, x)
        (g,) = t.autograd.grad(y, x, create_graph=True)
        (gg,) = t.autograd.grad(
            (g * const(t, [[1.0, -2.0], [0.5, 3.0]])).sum(), x, allow_unused=True
        )
        return y, g, gg

    SCENARIOS[f"higher_order-grad_of_grad_{name}"] = family


for _name, _function in FAMILIES.items():
    _family(_name, _function)
