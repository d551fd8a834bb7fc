"""`ad.overrides`: PyTorch's own list of what may be overridden, modes of functions, and helpers."""

from __future__ import annotations

import inspect
import threading

import pytest

import adjoint as ad
from adjoint.core.mode import DEFAULT, MODE
from adjoint.core.overrides import FOLLOWED, MODES

torch = pytest.importorskip("torch")
overrides = ad.overrides


@pytest.fixture(params=[ad, torch], ids=["adjoint", "torch"])
def lib(request):
    """Either library, with its `overrides`."""
    import torch.overrides

    assert torch.overrides
    return request.param


class Minus(ad.Tensor):
    """Each function that asks gives -1."""

    asked: list = []  # noqa: RUF012 - of all

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.asked.append(func)
        return -1


# Of PyTorch's list, what our classes have otherwise.
EXCEPTIONS = {
    **dict.fromkeys(
        ("is_ipu", "is_maia", "is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_quantized",
         "is_vulkan", "is_xla", "is_xpu"),
        "constants of the class: False",
    ),
    "__reduce_ex__": "Python's own, which asks __reduce__",
    "_assert_async": "asks bool(input), which is to give a bool",
}  # fmt: skip


def listed():
    """Name, our function or property, PyTorch's dummy, for all that adjoint has of the list."""
    from torch.overrides import get_testing_overrides

    known = get_testing_overrides()
    spaces = {"": (torch, ad), "Tensor": (torch.Tensor, ad.Tensor)}
    for name in ("nn.functional", "linalg", "fft", "special"):
        theirs, ours = torch, ad
        for part in name.split("."):
            theirs, ours = getattr(theirs, part), getattr(ours, part)
        spaces[name] = theirs, ours
    for space, (theirs, ours) in spaces.items():
        for name in dir(theirs):
            found = getattr(theirs, name)
            key = found.__get__ if hasattr(type(found), "__set__") else found
            try:
                dummy = known.get(key)
            except TypeError:  # what cannot be hashed is no function
                continue
            if dummy is not None and hasattr(ours, name):
                yield space, name, dummy


def required(dummy):
    """How many arguments must be given."""
    return sum(
        p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        for p in inspect.signature(dummy).parameters.values()
    )


def test_all_of_pytorchs_list_ask_a_subclass():
    x, seen, wrong, fine = ad.ones(2).as_subclass(Minus), 0, [], []
    for space, name, dummy in listed():
        count = required(dummy)
        Minus.asked.clear()
        try:
            if space == "Tensor":
                found = inspect.getattr_static(ad.Tensor, name)
                if hasattr(type(found), "__set__"):
                    result = getattr(x, name)
                else:
                    result = getattr(x, name)(*[x] * (count - 1))
            elif not count:
                continue
            else:
                owner = ad
                for part in filter(None, space.split(".")):
                    owner = getattr(owner, part)
                result = getattr(owner, name)(*[x] * count)
        except Exception as error:
            result = error
        seen += 1
        is_one = isinstance(result, int) and result == -1 and len(Minus.asked) == 1
        if is_one and name in EXCEPTIONS:
            fine.append(name)
        if not is_one and name not in EXCEPTIONS:
            wrong.append((space, name, result, list(Minus.asked)))
    assert seen > 1200 and not wrong and not fine


TAKE_NUMBERS = {  # a tensor of one element may stand for these in PyTorch; they are numbers here
    "dsplit", "flip", "resize_", "sum_to_size", "view", "vsplit",
}  # fmt: skip


def test_methods_of_a_plain_tensor_ask_their_other_arguments():
    class Theirs(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return -1

    seen, wrong = 0, []
    for space, name, dummy in listed():
        count = required(dummy) - 1
        if space != "Tensor" or count < 1 or not callable(getattr(torch.Tensor, name)):
            continue
        try:
            expected = getattr(torch.ones(2), name)(*[torch.ones(2).as_subclass(Theirs)] * count)
        except Exception:
            continue
        if not (isinstance(expected, int) and expected == -1):
            continue
        seen += 1
        try:
            found = getattr(ad.ones(2), name)(*[ad.ones(2).as_subclass(Minus)] * count)
        except Exception as error:
            found = error
        if not (isinstance(found, int) and found == -1) and name not in TAKE_NUMBERS:
            wrong.append((name, found))
    assert seen > 200 and not wrong


def test_our_own_list_is_of_functions_that_ask():
    known = overrides.get_testing_overrides()
    assert len(known) > 1100 and ad.add in known and ad.Tensor.shape.__get__ in known
    assert known[ad.dot](1, 2) == -1
    assert not overrides.get_ignored_functions() & known.keys()
    table = overrides.get_overridable_functions()
    assert ad.nn.functional.pad in table[ad.nn.functional] and ad.Tensor.item in table[ad.Tensor]
    x = ad.ones(2).as_subclass(Minus)
    wrong = []
    for function in table[ad.linalg] + table[ad.fft] + table[ad.special]:
        try:
            result = function(*[x] * required(known[function]))
        except Exception as error:
            result = error
        if not (isinstance(result, int) and result == -1):
            wrong.append(function)
    assert not wrong


def test_names_of_functions():
    F = ad.nn.functional
    assert overrides.resolve_name(ad.add) == "torch.add"
    assert overrides.resolve_name(F.pad) == "torch.nn.functional.pad"
    assert overrides.resolve_name(ad.Tensor.shape.__get__) == "torch.Tensor.shape.__get__"
    assert overrides.resolve_name(len) is None and overrides.resolve_name("x") == "x"
    assert overrides.is_tensor_method_or_property(ad.Tensor.item)
    assert overrides.is_tensor_method_or_property(ad.Tensor.grad.__get__)
    assert not overrides.is_tensor_method_or_property(F.pad)


# ---- helpers -------------------------------------------------------------------------------------


def test_libraries_may_ask_by_themselves(lib):
    o = lib.overrides

    class Named:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, types, len(args), kwargs

    class Silent:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    def twice(x, y=None):
        if o.has_torch_function((x, y)):
            return o.handle_torch_function(twice, (x, y), x, y=y)
        return x + x

    assert twice(lib.ones(1)).item() == 2
    assert twice(Named(), y=3) == ("twice", (Named,), 1, {"y": 3})
    assert twice(Silent(), Named())[:2] == ("twice", (Silent, Named))
    with pytest.raises(TypeError):
        twice(Silent())

    @o.wrap_torch_function(lambda x: (x,))
    def thrice(x):
        return x * 3

    assert thrice(lib.ones(1)).item() == 3 and thrice(Named())[0] == "thrice"
    assert o.has_torch_function_unary(Named()) and not o.has_torch_function_unary(lib.ones(1))
    assert o.has_torch_function_variadic(1, Named()) and not o.has_torch_function_variadic(1, 2)
    assert not o.has_torch_function((lib.nn.Parameter(lib.ones(1)), lib.ones(1), 3))
    assert o.is_tensor_like(Named()) and o.is_tensor_like(lib.ones(1)) and not o.is_tensor_like([1])
    assert lib.Tensor.grad.__get__ in o.get_default_nowrap_functions()
    if lib is ad:  # PyTorch's is for __torch_dispatch__ alone
        with o.enable_reentrant_dispatch():
            assert twice(Named())[0] == "twice"


def test_subclasses_may_be_taken_for_tensors(lib):
    disabled = overrides.DisableTorchFunctionSubclass
    if lib is torch:
        disabled = torch._C.DisableTorchFunctionSubclass

    class Sub(lib.Tensor):
        pass

    x = lib.ones(2).as_subclass(Sub)
    with disabled():
        assert type(x + 1) is lib.Tensor and not lib.overrides.has_torch_function((x,))
        with disabled():
            assert type(lib.sin(x)) is lib.Tensor
        assert type(x.view(-1)) is lib.Tensor and type(lib.cat([x, x])) is lib.Tensor
    assert type(x + 1) is Sub
    with pytest.raises(KeyError), disabled():
        raise KeyError
    assert type(x * 2) is Sub


# ---- modes ---------------------------------------------------------------------------------------


def listing(lib, log):
    class Listing(lib.overrides.TorchFunctionMode):
        def __init__(self, name=""):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(f"{self.name}{func.__name__}")
            return func(*args, **(kwargs or {}))

    return Listing


def test_modes_see_functions_methods_operators_and_factories():
    def program(lib):
        log = []
        x = lib.ones(2, 2, requires_grad=True)
        y = lib.ones(2, 2)
        F, linear = lib.nn.functional, lib.nn.Linear(2, 2)
        with listing(lib, log)():
            lib.ones(2), lib.zeros(2), lib.rand(2), lib.tensor([1.0]), lib.arange(3)
            lib.empty(2), lib.full((2,), 1.0), lib.eye(2), lib.linspace(0, 1, 3), lib.randn(2)
            y + 1, y @ y, y[0], y.sum(), lib.sin(y), F.relu(y), linear(y), y.view(-1), -y
            y.add_(1), y.copy_(y), y.t(), y.to(lib.float64), y.clone(), y.contiguous(), y.mm(y)
            y.tolist(), y[0, 0].item(), y.numel(), y.dim(), y.size(), y.shape, y.dtype, len(y)
            (x * 2).sum().backward()
            lib.cat([y, y]), lib.linalg.norm(y), lib.fft.fft(y), F.pad(y, (1, 1)), y.detach()
            lib.zeros_like(y), lib.where(y > 0, y, y), lib.einsum("ij->j", y), lib.no_grad
        log.append("|")
        y + 1, lib.ones(1)
        return log

    ours, theirs = program(ad), program(torch)
    same = {"linalg_norm": "norm", "fft_fft": "fft"}
    assert ours == [same.get(name, name) for name in theirs] and len(ours) > 40


def test_modes_nest_and_give_way(lib):
    log = []
    Listing = listing(lib, log)
    with Listing("outer "), Listing("inner "):
        lib.ones(1)
    assert log == ["inner ones", "outer ones"]

    class Declining(lib.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError), Declining():
        lib.ones(1)
    one = Listing("again ")
    with one, one:
        lib.ones(1)
    assert log[2:] == ["again ones", "again ones"]
    assert lib.ones(1).item() == 1


def test_a_mode_comes_before_a_subclass(lib):
    log = []

    class Sub(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append("sub")
            return super().__torch_function__(func, types, args, kwargs)

    class Told(lib.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append(("mode", types))
            return func(*args, **(kwargs or {}))

    x = lib.ones(2).as_subclass(Sub)
    with Told():
        y = x + 1
    assert log == [("mode", (Sub,)), "sub"] and type(y) is Sub


def test_a_mode_counts_what_products_cost(lib):
    class Counting(lib.overrides.TorchFunctionMode):
        """Multiplications and additions of linear layers and products."""

        def __init__(self):
            self.flops = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            if func in (lib.nn.functional.linear, lib.Tensor.matmul, lib.matmul):
                self.flops += 2 * found.numel() * args[0].shape[-1]
            return found

    model = lib.nn.Sequential(lib.nn.Linear(4, 8), lib.nn.ReLU(), lib.nn.Linear(8, 2))
    x = lib.ones(3, 4)
    with Counting() as counted:
        y = model(x)
        y @ y.T
        lib.matmul(x.T, x)
    assert counted.flops == 2 * (3 * 8 * 4 + 3 * 2 * 8 + 3 * 3 * 2 + 4 * 4 * 3)


def test_a_mode_may_change_what_factories_give(lib):
    class Double(lib.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if func in (lib.ones, lib.zeros, lib.empty):
                kwargs.setdefault("dtype", lib.float64)
            return func(*args, **kwargs)

    for _ in range(2):  # a call that is known, and one that is not
        with Double():
            assert lib.ones(2).dtype is lib.float64 and lib.zeros(2).dtype is lib.float64
        assert lib.ones(2).dtype is lib.float32
    with lib.device("cpu"), Double():
        assert lib.empty(2).dtype is lib.float64


def test_modes_end_with_errors_and_are_of_their_thread():
    before = dict(vars(ad.Tensor))
    log = []
    with pytest.raises(KeyError), listing(ad, log)():
        ad.ones(1)
        raise KeyError
    assert MODE.get() is DEFAULT and MODES not in FOLLOWED and dict(vars(ad.Tensor)) == before
    ready, go = threading.Event(), threading.Event()

    def other():
        ready.set()
        go.wait(10)
        ad.ones(1).view(-1).tolist()

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait(10)
    with listing(ad, log)():
        assert (
            ad.Tensor.tolist is before["tolist"]
            and ad.Tensor.shape == ad.core.tensor_base.TensorBase.shape
        )
        go.set()
        thread.join()
        with ad.no_grad():
            ad.zeros(1)
    assert log == ["ones", "zeros"] and dict(vars(ad.Tensor)) == before

    class Failing(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise KeyError

    with Failing():
        with pytest.raises(KeyError):
            ad.ones(1)
        with pytest.raises(KeyError):
            ad.ones(1)
    assert ad.ones(1).item() == 1 and MODE.get() is DEFAULT


def test_switches_set_inside_a_handler_stay(lib):
    class Quiet(lib.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            lib.set_grad_enabled(False)
            return func(*args, **(kwargs or {}))

    x = lib.ones(2, requires_grad=True)
    try:
        with Quiet():
            y = x * 2
        assert not y.requires_grad and not lib.is_grad_enabled()
    finally:
        lib.set_grad_enabled(True)


def test_modes_record_and_run_in_every_way():
    log = []
    Listing = listing(ad, log)
    with Listing(), ad.lazy():
        y = ad.ones(2) * 2
    assert y.tolist() == [2, 2] and log == ["ones", "mul"]
    graph = ad.Graph()
    log.clear()
    with graph, Listing():
        x = ad.ones(2)
        z = (x + 1).sum()
    assert z.item() == 4 and log == ["ones", "add", "sum"]
    log.clear()
    with Listing():
        found = ad.vmap(lambda a: a * 2)(ad.ones(2, 2))
    assert found.tolist() == [[2, 2], [2, 2]] and "mul" in log
    with Listing(), ad.autocast("cpu", dtype=ad.bfloat16):
        assert (ad.ones(2, 2) @ ad.ones(2, 2)).dtype is ad.bfloat16
    with pytest.raises(NotImplementedError), overrides.TorchFunctionMode():
        ad.ones(1)
