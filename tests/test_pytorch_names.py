"""Names of PyTorch's that do the same, names that are missing, and the page that counts them."""

from __future__ import annotations

import collections
import importlib.util
import pathlib
import typing

import numpy as np
import pytest

import adjoint as ad
import adjoint.torch_api.foreach
from adjoint import nn
from adjoint.utils import _pytree

torch = pytest.importorskip("torch")
import torch.utils._pytree as their_pytree  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("names", ROOT / "docs" / "build_pytorch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_code_has(build):
    held = build.PAGE.read_text(encoding="utf-8")
    assert held.partition(build.MARK)[2] == build.page().removeprefix(build.MARK), (
        "run python docs/build_pytorch.py"
    )


def test_what_is_missing_says_what_is_nearest(build):
    for space, (_, lacking) in build.counted().items():
        ours = ad
        for part in space.split(".") if space and space != "Tensor" else ():
            ours = getattr(ours, part)
        for name in lacking if ours is not ad or not space else ():
            with pytest.raises(ad.MissingName) as caught:
                getattr(ours, name)
            assert build.why(space, name) in str(caught.value)
            assert isinstance(caught.value, (AttributeError, ad.Unsupported))
    with pytest.raises(ad.MissingName, match="pad_sequence"):
        _ = ad.nested
    assert not hasattr(ad, "__wrapped__") and not hasattr(nn, "no_such_name")
    with pytest.raises(ImportError, match="cannot import name 'to_sparse_semi_structured'"):
        from adjoint.sparse import to_sparse_semi_structured  # noqa: F401


def test_arguments_that_are_counted_as_taken_are_taken(build):
    """The count looks at signatures: what hands its options on is called."""
    x = ad.ones(4)
    assert ad.hann_window(4, dtype=ad.float64, requires_grad=True).dtype is ad.float64
    assert nn.LazyConv1d(2, 1, stride=2, padding_mode="reflect").stride == (2,)
    assert ad.as_strided_copy(input=x, size=(2,), stride=(2,), storage_offset=1).shape == (2,)
    assert x.clone().unsqueeze_(dim=0).shape == (1, 4)
    assert ad.threshold_(x.clone(), threshold=2.0, value=3.0).tolist() == [3.0] * 4
    for function in (lambda out: ad.argsort(x, out=out), lambda out: ad.arange(4, out=out)):
        assert function(out := ad.empty(4, dtype=ad.int64)) is out
    for function in (lambda out: ad.range(1, 4, out=out), lambda out: ad.fft.fftfreq(4, out=out),
                     lambda out: ad.hardshrink(x, out=out),
                     lambda out: ad.threshold(x, 2.0, 0.0, out=out)):  # fmt: skip
        expected = function(None)
        assert function(out := ad.empty(4)) is out and out.tolist() == expected.tolist()
    assert build.taken(ad.argsort) >= {"input", "dim", "out"}
    assert build.taken(lambda x, **options: x) == {"x"}  # what it does with others is not known


def test_an_argument_without_a_reason_stops_the_page(build, monkeypatch):
    assert build.why_not("save", "pickle_module") and build.why_not("save", "f") is None
    monkeypatch.setattr(build, "NOT_TAKEN", build.NOT_TAKEN[1:])
    with pytest.raises(SystemExit, match="addmm: out_dtype"):
        build.page()


def test_what_is_listed_as_not_taken_is_a_type_error_that_names_it():
    for call in (lambda: ad.mm(ad.ones(1, 1), ad.ones(1, 1), out_dtype=ad.float64),
                 lambda: ad.full((2,), 1.0, names=("a",)),
                 lambda: ad.rrelu(ad.ones(1), generator=None)):  # fmt: skip
        with pytest.raises(TypeError, match=r"out_dtype|names|generator"):
            call()


def test_modules_as_often_as_they_are_there():
    for library in (ad, torch):
        shared = library.nn.ReLU()
        both = library.nn.Sequential(shared, shared)
        assert len(list(both.modules())) == 2
        assert len(list(both.modules(remove_duplicate=False))) == 3


def test_an_order_of_dimensions_that_is_open_is_refused_where_asked():
    for library in (ad, torch):
        row, image = library.zeros(1, 3), library.zeros(1, 2, 3, 3)
        assert row.dim_order() == (0, 1)
        assert library.zeros(2, 3).dim_order(ambiguity_check=True) == (0, 1)
        assert image.dim_order(ambiguity_check=[library.contiguous_format]) == (0, 1, 2, 3)
        for x, check in ((row, True), (image, [library.channels_last]),
                         (library.zeros(5).as_strided((2, 2), (2, 2)), True)):  # fmt: skip
            with pytest.raises(RuntimeError):
                x.dim_order(ambiguity_check=check)


# ---- lists of tensors ----------------------------------------------------------------------------

VALUES = [np.array([0.3, 0.6], "f4"), np.array([[0.2], [0.9]], "f4"), np.zeros((0,), "f4")]


def lists(framework, values=VALUES):
    return [framework.from_numpy(v.copy()) for v in values]


def assert_lists_equal(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def foreach_calls():
    for name in sorted(n for n in dir(torch) if n.startswith("_foreach_")):
        base = name.removeprefix("_foreach_").rstrip("_")
        if base in ("mm", "powsum", "copy"):
            continue
        if base in ("max",):
            yield name, lambda t, f: (lists(f, VALUES[:2]),)
        elif (
            base in ("add", "sub", "mul", "div", "pow", "maximum", "minimum") or base[:5] == "clamp"
        ):
            yield name, lambda t, f: (lists(f), 0.5)
            yield name, lambda t, f: (lists(f), [0.5, 2.0, 1.0])
            yield name, lambda t, f: (lists(f), lists(f))
        elif base in ("addcdiv", "addcmul"):
            yield name, lambda t, f: (lists(f), lists(f), lists(f))
            yield name, lambda t, f: (lists(f), lists(f), lists(f), 0.5)
            yield name, lambda t, f: (lists(f), lists(f), lists(f), [0.5, 2.0, 3.0])
            yield name, lambda t, f: (lists(f), lists(f), lists(f), f.tensor([0.5, 2.0, 3.0]))
        elif base == "lerp":
            yield name, lambda t, f: (lists(f), lists(f, [v * 2 for v in VALUES]), 0.25)
            yield name, lambda t, f: (lists(f), lists(f, [v * 2 for v in VALUES]), lists(f))
        else:
            yield name, lambda t, f: (lists(f),)


@pytest.mark.parametrize(("name", "arguments"), list(foreach_calls()))
def test_foreach_functions_do_as_pytorchs(name, arguments):
    ours, theirs = arguments(name, ad), arguments(name, torch)
    function = getattr(ad, name)
    found, expected = function(*ours), getattr(torch, name)(*theirs)
    assert function.__name__ == name
    if name.endswith("_"):
        assert all(a is b for a, b in zip(found, ours[0], strict=True))
        expected = theirs[0]
    assert_lists_equal(found, expected)


def test_the_rest_of_foreach():
    pair = [np.ones((2, 2), "f4"), np.ones((2, 2), "f4") * 2]
    for framework in (ad, torch):
        a, b = lists(framework, pair), lists(framework, pair[::-1])
        framework._foreach_copy_(a, b)
        assert [x.sum().item() for x in a] == [8, 4]
        assert [x.sum().item() for x in framework._foreach_pow(2.0, a)] == [16, 8]
        assert [x.item() for x in framework._foreach_norm(a, 1)] == [8, 4]
        assert framework._foreach_add(a, b, alpha=2)[0].sum().item() == 24
        with pytest.raises(RuntimeError):
            framework._foreach_add(a, b[:1])
        with pytest.raises(RuntimeError):
            framework._foreach_abs([])
    with pytest.raises(ad.MissingName):
        _ = ad._foreach_no_such_name


# ---- trees ---------------------------------------------------------------------------------------

Point = collections.namedtuple("Point", "x y")
TREES = [
    1, None, (), [], {}, [1, (2, None)], {"b": 1, "a": (2, [3])}, Point(1, [2]),
    collections.OrderedDict(b=1, a=2), collections.defaultdict(list, k=[1, 2]),
    collections.deque([1, (2, 3)], maxlen=4), {1: {2: {3: ()}}}, "text", range(3),
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees_are_taken_apart_as_pytorchs(tree):
    leaves, spec = _pytree.tree_flatten(tree)
    their_leaves, their_spec = their_pytree.tree_flatten(tree)
    assert leaves == their_leaves == _pytree.tree_leaves(tree)
    for each in ("num_leaves", "num_nodes", "num_children"):
        assert getattr(spec, each) == getattr(their_spec, each)
    assert spec.is_leaf() == their_spec.is_leaf()
    again = _pytree.tree_unflatten(leaves, spec)
    assert again == tree and type(again) is type(tree)
    assert spec == _pytree.tree_structure(tree) and hash(spec) == hash(_pytree.tree_structure(tree))

    def twice(*x):
        return x

    assert _pytree.tree_map(twice, tree, tree) == their_pytree.tree_map(twice, tree, tree)
    paths = [(_pytree.keystr(k), leaf) for k, leaf in _pytree.tree_leaves_with_path(tree)]
    theirs = [(their_pytree.keystr(k), v) for k, v in their_pytree.tree_leaves_with_path(tree)]
    assert paths == theirs


def test_trees_of_other_forms_are_refused_as_pytorchs():
    for ours in (_pytree, their_pytree):
        add = lambda x, y: x + y  # noqa: E731
        assert ours.tree_map(add, {"a": 1, "b": 2}, {"b": 20, "a": 10}) == {"a": 11, "b": 22}
        for a, b in (([1], [1, 2]), ([1], (1,)), ({"a": 1}, {"b": 1}), (Point(1, 2), (1, 2))):
            with pytest.raises(ValueError):
                ours.tree_map(add, a, b)
        with pytest.raises(ValueError):
            ours.tree_unflatten([1], ours.tree_structure([1, 2]))
        assert ours.tree_map_only(int, lambda x: -x, [1, "a", 2.0]) == [-1, "a", 2.0]
        assert ours.tree_map(str, [[1]], is_leaf=lambda x: x == [1]) == ["[1]"]
        assert ours.tree_all(bool, [1, 2]) and not ours.tree_any(bool, [0, ()])


def test_containers_of_users_are_trees():
    class Box:
        def __init__(self, x):
            self.x = x

    _pytree.register_pytree_node(Box, lambda b: ([b.x], None), lambda c, _: Box(*c))
    try:
        assert _pytree.tree_map(lambda x: x + 1, [Box(1)])[0].x == 2
        with pytest.raises(ValueError, match="already registered"):
            _pytree.register_pytree_node(Box, None, None)
        with pytest.raises(ValueError, match="flatten_with_keys_fn"):
            _pytree.tree_flatten_with_path(Box(1))
    finally:
        del _pytree.SUPPORTED_NODES[Box]


# ---- names that mark, wait, fuse -----------------------------------------------------------------


def test_what_marks_code_for_torchscript_changes_nothing():
    def f(x):
        return x

    jit = ad.jit
    for mark in (jit.script, jit.ignore, jit.unused, jit.export, jit.script_if_tracing,
                 jit.ignore(drop=True), jit._overload_method, ad.compiler.disable,
                 ad.compiler.disable(recursive=False), ad.compiler.allow_in_graph):  # fmt: skip
        assert mark(f) is f
    assert not jit.is_scripting() and not jit.is_tracing() and not ad.compiler.is_compiling()

    @ad.compile
    def step(x):
        return x * (2 if ad.compiler.is_compiling() else 3)

    assert step(ad.ones(2)).tolist() == [2, 2]
    for refused in (jit.load, jit.save, jit.trace, jit.freeze, jit.ScriptModule, ad.hub.load):
        with pytest.raises(ad.Unsupported):
            refused(f)
    assert not isinstance(nn.Linear(1, 1), jit.ScriptModule)
    with pytest.raises(ad.Unsupported, match="eager"):
        ad.compiler.set_stance("force_eager").__enter__()


@pytest.mark.parametrize("library", [ad, torch], ids=["adjoint", "torch"])
def test_futures(library):
    futures = library.futures
    a, b = futures.Future(), futures.Future()
    later = a.then(lambda f: f.value() + 1)
    both = futures.collect_all([a, b])
    assert not a.done() and not both.done()
    with pytest.raises(RuntimeError):
        a.value()
    a.set_result(1)
    with pytest.raises(RuntimeError):
        a.set_result(2)
    assert later.wait() == 2 and not both.done()
    b.set_exception(KeyError("x"))
    with pytest.raises(KeyError, match="x"):
        both.wait()
    with pytest.raises(KeyError, match="x"):
        futures.wait_all([a, b])
    assert futures.wait_all([]) == [] and futures.collect_all([]).wait() == []


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_normalizations_are_folded(affine, bias):
    def filled(bn):
        bn.running_mean.copy_(ad.linspace(-1, 1, 4))
        bn.running_var.copy_(ad.linspace(0.5, 2, 4))
        return bn.eval()

    x = ad.linspace(-2, 3, 2 * 2 * 5 * 5).reshape(2, 2, 5, 5)
    bn = filled(nn.BatchNorm2d(4, affine=affine))
    for conv, transpose in (
        (nn.Conv2d(2, 4, 3, bias=bias), False), (nn.ConvTranspose2d(2, 4, 3, bias=bias), True),
    ):  # fmt: skip
        fused = nn.utils.fuse_conv_bn_eval(conv.eval(), bn, transpose)
        np.testing.assert_allclose(
            fused(x).detach().numpy(), bn(conv(x)).detach().numpy(), rtol=1e-4, atol=1e-5
        )
        assert isinstance(fused.bias, nn.Parameter) and fused is not conv
    linear, bn = nn.Linear(3, 4, bias=bias).eval(), filled(nn.BatchNorm1d(4, affine=affine))
    fused = nn.utils.fuse_linear_bn_eval(linear, bn)
    x = ad.linspace(0, 1, 6).reshape(2, 3)
    np.testing.assert_allclose(
        fused(x).detach().numpy(), bn(linear(x)).detach().numpy(), rtol=1e-4, atol=1e-5
    )
    with pytest.raises(ValueError, match="eval"):
        nn.utils.fuse_linear_bn_eval(linear, bn.train())
    with pytest.raises(ValueError, match="out_features"):
        nn.utils.fuse_linear_bn_eval(linear, nn.BatchNorm1d(3).eval())


def test_flags_of_tensors():
    x, y = ad.zeros(2, 3, 4).permute(2, 0, 1), torch.zeros(2, 3, 4).permute(2, 0, 1)
    for name in ("is_cpu", "is_mps", "is_xpu", "is_xla", "is_ipu", "is_vulkan", "is_maia",
                 "is_mtia", "is_mkldnn", "is_sparse_csr", "is_sparse", "is_meta"):  # fmt: skip
        assert getattr(x, name) is getattr(y, name), name
    assert x.dim_order() == y.dim_order() and x.is_same_size(x) and not x.is_same_size(ad.ones(1))
    assert x.layout is ad.strided and repr(ad.sparse_coo) == "adjoint.sparse_coo"
    assert isinstance(ad.strided, ad.layout)


def test_old_names_of_initial_values_warn_and_fill():
    for name in ("normal", "uniform", "constant", "eye", "dirac", "sparse", "orthogonal",
                 "xavier_uniform", "xavier_normal", "kaiming_uniform",
                 "kaiming_normal"):  # fmt: skip
        shape = (2, 2, 3) if name == "dirac" else (3, 3)
        more = {"constant": (7,), "sparse": (0.5,)}.get(name, ())
        with pytest.warns(FutureWarning, match=f"nn.init.{name}_"):
            filled = getattr(nn.init, name)(x := ad.zeros(shape), *more)
        assert filled is x and bool((x != 0).any())
    with pytest.warns(FutureWarning):
        nn.utils.clip_grad_norm([], 1.0)


# ---- faults that PyTorch's programs met ----------------------------------------------------------


def test_numpy_of_a_parameter_without_recording():
    p = nn.Parameter(ad.ones(2))
    with ad.no_grad():
        assert p.numpy().tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="requires grad"):
        p.numpy()


def test_split_as_a_method_calls_its_argument_split_size():
    assert [len(x) for x in ad.arange(5).split(split_size=2)] == [2, 2, 1]
    assert [len(x) for x in ad.split(ad.arange(5), split_size_or_sections=[4, 1])] == [4, 1]


def test_tensor_types_in_annotations():
    for each in (ad.LongTensor | None, None | ad.FloatTensor, ad.LongTensor | int):
        assert len(typing.get_args(each)) == 2
    assert typing.Optional[ad.LongTensor] == ad.LongTensor | None  # noqa: UP045


def test_what_is_no_number_is_not_looked_for_in_a_tensor():
    for library in (ad, torch):
        for other in ("a", None, [1]):
            with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
                _ = other in library.ones(2)
        assert (
            1 in library.ones(2)
            and library.ones(()) in library.ones(2)
            and 2.0 not in library.ones(2)
        )
    assert np.float32(1) in ad.ones(2)


def test_autocast_is_asked_of_other_devices():
    for kind in ("mps", "xpu", "hpu"):
        assert ad.is_autocast_enabled(kind) is torch.is_autocast_enabled(kind) is False
    with pytest.raises(RuntimeError):
        ad.is_autocast_enabled("nonsense")


def test_a_wrapper_of_an_optimizer_needs_no_constructor():
    class Wrapper(ad.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            self.param_groups, self.state, self.defaults = inner.param_groups, inner.state, {}

        def step(self, closure=None):
            return self.inner.step(closure)

    p = nn.Parameter(ad.ones(1))
    wrapper = Wrapper(ad.optim.SGD([p], lr=0.5))
    called = []
    p.sum().backward()
    wrapper.step()
    wrapper.register_step_post_hook(lambda *_: called.append(1))
    wrapper.step()
    assert p.item() == 0 and called == [1]
    wrapper.zero_grad()
    wrapper.load_state_dict(wrapper.state_dict())
    wrapper._patch_step_function()
    with pytest.raises(AttributeError, match="no_such"):
        _ = wrapper.no_such
    assert issubclass(ad.optim.lr_scheduler._LRScheduler, ad.optim.lr_scheduler.LRScheduler)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_and_sums_of_narrow_floats_round_once(dtype):
    draw = np.random.default_rng(0).standard_normal
    values = [draw((3, 17, 17)).astype("f4") for _ in range(3)]

    def computed(library, name, part, **factors):
        x = [library.from_numpy(v[part]).to(getattr(library, dtype)) for v in values]
        return getattr(library, name)(*x, **factors).float().numpy()

    for factors in ({}, {"beta": 0.3, "alpha": 1.7}, {"beta": 0}):
        for name, part in (("addmm", 0), ("baddbmm", slice(None))):
            ours, theirs = (computed(lib, name, part, **factors) for lib in (ad, torch))
            assert np.mean(ours != theirs) < (0.01 if dtype == "bfloat16" else 0.1)
            exact = [v[part].astype("f8") for v in values]
    x = [ad.from_numpy(v[0]).to(getattr(ad, dtype)).requires_grad_() for v in values]
    ad.addmm(*x).sum().backward()
    assert all(each.grad.dtype is each.dtype for each in x)
    del exact


def test_operators_have_names():
    for name in ("__add__", "__sub__", "__mul__", "__truediv__", "__iadd__", "__iand__",
                 "__rfloordiv__", "__eq__", "__rand__", "__mod__", "__ilshift__"):  # fmt: skip
        assert getattr(ad.Tensor, name).__name__ == name


@pytest.mark.parametrize(
    ("space", "name", "meant"),
    [("nn", "Lstm", "LSTM"), ("nn", "gru", "GRU"), ("optim", "ADAM", "Adam"), ("", "Ones", "ones")],
)
def test_names_that_differ_by_capitals_are_found(space, name, meant):
    owner = getattr(ad, space) if space else ad
    with pytest.raises(ad.MissingName, match=f"did you mean {meant}\\?"):
        getattr(owner, name)


@pytest.mark.parametrize("space", ["", "nn.functional", "optim"])
def test_for_private_names_nothing_is_searched(space, monkeypatch):
    """Tools ask every module for some: pytest does, of each file that imports one."""

    def refuses(name, names):
        raise AssertionError(name)

    monkeypatch.setattr("adjoint.core.missing_names.nearest", refuses)
    module = ad
    for part in filter(None, space.split(".")):
        module = getattr(module, part)
    assert not hasattr(module, "_mock_name") and not hasattr(module, "__wrapped__")
    with pytest.raises(ad.MissingName, match="has no attribute '_mock_name'"):
        module._mock_name  # noqa: B018
    with pytest.raises(AssertionError, match="mock_name"):
        module.mock_name  # noqa: B018
