"""`CompiledFunction.over`: one call for each batch of a loader, results stacked."""

import copy
from collections import namedtuple

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.core.errors import InvalidArgument, ShapeError
from tests.native import needs_native

pytestmark = needs_native
Pair = namedtuple("Pair", "loss norm")


def step_of(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_is_that_of_a_loop(workers):
    ad.manual_seed(0)
    data = ad.data.TensorDataset(ad.randn(50, 6), ad.randint(0, 3, (50,)))
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 3))
    found = []
    for over in (False, True):
        own = copy.deepcopy(model)
        step = ad.compile(step_of(own, ad.optim.Adam(own.parameters(), lr=0.05)))
        loader = ad.data.DataLoader(
            data, batch_size=8, shuffle=True, num_workers=workers, generator=ad.Generator()
        )
        ad.manual_seed(1)
        losses = []
        for _ in range(2):
            losses.append(step.over(loader) if over else ad.stack([step(x, y) for x, y in loader]))
        assert losses[0].shape == (7,)  # the last of two
        assert losses[0].requires_grad is not over
        found.append([*losses, *(p.detach() for p in own.parameters())])
        assert len(step.programs) == 2
    for a, b in zip(*found, strict=True):
        assert a.tolist() == b.tolist()


def test_results_of_any_form_are_stacked():
    def function(x):
        return Pair(x.sum(), {"all": [x * 2, x.shape]}), "name"

    pair, names = ad.compile(function).over([ad.ones(2), ad.zeros(2)])
    assert pair.loss.tolist() == [2.0, 0.0]
    assert pair.norm["all"][0].tolist() == [[2.0, 2.0], [0.0, 0.0]]
    assert pair.norm["all"][1] == [(2,), (2,)]
    assert names == ["name", "name"]


def test_what_cannot_be_stacked_and_an_empty_loader():
    compiled = ad.compile(lambda x: {"y": x * 2})
    with pytest.raises(ShapeError, match=r"result\['y'\] has several shapes, \(2,\), \(3,\)"):
        compiled.over([ad.ones(2), ad.ones(3)])
    with pytest.raises(InvalidArgument, match="no batch"):
        compiled.over([])


def test_an_error_in_the_middle_leaves_what_was_done():
    model = nn.Embedding(4, 2)
    optimizer = ad.optim.SGD(model.parameters(), lr=1.0)

    @ad.compile
    def step(k):
        optimizer.zero_grad()
        loss = model(k).sum()
        loss.backward()
        optimizer.step()
        return loss

    before = model.weight.detach().clone()
    with pytest.raises(IndexError):
        step.over([ad.tensor([0]), ad.tensor([1]), ad.tensor([9]), ad.tensor([2])])
    changed = (model.weight != before).any(1).tolist()
    assert changed == [True, True, False, False]
