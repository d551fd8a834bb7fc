"""Graphs that draw and count again for each new value: dropout, samples, running statistics.

The oracle is eager execution of the same function on the same values, with the same numbers.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import warnings

import numpy as np
import pytest

import adjoint as ad
from adjoint import distributions, nn
from adjoint.nn import functional as F
from adjoint.runtime import repeats
from adjoint.utils.checkpoint import checkpoint, checkpoint_sequential

ROWS, COLUMNS = 4, 6


def batches(n, *shape, seed=0):
    numbers = np.random.default_rng(seed)
    return [ad.tensor(numbers.standard_normal(shape).astype(np.float32)) for _ in range(n)]


def chances():
    return ad.tensor(np.random.default_rng(1).uniform(0.3, 0.8, (ROWS, COLUMNS)).astype(np.float32))


def value_of(y):
    return y.detach().numpy().copy()


# ---- training that is recorded once --------------------------------------------------------------


def network():
    ad.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4),
        nn.BatchNorm1d(4, momentum=None), nn.Dropout(0.2), nn.Linear(4, 1),
    )  # fmt: skip


def trained(model, step, data):
    optimizer = ad.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    ad.manual_seed(5)
    for x, y in data:
        optimizer.zero_grad()
        loss = step(x, y)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def recorded(model, first, x, y, **options):
    """The step of a graph in which the loss is recorded once; `first` has values or shapes."""
    graph = ad.Graph(**options)
    inputs, targets = (graph.input(each) for each in first)
    state = copy.deepcopy(model.state_dict())
    with graph:
        loss = F.mse_loss(model(inputs), targets)
    model.load_state_dict(state)

    def step(x, y):
        with graph.batch():
            inputs.set(x)
            targets.set(y)
        return loss

    return step


@pytest.mark.parametrize("declared", ["by shape", "by value"])
@pytest.mark.parametrize("cutoff", [False, True])
def test_fifty_batches_are_those_of_eager_training(declared, cutoff):
    data = list(zip(batches(50, 12, 8), batches(50, 12, 1, seed=1), strict=True))
    data[-1] = tuple(x[:5] for x in data[-1])  # a last batch that is smaller
    eager, model = network(), network()
    values = batches(1, 12, 8, seed=8)[0], batches(1, 12, 1, seed=9)[0]
    first = values if declared == "by value" else ((12, 8), (12, 1))
    losses = trained(model, recorded(model, first, *data[0], cutoff=cutoff), data)
    assert losses == trained(eager, lambda x, y: F.mse_loss(eager(x), y), data)
    for (name, ours), theirs in zip(
        model.state_dict().items(), eager.state_dict().values(), strict=True
    ):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), 1e-5, 1e-6, err_msg=name)
    x = batches(1, 7, 8, seed=2)[0]
    eager.eval(), model.eval()
    np.testing.assert_allclose(value_of(model(x)), value_of(eager(x)), 1e-4, 1e-6)


# ---- draws ---------------------------------------------------------------------------------------


def on(function, *args, **kwargs):
    return lambda x: function(x, *args, **kwargs)


def filled(name, *args):
    return lambda x: getattr(x.clone(), name)(*args)


DRAWS = {
    "dropout": on(F.dropout), "alpha_dropout": on(F.alpha_dropout, 0.5, True),
    "feature_alpha_dropout": on(F.feature_alpha_dropout, 0.5, True),
    "dropout1d": lambda x: F.dropout1d(x.reshape(1, ROWS, COLUMNS)),
    "dropout2d": lambda x: F.dropout2d(x.reshape(1, -1, 1, 1)),
    "dropout3d": lambda x: F.dropout3d(x.reshape(1, -1, 1, 1, 1)),
    "native_dropout": lambda x: ad.native_dropout(x, 0.5, True)[0],
    "rand_like": on(ad.rand_like), "randn_like": on(ad.randn_like),
    "randint_like": on(ad.randint_like, 1000),
    "normal": on(ad.normal, 1.0), "normal by std": lambda x: ad.normal(0.0, x),
    "bernoulli": on(ad.bernoulli), "bernoulli by p": on(ad.bernoulli, 0.5),
    "poisson": lambda x: ad.poisson(x * 50), "multinomial": on(ad.multinomial, 200, True),
    "binomial": lambda x: ad.binomial(ad.full((ROWS, COLUMNS), 100.0), x),
    "rrelu": lambda x: F.rrelu(-x, training=True), "gumbel_softmax": on(F.gumbel_softmax),
    "fractional_max_pool2d": lambda x: F.fractional_max_pool2d(
        x.expand(3, ROWS, COLUMNS).repeat(4, 4, 4), 2, output_size=5
    ),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "uniform_": filled("uniform_"), "normal_": filled("normal_"),
    "bernoulli_": filled("bernoulli_"), "random_": filled("random_"),
    "exponential_": filled("exponential_"), "geometric_": filled("geometric_", 0.5),
    "cauchy_": filled("cauchy_"), "log_normal_": filled("log_normal_"),
}  # fmt: skip

D = distributions
SAMPLED = {
    "Bernoulli": D.Bernoulli, "Beta": lambda p: D.Beta(p, p),
    "Binomial": lambda p: D.Binomial(99, p),
    "Categorical": D.Categorical, "Cauchy": lambda p: D.Cauchy(p, p), "Chi2": D.Chi2,
    "ContinuousBernoulli": D.ContinuousBernoulli, "Dirichlet": D.Dirichlet,
    "Exponential": D.Exponential, "FisherSnedecor": lambda p: D.FisherSnedecor(p, p),
    "Gamma": lambda p: D.Gamma(2.0, p), "GeneralizedPareto": lambda p: D.GeneralizedPareto(p, p, p),
    "Geometric": D.Geometric, "Gumbel": lambda p: D.Gumbel(p, p), "HalfCauchy": D.HalfCauchy,
    "HalfNormal": D.HalfNormal, "Independent": lambda p: D.Independent(D.Normal(p, p), 1),
    "InverseGamma": lambda p: D.InverseGamma(p, p), "Kumaraswamy": lambda p: D.Kumaraswamy(p, p),
    "LKJCholesky": lambda p: D.LKJCholesky(3, p), "Laplace": lambda p: D.Laplace(p, p),
    "LogNormal": lambda p: D.LogNormal(p, p), "LogisticNormal": lambda p: D.LogisticNormal(p, p),
    "LogitRelaxedBernoulli": lambda p: D.relaxed_bernoulli.LogitRelaxedBernoulli(0.5, p),
    "LowRankMultivariateNormal": lambda p: D.LowRankMultivariateNormal(
        p, ad.ones(COLUMNS, 2), ad.ones(COLUMNS)
    ),
    "MixtureSameFamily": lambda p: D.MixtureSameFamily(D.Categorical(p), D.Normal(p, p)),
    "Multinomial": lambda p: D.Multinomial(50, p),
    "MultivariateNormal": lambda p: D.MultivariateNormal(p, ad.eye(COLUMNS)),
    "NegativeBinomial": lambda p: D.NegativeBinomial(20, p), "Normal": lambda p: D.Normal(0.0, p),
    "OneHotCategorical": D.OneHotCategorical,
    "OneHotCategoricalStraightThrough": D.OneHotCategoricalStraightThrough,
    "Pareto": lambda p: D.Pareto(p, p), "Poisson": lambda p: D.Poisson(p * 50),
    "RelaxedBernoulli": lambda p: D.RelaxedBernoulli(0.5, p),
    "RelaxedOneHotCategorical": lambda p: D.RelaxedOneHotCategorical(0.5, p),
    "StudentT": D.StudentT,
    "TransformedDistribution": lambda p: D.TransformedDistribution(
        D.Normal(p, p), [D.ExpTransform()]
    ),
    "Uniform": lambda p: D.Uniform(p, p + 1), "VonMises": lambda p: D.VonMises(p, p),
    "Weibull": lambda p: D.Weibull(p, p),
    "Wishart": lambda p: D.Wishart(
        ad.full((ROWS,), 7.0), ad.eye(COLUMNS).expand(ROWS, COLUMNS, COLUMNS) * p[:, :1, None]
    ),
}  # fmt: skip
DRAWS |= {name: lambda x, make=make: make(x).sample((3,)) for name, make in SAMPLED.items()}


def test_every_distribution_is_here():
    classes = {
        name
        for name in distributions.__all__
        if inspect.isclass(kind := getattr(distributions, name))
        and issubclass(kind, distributions.Distribution)
    }
    assert classes - SAMPLED.keys() == {"Distribution", "ExponentialFamily"}


def recorded_draw(function, x, inside, **options):
    graph = ad.Graph(**options)
    node = graph.input(x)
    if not inside:
        return graph, node, function(node)
    with graph:
        return graph, node, function(node)


@pytest.mark.parametrize("inside", [True, False], ids=["in a block", "outside"])
@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_for_a_tensor_is_another_for_each_new_value(name, inside):
    function, x = DRAWS[name], chances()
    graph, node, y = recorded_draw(function, x, inside)
    first = value_of(y)
    ad.manual_seed(3)
    node.set(x.clone())
    second = value_of(y)
    assert not np.array_equal(first, second)
    assert np.array_equal(value_of(y), second)
    graph.release()
    assert np.array_equal(value_of(y), second)  # computed again, not drawn again
    ad.manual_seed(3)
    np.testing.assert_array_equal(value_of(function(x)), second)  # the numbers of eager execution


@pytest.mark.parametrize("inside", [True, False], ids=["in a block", "outside"])
@pytest.mark.parametrize("name", DRAWS)
def test_the_first_draw_has_the_numbers_of_the_line_that_records_it(name, inside):
    function, x = DRAWS[name], chances()
    ad.manual_seed(3)
    _, _, y = recorded_draw(function, x, inside)
    ad.rand(5)
    ours = value_of(y)
    ad.manual_seed(3)
    np.testing.assert_array_equal(value_of(function(x)), ours)


def test_draws_of_one_read_are_numbered_in_program_order():
    graph = ad.Graph()
    x = graph.input((5,))
    a, b, c = ad.rand_like(x), ad.rand_like(x), ad.rand_like(x)
    y = ad.stack([c, a, b])
    ad.manual_seed(1)
    x.set(ad.ones(5))
    drawn = value_of(y)
    ad.manual_seed(1)
    expected = [value_of(ad.rand(5)) for _ in range(3)]
    np.testing.assert_array_equal(drawn, [expected[2], *expected[:2]])


def test_a_step_of_an_optimizer_draws_anew_what_is_drawn_for_its_parameters():
    graph = ad.Graph()
    weight = nn.Parameter(ad.ones(50))
    with graph:
        loss = F.dropout(weight, 0.5).sum()
    loss.backward()
    before = weight.grad.clone()
    ad.optim.SGD([weight], lr=0.0).step()
    weight.grad = None
    with pytest.warns(UserWarning, match="was recorded"):
        loss.item()
    loss.backward()
    assert not np.array_equal(weight.grad.numpy(), before.numpy())


def test_with_cutoff_an_equal_value_is_not_drawn_for_again():
    graph = ad.Graph(cutoff=True)
    x = graph.input(ad.tensor([1.0, 2.0]))
    y = ad.rand_like((x > 0).float())
    first = value_of(y)
    x.set(ad.tensor([3.0, 4.0]))
    assert np.array_equal(value_of(y), first)
    x.set(ad.tensor([3.0, -4.0]))
    assert not np.array_equal(value_of(y), first)


def test_an_edit_that_gives_another_input_draws_anew():
    graph = ad.Graph()
    x, other = graph.input(ad.zeros(4)), graph.input(ad.ones(4))
    y = ad.rand_like(x)
    first = value_of(y)
    y.set_input(0, other)
    assert not np.array_equal(value_of(y), first)


def test_a_draw_for_no_tensor_stays_and_a_graph_that_is_trained_says_so_once():
    graph = ad.Graph()
    x, w = graph.input(ad.ones(3)), graph.parameter(ad.ones(3))
    with graph:
        loss = (x * w * ad.rand(3)).sum()
    optimizer = ad.optim.SGD([w], lr=0.1)
    loss.backward()
    first = w.grad.numpy().copy()
    optimizer.step()
    with pytest.warns(UserWarning, match="drawn for no tensor"):
        for _ in range(3):
            x.set(ad.ones(3))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert np.array_equal(w.grad.numpy(), first)
    graph.redraw()
    optimizer.zero_grad()
    loss.backward()
    assert not np.array_equal(w.grad.numpy(), first)


def test_draws_can_be_frozen():
    graph = ad.Graph(seed=0)
    x = graph.input(ad.ones(50))
    y = F.dropout(x)
    first = value_of(y)
    graph.freeze_draws()
    x.set(ad.ones(50))
    assert np.array_equal(value_of(y), first)
    graph.redraw()
    second = value_of(y)
    assert not np.array_equal(second, first)
    graph.freeze_draws(False)
    x.set(ad.ones(50))
    assert not np.array_equal(value_of(y), second)


def test_a_graph_with_a_seed_draws_its_own_numbers():
    drawn = []
    for _ in range(2):
        graph = ad.Graph(seed=4)
        x = graph.input(ad.ones(5))
        with graph:
            y = ad.rand_like(x)
        drawn.append([value_of(y)])
        for _ in range(3):
            x.set(ad.ones(5))
            drawn[-1].append(value_of(y))
        ad.rand(2)
    np.testing.assert_array_equal(*drawn)


def test_draws_of_copies_and_of_files_go_on(tmp_path):
    graph = ad.Graph(seed=4)
    x = graph.input(ad.ones(5), name="x")
    with graph:
        y = ad.rand_like(x)
    first = value_of(y)
    twin = graph.copy()
    graph.save(tmp_path / "graph.ad")
    for other, node in ((twin, twin.twin(y)), loaded(tmp_path / "graph.ad")):
        assert np.array_equal(value_of(node), first)
        other["x"].set(ad.ones(5))
        assert not np.array_equal(value_of(node), first)
    assert np.array_equal(value_of(y), first)


def loaded(path):
    graph = ad.Graph.load(path)
    (node,) = [x for x in graph.nodes if x.node.label == "drawn_for"]
    return graph, node


def test_gradients_reach_parameters_of_a_draw_beside_other_tensors():
    graph = ad.Graph()
    rate = graph.input(ad.tensor([1.0, 2.0]))
    concentration = ad.tensor([2.0, 3.0], requires_grad=True)
    with graph:
        y = distributions.Gamma(concentration, rate).rsample().sum()
    y.backward()
    assert (concentration.grad != 0).all()


# ---- buffers -------------------------------------------------------------------------------------


class Counts(nn.Module):
    """Writes its buffers in many ways."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", ad.zeros(3))
        self.register_buffer("history", ad.zeros(3))
        self.register_buffer("calls", ad.zeros(()))

    def forward(self, x):
        with ad.no_grad():
            self.total.zero_()
            self.total.add_(x.mean(0))
            self.history[1:] = self.history[:-1].clone()
            self.history[0] = x.sum()
        self.calls += 1
        return x * self.total + self.calls


class Twice(nn.Module):
    """Calls one layer for two tensors."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x) + self.norm(x * 2 + 1)


class Watching(nn.Module):
    """Gives back what it was given."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", ad.zeros(3))

    def forward(self, x):
        with ad.no_grad():
            self.seen.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x


class Assigned(Watching):
    """Writes a buffer whose place is another one's at the end."""

    def forward(self, x):
        self.seen.copy_(x.detach().max(0).values)
        return (x - self.seen, {"sum": x.sum()})


WRITING = {
    "BatchNorm1d": lambda: nn.BatchNorm1d(3),
    "BatchNorm1d, a plain average": lambda: nn.BatchNorm1d(3, momentum=None),
    "InstanceNorm1d": lambda: nn.Sequential(
        nn.Unflatten(1, (3, 1)), nn.Upsample(4), nn.InstanceNorm1d(3, track_running_stats=True)
    ),
    "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)),
    "old spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(3, 4)),
    "Counts": Counts, "Twice": Twice, "Assigned": Assigned,
    "Watching": lambda: nn.Sequential(nn.Linear(3, 3), Watching(), nn.Linear(3, 2)),
    "in a row": lambda: nn.Sequential(nn.Linear(3, 3), Counts(), nn.BatchNorm1d(3), Twice()),
}  # fmt: skip


def first_of(result):
    return result[0] if isinstance(result, tuple) else result


def module_of(name):
    ad.manual_seed(0)
    return WRITING[name]()


def assert_same_buffers(ours, theirs):
    for (name, a), b in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-5, 1e-6, err_msg=name)


@pytest.mark.filterwarnings("ignore:Graph. .* is read after a tensor")
@pytest.mark.parametrize("declared", ["by shape", "by value"])
@pytest.mark.parametrize("name", WRITING)
def test_buffers_are_written_once_for_each_new_value(name, declared):
    ours, eager = module_of(name), module_of(name)
    data = batches(4, 6, 3)
    graph = ad.Graph()
    x = graph.input((6, 3) if declared == "by shape" else data[0])
    with graph:
        y = first_of(ours(x))
    later = data if declared == "by shape" else data[1:]
    if name == "spectral_norm" and declared == "by shape":
        eager(data[0])  # what is recorded of the weight is computed at once
    if declared == "by value":
        np.testing.assert_allclose(value_of(y), value_of(first_of(eager(data[0]))), 1e-5, 1e-6)
    for each in later:
        x.set(each)
        if "spectral" in name:  # whose vectors follow the weight
            for module in (ours, eager):
                with ad.no_grad():
                    next(p for p in module.parameters() if p.ndim == 2).mul_(1.5)
        np.testing.assert_allclose(value_of(y), value_of(first_of(eager(each))), 1e-5, 1e-6)
        value_of(y)
        graph.release()
        value_of(y)  # computed again, not counted again
        assert_same_buffers(ours, eager)
    graph.check_invariants()


def test_two_results_of_a_call_count_it_once():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", ad.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x.sin(), {"cos": x.cos()}

    module, graph = Pair(), ad.Graph()
    x = graph.input(ad.ones(3))
    with graph:
        a, rest = module(x)
    for n in range(2, 5):
        x.set(ad.full((3,), float(n)))
        value_of(a), value_of(rest["cos"]), value_of(a)
        assert module.calls.item() == n
    both = a + rest["cos"]
    x.set(ad.zeros(3))
    value_of(both)  # one walk computes both
    assert module.calls.item() == n + 1


def test_a_buffer_that_gets_a_value_with_a_gradient_says_so():
    class Gradients(Watching):
        def forward(self, x):
            self.seen.add_(x.mean(0))
            return x * 2

    module, graph = Gradients(), ad.Graph()
    x = graph.input(ad.ones(2, 3), requires_grad=True)
    with graph, pytest.warns(UserWarning, match="Gradients writes its buffer 'seen'"):
        module(x)


def test_nobody_reads_a_branch_and_its_buffers_stay():
    norm, graph = nn.BatchNorm1d(3), ad.Graph()
    x = graph.input(batches(1, 6, 3)[0])
    with graph:
        y, z = norm(x), x * 2
    x.set(ad.ones(6, 3))
    value_of(z)
    assert norm.num_batches_tracked.item() == 1
    value_of(y)
    assert norm.num_batches_tracked.item() == 2


def test_nodes_of_evaluation_follow_what_training_writes():
    norm, graph = nn.BatchNorm1d(3), ad.Graph()
    x = graph.input(batches(1, 6, 3)[0])
    with graph:
        training = norm(x)
        evaluation = norm.eval()(ad.ones(1, 3))
    first = value_of(evaluation)
    norm.train()
    x.set(batches(1, 6, 3, seed=4)[0] + 3)
    value_of(training)
    norm.eval()
    np.testing.assert_allclose(value_of(evaluation), value_of(norm(ad.ones(1, 3))), 1e-5)
    assert not np.allclose(value_of(evaluation), first)


def test_a_copy_that_shares_nothing_has_buffers_of_its_own():
    norm, graph = nn.BatchNorm1d(3), ad.Graph()
    x = graph.input(batches(1, 6, 3)[0], name="x")
    with graph:
        y = norm(x)
    apart, shared = graph.copy(share=False), graph.copy()
    apart["x"].set(ad.ones(6, 3) * 7)
    value_of(apart.twin(y))
    assert norm.num_batches_tracked.item() == 1
    shared["x"].set(ad.ones(6, 3) * 7)
    value_of(shared.twin(y))
    assert norm.num_batches_tracked.item() == 2


def test_a_file_without_the_writes_says_so(tmp_path):
    norm, graph = nn.BatchNorm1d(3), ad.Graph()
    x = graph.input(batches(1, 6, 3)[0])
    with graph:
        y = norm(x)
    with pytest.warns(UserWarning, match="state_dict beside it"):
        graph.save(tmp_path / "graph.ad")
    assert y.shape == (6, 3)


def test_training_in_blocks_keeps_nodes_flat():
    model, graph = network(), ad.Graph()
    optimizer = ad.optim.SGD(model.parameters(), lr=0.01)
    x, y = batches(1, 12, 8)[0], batches(1, 12, 1)[0]
    sizes = []
    for _ in range(40):
        with graph:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        gc.collect()
        sizes.append((len(graph), len(graph._state.repeating) < 80))
    assert sizes[10:] == [sizes[10]] * 30
    assert model[1].num_batches_tracked.item() == 40


# ---- modes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["module", "graph"])
@pytest.mark.parametrize("training", [True, False])
def test_a_read_in_the_other_mode_says_in_which_it_was_recorded(training, by):
    model, graph = network().train(training), ad.Graph()
    x = graph.input(batches(1, 12, 8)[0])
    with graph:
        y = model(x)
    value_of(y)
    (model if by == "module" else graph).train(not training)
    if by == "module":
        x.set(batches(1, 12, 8, seed=3)[0])
    with pytest.warns(UserWarning, match="recorded in " + ("training" if training else "eval")):
        value_of(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.set(batches(1, 12, 8, seed=5)[0])
        value_of(y)  # said once


def test_a_model_without_modes_says_nothing():
    model, graph = nn.Sequential(nn.Linear(8, 2), nn.Tanh()), ad.Graph()
    x = graph.input(batches(1, 12, 8)[0])
    with graph:
        y = model(x)
    graph.eval()
    x.set(batches(1, 12, 8, seed=3)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value_of(y)


# ---- what is undone, and what is outside ---------------------------------------------------------


def test_a_batch_that_fails_leaves_masks_and_buffers_as_they_were():
    norm, graph = nn.BatchNorm1d(2), ad.Graph()
    x, rows = graph.input(ad.ones(30)), graph.input(batches(1, 6, 2)[0])
    with graph:
        dropped, normed = F.dropout(x), norm(rows)
    mask, values = value_of(dropped), value_of(normed)
    held = [each.clone() for each in norm.buffers()]
    with pytest.raises(KeyError), graph.batch():
        x.set(ad.ones(30))
        rows.set(ad.ones(6, 2) * 7)
        assert not np.array_equal(value_of(dropped), mask)
        value_of(normed)
        raise KeyError
    assert np.array_equal(value_of(dropped), mask) and np.array_equal(value_of(normed), values)
    assert all(a.equal(b) for a, b in zip(norm.buffers(), held, strict=True))


def test_statistics_of_a_module_called_outside_of_blocks_say_so():
    norm, graph = nn.BatchNorm1d(2), ad.Graph()
    x = graph.input(batches(1, 6, 2)[0])
    with pytest.warns(UserWarning, match="running statistics move"):
        norm(x)
    norm.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        norm(x)


def test_deep_models_are_looked_through_once():
    visits = []
    for depth in (20, 40):
        kinds = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()
        layers = [copy.deepcopy(each) for _ in range(depth) for each in kinds]
        graph = ad.Graph()
        x = graph.input(ad.ones(8, 4))
        with graph:
            y = nn.Sequential(*layers)(x).sum()
        y.item()
        x.set(batches(1, 8, 4)[0])
        with counted() as calls:
            y.item()
        visits.append(calls["is_changed_since"])
    assert visits == [0, 0], visits


@contextlib.contextmanager
def counted():
    """How often the walk that costs what is above is made."""
    calls, walk = {"is_changed_since": 0}, repeats.is_changed_since

    def counting(cell, order):
        calls["is_changed_since"] += 1
        return walk(cell, order)

    repeats.is_changed_since = counting
    try:
        yield calls
    finally:
        repeats.is_changed_since = walk


# ---- draws in functions that are nodes -----------------------------------------------------------


class ByOperations(ad.autograd.Function):
    """Draws in a forward made of operations."""

    @staticmethod
    def forward(ctx, x):
        mask = ad.rand_like(x)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class ByValues(ad.autograd.Function):
    """Draws in a forward that reads values."""

    @staticmethod
    def forward(ctx, x):
        mask = ad.tensor(ad.rand(x.shape).numpy() * (x.numpy() > 0))
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class ByBackward(ad.autograd.Function):
    """Draws in the backward of a forward that reads values."""

    @staticmethod
    def forward(ctx, x):
        return x * float(x.numpy().max())

    @staticmethod
    def backward(ctx, g):
        return g * ad.rand_like(g)


half = on(F.dropout, 0.5)
different = {"randomness": "different"}
INSIDE = {
    "checkpoint": lambda x: checkpoint(lambda v: half(v.tanh()).tanh(), x),
    "reentrant checkpoint": lambda x: checkpoint(lambda v: half(v).tanh(), x, use_reentrant=True),
    "checkpoint_sequential": lambda x: checkpoint_sequential(
        nn.Sequential(nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.5)), 2, x
    ),
    "Function": ByOperations.apply,
    "vmap": lambda x: ad.func.vmap(half, **different)(x),
    "vmap, the same for all": lambda x: ad.func.vmap(half, randomness="same")(x),
    "vmap of vmap": lambda x: ad.func.vmap(ad.func.vmap(half, **different), **different)(x),
    "vmap of a distribution": lambda x: x * ad.func.vmap(ad.bernoulli, **different)(x),
    "vmap of rand_like": lambda x: x * ad.func.vmap(ad.rand_like, **different)(x),
    "jvp": lambda x: ad.func.jvp(lambda v: half(v).tanh(), (x,), (ad.ones_like(x),))[1],
    "functional_call": lambda x: ad.func.functional_call(nn.Dropout(0.5), {}, (x,)),
}  # fmt: skip
REFUSED = {
    "Function of values": ByValues.apply,
    "cond": lambda x: ad.cond(x.sum() > 0, half, lambda v: v, (x,)),
    "while_loop": lambda x: ad.while_loop(
        lambda i, v: i < 2, lambda i, v: (i + 1, half(v)), (ad.tensor(0), x)
    )[1],
    "scan": lambda x: ad.scan(lambda c, v: (half(c) + v, c), x[0], x)[0],
    "compile": lambda x: ad.compile(half)(x),
}


def eager_draw(function, x, seed):
    """The value and the gradient that eager execution gives."""
    ad.manual_seed(seed)
    x = x.clone().requires_grad_()
    y = function(x)
    y.sum().backward()
    return value_of(y), x.grad.numpy()


@pytest.mark.parametrize("inside", [True, False], ids=["in a block", "outside"])
@pytest.mark.parametrize("name", INSIDE)
def test_a_draw_in_a_function_belongs_to_the_version_of_its_tensor(name, inside):
    function, (x, other) = INSIDE[name], (chances(), chances().flip(0))
    graph = ad.Graph()
    node = graph.input(x, requires_grad=True)
    ad.manual_seed(3)
    with graph if inside else contextlib.nullcontext():
        y = function(node)
    loss = y.sum()
    for value, seed in ((x, 3), (other, 4), (x, 5)):
        if seed != 3:
            ad.manual_seed(seed)
            node.set(value)
        expected, gradient = eager_draw(function, value, seed)
        ad.manual_seed(seed)
        if seed == 3:  # drawn by the line that recorded it
            ad.manual_seed(77)
        for _ in range(2):  # the second time it was released
            node.grad = None
            loss.backward()
            np.testing.assert_allclose(node.grad.numpy(), gradient, 1e-6)
            np.testing.assert_allclose(value_of(y), expected, 1e-6)
            graph.release()


@pytest.mark.parametrize("name", REFUSED)
def test_a_draw_that_could_not_be_repeated_is_refused(name):
    graph = ad.Graph()
    x = graph.input(chances())
    with graph, pytest.raises(ad.Unsupported, match=r"draw.* outside"):
        REFUSED[name](x)


def test_a_draw_in_the_backward_of_a_function_of_values_is_refused():
    x = ad.Graph().input(chances(), requires_grad=True)
    y = ByBackward.apply(x).sum()
    with pytest.raises(ad.Unsupported, match=r"ByBackward: .*its backward draws"):
        y.backward()


def test_a_draw_for_no_tensor_in_a_vmap_says_that_it_stays():
    graph = ad.Graph()
    x = graph.input(chances(), requires_grad=True)
    with graph:
        y = ad.func.vmap(lambda v: v * ad.rand(COLUMNS), **different)(x).sum()
    y.backward()
    x.set(chances())
    with pytest.warns(UserWarning, match="drawn for no tensor"):
        y.backward()
