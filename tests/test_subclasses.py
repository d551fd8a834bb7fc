"""Subclasses of Tensor and their `__torch_function__`: the same programs on both libraries."""

from __future__ import annotations

import copy
import functools
import io
import operator
import pickle
import types
import warnings

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")


@pytest.fixture(params=[ad, torch], ids=["adjoint", "torch"])
def lib(request):
    """Either library."""
    return request.param


def same(program):
    """Both libraries give the same for a program, which says what it gives in Python's words."""
    ours, theirs = program(ad), program(torch)
    assert ours == theirs, (ours, theirs)
    return ours


def telling(lib, log):
    """A subclass whose calls are listed by their functions' names."""

    class Telling(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    return Telling


# ---- classes without a say of their own ----------------------------------------------------------


def plain(lib):
    class Image(lib.Tensor):
        """As torchvision's, fastai's and others' are."""

    return Image


def test_results_are_of_the_subclass():
    def program(lib):
        kind = plain(lib)
        x = lib.arange(6.0).reshape(2, 3).as_subclass(kind)
        y = lib.ones(2, 3)
        F = lib.nn.functional
        found = [
            x + 1, 1 + x, y + x, x - y, 2 - x, y / x, x**2, 2**x, -x, +x, abs(x), x @ y.T, x // 2,
            x % 2, x > 1, x == x, lib.sin(x), x.sin(), x.sum(), x.max(1), x.max(), x.T, x.mT,
            x[0], x[x > 1], x[0, None, ::2], y[x.long().clamp(0, 1)], x.view(-1), x.reshape(3, 2),
            lib.cat([y, x]), lib.stack((x, y)), x.split(1), lib.meshgrid(x[0], indexing="ij"),
            x.to(lib.float64), x.double(), x.detach(), x.clone(), x.data, x.new_zeros(2),
            x.new_tensor([1.0]), lib.zeros_like(x), lib.rand_like(x), F.relu(x), F.softmax(x, 1),
            F.linear(x, y), F.pad(x, (1, 1)), lib.linalg.norm(x), lib.fft.fft(x), x.contiguous(),
            lib.special.expit(x), lib.einsum("ij->j", x), lib.where(x > 1, x, y), x.topk(1),
            x.unbind(), list(x), x.real, x.numpy(), x.tolist(), x.shape, x.size(), x.size(0),
            x.dtype == lib.float32, x.dim(), len(x), x[0, 0].item(), x.is_contiguous(), x.grad,
            lib.broadcast_tensors(x, y), lib.nn.Linear(3, 1)(x), lib.equal(x, y), x.numel(),
        ]  # fmt: skip

        def told(value):
            if isinstance(value, lib.Tensor):
                return type(value).__name__
            if isinstance(value, (list, tuple)) and any(isinstance(v, lib.Tensor) for v in value):
                return [told(each) for each in value]
            return type(value).__name__ if isinstance(value, np.ndarray) else str(value)[-30:]

        return [told(each) for each in found if not isinstance(each, type(x.shape))]

    assert same(program)[0] == "Image"


def test_functions_in_place_give_the_same_object(lib):
    kind = plain(lib)
    x = lib.zeros(3).as_subclass(kind)
    y = x
    assert x.add_(1) is x and x.mul_(x) is x and x.zero_() is x and x.requires_grad_() is x
    y = lib.zeros(3).as_subclass(kind)
    same_one = y
    y += 2
    y *= y
    assert y is same_one and type(y) is kind and y.tolist() == [4, 4, 4]
    z = lib.zeros(3)
    copied = z.copy_(y)
    assert type(copied) is kind and type(z) is lib.Tensor and z.add_(y).tolist() == [8, 8, 8]
    y[0] = z[1]
    y[1:] = 0
    assert y.tolist() == [8, 0, 0]
    out = lib.zeros(3).as_subclass(kind)
    assert lib.add(z, 1, out=out) is out and out.tolist() == [9, 9, 9]


def test_the_more_derived_class_wins_and_strangers_are_refused():
    def program(lib):
        base = plain(lib)

        class Derived(base):
            pass

        class Stranger(lib.Tensor):
            pass

        x, y, z = (lib.ones(2).as_subclass(each) for each in (base, Derived, Stranger))
        found = [type(each).__name__ for each in (x + y, y + x, lib.stack([x, x, y]), x + 1)]
        with pytest.raises(TypeError):
            x + z
        with pytest.raises(TypeError):
            lib.cat([z, y])
        return found

    assert same(program) == ["Derived", "Derived", "Derived", "Image"]


def test_gradients_flow_and_are_plain(lib):
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x.as_subclass(plain(lib))
    (y.exp() * y + y[0]).sum().backward()
    expected = np.exp([1, 2]) * [2, 3] + [2, 0]
    assert type(x.grad) is lib.Tensor
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)
    leaf = lib.tensor([1.0, 2.0]).as_subclass(plain(lib)).requires_grad_()
    (leaf * leaf).sum().backward()
    assert type(leaf.grad) is lib.Tensor and leaf.grad.tolist() == [2, 4] and leaf.is_leaf
    (found,) = lib.autograd.grad((leaf**3).sum(), leaf)
    assert type(found) is type(leaf) and found.tolist() == [3, 12]


def test_backward_asks_nobody_but_hooks_and_functions_do():
    def program(lib):
        log = []
        kind = telling(lib, log)

        class Double(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                log.append("backward of Double")
                return g * 2 * (x / x)

        x = lib.tensor([1.0, 2.0]).as_subclass(kind).requires_grad_()
        y = (x * x).sin().exp().sum()
        x.register_hook(lambda g: g * (log.append("hook"), x.detach())[1])
        log.clear()
        y.backward()
        (x + 1).sum().backward()
        second = list(log)
        log.clear()
        z = Double.apply(lib.ones(2).as_subclass(kind).requires_grad_())
        z.sum().as_subclass(lib.Tensor).backward()
        return second, [name for name in log if name in ("backward of Double", "div")]

    calls, inside = same(program)
    assert calls[:2] == ["backward", "hook"] and "sin" not in calls and "detach" not in calls
    assert inside == ["backward of Double", "div"]


def test_copies_pickles_and_words(lib, monkeypatch):
    monkeypatch.setitem(globals(), "Kept", None)
    kind = type("Kept", (lib.Tensor,), {"__module__": __name__})
    globals()["Kept"] = kind
    x = kind([1.0, 2.0])
    x.note = ["a"]
    for other in (copy.copy(x), pickle.loads(pickle.dumps(x))):
        assert type(other) is kind and other.tolist() == [1, 2] and other.note == ["a"]
    if lib is ad:  # PyTorch's needs a `new_empty` of the subclass
        other = copy.deepcopy(x)
        assert type(other) is kind and other.tolist() == [1, 2] and other.note == ["a"]
        assert other.note is not x.note
    assert repr(x) == "Kept([1., 2.])" and isinstance(x, lib.Tensor) and hash(x) == id(x)


def test_files_hold_plain_tensors():
    x = ad.ones(2).as_subclass(plain(ad))
    file = io.BytesIO()
    ad.save({"x": x}, file)
    file.seek(0)
    assert type(ad.load(file)["x"]) is ad.Tensor


def test_making_tensors_of_a_subclass(lib):
    kind = plain(lib)
    data = lib.zeros(2)
    x = lib.Tensor._make_subclass(kind, data, True)
    assert type(x) is kind and x.requires_grad and x.is_leaf
    data[0] = 3
    assert x.tolist() == [3, 0] and type(x.as_subclass(lib.Tensor)) is lib.Tensor
    with pytest.raises(TypeError):
        data.as_subclass(int)


def test_what_is_loaded_into_a_parameter(lib):
    kind = plain(lib)
    x, other = lib.zeros(2), lib.tensor([1.0, 2.0], requires_grad=True)
    found = x.module_load(other.detach())
    assert found.tolist() == x.tolist() == [1, 2] and not found.requires_grad
    assigned = x.module_load(other, assign=True)
    assert assigned.data_ptr() == other.data_ptr() and not assigned.requires_grad
    assert type(lib.zeros(2).module_load(lib.ones(2).as_subclass(kind))) is kind


def test_what_needs_pytorchs_dispatcher_is_refused():
    class Wrapper(ad.Tensor):  # packages define such classes, of which a program may use none
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    for make in (
        lambda: Wrapper([1.0]),
        lambda: ad.ones(1).as_subclass(Wrapper),
        lambda: ad.Tensor._make_subclass(Wrapper, ad.ones(1)),
    ):
        with pytest.raises(ad.Unsupported, match=r"Wrapper: .*__torch_function__"):
            make()
    with pytest.raises(ad.Unsupported, match="__torch_dispatch__"):
        ad.Tensor._make_wrapper_subclass(ad.Tensor, (2,))
    from adjoint.utils._python_dispatch import TorchDispatchMode

    with pytest.raises(ad.Unsupported, match="TorchFunctionMode"), TorchDispatchMode():
        raise AssertionError


# ---- classes that say what functions do ----------------------------------------------------------


def test_what_is_told_of_operators_methods_and_properties():
    def program(lib):
        log = []
        kind = telling(lib, log)
        x, y = lib.ones(2, 2).as_subclass(kind), lib.ones(2, 2)
        n, m = lib.ones(2, dtype=lib.int64).as_subclass(kind), lib.ones(2, dtype=lib.int64)
        found = {}

        def tell(name, function):
            log.clear()
            function()
            found[name] = list(log)

        for name in ("add", "sub", "mul", "truediv", "pow", "floordiv", "mod", "eq", "ne", "lt",
                     "ge"):  # fmt: skip
            run = getattr(operator, name)
            for mine, a, b in (
                ("xx", x, x),
                ("yx", y, x),
                ("xy", x, y),
                ("2x", 2, x),
                ("x2", x, 2),
            ):
                tell(f"{name} {mine}", functools.partial(run, a, b))
        for name in ("and_", "or_", "xor", "lshift"):
            run = getattr(operator, name)
            for mine, a, b in (("nn", n, n), ("mn", m, n), ("2n", 2, n)):
                tell(f"{name} {mine}", functools.partial(run, a, b))
        for name in ("iadd", "isub", "imul", "itruediv", "imod"):
            tell(name, functools.partial(getattr(operator, name), x.clone(), 2))
        for name in ("neg", "pos", "abs"):
            tell(name, functools.partial(getattr(operator, name), x))
        for name in ("matmul",):
            tell(name, lambda: x @ y)
            tell(f"{name} of plain", lambda: y @ x)
        for name in ("shape", "dtype", "device", "ndim", "grad", "data", "is_leaf", "T", "mT",
                     "requires_grad", "grad_fn", "itemsize", "nbytes", "layout", "is_cuda", "real",
                     "is_sparse"):  # fmt: skip
            tell(name, functools.partial(getattr, x, name))
        for name in ("tolist", "numpy", "detach", "dim", "size", "numel", "stride", "clone",
                     "float", "element_size", "data_ptr", "storage_offset", "contiguous",
                     "is_contiguous",
                     "is_floating_point", "is_complex", "cpu", "double", "half", "long", "bool",
                     "t", "squeeze", "flatten", "zero_", "uniform_", "sort", "isnan", "nonzero",
                     "trace", "tril", "diag", "exp", "argmax", "type", "untyped_storage",
                     "__len__", "__repr__", "unbind", "__reversed__"):  # fmt: skip
            tell(f"x.{name}()", lambda name=name: getattr(x, name)())
        tell("item", lambda: x[0, 0].item())
        tell("float", lambda: (float(x[0, 0]), int(x[0, 0]), bool(x[0, 0])))
        tell("in", lambda: 1 in x)
        tell("index", lambda: (x[0], x[:, None], y[x.long()]))
        tell("set", lambda: (operator.setitem(x, 0, 1), operator.setitem(y, 0, x[0])))
        tell("views", lambda: (x.view(-1), x.permute(1, 0), x.expand(2, 2, 2), x.repeat(2, 1)))
        tell("sets", lambda: (setattr(x, "grad", y), setattr(x, "data", y), x.grad))
        tell("hooks", lambda: (x.requires_grad_(), x.register_hook(print), x.retain_grad()))
        tell("copy_", lambda: y.copy_(x.detach()))
        return found

    found = same(program)
    assert found["sub 2x"] == ["__rsub__"] and found["lt yx"] == ["gt"]
    assert found["shape"] == ["__get__"] and len(found) > 120


def test_what_is_told_of_functions_and_modules():
    def program(lib):
        log = []
        kind = telling(lib, log)
        x, y = lib.rand(4, 4).as_subclass(kind), lib.rand(4, 4)
        F, nn = lib.nn.functional, lib.nn
        target = lib.tensor([0, 1, 2, 3])
        calls = [
            lambda: lib.cat([y, x]), lambda: lib.sum(x), lambda: lib.max(x, 1),
            lambda: lib.zeros_like(x), lambda: lib.full_like(x, 2.0), lambda: lib.allclose(x, x),
            lambda: lib.where(y > 0, x, y), lambda: lib.einsum("ij->i", x),
            lambda: lib.tensordot(x, x), lambda: lib.cdist(x, x), lambda: lib.block_diag(x, x),
            lambda: lib.add(y, y, out=x), lambda: lib.unique(x), lambda: lib.numel(x),
            lambda: lib.is_floating_point(x), lambda: lib.result_type(x, 1), lambda: lib.norm(x),
            lambda: F.relu(x), lambda: F.dropout(x), lambda: F.gelu(x), lambda: F.softmax(x, 1),
            lambda: F.mse_loss(x, y), lambda: F.cross_entropy(x, target),
            lambda: F.layer_norm(x, (4,)), lambda: F.linear(y, x), lambda: F.pad(x, (1, 1)),
            lambda: F.embedding(target, x), lambda: F.cosine_similarity(x, y),
            lambda: F.batch_norm(x, y[0], y[0]), lambda: F.max_pool2d(x[None], 2),
            lambda: nn.Linear(4, 2)(x), lambda: nn.LayerNorm(4)(x), lambda: nn.ReLU()(x),
            lambda: nn.Conv2d(1, 1, 1)(x[None, None]), lambda: nn.Dropout()(x),
            lambda: nn.Softmax(1)(x), lambda: nn.Embedding(3, 2)(x.long()),
            lambda: nn.Bilinear(4, 4, 2)(x, x), lambda: nn.PReLU()(x),
            lambda: nn.GroupNorm(2, 4)(x),
            lambda: nn.MSELoss()(x, y), lambda: nn.CrossEntropyLoss()(x, target),
            lambda: nn.Flatten()(x), lambda: nn.AdaptiveAvgPool2d(1)(x[None]),
        ]  # fmt: skip
        found = []
        for call in calls:
            log.clear()
            call()
            found.append(list(log))
        return found

    assert same(program)[0] == ["cat"]


def test_the_function_that_is_told_is_the_public_one(lib):
    told = []

    class Telling(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            told.append((func, types, args, kwargs))
            return super().__torch_function__(func, types, args, kwargs)

    x = lib.ones(2).as_subclass(Telling)
    F = lib.nn.functional
    for call, function in (
        (lambda: lib.sin(x), lib.sin),
        (lambda: lib.cat([x]), lib.cat),
        (lambda: F.pad(x, (1, 1)), F.pad),
        (lambda: x + 1, lib.Tensor.add),
        (lambda: x * 2, lib.Tensor.mul),
        (lambda: x.shape, lib.Tensor.shape.__get__),
        (lambda: x.item, None),
        (lambda: x.view(-1), lib.Tensor.view),
        (lambda: x.tolist(), lib.Tensor.tolist),
        (lambda: x.add_(1), lib.Tensor.add_),
        (lambda: x[0], lib.Tensor.__getitem__),
        (lambda: x.numel(), lib.Tensor.numel),
        (lambda: lib.linalg.norm(x), lib.linalg.norm),
        (lambda: F.relu(x), F.relu),
        (lambda: x.detach(), lib.Tensor.detach),
        (lambda: F.linear(x[None], lib.ones(1, 2)), F.linear),
        (lambda: x.size(), lib.Tensor.size),
        (lambda: repr(x), lib.Tensor.__repr__),
        (lambda: len(x), lib.Tensor.__len__),
    ):
        told.clear()
        call()
        if function is None:
            assert not told
        else:
            assert told[-1][0] == function and told[-1][1] == (Telling,), function
    told.clear()
    lib.sum(x, dim=0)
    _, _, args, kwargs = told[0]
    assert args[0] is x and kwargs == {"dim": 0}


# ---- patterns of programs ------------------------------------------------------------------------


def test_metadata_follows_the_tensor(lib):
    """Source: https://docs.pytorch.org/docs/stable/notes/extending.html, in our words."""

    class Noted:
        def __init__(self, data, note=None):
            self.data = lib.as_tensor(data)
            self.note = note

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            notes = tuple(a.note for a in args if hasattr(a, "note"))
            args = [getattr(a, "data", a) if isinstance(a, cls) else a for a in args]
            assert notes
            return Noted(func(*args, **(kwargs or {})), note=notes[0])

    a, b = Noted([[1.0], [2.0]], note="mine"), lib.tensor([[3.0], [4.0]])
    for found in (lib.add(a, b), lib.mul(b, a), lib.transpose(a, 0, 1), lib.nn.functional.relu(a)):
        assert type(found) is Noted and found.note == "mine"
    assert lib.add(a, b).data.tolist() == [[4], [6]]


def test_a_scalar_times_the_identity(lib):
    """An object that is no tensor, with a table of functions."""
    handled = {}

    def implements(function):
        def declare(ours):
            handled[function] = ours
            return ours

        return declare

    class Scalar:
        def __init__(self, size, value):
            self.size, self.value = size, value

        def tensor(self):
            return self.value * lib.eye(self.size)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func not in handled or not all(issubclass(t, (lib.Tensor, Scalar)) for t in types):
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    @implements(lib.mean)
    def mean(x):
        return x.value / x.size

    @implements(lib.add)
    def add(x, y):
        if isinstance(x, Scalar) and isinstance(y, Scalar):
            return Scalar(x.size, x.value + y.value)
        x, y = (each.tensor() if isinstance(each, Scalar) else each for each in (x, y))
        return lib.add(x, y)

    d = Scalar(5, 2.0)
    assert lib.mean(d) == 0.4 and lib.add(d, d).value == 4
    assert lib.add(d, lib.ones(5, 5)).diagonal().tolist() == [3] * 5
    for refused in (lambda: lib.mul(d, 3), lambda: lib.cat([d]), lambda: lib.sin(d)):
        with pytest.raises(TypeError):
            refused()


def test_units_are_checked(lib):
    class Quantity(lib.Tensor):
        """Values with powers of metres and seconds."""

        @staticmethod
        def of(data, *unit):
            made = lib.as_tensor(data).as_subclass(Quantity)
            made.unit = unit
            return made

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            units = [getattr(each, "unit", (0, 0)) for each in args]
            found = super().__torch_function__(func, types, args, kwargs)
            name = func.__name__.rstrip("_")
            if name in ("add", "sub") and units[0] != units[1]:
                raise ValueError(f"{name}: {units[0]} and {units[1]}")
            if isinstance(found, Quantity):
                if name == "mul":
                    found.unit = tuple(a + b for a, b in zip(*units, strict=True))
                elif name == "div":
                    found.unit = tuple(a - b for a, b in zip(*units, strict=True))
                else:
                    found.unit = units[0]
            return found

    way, time = Quantity.of([2.0, 3.0], 1, 0), Quantity.of([1.0, 2.0], 0, 1)
    speed = way / time
    assert speed.unit == (1, -1) and (speed * time + way).unit == (1, 0)
    assert speed.sum().unit == (1, -1) and (2 * speed).unit == (1, -1)
    with pytest.raises(ValueError, match="add"):
        way + time
    x = Quantity.of([2.0, 3.0], 1, 0).requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [4, 6]


def test_images_lose_their_class_as_torchvisions_do(lib):
    """tv_tensors: results are plain, but for a few functions; `wrap` gives the class back."""

    class Image(lib.Tensor):
        kept = (lib.Tensor.clone, lib.Tensor.to, lib.Tensor.detach, lib.Tensor.requires_grad_)

        @classmethod
        def wrap(cls, x):
            return x.as_subclass(cls)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if not all(issubclass(cls, t) for t in types):
                return NotImplemented
            if lib is torch:
                disabled = torch._C.DisableTorchFunctionSubclass
            else:
                disabled = ad.overrides.DisableTorchFunctionSubclass
            with disabled():
                found = func(*args, **(kwargs or {}))
            if func in cls.kept and isinstance(args[0], cls):
                return cls.wrap(found)
            return found.as_subclass(lib.Tensor) if isinstance(found, cls) else found

    x = Image.wrap(lib.zeros(1, 2, 2))
    kinds = [type(each).__name__ for each in (x.clone(), x.to(lib.float64), x + 1, x[0], x.add_(1))]
    assert kinds == ["Image", "Image", "Tensor", "Tensor", "Tensor"]
    assert tuple(x.shape) == (1, 2, 2)


def test_attributes_are_copied_as_fastai_does(lib):
    class TensorBase(lib.Tensor):
        """Results get the attributes of the first argument."""

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if not all(issubclass(t, lib.Tensor) for t in types):
                return NotImplemented
            found = super().__torch_function__(func, tuple({cls}), args, kwargs)
            first = next((each for each in args if isinstance(each, TensorBase)), None)
            if isinstance(found, TensorBase) and first is not None:
                found.__dict__.update(first.__dict__)
            return found

        def new(self, x):
            return type(self)(x)

    class TensorImage(TensorBase):
        pass

    class TensorMask(TensorBase):
        pass

    x, mask = lib.ones(2).as_subclass(TensorImage), lib.ones(2).as_subclass(TensorMask)
    x.source = "file"
    y = (x * 2).clamp(0, 1)[:1]
    assert type(y) is TensorImage and y.source == "file"
    assert type(x * mask) is TensorImage and type(mask * x) is TensorMask


def test_parameters_of_a_subclass_train(lib):
    log = []

    class Watched(lib.nn.Parameter):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            with (
                lib.overrides.DisableTorchFunctionSubclass()
                if lib is ad
                else (torch._C.DisableTorchFunctionSubclass())
            ):
                return func(*args, **(kwargs or {}))

    model = lib.nn.Linear(2, 1)
    with lib.no_grad():
        model.weight = Watched(lib.ones(1, 2))
        model.bias.zero_()
    assert (
        type(model.weight) is Watched and dict(model.named_parameters())["weight"] is model.weight
    )
    optimizer = lib.optim.SGD(model.parameters(), lr=0.5)
    log.clear()
    loss = model(lib.tensor([[1.0, 2.0]])).sum()
    assert type(loss) is lib.Tensor and log[0] == "linear"
    loss.backward()
    optimizer.step()
    assert model.weight.tolist() == [[0.5, 0.0]] and type(copy.deepcopy(model).weight) is Watched


def test_a_parameter_of_a_subclasss_tensor_stays_one(lib):
    kind = plain(lib)
    p = lib.nn.Parameter(lib.ones(1, 2).as_subclass(kind))
    assert type(p) is kind and isinstance(p, lib.nn.Parameter) and p.requires_grad and p.is_leaf
    assert not isinstance(lib.ones(1).as_subclass(kind), lib.nn.Parameter)
    model = lib.nn.Linear(2, 1)
    model.weight = p
    assert next(iter(model.parameters())) is p
    optimizer = lib.optim.Adam(model.parameters(), lr=0.1)
    y = model(lib.ones(1, 2))
    assert type(y) is kind
    y.sum().backward()
    optimizer.step()
    np.testing.assert_allclose(model.weight.detach().numpy(), [[0.9, 0.9]], rtol=1e-5)
    model.load_state_dict(lib.nn.Linear(2, 1).state_dict())
    assert type(model.weight) is kind

    class Strange(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            found = super().__torch_function__(func, types, args, kwargs)
            return found.as_subclass(lib.Tensor) if func is lib.Tensor.detach else found

    with pytest.raises((RuntimeError, TypeError), match="detach"):
        lib.nn.Parameter(lib.ones(2).as_subclass(Strange))


def test_parameters_are_as_they_are(lib):
    p = lib.nn.Parameter(lib.ones(2))
    for found in (p * 2, p.detach(), p[0], p.sum(), lib.sin(p), p.clone()):
        assert type(found) is lib.Tensor
    mixed = p * lib.ones(2).as_subclass(plain(lib))
    assert type(mixed).__name__ == "Image"


def test_methods_may_be_defined_anew(lib):
    class Loud(lib.Tensor):
        def sum(self, *args, **kwargs):
            return super().sum(*args, **kwargs) * 10

        @property
        def shape(self):
            return ("loud", *super().shape)

        def __repr__(self):
            return "loud"

    x = lib.ones(2).as_subclass(Loud)
    assert x.sum().item() == 20 and type(x.sum()) is Loud and x.shape == ("loud", 2)
    assert repr(x) == "loud" and lib.sum(x).item() == 2


# ---- in all ways of running ----------------------------------------------------------------------


def test_recording_asks_and_gives_the_subclass():
    log = []
    kind = telling(ad, log)
    with ad.lazy():
        x = ad.ones(3).as_subclass(kind)
        y = (x * 2 + 1).sum()
    assert type(y) is kind and log == ["mul", "add", "sum"] and y.item() == 9
    graph = ad.Graph()
    with graph:
        x = ad.tensor([1.0, 2.0], requires_grad=True)
        y = (x.as_subclass(kind) * x).sum()
    assert type(y) is kind and y.item() == 5
    x.set(ad.tensor([2.0, 3.0]))
    log.clear()
    assert y.item() == 13 and log == ["item"]
    y.backward()
    assert x.grad.tolist() == [4, 6]


def test_compiled_functions_call_the_override_once_or_refuse():
    log = []
    listing = telling(ad, log)

    def of(kind):
        return ad.compile(lambda x: (x.as_subclass(kind) * 2 + 1).sum().as_subclass(ad.Tensor))

    with pytest.raises(ad.Unsupported, match="what log contains was changed"):
        of(listing)(ad.ones(3))
    assert not log
    kind = telling(ad, types.SimpleNamespace(append=len))
    inside = of(kind)
    assert [inside(ad.ones(3) * i).item() for i in range(3)] == [3, 9, 15]
    x = ad.ones(3).as_subclass(kind)
    with pytest.raises(ad.Unsupported, match="an argument is of the subclass Telling"):
        inside(x)
    assert inside(x.as_subclass(ad.Tensor)).item() == 9
    with pytest.raises(ad.Unsupported, match="returns a tensor of the subclass"):
        ad.compile(lambda x: x.as_subclass(kind) * 2)(ad.ones(3))
    with (
        ad.overrides.BaseTorchFunctionMode(),
        pytest.raises(ad.Unsupported, match="mode of functions Base"),
    ):
        inside(ad.ones(3))
    with pytest.warns(UserWarning, match="runs eagerly: an argument is of the subclass"):
        found = ad.compile(lambda x: x * 2, fallback="eager")(x)
    assert type(found) is kind

    def doubled(x):
        with Doubling():
            return x + 1

    assert ad.compile(doubled)(ad.ones(2)).tolist() == doubled(ad.ones(2)).tolist() == [4, 4]


class Doubling(ad.overrides.TorchFunctionMode):
    """What `add` gives is doubled."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * 2 if func is ad.Tensor.add else found


def test_modes_of_execution_keep_the_subclass():
    def program(lib):
        x = lib.ones(2, 2).as_subclass(plain(lib))
        found = []
        with lib.no_grad():
            found.append(x + 1)
        with lib.inference_mode():
            found.append(x + 1)
        with lib.autocast("cpu", dtype=lib.bfloat16):
            found.append(x @ x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch, of itself
            found.append(lib.vmap(lambda a: a * 2)(x))
            found.append(lib.func.grad(lambda a: (a * a).sum())(x))
            found += lib.func.jvp(lambda a: a * a, (x,), (lib.ones(2, 2),))
        return [(type(y).__name__, str(y.dtype)[-8:], y.sum().item()) for y in found]

    assert [kind for kind, *_ in same(program)] == ["Image"] * 3 + ["Tensor"] * 4


def test_plain_tensors_keep_the_short_way_beside_subclasses():
    """Where a subclass exists, a call of plain tensors is known, and its own calls are not."""
    from adjoint.ops.elementwise import namespace as ew
    from adjoint.runtime.dispatch import run_known

    x, p = ad.ones(3), ad.nn.Parameter(ad.ones(3))
    y = x.as_subclass(plain(ad))
    for a, b in ((x, x), (p, x)):
        assert (a * b).tolist() == (a * b).tolist() == [1, 1, 1]
        known = run_known(ew.MUL, (a, b))
        assert type(known) is ad.Tensor and known.tolist() == [1, 1, 1]
    assert run_known(ew.MUL, (y, x)) is None and run_known(ew.MUL, (x, y)) is None
    with ad.overrides.DisableTorchFunctionSubclass():  # a tensor like any other
        assert type(run_known(ew.MUL, (y, x))) is ad.Tensor
    with ad.overrides.BaseTorchFunctionMode():
        assert run_known(ew.MUL, (x, x)) is None
    assert "shape" not in vars(ad.Tensor) and not hasattr(ad.Tensor.item, "asking")


def test_a_class_before_tensor_among_the_bases_may_bring_attributes(lib):
    # monai's MetaTensor: a class with a `__dict__` comes first, and `__dict__` is set
    class MetaObj:
        def __init__(self):
            super().__init__()
            self.meta = {}

        def copy_meta_from(self, other):
            self.__dict__ = dict(other.__dict__)
            return self

    class MetaTensor(MetaObj, lib.Tensor):
        @staticmethod
        def __new__(cls, x, *args, **kwargs):
            return lib.as_tensor(x).as_subclass(cls)

        def __init__(self, x, meta=None):
            super().__init__()
            if isinstance(x, MetaObj):
                self.__dict__ = copy.deepcopy(x.__dict__)
            if meta is not None:
                self.meta = meta

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            found = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(found, MetaTensor):
                found.__dict__ = args[0].__dict__.copy()
            return found

    class Further(MetaTensor):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

    for kind in (MetaTensor, Further):
        x = kind([[1.0, 2.0]], {"name": "x"})
        y = x + 1
        assert type(y) is kind and y.meta is x.meta and y.tolist() == [[2, 3]]
        again = kind(x)
        assert again.meta == x.meta and again.meta is not x.meta
        y.other = 1
        x.copy_meta_from(y)
        assert x.__dict__ == vars(y) and x.__dict__ is not y.__dict__ and x.other == 1
        with pytest.raises(TypeError):
            x.__dict__ = 3
        assert x.requires_grad_().requires_grad
        x.sum().backward()
        assert x.grad.tolist() == [[1, 1]]


def test_a_method_is_told_from_the_function_of_its_name(lib):
    told = []

    class Told(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            told.append((func == lib.Tensor.unbind, func == lib.unbind))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = lib.ones(2, 2).as_subclass(Told)
    told.clear()
    x.unbind(0)
    lib.unbind(x, dim=0)
    assert told == [(True, False), (False, True)]


@pytest.mark.parametrize("several", [list, tuple])
def test_operands_of_einsum_in_one_list_are_told_apart(lib, several):
    told = []

    class Told(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func in (lib.einsum, getattr(lib, "functional", lib).einsum):
                told.append([type(each) for each in args])
            return super().__torch_function__(func, types, args, kwargs or {})

    x = lib.ones(2, 3).as_subclass(Told)
    y = lib.einsum("ij,kj->ik", several((x, lib.ones(2, 3))))
    assert type(y) is Told and y.tolist() == [[3, 3], [3, 3]]
    assert told == [[str, Told, lib.Tensor]]
