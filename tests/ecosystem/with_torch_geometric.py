"""torch_geometric: convolutions of graphs, pooling, batches, loaders, transforms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import torch_geometric as pyg
import torch_geometric.nn as gnn
from common import data, fill, labels, told, train
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

EDGES = torch.stack([labels(12, 40), labels(12, 40, seed=1)])


def _net(make, **more):
    first, second = make(6, 8), make(8, 3)
    net = fill(torch.nn.ModuleList([first, second]))
    x, y = data(12, 6), labels(3, 12)
    return train(
        net, lambda: F.cross_entropy(second(first(x, EDGES, **more).relu(), EDGES, **more), y)
    )


def case_convolutions():
    kinds = {
        "GCN": gnn.GCNConv,
        "GAT": lambda i, o: gnn.GATConv(i, o, heads=1),
        "GATv2": gnn.GATv2Conv,
        "SAGE": gnn.SAGEConv,
        "Graph": gnn.GraphConv,
        "TAG": gnn.TAGConv,
        "GIN": lambda i, o: gnn.GINConv(torch.nn.Linear(i, o)),
        "Cheb": lambda i, o: gnn.ChebConv(i, o, 2),
        "Transformer": gnn.TransformerConv,
        "ARMA": gnn.ARMAConv,
        "SG": lambda i, o: gnn.SGConv(i, o, 2),
        "max": lambda i, o: gnn.SAGEConv(i, o, aggr="max"),
        "several": lambda i, o: gnn.SAGEConv(i, o, aggr=["mean", "std", "min"]),
    }
    return {name: _net(make) for name, make in kinds.items()}


def _graphs():
    found = []
    for i in range(5):
        nodes = 4 + i
        edges = torch.stack([labels(nodes, 9, seed=i), labels(nodes, 9, seed=i + 50)])
        found.append(Data(x=data(nodes, 6, seed=i), edge_index=edges, y=labels(2, 1, seed=i)))
    return found


def case_graphs_in_batches():
    conv, head = gnn.GCNConv(6, 8), torch.nn.Linear(8, 2)
    net = fill(torch.nn.ModuleList([conv, gnn.BatchNorm(8), head]))
    loader = DataLoader(_graphs(), batch_size=3)

    def loss():
        total = 0
        for batch in loader:
            pooled = gnn.global_mean_pool(
                net[1](conv(batch.x, batch.edge_index)).relu(), batch.batch
            )
            total = total + F.cross_entropy(head(pooled), batch.y)
        return total

    batch = Batch.from_data_list(_graphs())
    return [
        train(net, loss),
        batch.batch,
        batch.ptr,
        batch[2].x,
        batch.num_graphs,
        gnn.global_max_pool(batch.x, batch.batch),
        gnn.global_add_pool(batch.x, batch.batch),
    ]


def case_utilities():
    u = pyg.utils
    weights = data(40).sigmoid()
    looped, w = u.add_self_loops(EDGES, weights, num_nodes=12)
    return [
        looped,
        w,
        u.degree(EDGES[0], 12),
        u.to_undirected(EDGES),
        u.coalesce(EDGES, weights),
        u.scatter(data(40, 3), EDGES[0], dim_size=12, reduce="mean"),
        u.softmax(weights, EDGES[0]),
        u.to_dense_adj(EDGES, max_num_nodes=12),
        u.remove_self_loops(EDGES)[0],
        u.to_dense_batch(data(7, 2), torch.tensor([0, 0, 0, 1, 1, 2, 2]))[0],
        u.subgraph([1, 2, 3, 4], EDGES)[0],
        u.get_laplacian(EDGES, normalization="sym", num_nodes=12)[1],
    ]


def case_transforms():
    graph = Data(x=data(12, 6), edge_index=EDGES, pos=data(12, 2))
    t = pyg.transforms
    steps = t.Compose([t.NormalizeFeatures(), t.ToUndirected(), t.AddSelfLoops(), t.Distance()])
    found = steps(graph.clone())
    return [found.x, found.edge_index, found.edge_attr, t.KNNGraph is not None]


def case_models():
    net = fill(gnn.GCN(6, 8, num_layers=2, out_channels=3))
    other = fill(gnn.GAT(6, 8, num_layers=2, out_channels=3, heads=2))
    auto = gnn.VGAE(fill(gnn.GCNConv(6, 4)))
    return [
        told(net(data(12, 6), EDGES)),
        other(data(12, 6), EDGES),
        auto.decode(data(12, 4), EDGES),
    ]
