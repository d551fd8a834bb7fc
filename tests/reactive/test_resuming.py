"""A living graph that goes on: by `utils.Checkpoint`, by pickle, and by copies."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.nn import functional as F


class Training:
    """A training that was recorded once."""

    def __init__(self, seed=None):
        ad.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1)
        )
        self.optimizer = ad.optim.Adam(self.model.parameters(), lr=0.01)
        self.graph = ad.Graph(seed=seed)
        self.x, self.y = self.graph.input((6, 4)), self.graph.input((6, 1))
        self.scale = self.graph.parameter(1.0)
        with self.graph:
            self.loss = F.mse_loss(self.model(self.x) * self.scale, self.y)
        self.parts = ad.utils.Checkpoint(
            graph=self.graph, model=self.model, optimizer=self.optimizer
        )

    def steps(self, first, last):
        losses = []
        for k in range(first, last):
            numbers = np.random.default_rng(k)
            self.x.set(numbers.standard_normal((6, 4)).astype("f"))
            self.y.set(numbers.standard_normal((6, 1)).astype("f"))
            self.optimizer.zero_grad()
            self.loss.backward()
            losses.append(self.loss.item())
            self.optimizer.step()
            with ad.no_grad():
                self.scale.mul_(0.99)
        return losses


@pytest.mark.filterwarnings("ignore:Graph. ")
@pytest.mark.parametrize("seed", [None, 7], ids=["default generator", "own generator"])
def test_a_living_graph_resumes_bit_for_bit(tmp_path, seed):
    whole = Training(seed)
    whole.steps(0, 5)
    whole.parts.save(tmp_path / "training.ad", step=5)
    expected = whole.steps(5, 9)
    again = Training(seed)
    assert again.parts.load(tmp_path / "training.ad") == {"step": 5}
    assert again.steps(5, 9) == expected
    for a, b in zip(
        whole.model.state_dict().values(), again.model.state_dict().values(), strict=True
    ):
        assert a.equal(b)
    assert again.scale.item() == whole.scale.item()


def test_a_state_of_another_program_changes_nothing():
    graph, other = ad.Graph(), ad.Graph()
    x, y = graph.input(1.0), graph.input(2.0)
    other.input(5.0)
    with pytest.raises(
        ad.CheckpointError, match="1 inputs and parameters and 0 draws, the graph 2"
    ):
        graph.load_state_dict(other.state_dict())
    whole = other.state_dict()
    other.input(ad.tensor([1, 2]))
    with pytest.raises(ad.CheckpointError, match=r"holds adjoint\.float32"):
        graph.load_state_dict(other.state_dict())
    with pytest.raises(ad.CheckpointError, match="expected what"):
        graph.load_state_dict({**whole, "more": 1})
    assert (x.item(), y.item()) == (1, 2)


def test_a_state_of_other_shapes_is_brought_back():
    graph = ad.Graph()
    x = graph.input(ad.ones(2, 3))
    y = x * 2
    state = graph.state_dict()
    x.set(ad.zeros(5, 3))
    graph.load_state_dict(state)
    assert y.tolist() == ad.full((2, 3), 2.0).tolist()


@pytest.mark.filterwarnings("ignore:Graph. ")
@pytest.mark.parametrize("way", ["pickle", "deepcopy"])
def test_graphs_are_pickled_and_copied(way):
    graph, layer = ad.Graph(), nn.Linear(3, 2)
    x = graph.input(ad.ones(1, 3), name="x")
    graph.name(layer(x), "y")
    other = pickle.loads(pickle.dumps(graph)) if way == "pickle" else copy.deepcopy(graph)
    assert other["y"].tolist() == graph["y"].tolist()
    other["x"].set(ad.zeros(1, 3))
    assert other["y"].tolist() != graph["y"].tolist()
    with ad.no_grad():
        layer.bias.zero_()
    assert other["y"].tolist() != [[0, 0]]  # its own parameters


@pytest.mark.filterwarnings("ignore:Graph. ")
def test_a_copy_of_a_graph_beside_its_module_shares_the_copied_module():
    graph, layer = ad.Graph(), nn.Linear(3, 2)
    x = graph.input(ad.ones(1, 3), name="x")
    graph.name(layer(x), "y")
    other, own = copy.deepcopy((graph, layer))
    with ad.no_grad():
        own.weight.zero_()
    assert other["y"].tolist() == [own.bias.tolist()] != graph["y"].tolist()


@pytest.mark.filterwarnings("ignore:Graph. ")
@pytest.mark.parametrize("first", ["graph", "module"])
def test_a_copy_beside_its_module_writes_the_copied_modules_buffers(first):
    graph, layer = ad.Graph(), nn.BatchNorm1d(3)
    x = graph.input(ad.randn(4, 3), name="x")
    with graph:
        graph.name(layer(x), "y")
    graph["y"].tolist()
    pair = (graph, layer) if first == "graph" else (layer, graph)
    other, own = copy.deepcopy(pair)[:: 1 if first == "graph" else -1]
    other["x"].set(ad.randn(4, 3))
    other["y"].tolist()
    assert own.num_batches_tracked.item() == 2
    assert own.running_mean.tolist() != layer.running_mean.tolist()
    assert layer.num_batches_tracked.item() == 1


def test_a_graph_shows_a_node_by_the_same_tensor_each_time():
    graph = ad.Graph()
    x = graph.input(2.0)
    y = (x * 3).exp()
    nodes = graph.nodes
    assert all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
    product = graph.inputs_of(y)[0]
    assert product is nodes[1] and graph.users(x) == [product]
    assert graph.users(product)[0] is nodes[2] and nodes[0] is x


def test_who_refuses_a_value_is_named():
    graph, model = ad.Graph(), nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    x = graph.input(ad.ones(4, 3), name="batch")
    with graph:
        y = model(x)
    with pytest.raises(ad.ShapeError, match=r"at node 'linear' of Sequential\.0"):
        x.set(ad.ones(4, 5))
    with pytest.raises(
        ad.InvalidType, match=r"'batch' of shape \(4, 3\) and float32 cannot be set"
    ):
        x.set("text")
    assert y.shape == (4, 1)
