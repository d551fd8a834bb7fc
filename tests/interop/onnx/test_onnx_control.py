"""ONNX's If, Loop and Scan, beside onnxruntime: run, differentiated, frozen and compiled."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import adjoint as ad

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
parser = pytest.importorskip("onnx.parser")

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
F32, I64 = np.float32, np.int64
X = np.random.default_rng(0).standard_normal((4, 3)).astype(F32)
# text, the calls' inputs, whether a program can be captured of it
CASES = {
    "branches": ("""
        g (bool c, float[N,3] x) => (y, z) {
            w = Relu(x)
            y, z = If(c) <
                then_branch = a () => (float[N,3] p, float[N,3] q) { p = Add(w, x)  q = Neg(x) },
                else_branch = b () => (float[N,3] p, float[N,3] q) { p = Mul(w, x) q = Abs(w) }
            >
        }""", [(np.array(True), X), (np.array(False), X[:1])], True),
    "a branch in a branch, with weights of its own": ("""
        g (bool c, bool d, float[N,3] x) => (y) {
            y = If(c) <
                then_branch = a () => (float[N,3] r) <float[3] w = {1.0, 2.0, 3.0}> {
                    k = Mul(x, w)
                    r = If(d) <
                        then_branch = e () => (float[N,3] s) <float[3] z = {5.0, 5.0, 6.0}>
                            { s = Add(k, z) },
                        else_branch = f () => (float[N,3] s) { s = Sub(k, w) }
                    >
                },
                else_branch = b () => (float[N,3] r) <float[3] w = {7.0, 8.0, 9.0}>
                    { r = Add(x, w) }
            >
        }""", [(np.array(p), np.array(q), X) for p in (True, False) for q in (True, False)], True),
    "a loop of a number that is given": ("""
        g (int64 n, float[N,3] x) => (y) {
            y = Loop(n, , x) < body = b (int64 i, bool c, float[N,3] v) => (bool o, float[N,3] u) {
                o = Identity(c)  j = CastLike(i, v)  t = Add(v, j)  u = Mul(t, x)
            } >
        }""", [(np.array(n), X) for n in (0, 1, 5)], True),
    "a loop that a condition ends": ("""
        g (bool c, float x, float z) => (y, k) <int64 zero = {0}, int64 one = {1}> {
            y, k = Loop(, c, x, zero) <
                body = b (int64 i, bool d, float v, int64 m) => (bool o, float u, int64 l) {
                    u = Mul(v, z)  o = Less(u, x10)  l = Add(m, one)
                }
            >
        }""".replace("=> (y, k) <", "=> (y, k) <float x10 = {100.0}, "),
        [(np.array(c), np.array(F32(1.5)), np.array(F32(2))) for c in (True, False)], True),
    "a number and a condition, with results of each": ("""
        g (int64 n, float[3] x) => (y, rows, places) <float most = {20.0}, bool yes = {1}> {
            y, rows, places = Loop(n, yes, x) <
                body = b (int64 i, bool d, float[3] v)
                    => (bool o, float[3] u, float[3] r, int64 p) {
                    u = Add(v, v)  s = ReduceMax<keepdims = 0>(u)  o = Less(s, most)
                    r = Neg(u)  p = Identity(i)
                }
            >
        }""", [(np.array(n), np.abs(X[0])) for n in (0, 1, 3, 50)], False),
    "results of a number of iterations that is constant": ("""
        g (float[3] x) => (y, rows) <int64 n = {4}> {
            y, rows = Loop(n, , x) < body = b (int64 i, bool d, float[3] v)
                => (bool o, float[3] u, float[3] r) <bool yes = {1}> {
                j = CastLike(i, v)  u = Add(v, j)  r = Mul(u, x)  o = Identity(yes)
            } >
        }""", [(X[0],), (X[1],)], True),
    "a loop in a loop": ("""
        g (int64 n, float[3] x) => (y) {
            y = Loop(n, , x) < body = b (int64 i, bool c, float[3] v) => (bool o, float[3] u) {
                o = Identity(c)
                u = Loop(i, , v) < body = d (int64 j, bool e, float[3] s) => (bool k, float[3] t) {
                    k = Identity(e)  h = CastLike(i, s)  w = Add(s, x)  t = Add(w, h)
                } >
            } >
        }""", [(np.array(n), X[0]) for n in (0, 2, 4)], True),
    "a loop whose state grows": ("""
        g (int64 n, float[N] x) => (y) {
            y = Loop(n, , x) < body = b (int64 i, bool c, float[M] v) => (bool o, float[K] u) {
                o = Identity(c)  u = Concat<axis = 0>(v, x)
            } >
        }""", [(np.array(n), X[0]) for n in (0, 1, 3)], False),
    "a scan of two states": ("""
        g (float[3] a, float[3] b, float[T,3] x, float[T,3] z) => (c, d, r, s) {
            c, d, r, s = Scan<num_scan_inputs = 2, body = e
                (float[3] p, float[3] q, float[3] u, float[3] v)
                => (float[3] k, float[3] l, float[3] m, float o) {
                k = Add(p, u)  t = Mul(q, v)  l = Add(t, a)  m = Sub(k, l)
                o = ReduceSum<keepdims = 0>(m)
            } >(a, b, x, z)
        }""", [(X[0], X[1], X, X * 2), (X[0], X[1], X[:1], X[:1])], True),
    "a scan of other axes and directions": ("""
        g (float[3] a, float[3,T] x, float[T,3] z) => (c, r, s) {
            c, r, s = Scan<num_scan_inputs = 2, scan_input_axes = [1, -2],
                scan_input_directions = [1, 0], scan_output_axes = [-1, 0],
                scan_output_directions = [0, 1], body = e
                (float[3] p, float[3] u, float[3] v) => (float[3] k, float[3] m, float[3] o) {
                h = Mul(p, u)  k = Sub(h, v)  m = Identity(k)  o = Add(u, v)
            } >(a, x, z)
        }""", [(X[0], np.ascontiguousarray(X.T), X * 2), (X[0], X[:1].T.copy(), X[:1])], True),
    "a scan of nothing but inputs": ("""
        g (float[T,3] x) => (r) {
            r = Scan<num_scan_inputs = 1, body = e (float[3] u) => (float[3] m) { m = Exp(u) }>(x)
        }""", [(X,)], True),
    "a loop in a branch": ("""
        g (bool c, int64 n, float[3] x) => (y) {
            y = If(c) <
                then_branch = a () => (float[3] p) {
                    p = Loop(n, , x) < body = b (int64 i, bool d, float[3] v)
                        => (bool o, float[3] u) { o = Identity(d)  u = Add(v, x) } >
                },
                else_branch = f () => (float[3] p) { p = Neg(x) }
            >
        }""", [(np.array(c), np.array(n), X[0]) for c in (True, False) for n in (0, 3)], True),
}  # fmt: skip


def model_of(text):
    return parser.parse_model(HEAD + text).SerializeToString()


def by_onnxruntime(data, inputs):
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((x.name for x in session.get_inputs()), inputs, strict=True)))


def assert_close(found, expected):
    found = found if isinstance(found, (tuple, list)) else (found,)
    for y, wanted in zip(found, expected, strict=True):
        y = y.detach().numpy()
        assert y.shape == wanted.shape and y.dtype == wanted.dtype
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def tensors(inputs):
    return [ad.from_numpy(np.array(x)) for x in inputs]


@pytest.mark.parametrize("name", CASES)
def test_the_values_of_onnxruntime(name):
    text, calls, is_static = CASES[name]
    data = model_of(text)
    module = ad.onnx.load(data)
    program = ad.inference.freeze(module, *tensors(calls[0])) if is_static else None
    step = ad.compile(lambda *xs: copied(*xs)) if is_static else None
    copied = copy.deepcopy(module)
    for inputs in calls:
        expected = by_onnxruntime(data, inputs)
        assert_close(module(*tensors(inputs)), expected)
        if is_static:
            assert_close(program(*tensors(inputs)), expected)
            assert_close(step(*tensors(inputs)), expected)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    """Of inputs and weights; compiled as well, where a program can be captured."""
    text, calls, is_static = CASES[name]
    module = ad.onnx.load(model_of(text))
    for inputs in calls:
        found = []
        for call in (module, ad.compile(lambda *xs: module(*xs)))[: 1 + is_static]:
            xs = tensors(inputs)
            wanting = [x.requires_grad_() for x in xs if x.dtype is ad.float32]
            wanting += module.parameters()
            ys = call(*xs)
            ys = ys if isinstance(ys, tuple) else (ys,)
            loss = sum((y * y).sum() for y in ys if y.requires_grad)
            if isinstance(loss, int):
                continue
            gradients = ad.autograd.grad(loss, wanting, allow_unused=True)
            found.append([0 if g is None else g.numpy() for g in gradients])
        for a, b in zip(*found, strict=True) if len(found) == 2 else ():
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        direct = [x for x in tensors(inputs) if x.dtype is ad.float32]
        if inputs is calls[-1] and direct:
            _assert_numeric(module, inputs)


def _assert_numeric(module, inputs):
    """The gradient along one direction, beside differences."""
    xs = tensors(inputs)
    rng = np.random.default_rng(1)
    ways = [rng.standard_normal(x.shape).astype(F32) if x.dtype is ad.float32 else None for x in xs]

    def loss(step):
        moved = [
            x if way is None else x + ad.from_numpy(np.asarray(way * F32(step)))
            for x, way in zip(tensors(inputs), ways, strict=True)
        ]
        ys = module(*moved)
        ys = ys if isinstance(ys, tuple) else (ys,)
        return sum(y.detach().double().sum().item() for y in ys if y.dtype is ad.float32)

    wanting = [x.requires_grad_() for x in xs if x.dtype is ad.float32]
    ys = module(*xs)
    ys = ys if isinstance(ys, tuple) else (ys,)
    total = sum(y.sum() for y in ys if y.requires_grad)
    gradients = ad.autograd.grad(total, wanting, allow_unused=True)
    slope = sum(
        float((g.numpy() * way).sum())
        for g, way in zip(gradients, [w for w in ways if w is not None], strict=True)
        if g is not None
    )
    numeric = (loss(1e-3) - loss(-1e-3)) / 2e-3
    assert slope == pytest.approx(numeric, rel=2e-2, abs=2e-2)


def test_weights_inside_are_parameters():
    module = ad.onnx.load(model_of(CASES["a branch in a branch, with weights of its own"][0]))
    assert [tuple(p.shape) for p in module.parameters()] == [(3,)] * 3
    first = next(iter(module.parameters()))
    module(ad.tensor(True), ad.tensor(True), ad.ones(1, 3)).sum().backward()
    assert first.grad is not None or module.w_.grad is not None


@pytest.mark.parametrize(
    "text, error, message",
    [
        ("g (bool c, float[2] x) => (y) { y = If(c) <then_branch = a () => (float[2] p)"
         " { p = Neg(missing) }, else_branch = b () => (float[2] p) { p = Neg(x) }> }",
         ad.CheckpointError, "uses 'missing' before"),
        ("g (bool c, float[2] x) => (y) { y = If(c) <then_branch = a () => (float[2] p)"
         " { p = Neg(x) }> }", ad.CheckpointError, "has no then_branch and else_branch"),
        ("g (bool[2] c, float[2] x) => (y) { y = If(c) <then_branch = a () => (float[2] p)"
         " { p = Neg(x) }, else_branch = b () => (float[2] p) { p = Neg(x) }> }",
         ad.CheckpointError, r"a condition of shape \(2,\)"),
        ("g (int64 n, float[2] x) => (y) { y = Loop(n, , x) <body = b (int64 i, float[2] v)"
         " => (float[2] u) { u = Neg(v) }> }", ad.CheckpointError, "takes 2 values and gives 1"),
        ("g (float[2] x) => (y) <int64 n = {100000000000}> { y = Loop(n, , x) <body = b"
         " (int64 i, bool c, float[2] v) => (bool o, float[2] u)"
         " { o = Identity(c) u = Neg(v) }> }", ad.Unsupported, "a loop of 100000000000 iterations"),
        ("g (float[2] x, float[3] z) => (y) { y = Scan<num_scan_inputs = 2, body = b"
         " (float u, float v) => (float s) { s = Add(u, v) }>(x, z) }",
         ad.CheckpointError, r"scan inputs of \[2, 3\] slices"),
    ],
)  # fmt: skip
def test_files_that_are_wrong(text, error, message):
    shapes = {"c": np.ones(2 if "bool[2]" in text else (), bool), "n": np.array(1)}
    with pytest.raises(error, match=message):
        module = ad.onnx.load(model_of(text))
        sizes = {"x": 2, "z": 3}
        module(*tensors(shapes.get(n, np.ones(sizes.get(n, 0), F32)) for n in module.input_names))


def test_what_cannot_be_captured_says_so():
    text, calls, _ = CASES["a number and a condition, with results of each"]
    with pytest.raises(ad.Unsupported, match="number of results depends on values"):
        ad.inference.freeze(ad.onnx.load(model_of(text)), *tensors(calls[1]))


def test_graphs_in_graphs_have_an_end():
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["y"])], "g", [], [onnx.ValueInfoProto(name="y")]
    )
    for _ in range(20):
        node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
        del node.attribute[1:]
        inner = onnx.helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="y")])
    inner.input.extend([onnx.ValueInfoProto(name="c"), onnx.ValueInfoProto(name="x")])
    model = onnx.helper.make_model(inner, opset_imports=[onnx.helper.make_opsetid("", 17)])
    with pytest.raises(ad.CheckpointError, match="nest deeper than 16"):
        ad.onnx.load(model.SerializeToString())
