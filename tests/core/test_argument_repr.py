"""Every object says what it is, and computes nothing for it."""

import importlib
import inspect

import pytest

import adjoint as ad
from tests.test_public_names import NAMES

# Classes of which programs only have the name: TorchScript's, old storages' (which make an
# UntypedStorage), sizes that are symbols; and what is no object of its own.
ONLY_NAMES = ("adjoint.jit.", "adjoint.ops.create.storages", "adjoint.nn.top", "adjoint.torch_api")
OTHERS = {
    "Function", "GroupMember", "lazy_property", "DisableTorchFunction", "tqdm", "ScriptFunction",
    "DisableTorchFunctionSubclass", "TorchDispatchMode", "emit_itt", "emit_nvtx",
}  # fmt: skip


def classes():
    for where, names in NAMES.items():
        module = importlib.import_module(where) if where != "adjoint.Tensor" else None
        for name in names if module is not None else ():
            value = getattr(module, name, None)
            if inspect.isclass(value) and value.__module__.startswith("adjoint"):
                yield value


def test_every_class_of_the_public_has_a_repr_of_its_own():
    lacking = {
        f"{x.__module__}.{x.__qualname__}"
        for x in classes()
        if x.__repr__ is object.__repr__
        and x.__name__ not in OTHERS
        and not x.__module__.startswith(ONLY_NAMES)
    }
    assert lacking == set()


class Lazy:
    """Computes when it is asked for its length, or for what it is."""

    def __len__(self):
        raise AssertionError("a repr computes nothing")

    __repr__ = __str__ = __bool__ = __getitem__ = __len__


def made():
    optimizer = ad.optim.SGD(ad.nn.Linear(2, 1).parameters(), lr=0.5)
    data = ad.data.TensorDataset(ad.zeros(10, 3), ad.zeros(10))
    rates = ad.optim.lr_scheduler
    yield data, "TensorDataset(tensors=(<Tensor (10, 3)>, <Tensor (10,)>))"
    yield ad.data.Subset(Lazy(), range(9)), "Subset(dataset=<Lazy>, indices=range(0, 9))"
    loader = ad.data.DataLoader(data, 4, collate_fn=len)
    said = "batch_size=4, sampler=<SequentialSampler>, batch_sampler=<BatchSampler>, collate_fn=len"
    yield loader, f"DataLoader(dataset=<TensorDataset>, {said})"
    schedule = rates.StepLR(optimizer, 30, gamma=0.5)
    yield schedule, "StepLR(optimizer=<SGD>, step_size=30, gamma=0.5, last_epoch=0, last_lr=[0.5])"
    yield ad.amp.GradScaler("cpu"), "GradScaler(device='cpu')"
    yield ad.no_grad(), "no_grad()"
    yield ad.utils.Checkpoint(optimizer=optimizer), "Checkpoint(parts=<optimizer>)"
    yield ad.models.KeyValueCache(10), "KeyValueCache(capacity=10, length=0)"
    yield ad.fx.symbolic_trace(ad.nn.ReLU()).graph, "<adjoint.fx.Graph: 3 nodes>"


@pytest.mark.parametrize(("x", "said"), [pytest.param(*each, id=each[1]) for each in made()])
def test_what_objects_say(x, said):
    assert repr(x) == said


def test_a_class_of_the_users_says_its_arguments_and_long_ones_shortly():
    class Words(ad.data.Dataset):
        def __init__(self, text, words, seen=None, *more, **options):
            self.text, self._words, self.seen = text, words, seen

    assert repr(Words("a" * 99, list("abcdef"))) == f"Words(text='{'a' * 35}...', words=<6 items>)"
    assert repr(Words(0, (1, [ad.ones(2, 0)]), {"k": 1})) == (
        "Words(text=0, words=(1, [<Tensor (2, 0)>]), seen=<k>)"
    )
    bare = Words.__new__(Words)
    assert repr(bare) == "Words()"


def test_a_repr_ends_and_calls_nobody():
    class Odd(ad.data.Dataset):
        _shown = 3  # names of the user's own

        def __init__(self, items, table):
            self.items, self.table = items, table

    items = [ad.ones(2)]
    items.append(items)
    assert repr(Odd(items, {Lazy(): 1})) == (
        "Odd(items=[<Tensor (2,)>, [<Tensor (2,)>, <2 items>]], table=<<Lazy>>)"
    )
    assert repr(Odd({}, Odd(1, 2))) == "Odd(items=<>, table=<Odd>)"
