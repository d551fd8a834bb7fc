"""One tiny training run through every layer; also what `make check` runs."""

from __future__ import annotations

import adjoint as ad
from adjoint import nn


def test_a_network_learns_xor(tmp_path):
    ad.manual_seed(0)
    x = ad.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = ad.tensor([0, 1, 1, 0])
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = ad.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(200):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    assert model(x).argmax(1).tolist() == y.tolist()
    ad.save(model.state_dict(), tmp_path / "xor.ad")
    other = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    other.load_state_dict(ad.load(tmp_path / "xor.ad"))
    assert ad.equal(other(x), model(x))
