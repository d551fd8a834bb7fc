"""A mistake prints one traceback: its last line names the op and the cause, nothing that went
before it ("During handling of the above exception") is shown, and of the package's own frames no
more than PyTorch shows of its own.
"""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import traceback
import types
import weakref

import pytest

import adjoint as ad
import adjoint.nn.functional as F

from .test_errors import CASES


def ones(*shape, **options):
    return ad.ones(shape, **options)


def leaf(*shape):
    return ad.ones(shape, requires_grad=True)


def labels(*shape):
    return ad.zeros(shape, dtype=ad.int64)


def over(x, method, *args):
    """The method that writes over a tensor."""
    return getattr(x, method)(*args)


def batches(*samples):
    return list(ad.utils.data.DataLoader(list(samples), batch_size=len(samples)))


def assigned(x, place, value):
    x[place] = value


def met_in_backward(hook):
    """A backward that runs a hook."""
    x = leaf(2)
    x.register_hook(hook)
    (x * 2).sum().backward()


class Block(ad.nn.Module):
    """A layer of a model, with a mistake: its second layer takes other sizes."""

    def __init__(self):
        super().__init__()
        self.fc = ad.nn.Sequential(ad.nn.Linear(3, 4), ad.nn.ReLU(), ad.nn.Linear(5, 3))

    def forward(self, x):
        return x + self.fc(x)


def model():
    """A model with the mistake in the second of its blocks' layers."""
    blocks = ad.nn.Sequential(ad.nn.Linear(3, 3), Block())
    return ad.nn.Sequential(ad.nn.Identity(), blocks)


def hooked(hook):
    layer = ad.nn.Linear(2, 2)
    layer.register_forward_hook(hook)
    return layer


def trained(loss, x, y):
    """A step of training with a loss."""
    layer = ad.nn.Linear(3, 2)
    loss(layer(x), y).backward()


def twice(y):
    """Two backward passes through one tensor."""
    y.backward()
    y.backward()


def written(x):
    """A backward of what was written meanwhile."""
    h = x * 1
    y = (h * h).sum()
    h.add_(1)
    y.backward()


MISTAKES = {  # by a word for the case: what the last line names, and the mistake
    "add": ("add", lambda: ones(2, 3) + ones(4)),
    "add of leaves": ("add", lambda: leaf(2, 3) + leaf(4)),
    "add, large": ("add", lambda: ones(600, 601) + ones(600)),
    "add, narrow": ("add", lambda: ones(2, 3, dtype=ad.float16) + ones(4, dtype=ad.float16)),
    "add in place": ("add", lambda: over(ones(2, 3), "add_", ones(4))),
    "add of a string": ("add", lambda: ones(2) + "two"),
    "mul with out": ("mul", lambda: ad.mul(ones(2, 3), ones(4), out=ad.empty(0))),
    "where": ("where", lambda: ad.where(ones(2) > 0, ones(3), ones(2))),
    "lerp": ("lerp", lambda: ad.lerp(ones(3), ones(2), 0.5)),
    "clamp": ("clamp", lambda: ones(3).clamp(ones(2))),
    "cat": ("cat", lambda: ad.cat([ones(2, 3), ones(2, 4)])),
    "cat of ranks": ("cat", lambda: ad.cat([ones(2, 3), ones(2)])),
    "stack": ("stack", lambda: ad.stack([ones(2), ones(3)])),
    "view": ("view", lambda: ones(2, 3).view(4)),
    "view of leaves": ("view", lambda: leaf(2, 3).view(4, -1)),
    "reshape": ("reshape", lambda: ones(2, 3).reshape(5)),
    "expand": ("expand", lambda: ones(2).expand(3)),
    "permute": ("permute", lambda: ones(2, 3).permute(0, 2)),
    "transpose": ("transpose", lambda: ones(2, 3).transpose(0, 2)),
    "split": ("split", lambda: ones(5).split([2, 2])),
    "unfold": ("unfold", lambda: ones(5).unfold(0, 6, 1)),
    "sum": ("sum", lambda: ones(2, 3).sum(2)),
    "cumsum": ("cumsum", lambda: ones(2).cumsum(1)),
    "gather": ("gather", lambda: ones(2).gather(0, ad.tensor([7]))),
    "index": ("index", lambda: ones(2, 3)[ad.tensor([5])]),
    "index of a mask": ("index", lambda: ones(2)[ones(3) > 0]),
    "assignment": ("copy_", lambda: assigned(ones(2, 3), 0, ones(2))),
    "index_add": ("index_add", lambda: ones(2, 3).index_add(0, labels(1), ones(1, 4))),
    "scatter": ("scatter", lambda: ones(2).scatter(1, labels(1), ones(1))),
    "matmul": ("matmul", lambda: ones(3, 4) @ ones(5, 6)),
    "matmul of a batch": ("matmul", lambda: ones(2, 3, 4) @ ones(3, 4, 5)),
    "addmm": ("addmm", lambda: ad.addmm(ones(2, 2), ones(2, 3), ones(4, 2))),
    "bmm": ("bmm", lambda: ad.bmm(ones(2, 3, 4), ones(2, 5, 6))),
    "einsum": ("einsum", lambda: ad.einsum("ij,jk->ik", ones(2, 3), ones(4, 5))),
    "solve": ("linalg.solve", lambda: ad.linalg.solve(ones(2, 2), ones(3, 1))),
    "singular": ("inv", lambda: ad.linalg.inv(ones(2, 2))),
    "linear": ("linear", lambda: F.linear(ones(2, 4), ones(3, 5))),
    "Linear": ("linear", lambda: ad.nn.Linear(3, 2)(ones(2, 4))),
    "Linear in a model": (
        "linear", lambda: ad.nn.Sequential(ad.nn.Linear(3, 2), ad.nn.Linear(3, 2))(leaf(2, 3))
    ),
    "Linear, compiled": ("linear", lambda: ad.compile(ad.nn.Linear(3, 2))(ones(2, 4))),
    "add, compiled": ("add", lambda: ad.compile(lambda x, y: x + y)(ones(2, 3), ones(4))),
    "add, lazy": ("add", lambda: ad.lazy()(lambda x, y: (x + y).sum())(ones(2, 3), ones(4))),
    "add in vmap": ("add", lambda: ad.vmap(lambda x, y: x + y)(ones(5, 2), ones(5, 3))),
    "conv2d": ("conv2d", lambda: F.conv2d(ones(1, 3, 8, 8), ones(4, 2, 3, 3))),
    "Conv2d": ("conv2d", lambda: ad.nn.Conv2d(3, 4, 3)(leaf(1, 2, 8, 8))),
    "ConvTranspose1d": ("conv_transpose1d", lambda: ad.nn.ConvTranspose1d(3, 4, 3)(ones(1, 2, 8))),
    "max_pool2d": ("max_pool2d", lambda: F.max_pool2d(ones(1, 1, 2, 2), 3)),
    "batch_norm": ("batch_norm", lambda: ad.nn.BatchNorm1d(3)(ones(2, 4))),
    "layer_norm": ("layer_norm", lambda: ad.nn.LayerNorm(3)(ones(2, 4))),
    "embedding": ("embedding", lambda: F.embedding(ad.tensor([7]), ones(3, 2))),
    "Embedding of floats": ("embedding", lambda: ad.nn.Embedding(3, 2)(ones(2))),
    "LSTM": ("LSTM", lambda: ad.nn.LSTM(3, 2)(ones(4, 1, 5))),
    "attention": (
        "scaled_dot_product_attention",
        lambda: F.scaled_dot_product_attention(ones(1, 2, 3), ones(1, 2, 4), ones(1, 2, 4)),
    ),
    "cross_entropy": ("cross_entropy", lambda: F.cross_entropy(leaf(2, 3), labels(3))),
    "cross_entropy, a class": ("cross_entropy", lambda: F.cross_entropy(leaf(2, 3), labels(2) + 3)),
    "nll_loss": ("nll_loss", lambda: F.nll_loss(leaf(2, 3), labels(3))),
    "mse_loss": ("mse_loss", lambda: F.mse_loss(leaf(2, 3), ones(4))),
    "MSELoss, large": ("mse_loss", lambda: ad.nn.MSELoss()(leaf(600, 601), ones(600))),
    "l1_loss": ("l1_loss", lambda: F.l1_loss(leaf(2, 3), ones(4))),
    "smooth_l1_loss": ("smooth_l1_loss", lambda: F.smooth_l1_loss(leaf(2, 3), ones(4))),
    "binary_cross_entropy": (
        "binary_cross_entropy", lambda: F.binary_cross_entropy(leaf(2, 3), ones(4))
    ),
    "binary_cross_entropy_with_logits": (
        "binary_cross_entropy_with_logits",
        lambda: F.binary_cross_entropy_with_logits(leaf(2, 3), ones(4)),
    ),
    "kl_div": ("kl_div", lambda: F.kl_div(leaf(2, 3), ones(4))),
    "triplet": ("triplet", lambda: F.triplet_margin_loss(leaf(2, 3), ones(2, 3), ones(2, 4))),
    "collate": ("collate", lambda: batches(ones(2), ones(3))),
    "collate in a tuple": ("collate", lambda: batches((ones(2), 1), (ones(3), 2))),
    "backward": ("backward", lambda: (leaf(2) * 2).backward(ones(3))),
    "exp of a list": ("exp", lambda: ad.exp([1.0])),
    "softmax": ("softmax", lambda: leaf(2).softmax(1)),
    "cdist": ("cdist", lambda: ad.cdist(ones(2, 3), ones(2, 4))),
    "fft": ("fft", lambda: ad.fft.fft(ones(2, 3), dim=2)),
    "a model": ("in 1.1.fc.2: linear", lambda: model()(leaf(2, 3))),
    "a model, alone": ("in fc.2: linear", lambda: Block()(ones(2, 3))),
    "a hook": ("add", lambda: hooked(lambda m, x, y: y + ones(3))(ones(1, 2))),
    "Conv1d": ("conv1d", lambda: ad.nn.Conv1d(3, 4, 3)(leaf(1, 2, 8))),
    "Conv3d": ("conv3d", lambda: ad.nn.Conv3d(3, 4, 3)(leaf(1, 2, 8, 8, 8))),
    "ConvTranspose2d": ("transpose2d", lambda: ad.nn.ConvTranspose2d(3, 4, 3)(ones(1, 2, 8, 8))),
    "BatchNorm2d": ("batch_norm", lambda: ad.nn.BatchNorm2d(3)(ones(2, 4, 3, 3))),
    "BatchNorm2d of rows": ("4D", lambda: ad.nn.BatchNorm2d(3)(ones(2, 3))),
    "GroupNorm": ("", lambda: ad.nn.GroupNorm(2, 4)(ones(2, 6, 3))),
    "RMSNorm": ("rms_norm", lambda: ad.nn.RMSNorm(4)(ones(2, 3))),
    "GRU": ("GRU", lambda: ad.nn.GRU(3, 2)(ones(4, 1, 5))),
    "RNN": ("RNN", lambda: ad.nn.RNN(3, 2)(ones(4, 1, 5))),
    "LSTMCell": ("", lambda: ad.nn.LSTMCell(3, 2)(ones(4, 5))),
    "Bilinear": ("bilinear", lambda: ad.nn.Bilinear(3, 2, 1)(ones(4, 3), ones(4, 3))),
    "MultiheadAttention": (
        "", lambda: ad.nn.MultiheadAttention(4, 2)(ones(3, 1, 6), ones(3, 1, 6), ones(3, 1, 6))
    ),
    "TransformerEncoderLayer": (
        "in ", lambda: ad.nn.TransformerEncoderLayer(4, 2, 8)(ones(3, 1, 6))
    ),
    "PixelShuffle": ("pixel_shuffle", lambda: ad.nn.PixelShuffle(2)(ones(1, 3, 2, 2))),
    "Unflatten": ("unflatten", lambda: ad.nn.Unflatten(1, (2, 2))(ones(1, 3))),
    "MaxPool1d": ("max_pool1d", lambda: ad.nn.MaxPool1d(4)(ones(1, 1, 2))),
    "CrossEntropyLoss": (
        "cross_entropy", lambda: trained(ad.nn.CrossEntropyLoss(), ones(4, 3), labels(5))
    ),
    "CrossEntropyLoss, a class": (
        "cross_entropy", lambda: trained(ad.nn.CrossEntropyLoss(), ones(4, 3), labels(4) + 2)
    ),
    "NLLLoss of floats": ("nll_loss", lambda: trained(ad.nn.NLLLoss(), ones(4, 3), ones(4))),
    "BCELoss": ("binary_cross_entropy", lambda: ad.nn.BCELoss()(leaf(4, 1), ones(4))),
    "BCEWithLogitsLoss": (
        "binary_cross_entropy_with_logits",
        lambda: trained(ad.nn.BCEWithLogitsLoss(), ones(4, 3), ones(4)),
    ),
    "a model's input of integers": ("linear", lambda: ad.nn.Linear(3, 2)(labels(4, 3))),
    "a model's input of doubles": (
        "linear", lambda: ad.nn.Linear(3, 2)(ones(4, 3, dtype=ad.float64))
    ),
    "Embedding, a word": ("in 0: embedding", lambda: ad.nn.Sequential(ad.nn.Embedding(3, 2))(
        labels(2) + 3)),
    "two backwards": ("backward", lambda: twice(leaf(2).exp().sum())),
    "backward of a matrix": ("backward", lambda: ones(2, 2).backward()),
    "written before backward": ("", lambda: written(leaf(2))),
    "a hook of a gradient": ("add", lambda: met_in_backward(lambda g: g + ones(3))),
    "lgamma of complex": ("lgamma", lambda: ad.lgamma(ones(2, dtype=ad.complex64))),
}  # fmt: skip


def met(mistake):
    """The error of a mistake."""
    with pytest.raises(Exception) as caught:
        mistake()
    return caught.value


def shown(error):
    """The errors that a traceback prints, the one that was raised first."""
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def assert_one_traceback(error):
    assert isinstance(error, ad.AdjointError), repr(error)
    for each in shown(error):
        assert each.__context__ is None or each.__suppress_context__, repr(each.__context__)
    assert "During handling" not in "".join(traceback.format_exception(error))


@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", MISTAKES)
def test_one_traceback_whose_last_line_names_the_op(name):
    op, mistake = MISTAKES[name]
    error = met(mistake)
    assert_one_traceback(error)
    last = traceback.format_exception(error)[-1].strip().splitlines()[0]
    assert op in last, last


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input_prints_one_traceback(case):
    inputs = case.inputs(ad)
    assert_one_traceback(met(lambda: case.call(ad, *inputs)))


def test_there_are_100_mistakes():
    assert len(MISTAKES) >= 100


def beside(framework):
    """The mistakes with another framework in place of this one."""
    own = {**globals(), "ad": framework, "F": framework.nn.functional}
    for name, each in list(own.items()):
        if isinstance(each, types.FunctionType) and each.__module__ == __name__:
            own[name] = types.FunctionType(each.__code__, own, name, each.__defaults__)
    functions = {k: type("Block", (framework.nn.Module,), {}) for k in ("Block",)}
    block = own["Block"] = functions["Block"]

    def init(self):
        framework.nn.Module.__init__(self)
        nn = framework.nn
        self.fc = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 3))

    block.__init__, block.forward = init, Block.forward
    return {
        name: types.FunctionType(mistake.__code__, own) for name, (_, mistake) in MISTAKES.items()
    }


def sizes(mistake):
    """How many frames and lines a mistake prints below the test's own; None where it is none."""
    try:
        mistake()
    except Exception as error:
        error.__traceback__ = error.__traceback__.tb_next
        frames = traceback.extract_tb(error.__traceback__)
        lines = "".join(traceback.format_exception(error)).strip().splitlines()
        return len(frames), len(lines)
    return None


APART = ("compiled", "lazy")  # cases of compilers, whose tracebacks in PyTorch have 40 frames


@pytest.mark.skipif(sys.version_info < (3, 11), reason="`raise` keeps the frame before Python 3.11")
@pytest.mark.filterwarnings("ignore")
def test_frames_and_lines_are_at_most_pytorchs_in_the_mean():
    torch = pytest.importorskip("torch")
    theirs = beside(torch)
    pairs = []
    for name, (_, mistake) in MISTAKES.items():
        if not name.endswith(APART):
            pairs.append((sizes(mistake), sizes(theirs[name])))
    pairs = [(own, other) for own, other in pairs if other is not None]
    assert len(pairs) >= 90
    for k in range(2):  # frames, lines
        assert sum(own[k] for own, _ in pairs) <= sum(other[k] for _, other in pairs)


def files(error):
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def test_frames_of_users_stay_between_those_that_are_cut():
    error = met(MISTAKES["a hook"][1])
    assert files(error).count(__file__) == 3  # met, the lambda of the table, the hook
    error = met(MISTAKES["a model"][1])
    assert [f.name for f in traceback.extract_tb(error.__traceback__)][-1] == "forward"
    error = met(MISTAKES["a hook of a gradient"][1])
    assert (
        sum(
            "hook" in f.line or "g + ones" in f.line
            for f in traceback.extract_tb(error.__traceback__)
        )
        >= 1
    )
    error = met(MISTAKES["add, compiled"][1])
    assert files(error).count(__file__) == 3


def test_an_error_of_the_users_own_keeps_its_type_words_and_frames():
    class Fails(ad.nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    error = met(lambda: ad.nn.Sequential(Fails())(ones(2)))
    assert type(error) is KeyError and error.args == ("mine",)
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[-1] == "forward" and set(files(error)[2:]) == {__file__}


def test_the_path_is_of_the_innermost_module_and_said_once():
    error = met(MISTAKES["a model"][1])
    assert error.module == "1.1.fc.2"
    assert str(error).count("in 1.1") == 1
    alone = met(MISTAKES["Linear"][1])
    assert alone.module == "" and str(alone).startswith("linear: ")
    compiled = met(lambda: ad.compile(model())(ones(2, 3)))
    assert compiled.module == "1.1.fc.2"


def test_an_error_that_is_gone_keeps_no_tensors():
    """Neither the one that is raised on, nor one that is raised in its place."""
    model = ad.nn.Sequential(ad.nn.Linear(3, 2))
    held = weakref.ref(model[0])
    gc.disable()
    try:
        for args in ([ones(2, 4)], [ones(2, 3), 1], ["text"]):
            try:
                model(*args)
            except Exception as error:
                assert error.args
        del model
        assert held() is None
    finally:
        gc.enable()


def test_the_switch_keeps_all_frames():
    program = "import adjoint as ad; ad.nn.Linear(3, 2)(ad.ones(2, 4))"
    said = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True,
            env={**os.environ, "ADJOINT_DEBUG": level},
        ).stderr
        for level in ("", "traceback")
    ]  # fmt: skip
    assert said[0].count("File") == 1 + (sys.version_info < (3, 11))
    assert said[1].count("File") > 4 and "module.py" in said[1]
    assert said[0].splitlines()[-1] == said[1].splitlines()[-1]


@pytest.mark.parametrize(
    "wrong, meant",
    [
        (lambda: ad.randnn, "randn"),
        (lambda: ad.nn.Liner, "Linear"),
        (lambda: ad.optim.Adma, "Adam"),
        (lambda: F.rellu, "relu"),
        (lambda: ad.linalg.sovle, "solve"),
        (lambda: ad.sum(ones(2), kepdim=True), "keepdim"),
        (lambda: ones(2).softmax(dmi=0), "dim"),
    ],
)
def test_names_and_keywords_that_were_meant(wrong, meant):
    assert f"did you mean {meant}?" in str(met(wrong))
    assert not hasattr(ad, "no_such_thing_at_all")
    assert "did you mean" not in str(met(lambda: ad.no_such_thing_at_all))


@pytest.mark.parametrize("module, meant", [("adam", "Adam"), ("sgd", "SGD"), ("asgd", "ASGD"),
                                           ("sparse_adam", "SparseAdam")])  # fmt: skip
def test_a_module_that_is_called_says_which_class_was_meant(module, meant):
    error = met(lambda: getattr(ad.optim, module)([leaf(2)], lr=0.1))
    said = f"optim.{module}: a module, not a class; did you mean optim.{meant}?"
    assert type(error) is ad.core.errors.InvalidType and str(error) == said
    assert inspect.ismodule(getattr(ad.optim, module))
    assert not callable(ad.optim.lr_scheduler)


@pytest.mark.parametrize("told", [lambda x: print(x), lambda x: print(f"{x}")])
def test_print_in_a_compiled_function_is_called_that(told):
    assert "print" in str(met(lambda: ad.compile(lambda x: (told(x), x * 2)[1])(ones(2))))


def test_an_error_that_is_not_on_purpose_keeps_all_frames(monkeypatch):
    """One that a library raises which this package has called, as of the user's data."""

    from adjoint.nn.modules import linear

    def fails(*args):
        return traceback.format_list(3)  # of the library, which raises

    broken = types.FunctionType(fails.__code__, {**vars(linear), "traceback": traceback})
    monkeypatch.setattr(linear.F, "linear", broken)
    error = met(lambda: ad.nn.Sequential(ad.nn.Linear(2, 2))(ones(1, 2)))
    assert type(error) is TypeError
    assert any(name.endswith("container.py") for name in files(error))
