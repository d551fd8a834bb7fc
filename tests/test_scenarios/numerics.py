"""Values where gradients are delicate: ties, kinks, zeros, infinities, NaN, 0-d, empty."""

from __future__ import annotations

from .harness import SCENARIOS, const, leaf, scenario

INF, NAN = float("inf"), float("nan")
SPECIAL = [-INF, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, INF, NAN]


@scenario
def ties_of_max_over_all_and_along_a_dimension(t):
    x, y = leaf(t, [2.0, 5.0, 5.0, 1.0]), leaf(t, [[2.0, 2.0], [3.0, 1.0]])
    x.max().backward()
    y.max(dim=1).values.sum().backward()
    return x.grad, y.grad


@scenario
def ties_of_amax_and_amin(t):
    x, y = leaf(t, [[2.0, 5.0, 5.0], [1.0, 1.0, 1.0]]), leaf(t, [[0.0, 0.0], [3.0, 1.0]])
    x.amax(1).sum().backward()
    y.amin((0, 1)).backward()
    return x.grad, y.grad


@scenario
def ties_of_maximum_and_minimum(t):
    a, b = leaf(t, [1.0, 2.0, 3.0]), leaf(t, [1.0, 5.0, 3.0])
    (t.maximum(a, b) + 10 * t.minimum(a, b)).sum().backward()
    return a.grad, b.grad


@scenario
def ties_of_fmax_and_fmin(t):
    a, b = leaf(t, [1.0, 2.0, NAN]), leaf(t, [1.0, NAN, 3.0])
    y = t.fmax(a, b) + 10 * t.fmin(a, b)
    y.sum().backward()
    return y, a.grad, b.grad


@scenario
def ties_of_sort_median_and_topk(t):
    x = leaf(t, [2.0, 1.0, 2.0, 1.0, 2.0])
    weights = const(t, [1.0, 2.0, 3.0, 4.0, 5.0])
    (x.sort(stable=True).values * weights).sum().backward()
    return x.grad


@scenario
def clamp_at_its_bounds(t):
    x = leaf(t, [-2.0, -1.0, 0.0, 1.0, 2.0])
    x.clamp(-1, 1).sum().backward()
    first = x.grad.clone()
    x.clamp(min=1).sum().backward()
    x.clamp(max=-1).sum().backward()
    return first, x.grad


@scenario
def clamp_with_tensor_bounds(t):
    x, low, high = leaf(t, [-2.0, 0.5, 2.0, 1.0]), leaf(t, [-1.0, 0.0, 0.0, 1.0]), leaf(t, 1.0)
    x.clamp(low, high).sum().backward()
    return x.grad, low.grad, high.grad


@scenario
def absolute_value_and_sign_at_zero(t):
    x = leaf(t, [-1.0, 0.0, -0.0, 2.0])
    (x.abs() + x.sign()).sum().backward()
    return x.grad


@scenario
def norms_at_zero(t):
    found = []
    for p in (1, 2, 3, INF):
        x = leaf(t, [0.0, 0.0])
        x.norm(p=p).backward()
        found.append(x.grad)
    return found


@scenario
def norm_of_rows_one_of_them_zero(t):
    x = leaf(t, [[3.0, 4.0], [0.0, 0.0]])
    x.norm(dim=1).sum().backward()
    return x.grad


@scenario
def infinity_norm_ties(t):
    x = leaf(t, [3.0, -3.0, 1.0])
    x.norm(p=INF).backward()
    return x.grad


@scenario
def distance_of_equal_points(t):
    a, b = leaf(t, [1.0, 2.0]), leaf(t, [1.0, 2.0])
    ((a - b) ** 2).sum().sqrt().backward()
    return a.grad, b.grad


@scenario
def sqrt_and_rsqrt_at_zero(t):
    x = leaf(t, [0.0, 4.0, -1.0])
    x.sqrt().sum().backward()
    y = leaf(t, [0.0, 4.0])
    y.rsqrt().sum().backward()
    return x.grad, y.grad


@scenario
def powers_at_zero(t):
    found = []
    for p in (0, 1, 2, 3, 0.5, -1, 1.5):
        x = leaf(t, [0.0, 2.0, -2.0])
        (x**p).sum().backward()
        found.append(x.grad)
    return found


@scenario
def zero_to_a_tensor_power(t):
    x, p = leaf(t, [0.0, 0.0, 0.0, 2.0, -2.0]), leaf(t, [0.0, 1.0, 2.0, 3.0, 2.0])
    y = x**p
    y.sum().backward()
    return y, x.grad, p.grad


@scenario
def number_to_a_tensor_power(t):
    p = leaf(t, [0.0, 1.0, -1.0])
    (2.0**p).sum().backward()
    q = leaf(t, [0.0, 1.0, 2.0])
    (0.0**q).sum().backward()
    return p.grad, q.grad


@scenario
def logarithms_at_zero_and_below(t):
    x = leaf(t, [0.0, -1.0, 1.0, INF])
    x.log().sum().backward()
    y = leaf(t, [-1.0, 0.0, 1.0])
    y.log1p().sum().backward()
    return x.grad, y.grad


@scenario
def division_by_zero(t):
    a, b = leaf(t, [1.0, 0.0, -1.0]), leaf(t, [0.0, 0.0, 0.0])
    y = a / b
    y.sum().backward()
    return y, a.grad, b.grad


@scenario
def nan_of_the_branch_not_taken(t):
    x = leaf(t, [0.0, 4.0])
    t.where(x > 0, x.sqrt(), t.zeros((), dtype=t.float64)).sum().backward()
    return x.grad


@scenario
def nan_avoided_by_a_safe_argument(t):
    x = leaf(t, [0.0, 4.0])
    safe = t.where(x > 0, x, t.ones((), dtype=t.float64))
    t.where(x > 0, safe.sqrt(), t.zeros((), dtype=t.float64)).sum().backward()
    return x.grad


@scenario
def nan_spreads_only_where_it_is(t):
    x = leaf(t, [1.0, NAN, 3.0])
    (x * x).sum().backward()
    return x.grad


@scenario
def infinity_times_zero(t):
    x = leaf(t, [INF, 1.0])
    (x * const(t, [0.0, 1.0])).sum().backward()
    return x.grad


@scenario
def nan_to_num_gradient(t):
    x = leaf(t, [NAN, INF, -INF, 1.0])
    y = x.nan_to_num(nan=0.0, posinf=10.0, neginf=-10.0)
    y.sum().backward()
    return y, x.grad


@scenario
def prod_with_zeros(t):
    found = []
    for values in ([2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0]):
        x = leaf(t, values)
        x.prod().backward()
        found.append(x.grad)
    return found


@scenario
def prod_along_a_dimension_with_zeros(t):
    x = leaf(t, [[2.0, 0.0], [0.0, 0.0], [1.0, 3.0]])
    x.prod(dim=1).sum().backward()
    return x.grad


@scenario
def cumprod_with_zeros(t):
    x = leaf(t, [2.0, 0.0, 3.0, 0.0, 4.0])
    (x.cumprod(0) * const(t, [1.0, 2.0, 3.0, 4.0, 5.0])).sum().backward()
    return x.grad


@scenario
def cummax_with_ties(t):
    x = leaf(t, [1.0, 3.0, 3.0, 2.0, 5.0])
    values, indices = x.cummax(0)
    (values * const(t, [1.0, 2.0, 3.0, 4.0, 5.0])).sum().backward()
    return values, indices, x.grad


@scenario
def logsumexp_of_infinities(t):
    found = []
    for values in ([-INF, -INF], [-INF, 1.0], [1000.0, 1000.0], [INF, 1.0]):
        x = leaf(t, values)
        y = x.logsumexp(0)
        y.backward()
        found.append((y, x.grad))
    return found


@scenario
def softmax_of_infinities(t):
    found = []
    for values in ([-INF, -INF], [-INF, 1.0], [1000.0, 999.0]):
        x = leaf(t, values)
        y = x.softmax(0)
        (y * const(t, [1.0, 2.0])).sum().backward()
        z = leaf(t, values)
        w = z.log_softmax(0)
        w[1].backward()
        found.append((y, x.grad, w, z.grad))
    return found


@scenario
def variance_of_one_element(t):
    x = leaf(t, [3.0])
    y = x.var(correction=0)
    y.backward()
    return y, x.grad


@scenario
def standard_deviation_of_equal_values(t):
    x = leaf(t, [2.0, 2.0, 2.0])
    y = x.std()
    y.backward()
    return y, x.grad


@scenario
def remainders(t):
    a, b = leaf(t, [5.5, -5.5, 3.0]), leaf(t, [2.0, 2.0, -2.0])
    (a % b + 2 * t.fmod(a, b)).sum().backward()
    return a.grad, b.grad


@scenario
def arc_functions_at_their_ends(t):
    x = leaf(t, [-1.0, 1.0, 0.0])
    (x.asin() + x.acos()).sum().backward()
    y = leaf(t, [0.0, 0.0])
    t.atan2(y, const(t, [0.0, -1.0])).sum().backward()
    return x.grad, y.grad


@scenario
def hypot_and_atan2_at_the_origin(t):
    a, b = leaf(t, [0.0, 3.0]), leaf(t, [0.0, 4.0])
    (t.hypot(a, b) + t.atan2(a, b)).sum().backward()
    return a.grad, b.grad


@scenario
def zero_dim_tensors(t):
    x = leaf(t, 2.0)
    (x.sum() * x.mean() + x.max() + x.reshape(1).squeeze() + x.expand(3).sum()).backward()
    return x.grad, tuple(x.grad.shape)


@scenario
def zero_dim_with_dim_arguments(t):
    x = leaf(t, 2.0)
    (x.sum(0) + x.softmax(0) + x.cumsum(-1) + x.prod(0) + x.logsumexp(0)).backward()
    return x.grad


@scenario
def empty_tensors(t):
    x = leaf(t, [])
    y = (x * 2).sum() + x.prod() + x.norm()
    y.backward()
    return y, x.grad, tuple(x.grad.shape)


@scenario
def empty_matmul(t):
    a = t.zeros(2, 0, dtype=t.float64, requires_grad=True)
    b = t.zeros(0, 3, dtype=t.float64, requires_grad=True)
    y = a @ b
    y.sum().backward()
    return y, a.grad, b.grad


@scenario
def empty_cat_and_slices(t):
    x, e = leaf(t, [1.0, 2.0]), leaf(t, [])
    y = t.cat([e, x[2:], x])
    (y * y).sum().backward()
    return y, x.grad, e.grad


@scenario
def mean_of_nothing(t):
    x = leaf(t, [])
    y = x.mean()
    y.backward()
    return y, x.grad


@scenario
def size_zero_batches(t):
    w, x = leaf(t, [[1.0, 2.0]]), t.zeros(0, 1, dtype=t.float64)
    (x @ w).sum().backward()
    return w.grad


@scenario
def large_and_small_values(t):
    x = leaf(t, [1e-300, 1e300, 1e-160])
    y = x.log() + x.sqrt() + t.nn.functional.softplus(-x)
    y.sum().backward()
    return y, x.grad


@scenario
def sigmoid_saturates(t):
    x = leaf(t, [-800.0, -40.0, 40.0, 800.0])
    y = x.sigmoid()
    y.sum().backward()
    z = leaf(t, [-800.0, -40.0, 40.0, 800.0])
    t.nn.functional.logsigmoid(z).sum().backward()
    return y, x.grad, z.grad


@scenario
def lerp_at_the_switch_of_its_formulas(t):
    a, b, w = leaf(t, [1.0, 1.0]), leaf(t, [3.0, 3.0]), leaf(t, [0.25, 0.75])
    y = t.lerp(a, b, w)
    y.sum().backward()
    return y, a.grad, b.grad, w.grad


@scenario
def floor_divide_has_no_gradient_path(t):
    a = leaf(t, [5.0, 7.0])
    y = t.div(a, 2, rounding_mode="floor") + a
    y.sum().backward()
    return y, a.grad


ACTIVATIONS = {
    "relu": lambda F, x: F.relu(x),
    "relu6": lambda F, x: F.relu6(x * 2),
    "leaky_relu": lambda F, x: F.leaky_relu(x, 0.1),
    "elu": lambda F, x: F.elu(x, 2.0),
    "selu": lambda F, x: F.selu(x),
    "celu": lambda F, x: F.celu(x, 2.0),
    "softplus": lambda F, x: F.softplus(x, beta=2, threshold=1.5),
    "logsigmoid": lambda F, x: F.logsigmoid(x),
    "hardtanh": lambda F, x: F.hardtanh(x),
    "hardsigmoid": lambda F, x: F.hardsigmoid(x[:-1]),  # PyTorch's vectorised NaN gradient varies
    "hardswish": lambda F, x: F.hardswish(x[1:-1]),
    "hardshrink": lambda F, x: F.hardshrink(x),
    "softshrink": lambda F, x: F.softshrink(x),
    "tanhshrink": lambda F, x: F.tanhshrink(x),
    "threshold": lambda F, x: F.threshold(x, 0.5, 7.0),
    "softsign": lambda F, x: F.softsign(x[1:]),
    "silu": lambda F, x: F.silu(x),
    "mish": lambda F, x: F.mish(x),
    "gelu": lambda F, x: F.gelu(x),
    "gelu_tanh": lambda F, x: F.gelu(x, approximate="tanh"),
    "rrelu_in_evaluation": lambda F, x: F.rrelu(x),
}  # fmt: skip


def _kinks(name, function):
    def kinks(t):
        x = leaf(t, SPECIAL)
        y = function(t.nn.functional, x)
        y.sum().backward()
        return y, x.grad

    SCENARIOS[f"numerics-special_values_of_{name}"] = kinks


for _name, _function in ACTIVATIONS.items():
    _kinks(_name, _function)


@scenario
def prelu_at_zero(t):
    x, w = leaf(t, [[-1.0, 0.0], [INF, 2.0]]), leaf(t, [0.5, 0.25])
    y = t.prelu(x, w)
    y.sum().backward()
    return y, x.grad, w.grad
