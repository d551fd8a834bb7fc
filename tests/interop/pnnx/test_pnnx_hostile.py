"""PNNX files made to harm: mutated ones in a watched process, and attacks by name."""

from __future__ import annotations

import contextlib
import io
import random
import subprocess
import sys
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

import adjoint as ad
import adjoint.pnnx
from tests.interop.pnnx.pnnx_files import bin_file, param_text, shaped
from tests.io.test_hostile_files import (
    COUNT,
    FEW,
    MEMORY,
    NUMBERS,
    PATHS,
    ROOT,
    TIME,
    Watch,
    mutate_bytes,
)
from tests.sweep import few_or_many

# ---- the file to begin with ----------------------------------------------------------------------

WEIGHTS = {
    "conv.weight": np.ones((4, 3, 3, 3), np.float32), "conv.bias": np.ones(4, np.float32),
    "norm.weight": np.ones(4, np.float32), "norm.bias": np.ones(4, np.float32),
    "norm.running_mean": np.ones(4, np.float32), "norm.running_var": np.ones(4, np.float32),
    "rnn.weight_ih_l0": np.ones((8, 4), np.float32),
    "rnn.weight_hh_l0": np.ones((8, 2), np.float32),
    "rnn.bias_ih_l0": np.ones(8, np.float32), "rnn.bias_hh_l0": np.ones(8, np.float32),
    "scale.data": np.ones((1, 2), np.float32), "index.data": np.array([1, 0]),
}  # fmt: skip


def sample():
    """The lines of a graph with something of everything."""

    def of(name):  # fmt: skip
        return " ".join(f"@{k.partition('.')[2]}={shaped(v)}" for k, v in WEIGHTS.items()
                        if k.startswith(name))  # fmt: skip

    return [
        "pnnx.Input pnnx_input_0 0 1 x #x=(2,3,6,6)f32",
        "nn.Conv2d conv 1 1 x a bias=True in_channels=3 out_channels=4 kernel_size=(3,3) "
        "stride=(1,1) "
        f"padding=(0,0) dilation=(1,1) groups=1 padding_mode=zeros {of('conv')} #a=(2,4,4,4)f32",
        f"nn.BatchNorm2d norm 1 1 a b num_features=4 eps=1.0e-5 affine=True {of('norm')}",
        "F.relu relu 1 1 b c $input=b", "Tensor.reshape r 1 1 c d shape=(2,4,16) $input=c",
        "Tensor.permute p 1 1 d e dims=(0,2,1) $input=d",
        "nn.LSTM rnn 1 1 e f input_size=4 hidden_size=2 num_layers=1 batch_first=True bias=True "
        + of("rnn"),
        f"pnnx.Attribute scale 0 1 s {of('scale')}", f"pnnx.Attribute index 0 1 i {of('index')}",
        "pnnx.Expression ex 2 1 f s g expr=add(mul(@0,2.5e-1),pow(@1,2)) #g=(2,16,2)f32",
        "Tensor.slice sl 1 1 g h dims=(1,2) starts=(0,0) ends=(8,2147483647) steps=(1,1) $input=g",
        "pnnx.Expression ey 1 1 i j expr=[None,None,@0]", "Tensor.index ix 2 1 h j k",
        "torch.cat cat 2 1 h k l dim=-1",
        "torch.split sp 1 2 l m n split_size_or_sections=(2,2) dim=2",
        "F.softmax so 1 1 m o dim=-1 $input=m", "prim::TupleConstruct tu 2 1 o n q",
        "pnnx.Output pnnx_output_0 1 0 q",
    ]  # fmt: skip


# ---- mutations -----------------------------------------------------------------------------------

VALUES = [
    "None", "()", "(0)", "-1", "True", "nan", "inf", "torch.float", "1e999", "9" * 25, "@0", "%5",
    "(" * 30, "((1,2),3)", "(1,,2)", "1+2j", "=", "$", "#", "@", "cuda", "__class__", "x=1",
    "os.system", *map(str, NUMBERS), *(p for p in PATHS if p.strip() and "\0" not in p),
]  # fmt: skip
TEXTS = [
    "add(@0,@1)", "add(@0", "@0)", "add(@0,@9)", "[" * 5000, "(" * 9, "neg(" * 5000 + "@0",
    "pow(9,pow(9,pow(9,9)))", "lshift(1,1000000)", "mul(@0,size(@0,7))", "exec(@0)", "size(@0)",
    "__import__(os)", "add(@0,@0,@0)", "[@0,[@0,[@0]]]", "", ",", "int(@0)", "log(-1)",
    "div(1,0)", "torch.float(@0)", "add(" * 90 + "@0" + ",1)" * 90,
]  # fmt: skip


def mutated_lines(rng, lines, kinds):
    """Another kind, name, count, parameter, shape or expression in a graph, or other lines."""
    lines = list(lines)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        words = lines[at].split()
        kind = rng.randrange(9)
        place = rng.randrange(len(words))
        if kind == 0:
            words[0] = rng.choice(kinds)
        elif kind == 1:
            words[place] = rng.choice(rng.choice(lines).split())
        elif kind == 2:
            key = words[place].partition("=")[0]
            words[place] = f"{key}={rng.choice(VALUES)}"
        elif kind == 3:
            words.append(
                f"{rng.choice(('', '@', '#', '$'))}{rng.choice('abxdfgs')}={rng.choice(VALUES)}"
            )
        elif kind == 4 and "(" in words[-1]:
            words[-1] = words[-1].replace(rng.choice("123468"), str(rng.choice(NUMBERS)))
        elif kind == 5:
            words = [w if "expr=" not in w else f"expr={rng.choice(TEXTS)}" for w in words]
        elif kind == 6:
            lines.append(" ".join(words))
        elif kind == 7 and len(words) > 4:
            words[rng.randrange(4, len(words))] = rng.choice("abcdefghijklmnoqx")
        else:
            rng.shuffle(lines)
            continue
        lines[at] = " ".join(words)
    return lines


def mutated(rng, lines, kinds):
    """A mutated pair of files."""
    weights = bin_file(WEIGHTS)
    kind = rng.randrange(6)
    if kind == 0:
        weights = mutate_bytes(rng, weights)
    elif kind == 1:
        members = dict(WEIGHTS)
        name = rng.choice(list(members))
        old = members.pop(name)
        if rng.random() < 0.5:
            members[rng.choice([p for p in PATHS if p])] = old
        else:
            members[name] = mutate_bytes(rng, old.tobytes())
        method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        weights = bin_file(members, method)
    text = lines if kind < 2 else mutated_lines(rng, lines, kinds)
    try:
        text = param_text(*text)
    except (ValueError, IndexError):  # no counts: as the words stand
        text = "\n".join(["7767517", f"{len(text)} {len(text)}", *text]).encode(errors="replace")
    return mutate_bytes(rng, text) if kind == 2 else text, weights


def process(count):
    """Read mutated files, and run a tenth; prints how many were refused and how many were read."""
    import resource

    from adjoint.pnnx.step import TABLE

    warnings.simplefilter("error")
    warnings.simplefilter("ignore", UserWarning)  # of layers, about what they are given
    ad.backends.native.enable(False)  # compiles and loads libraries when it is first used
    lines, kinds = sample(), [*sorted(TABLE), "evil.Op", "aten::evil"]
    module = ad.pnnx.load(io.BytesIO(param_text(*lines)), io.BytesIO(bin_file(WEIGHTS)))
    assert [t.shape for t in module(ad.ones(3, 3, 6, 6))] == [(3, 8, 2), (3, 8, 2)]
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    watch, rng = Watch(), random.Random(6)
    refused = read = 0
    for number in range(count):
        text, weights = mutated(rng, lines, kinds)
        watch.armed = True
        try:
            module = ad.pnnx.load(io.BytesIO(text), io.BytesIO(weights))
            read += 1
            if number % 10 == 0:
                watch.armed = False  # operators import what they need
                with contextlib.suppress(ad.AdjointError, MemoryError), ad.no_grad():
                    for batch in (2, 3):
                        module(*(ad.ones(batch, 3, 6, 6) for _ in module.input_names))
        except ad.AdjointError as error:
            assert not isinstance(error.__cause__, MemoryError), (number, error)
            assert len(str(error)) < 2_000, (number, len(str(error)))
            refused += 1
        finally:
            watch.armed = False
        assert not [s for s in watch.seen if s[0] != "import"], (number, watch.seen)
    print(refused, read)


@few_or_many("count", FEW, COUNT)
def test_mutated_files(count):
    program = f"from tests.interop.pnnx.test_pnnx_hostile import process; process({count})"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIME)
    assert done.returncode == 0, done.stderr[-3000:]
    refused, read = map(int, done.stdout.split())
    assert refused + read == count and refused > count // 2 and read > count // 100


# ---- attacks that have names ---------------------------------------------------------------------

INPUT, OUTPUT = "pnnx.Input i 0 1 x", "pnnx.Output o 1 0 y"


def load(*lines, weights=None):
    text = lines[0] if isinstance(lines[0], bytes) else param_text(*lines)
    archive = weights if isinstance(weights, bytes) else bin_file(weights or {})
    return ad.pnnx.load(io.BytesIO(text), io.BytesIO(archive))


def refuse(message, *lines, kind=ad.CheckpointError, weights=None):
    with pytest.raises(kind, match=message):
        load(*lines, weights=weights)


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "not a PNNX"), (b"\xff\xfe", "not UTF-8"), (b"7767518\n1 1\n", "7767518"),
        (b"7767517", "not a PNNX"), (b"7767517\nx y\n", "two counts"),
        (b"7767517\n-1 -1\n", "two counts"), (b"7767517\n5 1\npnnx.Input i 0 1 x\n", "cut short"),
        (b"7767517\n999999999 1\npnnx.Input i 0 1 x\n", "operators"),
        (b"7767517\n1 1\npnnx.Input i 0 1 x\n", "no output"),
        (b"7767517\n1 1\npnnx.Input i\n", "line 3: expected kind"),
        (b"7767517\n1 1\npnnx.Input i 0 999999 x\n", "missing"),
        (b"7767517\n1 1\npnnx.Input i -1 2 x\n", "two counts"),
        (b"7767517\n1 1\nF.relu i 0 1 x a b\n", "no key=value"),
        (b"7767517\n1 1\nF.relu i 0 1 x =5\n", "no key=value"),
        (b"7767517\n1 1\nF.relu i 0 1 x a=1 a=2\n", "twice"),
        (b"7767517\n1 1\nF.relu i 0 1 x $a=q\n", "no input 'q'"),
        (b"7767517\n1 1\nF.relu i 0 1 x #x=(1,-2)f32\n", "no shape"),
        (b"7767517\n1 1\nF.relu i 0 1 x #x=(99999999999)f32\n", "no size"),
        (b"7767517\n1 1\nF.relu i 0 1 x #x=(2)f99\n", "no shape"),
        (b"7767517\n1 1\nF.relu i 0 1 x @w=(2,?)f32\n", "no size"),
        (b"7767517\n1 1\nF.relu i 0 1 x a=" + b"9" * 19 + b"\n", "out of range"),
        (b"7767517\n1 1\nF.relu i 0 1 x #x=(" + b"1," * 40 + b"1)f32\n", "dimensions"),
        (b"7767517\n1 1\nF.relu i 0 1 x a=(" + b"1," * 70_000 + b"1)\n", "list of 70001"),
        (b"7767517\n1 1\nF.relu i 0 1 x a=" + b"1" * 2**20 + b"\n", "characters"),
        (b"7767517\n1 1\n" + b"a" * 2000 + b" i 0 1 x\n", "too long"),
    ],
)  # fmt: skip
def test_texts_that_are_none(text, message):
    refuse(message, text)


def test_graphs_that_are_none():
    refuse("reads operand 'a', which no operator writes", INPUT, "F.relu r 1 1 a y", OUTPUT)
    refuse("written by 'i' .*and by 'r'", INPUT, "F.relu r 1 1 x x", "pnnx.Output o 1 0 x")
    cycle = ["torch.cat a 2 1 x w u dim=0", "F.relu b 1 1 u v", "F.tanh c 1 1 v w"]
    refuse("a cycle: (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c)", INPUT, *cycle,
           "pnnx.Output o 1 0 v")  # fmt: skip
    refuse("a cycle: r -> r", INPUT, "torch.cat r 2 1 x y y dim=0", OUTPUT)
    refuse("not supported: evil.Op .*'e'", INPUT, "evil.Op e 1 1 x y", OUTPUT, kind=ad.Unsupported)
    refuse(
        "'o' .*cannot", INPUT, "pnnx.Output o 1 1 x y", "F.relu r 1 1 y z", "pnnx.Output p 1 0 z"
    )
    refuse("'i' .*cannot", "pnnx.Input i 1 1 y x", "F.relu r 1 1 x y", OUTPUT)
    refuse("more arguments than inputs", INPUT, "F.relu r 1 1 x y $a=x $b=x", OUTPUT)
    long = [f"F.relu r{i} 1 1 v{i} v{(i + 1) % 3000}" for i in range(3000)]
    with pytest.raises(ad.CheckpointError, match=r"a cycle: r\d+.*\.\.\.") as caught:
        load(*long, "pnnx.Output o 1 0 v0")
    assert len(str(caught.value)) < 500


def test_long_chains():
    """No recursion: neither over operators nor in an expression."""
    count = 20_000
    lines = [f"F.relu r{i} 1 1 v{i} v{i + 1}" for i in range(count)]
    module = load(*lines[::-1], "pnnx.Input i 0 1 v0", f"pnnx.Output o 1 0 v{count}")
    assert [inputs for _, _, inputs, _ in module.operators[:3]] == [("v0",), ("v1",), ("v2",)]
    deep = "neg(" * 4000 + "@0" + ")" * 4000
    module = load(INPUT, f"pnnx.Expression e 1 1 x y expr={deep}", OUTPUT)
    assert module(ad.ones(2)).tolist() == [1, 1]


@pytest.mark.parametrize(
    "text, message",
    [
        ("neg(" * 5000 + "@0" + ")" * 5000, "nests deeper"), ("[" * 9000, "nests deeper"),
        ("[" + "1," * 70_000 + "1]", "tokens"), ("add(@0", "brackets or operands"),
        ("add(@0)", "add of 1"), ("neg(@0,@0)", "neg of 2"), ("@1", "no operand @1"),
        ("@-1", "no operand"), ("@0@0", "no operand"), ("@0,@0", "brackets"),
        ("@0)", "closes nothing"),
        ("[@0)", "closes nothing"), ("add(@0,1]", "closes nothing"), ("(@0)", "without a function"),
        ("exec(@0)", "no function"), ("__import__(os)", "no function"),
        ("os.system(@0)", "no function"),
        ("size(@0)", "size of 1"), ("add(@0,lambda)", "no function"), ("", "tokens"),
        ("add(@0,9999999999999999999)", "out of range"),
    ],
)  # fmt: skip
def test_expressions_that_are_none(text, message):
    refuse(message, INPUT, f"pnnx.Expression e 1 1 x y expr={text}", OUTPUT)


@pytest.mark.parametrize(
    "text", ["pow(9,pow(9,pow(9,9)))", "lshift(1,1000000)", "lshift(1,-1)", "div(1,0)", "pow(0,-1)",
             "mul(4611686018427387904,1024)", "log(-1)", "sqrt(-1)", "exp(1e9)", "size(@0,7)",
             "floor(1e300)", "int(nan)", "remainder(1,0)"]
)  # fmt: skip
def test_expressions_that_explode(text):
    """Numbers stay within 64 bits; what is not a number is an error that names the operator."""
    module = load(INPUT, f"pnnx.Expression bomb 1 1 x s expr=mul(@0,{text})",
                  "pnnx.Output o 1 0 s")  # fmt: skip
    with pytest.raises(ad.AdjointError, match=r"'bomb' \(pnnx.Expression\)"):
        module(ad.ones(2))


BOMBS = {
    "zeros": "torch.zeros b 0 1 y size=(2147483647,2147483647)",
    "full": "torch.full b 0 1 y size=(9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9,9) fill_value=1",
    "new_ones": "Tensor.new_ones b 1 1 x y size=(2147483647,9)",
    "arange": "torch.arange b 0 1 y start=0 end=9223372036854775807",
    "steps": "torch.arange b 0 1 y start=0 end=1.0 step=1.0e-12",
    "repeat": "Tensor.repeat b 1 1 x y sizes=(2147483647,2147483647)",
    "tile": "torch.tile b 1 1 x y dims=(2147483647,9)",
    "interpolate": "F.upsample b 1 1 x y size=(2147483647,2147483647) mode=nearest",
    "randn": "torch.randn b 0 1 y size=(4294967296,9)",
}


@pytest.mark.parametrize("name", BOMBS)
def test_sizes_that_are_absurd(name):
    module = load(INPUT, BOMBS[name], OUTPUT)
    tracemalloc.start()
    try:
        with pytest.raises(ad.AdjointError, match="'b'"):
            module(ad.ones(1, 1, 2, 2) if name == "interpolate" else ad.ones(2))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


LAYERS = [
    "nn.Linear b 1 1 x y in_features=2147483647 out_features=2147483647 @weight=(2)f32",
    "nn.Linear b 1 1 x y in_features=-5 out_features=-9 @weight=(2)f32",
    "nn.Embedding b 1 1 x y num_embeddings=4294967296 embedding_dim=4096 @weight=(2)f32",
    "nn.Conv2d b 1 1 x y in_channels=65536 out_channels=65536 kernel_size=(9,9) @weight=(2)f32",
    f"nn.Conv3d b 1 1 x y in_channels=1 out_channels=1 kernel_size=({'9,' * 60_000}) "
    "@weight=(2)f32",
    "nn.ConvTranspose1d b 1 1 x y in_channels=9999999 out_channels=9999999 kernel_size=9 "
    "@weight=(2)f32",
    "nn.BatchNorm2d b 1 1 x y num_features=999999999999 affine=False @running_mean=(2)f32",
    "nn.InstanceNorm1d b 1 1 x y num_features=999999999999 affine=True",
    "nn.GroupNorm b 1 1 x y num_groups=1 num_channels=999999999999",
    "nn.LayerNorm b 1 1 x y normalized_shape=(999999,999999)", "nn.LayerNorm b 1 1 x y",
    "nn.RMSNorm b 1 1 x y normalized_shape=999999999999",
    "nn.PReLU b 1 1 x y num_parameters=999999999999",
    "nn.LSTM b 1 1 x y input_size=1 hidden_size=1 num_layers=999999999 @weight_ih_l0=(4,1)f32",
    "nn.GRU b 1 1 x y input_size=99999999 hidden_size=99999999 num_layers=1 @weight_ih_l0=(3,1)f32",
    "nn.MultiheadAttention b 1 1 x y embed_dim=1073741824 num_heads=1 @in_proj_weight=(2)f32",
    "nn.Linear b 1 1 x y in_features=2 out_features=1",
    "nn.Linear b 1 1 x y in_features=2 out_features=1 bias=False @weight=(2,1)f32",
    "nn.Linear b 1 1 x y in_features=2 out_features=1 bias=False @weight=(1,2)f32 @more=(2)f32",
    "nn.Linear b 1 1 x y in_features=two out_features=1 @weight=(1,2)f32",
    "nn.ReLU b 1 1 x y device=cuda evil=1", "nn.ReLU b 1 1 x y @weight=(2)f32",
    "F.relu b 1 1 x y @weight=(2)f32", "pnnx.Attribute b 0 1 y",
    "pnnx.Attribute b 0 1 y @data=(2)null",
    "pnnx.Attribute b 0 1 y @data=(0,2147483647,2147483647,2147483647)f32",
    "pnnx.Attribute b 0 1 y @data=(2147483647,2147483647,2147483647,2147483647)f32",
    "pnnx.Attribute b 0 1 y @data=(3)f32", "pnnx.Attribute b 0 1 y @missing=(2)f32",
]  # fmt: skip


@pytest.mark.parametrize("line", LAYERS, ids=[line.split()[0] for line in LAYERS])
def test_layers_that_lie(line):
    """Nothing is allocated for a layer before its sizes are compared with its weights."""
    keys = [w[1:].partition("=")[0] for w in line.split() if w[0] == "@"] or ["data"]
    weights = {f"b.{key}": np.ones(2, np.float32) for key in keys if key != "missing"}
    if line.startswith(("nn.LSTM", "nn.GRU")):
        weights = {"b.weight_ih_l0": np.ones(int(line.rpartition("(")[2][0]), np.float32)}
    tracemalloc.start()
    try:
        refuse(r"'b' \(|b\.", INPUT, line, OUTPUT, weights=weights, kind=ad.AdjointError)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


# ---- archives ------------------------------------------------------------------------------------

CONSTANT = "pnnx.Attribute a 0 1 y @data=(2)f32"


def test_archives_that_are_none():
    refuse("no directory", INPUT, CONSTANT, OUTPUT, weights=b"")
    refuse("no directory", INPUT, CONSTANT, OUTPUT, weights=b"PK" * 50)
    refuse("no 'a.data'", INPUT, CONSTANT, OUTPUT, weights={"b": np.ones(2)})
    good = bin_file({"a.data": np.ones(2, np.float32)})
    refuse("cut short|no directory", INPUT, CONSTANT, OUTPUT, weights=good[:-10])
    flipped = bytearray(good)
    flipped[good.index(np.float32(1).tobytes())] ^= 1
    refuse("checksum", INPUT, CONSTANT, OUTPUT, weights=bytes(flipped))
    packed = bin_file({"a.data": np.zeros(1 << 20, np.float32)}, zipfile.ZIP_DEFLATED)
    refuse("compressed", INPUT, CONSTANT, OUTPUT, weights=packed)


@pytest.mark.parametrize(
    "name", ["../a.data", "/etc/passwd", "a/../../b", "..\\a", "C:\\x", "a\0.data"]
)
def test_members_with_paths(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    refuse("called|no 'a.data'", INPUT, CONSTANT, OUTPUT, weights={name: np.ones(2, np.float32)})
    assert not list(tmp_path.iterdir())


def test_operators_that_share_a_weight():
    """A small file must not become many copies of one of its members."""
    weights = {"a.b.data": np.ones(2, np.float32)}
    lines = ["pnnx.Attribute a.b 0 1 y @data=(2)f32", "pnnx.Attribute a 0 1 z @b.data=(2)f32"]
    refuse("two operators have the weight 'a.b.data'", INPUT, *lines, OUTPUT, "pnnx.Output p 1 0 z",
           weights=weights)  # fmt: skip


def test_names_of_all_kinds():
    """Names in files are no attributes of modules."""
    names = ["forward", "__class__", "_steps", "a.b", "a", "training", "x/z", "é", "a..b", "." * 99,
             "_modules", "0", "load_state_dict"]  # fmt: skip
    lines = [f"pnnx.Attribute {n} 0 1 c{i} @data=(2)f32" for i, n in enumerate(names)]
    lines += [
        f"pnnx.Expression e{i} 2 1 v{i} c{i} v{i + 1} expr=add(@0,@1)" for i in range(len(names))
    ]
    lines += [f"nn.ReLU {n} 1 1 v{len(names)} w{i}" for i, n in enumerate(names)]
    outputs = [f"pnnx.Output pnnx_output_{i} 1 0 w{i}" for i in range(len(names))]
    weights = {f"{n}.data": np.ones(2, np.float32) for n in names}
    module = load("pnnx.Input i 0 1 v0", *lines, *outputs, weights=weights)
    found = module(ad.zeros(2))
    assert all(t.tolist() == [len(names)] * 2 for t in found)
    assert len(module.state_dict()) == len(names)
    assert module.train().training and not module.eval().training
