"""`ad.func` against `torch.func`: values, shapes, errors, and transforms of transforms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import adjoint as ad
from adjoint.ops.reduce.counting import BinCount
from adjoint.runtime.dispatch import apply

pytestmark = pytest.mark.filterwarnings(  # PyTorch's own
    "ignore::DeprecationWarning",
    "ignore:There is a performance drop:UserWarning",
    "ignore:Attempted to insert a get_attr Node:UserWarning",
)
F = {ad: ad.nn.functional, torch: torch.nn.functional}


def arrays(*shapes, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(np.float32) for shape in shapes]


def flat(found):
    if isinstance(found, dict):
        return [y for key in sorted(found) for y in flat(found[key])]
    if isinstance(found, (tuple, list)):
        return [y for each in found for y in flat(each)]
    return [found]


def both(program, *shapes, seed=0, tolerance=1e-5):
    """`program(library, func, *tensors)` gives the same on both."""
    given = arrays(*shapes, seed=seed)
    ours = flat(program(ad, ad.func, *map(ad.tensor, given)))
    theirs = flat(program(torch, torch.func, *map(torch.tensor, given)))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2]
        assert a.requires_grad == b.requires_grad
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
        )


def smooth(lib, x):
    return (x.sin() * x.exp()).cumsum(-1) / (1 + x * x)


def scalar(lib, x):
    return (lib.tanh(x) * x).sum() + (x.softmax(-1) ** 2).sum()


TRANSFORMS = {
    "grad": lambda lib, f: f.grad(lambda x: scalar(lib, x)),
    "grad_and_value": lambda lib, f: f.grad_and_value(lambda x: scalar(lib, x)),
    "vjp": lambda lib, f: lambda x: f.vjp(lambda x: smooth(lib, x), x)[1](lib.ones_like(x))[0],
    "jvp": lambda lib, f: lambda x: f.jvp(lambda x: smooth(lib, x), (x,), (x.cos(),)),
    "jacrev": lambda lib, f: f.jacrev(lambda x: smooth(lib, x)),
    "jacrev-chunks": lambda lib, f: f.jacrev(lambda x: smooth(lib, x), chunk_size=2),
    "jacfwd": lambda lib, f: f.jacfwd(lambda x: smooth(lib, x)),
    "hessian": lambda lib, f: f.hessian(lambda x: scalar(lib, x)),
    "rev-rev": lambda lib, f: f.jacrev(f.jacrev(lambda x: scalar(lib, x))),
    "rev-fwd": lambda lib, f: f.jacrev(f.jacfwd(lambda x: scalar(lib, x))),
    "fwd-fwd": lambda lib, f: f.jacfwd(f.jacfwd(lambda x: scalar(lib, x))),
    "linearize": lambda lib, f: lambda x: f.linearize(lambda x: smooth(lib, x), x)[1](x.cos()),
    "grad-grad": lambda lib, f: f.grad(lambda x: f.grad(lambda y: scalar(lib, y))(x).pow(2).sum()),
    "grad-vmap": lambda lib, f: f.grad(
        lambda x: f.vmap(lambda v: lib.outer(v, v).sum() * v)(x.reshape(-1, 1)).sum()
    ),
    "jvp-vjp": lambda lib, f: lambda x: f.jvp(
        lambda x: f.vjp(lambda x: smooth(lib, x), x)[1](x * 2)[0], (x,), (x.cos(),)
    ),
    "vjp-jvp": lambda lib, f: lambda x: f.vjp(
        lambda x: f.jvp(lambda x: smooth(lib, x), (x,), (x.cos(),))[1], x
    )[1](lib.ones_like(x)),
    "jvp-vmap": lambda lib, f: lambda x: f.jvp(
        lambda x: f.vmap(lambda v: v.exp() * x.sum())(x), (x,), (x.cos(),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    both(lambda lib, f, x: TRANSFORMS[name](lib, f)(x), (4,))


@pytest.mark.parametrize("name", sorted(TRANSFORMS.keys() - {"linearize"}))
def test_transforms_of_a_batch(name):
    both(lambda lib, f, x: f.vmap(TRANSFORMS[name](lib, f))(x), (3, 4))


def test_linearize_in_a_batch():  # PyTorch's refuses
    (x,) = map(ad.tensor, arrays((3, 4)))
    pushed = ad.func.vmap(TRANSFORMS["linearize"](ad, ad.func))(x)
    _, expected = ad.func.vmap(TRANSFORMS["jvp"](ad, ad.func))(x)
    assert ad.allclose(pushed, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["grad", "jvp", "jacrev", "jacfwd", "hessian"])
def test_a_batch_in_a_batch(name):
    both(lambda lib, f, x: f.vmap(f.vmap(TRANSFORMS[name](lib, f)), 1, 1)(x), (3, 2, 4))


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("name", ["grad", "jvp", "jacrev", "jacfwd", "hessian"])
def test_no_examples_and_one(name, size):
    both(lambda lib, f, x: f.vmap(TRANSFORMS[name](lib, f))(x), (size, 3))


@pytest.mark.parametrize("name", ["grad", "jacrev", "jacfwd", "vjp"])
def test_of_one_element(name):
    both(lambda lib, f, x: TRANSFORMS[name](lib, f)(x), (1,))


def test_transforms_are_differentiable_from_outside():
    def program(lib, f, w, x):
        w.requires_grad_()
        y = f.vmap(f.grad(lambda x: (w * x).sin().sum()))(x)
        (g,) = lib.autograd.grad(y.pow(2).sum(), w)
        return g, y, f.grad(lambda x: (w * x * x).sum())(x[0]), f.jacfwd(lambda w: w * w * x)(w)

    both(program, (4,), (3, 4))


def test_a_gradient_in_no_grad_is_a_gradient_and_has_none_itself():
    def program(lib, f, x):
        x.requires_grad_()
        with lib.no_grad():
            outside = f.grad(lambda x: (x * x).sum())(x)

        def inside(x):
            with lib.no_grad():
                y = x * 2
            return (y * x).sum()

        rows = f.grad(lambda x: f.vmap(inside)(x.reshape(2, 2)).sum())(x.detach())
        return (
            outside,
            f.grad(inside)(x.detach()),
            rows,
            f.jvp(inside, (x.detach(),), (x.detach(),)),
        )

    both(program, (4,))


def test_detach_cuts_at_every_level():
    def program(lib, f, x):
        detached = f.grad(lambda x: f.vmap(lambda v: v.detach() * v)(x).sum())(x)
        return (
            detached,
            f.jvp(lambda x: x.detach() * x, (x,), (x,)),
            f.vmap(f.grad(lambda v: (v.detach() * v * v).sum()))(x.reshape(2, 2)),
        )

    both(program, (4,))


def test_per_sample_gradients_of_a_module_and_its_ensemble():
    def program(lib, f, x, y, w, b):
        model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.ReLU(), lib.nn.Linear(4, 2))
        values = {
            "0.weight": w[:4, :3], "0.bias": b[:4], "2.weight": w[:2, :4], "2.bias": b[4:],
        }  # fmt: skip

        def loss(values, x, target):
            out = f.functional_call(model, values, (x.unsqueeze(0),))
            return F[lib].cross_entropy(out, target.unsqueeze(0))

        targets = lib.tensor([0, 1, 1, 0, 1])
        gradients = f.vmap(f.grad(loss), in_dims=(None, 0, 0))(values, x, targets)
        many = {key: lib.stack([value, value * 2]) for key, value in values.items()}
        both = f.vmap(lambda v: f.functional_call(model, v, (x,)))(many)
        each = f.vmap(f.vmap(f.grad(loss), (None, 0, 0)), (0, None, None))(many, x, targets)
        return gradients, both, each

    both(program, (5, 3), (5,), (4, 4), (6,))


def test_per_sample_gradients_record_nothing_outside():
    """Neither forward nor backward leaves a node in tensors outside."""
    w, x = ad.ones(3), ad.ones(4, 3)
    y = ad.func.vmap(ad.func.grad(lambda w, x: (w * x).sum().sin()), (None, 0))(w, x)
    assert not y.requires_grad and y.grad_fn is None


def test_stack_module_state():
    def program(lib, f, x):
        lib.manual_seed(0)
        models = [lib.nn.BatchNorm1d(3) for _ in range(2)]
        with lib.no_grad():
            for i, model in enumerate(models):
                model.weight.fill_(i + 1.0)
        parameters, buffers = f.stack_module_state(models)
        assert sorted(parameters) == ["bias", "weight"] and parameters["weight"].is_leaf
        for model in models:
            model.eval()
        return parameters, f.vmap(lambda p, b: f.functional_call(models[0], (p, b), (x,)))(
            parameters, buffers
        )

    both(program, (4, 3))
    with pytest.raises(RuntimeError, match="at least one model"):
        ad.func.stack_module_state([])
    with pytest.raises(ValueError, match="same class"):
        ad.func.stack_module_state([ad.nn.Linear(1, 1), ad.nn.ReLU()])


NETWORKS = {
    "conv": lambda lib, x, w: F[lib].conv2d(x.reshape(1, 2, 4, 4), w.reshape(4, 1, 3, 3), groups=2),
    "transposed": lambda lib, x, w: F[lib].conv_transpose2d(
        x.reshape(1, 2, 4, 4), w.reshape(2, 2, 3, 3), stride=2
    ),
    "linear": lambda lib, x, w: F[lib].linear(x.reshape(4, 8), w[:16].reshape(2, 8), w[16:18]),
    "pool": lambda lib, x, w: F[lib].max_pool2d(x.reshape(2, 4, 4), 2) * w.sum(),
    "mean_pool": lambda lib, x, w: F[lib].avg_pool2d(x.reshape(2, 4, 4), 2) * w.sum(),
    "norm": lambda lib, x, w: F[lib].layer_norm(x.reshape(4, 8), (8,), w[:8], w[8:16]),
    "batch_norm": lambda lib, x, w: F[lib].batch_norm(
        x.reshape(8, 4), None, None, w[:4], w[4:8], training=True
    ),
    "attention": lambda lib, x, w: F[lib].scaled_dot_product_attention(
        x.reshape(1, 4, 8), x.reshape(1, 4, 8), w[:32].reshape(1, 4, 8)
    ),
    "bmm": lambda lib, x, w: lib.bmm(x.reshape(2, 4, 4), w[:32].reshape(2, 4, 4)),
    "einsum": lambda lib, x, w: lib.einsum("ij,kj->ki", x.reshape(4, 8), w[:16].reshape(2, 8)),
    "embedding": lambda lib, x, w: x[0]
    * F[lib].embedding(lib.tensor([1, 0, 1]), w[:8].reshape(2, 4)),
    "gather": lambda lib, x, w: x.reshape(4, 8)[lib.tensor([0, 3]), lib.tensor([1, 1])] * w[:2],
    "slice": lambda lib, x, w: x.reshape(4, 8)[1:, ::2].flip(0).t() * w[0],
    "sort": lambda lib, x, w: x.sort(descending=True).values * w[:32],
    "cat": lambda lib, x, w: lib.cat([x, w]).roll(3),
    "solve": lambda lib, x, w: lib.linalg.solve(
        x[:16].reshape(4, 4) + 9 * lib.eye(4), w[:4]
    ),
    "losses": lambda lib, x, w: F[lib].smooth_l1_loss(x, w[:32]) + F[lib].kl_div(
        x.log_softmax(0), w[:32].softmax(0), reduction="sum"
    ),
    "gelu": lambda lib, x, w: F[lib].gelu(x) * F[lib].silu(w[:32]) + F[lib].softplus(x),
    "lstm-like": lambda lib, x, w: lib.sigmoid(x[:8]) * lib.tanh(w[:8]).chunk(2)[0].repeat(2),
    "where": lambda lib, x, w: lib.where(x > 0, x, w[:32]).clamp(-1, 1).prod(),
    "norms": lambda lib, x, w: x.norm() + w.std() + x.logsumexp(0) + lib.linalg.vector_norm(w, 3),
    "pad": lambda lib, x, w: F[lib].pad(x.reshape(4, 8), (1, 2), value=3.0) * w[0],
    "interpolate": lambda lib, x, w: F[lib].interpolate(x.reshape(1, 2, 4, 4), scale_factor=2),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_in_a_batch_and_their_derivatives(name):
    """With inputs, weights or both batched; per-sample gradients; tangents; gradients of all."""
    run = NETWORKS[name]

    def program(lib, f, x, w):
        def layer(x, w):
            return run(lib, x, w)

        def loss(x, w):
            return run(lib, x, w).sin().sum()

        dims = [(0, 0), (0, None), (None, 0)]
        outputs = [
            f.vmap(layer, d)(*(t if i == 0 else t[0] for t, i in zip((x, w), d, strict=True)))
            for d in dims
        ]
        gradients = [
            f.vmap(f.grad(loss, (0, 1)), d)(
                *(t if i == 0 else t[0] for t, i in zip((x, w), d, strict=True))
            )
            for d in dims
        ]
        whole = f.grad(lambda x, w: f.vmap(loss)(x, w).sum(), (0, 1))(x, w)
        tangents = f.jvp(layer, (x[0], w[0]), (x[1], w[1]))
        pushed = f.vmap(lambda x, w: f.jvp(loss, (x, w), (x.cos(), w.cos())))(x, w)
        return outputs, gradients, whole, tangents, pushed

    both(program, (3, 32), (3, 36), tolerance=2e-4)


def test_in_and_out_dims():
    def program(lib, f, x, y):
        one = f.vmap(lambda a, b: (a, {"s": a @ b}), in_dims=(1, None), out_dims=(-1, {"s": 0}))
        tree = f.vmap(lambda d, a: d["a"] * a[0] + d["b"], in_dims=({"a": 0, "b": None}, [1]))
        kept = f.vmap(lambda a: (a, y), out_dims=(0, None))(x)
        return one(x, y), tree({"a": x, "b": y[0]}, [x.t()]), kept, f.vmap(lib.dot, -1)(x, x)

    both(program, (3, 2), (3,))


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 9])
def test_chunks(chunk):
    both(
        lambda lib, f, x: f.vmap(lambda v: (v * 2, v.sum()), out_dims=(1, 0), chunk_size=chunk)(x),
        (5, 3),
    )


def test_writes():
    def program(lib, f, x):
        def write(v):
            y = v.clone()
            y[0] = 5.0
            y[1:].mul_(v[0])
            y.add_(v)
            z = v.new_zeros(3) + v * 0
            z[1] = v[2]
            z.view(3, 1)[2, 0] += 1
            return y, z, y.cumsum(0).sub_(1)

        return (
            f.vmap(write)(x),
            f.vmap(f.grad(lambda v: sum(y.pow(2).sum() for y in write(v))))(x),
            f.grad(lambda x: sum(y.pow(2).sum() for y in f.vmap(write)(x)))(x),
            f.jvp(write, (x[0],), (x[1],)),
            f.jvp(lambda x: f.vmap(write)(x), (x,), (x.cos(),)),
        )

    both(program, (2, 3))


def test_what_is_written_to_inputs_is_seen_outside():
    def program(lib, f, x):
        y, z = x.clone(), x.clone()
        f.vmap(lambda v: v.add_(1), in_dims=1)(y)
        f.jvp(lambda v: v.mul_(2), (z,), (x,))
        return y, z

    both(program, (2, 3))


def test_a_buffer_of_a_jvp_takes_tangents():
    def program(lib, f, x):
        def fill(x):
            out = lib.zeros(3)
            for i in range(3):
                out[i] = x[i] ** 2
            return out

        return f.jacfwd(fill)(x), f.jvp(fill, (x,), (x,))

    both(program, (3,))


REFUSED = {
    "item": lambda lib, f, x: f.vmap(lambda v: v.sum().item())(x),
    "bool": lambda lib, f, x: f.vmap(lambda v: v if v.sum() > 0 else -v)(x),
    "numpy": lambda lib, f, x: f.vmap(lambda v: lib.tensor(v.numpy()))(x),
    "shared": lambda lib, f, x: f.vmap(lambda v: lib.zeros(2).add_(v))(x),
    "random": lambda lib, f, x: f.vmap(lambda v: v + lib.rand(2))(x),
    "dropout": lambda lib, f, x: f.vmap(lambda v: F[lib].dropout(v))(x),
    "nonzero": lambda lib, f, x: f.vmap(lambda v: v.nonzero())(x),
    "mask": lambda lib, f, x: f.vmap(lambda v: v[v > 0])(x),
    "unique": lambda lib, f, x: f.vmap(lambda v: v.unique())(x),
    "same": lambda lib, f, x: f.vmap(lib.bernoulli, randomness="same")(x.sigmoid()),
    "in_dims": lambda lib, f, x: f.vmap(lib.sin, in_dims=(0, 0))(x),
    "in_dim": lambda lib, f, x: f.vmap(lib.sin, in_dims=4)(x),
    "none": lambda lib, f, x: f.vmap(lib.sin, in_dims=(None,))(x),
    "sizes": lambda lib, f, x: f.vmap(lib.add)(x, x[:1]),
    "no_inputs": lambda lib, f, x: f.vmap(lambda: x)(),
    "number": lambda lib, f, x: f.vmap(lambda v: 3)(x),
    "out_dims": lambda lib, f, x: f.vmap(lambda v: v, out_dims=(0, 1))(x),
    "out_none": lambda lib, f, x: f.vmap(lambda v: v, out_dims=None)(x),
    "randomness": lambda lib, f, x: f.vmap(lib.sin, randomness="some")(x),
    "chunk": lambda lib, f, x: f.vmap(lib.sin, chunk_size=0)(x),
    "vector": lambda lib, f, x: f.grad(lib.sin)(x),
    "integer": lambda lib, f, x: f.grad(lambda v: v.sum())(x.long()),
    "argnums": lambda lib, f, x: f.grad(lambda v: v.sum(), argnums=1)(x),
    "twice": lambda lib, f, x: f.grad(lambda a, b: a.sum(), argnums=(0, 0))(x, x),
    "aux": lambda lib, f, x: f.grad(lambda v: v.sum(), has_aux=True)(x),
    "output": lambda lib, f, x: f.vjp(lambda v: 3.0, x),
    "cotangents": lambda lib, f, x: f.vjp(lambda v: (v, v), x)[1](x),
    "cotangent": lambda lib, f, x: f.vjp(lambda v: v, x)[1](x[0]),
    "tangent": lambda lib, f, x: f.jvp(lib.sin, (x,), (x[0],)),
    "tuple": lambda lib, f, x: f.jvp(lib.sin, x, x),
    "structure": lambda lib, f, x: f.jvp(lib.sin, (x,), (x, x)),
    "strict": lambda lib, f, x: f.jvp(lambda v: lib.ones(2), (x,), (x,), strict=True),
    "pushed": lambda lib, f, x: f.linearize(lib.sin, x)[1](x, x),
    "shape": lambda lib, f, x: f.vmap(lambda v: v @ lib.ones(3))(x),
    "index": lambda lib, f, x: f.vmap(lambda v: v[lib.tensor([9])])(x),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    (given,) = arrays((3, 2))
    with pytest.raises(Exception) as theirs:
        REFUSED[name](torch, torch.func, torch.tensor(given))
    with pytest.raises(ad.AdjointError) as ours:
        REFUSED[name](ad, ad.func, ad.tensor(given))
    kind = type(theirs.value)
    assert isinstance(ours.value, (kind, RuntimeError) if kind is ValueError else kind), ours.value
    assert len(str(ours.value)) > 20


# ---- random numbers ------------------------------------------------------------------------------


def test_randomness():
    x = ad.zeros(50, 3)
    draws = {
        "rand": lambda v: v + ad.rand(3),
        "randn_like": lambda v: ad.randn_like(v),
        "dropout": lambda v: ad.nn.functional.dropout(v + 1),
        "randperm": lambda v: v + ad.randperm(3),
        "randint": lambda v: v + ad.randint(0, 1000, (3,)),
    }
    for name, draw in draws.items():
        each = ad.func.vmap(draw, randomness="different")(x)
        assert len(each.unique(dim=0)) > 5, name
        shared = ad.func.vmap(draw, randomness="same")(x)
        assert len(shared.unique(dim=0)) == 1, name
        with pytest.raises(RuntimeError, match="randomness"):
            ad.func.vmap(draw)(x)
    ps = ad.full((50, 3), 0.5)
    assert len(ad.func.vmap(ad.bernoulli, randomness="different")(ps).unique(dim=0)) > 4
    one = ad.func.vmap(lambda v: v + ad.bernoulli(ps[0]), randomness="different")(x)
    assert len(one.unique(dim=0)) > 4
    nested = ad.func.vmap(ad.func.vmap(draws["rand"], randomness="different"), randomness="same")
    found = nested(ad.zeros(2, 50, 3))
    assert found[0].equal(found[1]) and len(found[0].unique(dim=0)) > 5


def test_permutations_are_permutations():
    found = ad.func.vmap(lambda v: ad.randperm(6) + v, randomness="different")(ad.zeros(40).long())
    assert found.sort().values.equal(ad.arange(6).expand(40, 6))


# ---- custom functions ----------------------------------------------------------------------------


def triple(lib, rule=True):
    class Triple(lib.autograd.Function):
        generate_vmap_rule = rule

        @staticmethod
        def forward(x, w):
            return x**3 * w, x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g, h):
            x, w = ctx.saved_tensors
            return g * 3 * x**2 * w + h * x.cos(), (g * x**3).sum_to_size(w.shape)

    return Triple


def test_custom_functions():
    def program(lib, f, x, w):
        apply = triple(lib).apply

        def loss(x, w):
            return sum(y.sum() for y in apply(x, w))

        return (
            f.vmap(apply)(x, w),
            f.vmap(f.grad(loss, (0, 1)))(x, w),
            f.vmap(f.grad(loss, (0, 1)), (0, None))(x, w[0]),
            f.grad(lambda x, w: f.vmap(loss)(x, w).sum(), (0, 1))(x, w),
            f.grad(lambda x, w: f.vmap(loss, (0, None))(x, w).sum(), (0, 1))(x, w[0]),
            f.jacrev(loss, (0, 1))(x, w),
        )

    both(program, (3, 4), (3, 4))


def test_a_custom_function_in_a_jvp_is_its_backward_transposed():
    x, w = map(ad.tensor, arrays((3, 4), (3, 4)))
    apply = triple(ad).apply
    _, t = ad.func.jvp(lambda x, w: apply(x, w), (x, w), (w, x))
    expected = 3 * x**2 * w * w + x**3 * x
    assert ad.allclose(t[0], expected, atol=1e-5) and ad.allclose(t[1], x.cos() * w, atol=1e-6)
    straight = ad.func.jvp(lambda x: Rounded.apply(x), (x,), (w,))
    assert straight[0].equal(x.round()) and straight[1].equal(w)


class Rounded(ad.autograd.Function):
    """Whose gradient is not its derivative."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def test_a_custom_function_with_a_rule_for_batches():
    def program(lib, f, x):
        class Cube(lib.autograd.Function):
            @staticmethod
            def forward(x):
                return lib.tensor(x.numpy() ** 3)

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)

            @staticmethod
            def backward(ctx, g):
                return g * 3 * ctx.saved_tensors[0] ** 2

            @staticmethod
            def vmap(info, in_dims, x):
                assert info.batch_size == 3 and in_dims == (0,)
                return Cube.apply(x.movedim(0, -1)), -1

        return f.vmap(Cube.apply)(x), f.grad(lambda x: f.vmap(Cube.apply)(x).sum())(x)

    both(program, (3, 4))


def test_a_custom_function_without_a_rule_drops_no_gradient():
    x = ad.ones(3, 2)
    apply = triple(ad, rule=False).apply
    with pytest.raises(RuntimeError, match="vmap support"):
        ad.func.grad(lambda x: ad.func.vmap(apply)(x, x)[0].sum())(x)
    assert ad.func.vmap(lambda v: Rounded.apply(v))(x).equal(x)


# ---- others --------------------------------------------------------------------------------------


def test_modules_in_a_batch():
    """A mapped module gives what a call for each example does, in training too."""

    def check(module, *shape, **kwargs):
        (x,) = map(ad.tensor, arrays((3, *shape)))
        found = flat(ad.func.vmap(module, **kwargs)(x))
        expected = [flat(module(each)) for each in x]
        for a, b in zip(found, zip(*expected, strict=True), strict=True):
            assert ad.allclose(a, ad.stack(list(b)), atol=1e-5)

    ad.manual_seed(0)
    check(ad.nn.Conv2d(2, 3, 3), 1, 2, 5, 5)
    check(ad.nn.LSTM(4, 3), 5, 2, 4)
    check(ad.nn.GRU(4, 3, batch_first=True), 2, 5, 4)
    check(ad.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), 5, 2, 4)
    check(ad.nn.GroupNorm(2, 4), 2, 4, 3)
    check(ad.nn.InstanceNorm1d(4), 2, 4, 3)
    check(ad.nn.BatchNorm1d(4, track_running_stats=False), 5, 4)
    with pytest.raises(RuntimeError, match="inplace"):
        ad.func.vmap(ad.nn.BatchNorm1d(4))(ad.ones(3, 5, 4))


def test_losses_with_targets_in_a_batch():
    def program(lib, f, x):
        t = lib.tensor([[0, 1], [1, 3], [2, 2]])
        loss = F[lib].cross_entropy
        one_hot = F[lib].one_hot
        return (
            f.vmap(loss)(x, t), f.vmap(f.grad(lambda x, t: F[lib].nll_loss(x, t)))(x, t),
            f.vmap(lambda t: one_hot(t, 4))(t),
        )  # fmt: skip

    both(program, (3, 2, 4))
    with pytest.raises(RuntimeError):
        ad.func.vmap(ad.nn.functional.cross_entropy)(ad.ones(3, 2, 4), ad.full((3, 2), 9))


def test_complex_numbers():
    def program(lib, f, x):
        def spectrum(v):
            return lib.fft.fft(v).abs().sum()

        return (
            f.vmap(f.grad(spectrum))(x),
            f.jvp(spectrum, (x[0],), (x[1],)),
            f.jvp(lambda v: lib.view_as_real(lib.fft.rfft(v)), (x[0],), (x[1],)),
            f.vmap(lambda v: lib.complex(v, v * 2).imag)(x),
        )

    both(program, (3, 4))


def test_a_tensor_that_was_kept_inside_says_so():
    kept = []
    ad.func.jvp(lambda x: kept.append(x) or x, (ad.ones(2),), (ad.ones(2),))
    with pytest.raises(ad.AutogradError, match="over"):
        kept[0].numpy()
    ad.func.vmap(lambda x: kept.append(x) or x)(ad.ones(2))
    with pytest.raises(RuntimeError, match="vmap"):
        kept[1].numpy()


def test_a_jvp_leaves_captured_tensors_alone():
    captured = ad.zeros(2)
    for x in (captured, captured[:1]):
        with pytest.raises(RuntimeError, match="captured"):
            ad.func.jvp(lambda v, x=x: x.add_(v.sum()), (ad.ones(2),), (ad.ones(2),))
    assert captured.tolist() == [0.0, 0.0]


def test_strides_in_a_batch():
    def program(lib, f, x):
        return f.vmap(lambda v: lib.as_strided(v.clone(), (3, 2), (1, 1)))(x), f.vmap(
            lambda v: v.reshape(2, 2).t().contiguous().view(-1)
        )(x)

    both(program, (3, 4))


def test_gradients_of_a_batch_of_cotangents():
    def program(lib, f, x):
        x.requires_grad_()
        y = x.sin() * x
        return lib.autograd.grad(y, x, lib.eye(4), is_grads_batched=True)

    both(program, (4,))


def test_ops_run_once_for_a_batch():
    """By rule: as many ops for a hundred examples as for one."""

    def count(size):
        w, x = ad.ones(3, 4), ad.ones(size, 4)
        step = ad.func.vmap(ad.func.grad(lambda w, x: ad.tanh(w @ x).sum()), (None, 0))
        with ad.profiler.profile() as profile:
            step(w, x)
        return sum(event.count for event in profile.key_averages())

    assert count(1) == count(100) < 60


def test_an_op_without_a_rule_warns_once_for_all():
    x = ad.tensor([[0, 1, 1], [2, 2, 0]])
    with pytest.warns(UserWarning, match="once for each of 2") as found:
        counts = ad.func.vmap(lambda v: apply(BinCount(3), v))(x)
    assert len(found) == 1 and counts.tolist() == [[1, 2, 0], [1, 0, 2]]


def test_an_index_that_is_another_one_for_each_entry():
    """A tensor without dimensions, which elsewhere is read as a number."""
    x, places = np.random.default_rng(0).standard_normal((5, 4, 3)), np.array([0, 1, -1, 3, 0])

    def written(v, i):
        v = v.clone()
        v[i] = v[i] * 2
        return v

    functions = [
        lambda v, i: v[i], lambda v, i: v[:, i % 3], lambda v, i: v[i, 0],
        lambda v, i: v[i, None, 1:], lambda v, i: v[..., i % 3], written,
    ]  # fmt: skip
    for function in functions:
        found, wanted = (t.func.vmap(function)(t.tensor(x), t.tensor(places)) for t in (ad, torch))
        np.testing.assert_allclose(found.numpy(), wanted.numpy())
    picked = ad.func.vmap(ad.func.grad(lambda v, i: v.log_softmax(0)[i]))
    rows = ad.tensor(x[:, :, 0])
    gathered = ad.func.vmap(ad.func.grad(lambda v, i: v.log_softmax(0).gather(0, i)[0]))
    labels = ad.tensor(places % 4)
    assert ad.allclose(picked(rows, labels), gathered(rows, labels.unsqueeze(1)))
    with pytest.raises(ad.IndexingError, match="out of bounds"):
        ad.func.vmap(lambda v, i: v[i])(ad.tensor(x), ad.tensor(places + 10))


# ---- what is not mapped, and what a transform would not see --------------------------------------


def test_keyword_arguments_are_not_mapped():
    both(lambda lib, f, x, w: f.vmap(lambda x, w: x + w.sum())(x, w=w), (3, 2), (3, 2))
    both(lambda lib, f, x, w: f.vmap(lambda x, w: x + w, chunk_size=2)(x, w=w), (3, 2), (2,))


def test_pieces_draw_the_same_numbers():
    def draw(chunk_size, counted=6):
        ad.manual_seed(3)
        f = ad.func.vmap(lambda x: x + ad.rand(2), randomness="same", chunk_size=chunk_size)
        return f(ad.zeros(counted)), ad.rand(3)

    whole, after = draw(None)
    for size in (1, 4, 5, 6, 7):
        pieces, then = draw(size)
        assert (pieces == whole).all() and (then == after).all()
    assert draw(4, 0)[0].shape == (0, 2)


def test_tangents_are_switched_off_inside():
    def function(lib, x):
        with lib.autograd.forward_ad._set_fwd_grad_enabled(False):
            y = x * x
            assert lib.autograd.forward_ad.unpack_dual(x).tangent is None
        return y + x

    both(lambda lib, f, x, t: f.jvp(lambda x: function(lib, x), (x,), (t,)), (3,), (3,))


@pytest.mark.parametrize("transform", ["grad", "jacfwd", "jacrev", "hessian"])
@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian", "hessian", "vhp", "hvp"])
def test_functional_products_are_followed_or_refused(transform, name):
    """They give constants unless `create_graph`, which a transform would differentiate to zero."""
    function = getattr(ad.autograd.functional, name)

    def product(x, **options):
        found = function(lambda y: y**3, x, **options)
        return found[1] if isinstance(found, tuple) else found

    derive = getattr(ad.func, transform)
    x = ad.tensor(2.0)
    with pytest.raises(ad.AutogradError, match=": inside of func"):
        derive(product)(x)
    if transform in ("grad", "jacrev"):
        second = name in ("hessian", "vhp", "hvp")
        found = derive(lambda x: product(x, create_graph=True))(x)
        assert found.item() == (6 if second else 12)
    product(x)  # outside again


def test_one_output_with_a_tuple_of_dims():
    both(lambda lib, f, x: f.vmap(lambda v: v * 2, out_dims=(1,))(x), (3, 2))


@pytest.mark.parametrize("aux", [3, None, "text", (1,), {"a": 2}], ids=str)
def test_auxiliary_outputs_are_tensors(aux):
    for lib in (torch, ad):
        x = lib.ones(2)
        for call in (
            lambda: lib.func.grad(lambda v: (v.sum(), aux), has_aux=True)(x),  # noqa: B023
            lambda: lib.func.vjp(lambda v: (v * 2, aux), x, has_aux=True),  # noqa: B023
            lambda: lib.func.jvp(lambda v: (v * 2, aux), (x,), (x,), has_aux=True),  # noqa: B023
        ):
            with pytest.raises(RuntimeError, match="Expected tensors, got unsupported type"):
                call()


def test_functions_recorded_in_a_graph_are_refused_with_the_remedy():
    with ad.Graph():
        x = ad.tensor([1.0, 2.0])
        y = x * 2
        for call in (
            lambda: ad.func.grad(lambda v: (v * v).sum())(x),
            lambda: ad.func.grad(lambda v: (v * v).sum())(y),
            lambda: ad.func.vjp(lambda v: v * v, y), lambda: ad.func.jacrev(lambda v: v * v)(y),
        ):  # fmt: skip
            with pytest.raises(ad.AdjointError, match=r"autograd\.grad"):
                call()
    z = ad.tensor([1.0, 2.0])
    assert ad.func.grad(lambda v: (v * v).sum())(z).tolist() == [2.0, 4.0]
