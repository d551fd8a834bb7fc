"""`adjoint.as_torch()`: PyTorch programs get adjoint's modules, in processes of their own."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys

import pytest

import adjoint as ad
from adjoint.tools.cli.main import main
from adjoint.torch_api.alias import inherited
from adjoint.torch_api.alias.path_entry import folder
from adjoint.torch_api.alias.torch_version import TorchVersion

from ...test_import_swap import IMPORTS


def run(*command, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


ALIASED = """
import importlib.metadata
import importlib.util
import pickle
import sys
import typing

import adjoint
assert "adjoint.torch_api.alias" not in sys.modules and repr(adjoint.float32) == "adjoint.float32"
torch = adjoint.as_torch()
assert adjoint.as_torch() is torch

import torch as again
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data
from torch import Tensor, optim
assert again is torch and nn is adjoint.nn is torch.nn and F is adjoint.nn.functional
assert optim is adjoint.optim and Tensor is adjoint.Tensor
assert adjoint.nn.__spec__.name == "adjoint.nn"  # importing it again has changed nothing
assert importlib.util.find_spec("torch") is not None

# which version
assert torch.__version__ == torch.version.__version__ == "2.13.0"
assert torch.__version__ > (2, 12) and torch.__version__ < "2.14"
assert type(torch.__version__) is torch.torch_version.TorchVersion
assert importlib.metadata.version("torch") == "2.13.0"
assert adjoint.__version__ == adjoint.version.__version__ == "0.1.0"

import torch.linalg
assert adjoint.linalg.__spec__.name == "adjoint.namespaces.linalg"

# what types call themselves
assert repr(torch.float32) == "torch.float32" and repr(torch.ones(2).shape) == "torch.Size([2])"
assert torch.ones(1).type() == "torch.FloatTensor"
assert torch.ones(1).type("torch.LongTensor").dtype is torch.int64
for kind, module in {
    Tensor: "torch", torch.dtype: "torch", torch.Size: "torch", torch.device: "torch",
    nn.Parameter: "torch.nn.parameter", nn.Linear: "torch.nn.modules.linear",
    nn.Module: "torch.nn.modules.module", optim.Adam: "torch.optim.adam",
    torch.utils.data.DataLoader: "torch.utils.data.dataloader",
    torch.distributions.Normal: "torch.distributions.normal",
}.items():
    assert kind.__module__ == module, kind
    assert getattr(sys.modules[module], kind.__name__) is kind
typing.get_type_hints(nn.Linear)
layer = nn.Linear(2, 3)
assert b"torch.nn.modules.linear" in pickle.dumps(layer)
copied = pickle.loads(pickle.dumps(layer))
assert type(copied) is nn.Linear and copied.weight.equal(layer.weight)
assert pickle.loads(pickle.dumps((torch.float16, torch.device("cpu"), torch.ones(1))))

# a program trains, and compiles
optimizer = optim.SGD(layer.parameters(), lr=0.1)
@torch.compile
def step(x):
    optimizer.zero_grad()
    loss = F.mse_loss(layer(x), torch.zeros(len(x), 3))
    loss.backward()
    optimizer.step()
    return loss
losses = [step(torch.ones(4, 2)).item() for _ in range(5)]
assert losses[-1] < losses[0]

# what needs PyTorch itself is refused, and says why
assert not torch.cuda.is_available() and not torch.cuda.is_initialized()
import torch.xpu
assert not torch.xpu.is_available() and not torch.mps.is_available() and torch.xpu is adjoint.xpu
assert not torch.backends.cuda.is_built() and torch.accelerator.current_accelerator() is None
for refused in (
    lambda: torch.ones(1).cuda(), lambda: torch.ones(1, device="torch"),
    lambda: torch.ones(1, device="cuda:0"), lambda: torch.set_default_device("cuda"),
    lambda: __import__("adjoint.backends.torch"), lambda: __import__("torch.backends.torch"),
):
    try:
        refused()
    except adjoint.Unsupported as error:
        assert "PyTorch itself" in str(error), error
    else:
        raise AssertionError(refused)

# what PyTorch's import brings with it
import concurrent, multiprocessing
assert multiprocessing.connection.Connection and concurrent.futures.Future
from torch.hub import tqdm
from torch.utils.benchmark import Timer
assert tqdm and Timer("x + x", globals={"x": torch.ones(2)}).timeit(2).median > 0

# switches of modules' conversions
import torch.__future__
torch.__future__.set_swap_module_params_on_conversion(True)
from torch.__future__ import get_swap_module_params_on_conversion
assert get_swap_module_params_on_conversion() and adjoint.nn.Linear(1, 1).double()
torch.__future__.set_swap_module_params_on_conversion(False)
torch.utils.swap_tensors(torch.ones(1), torch.zeros(2))

# functorch, of older programs
import functorch
layers = [nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval() for _ in range(2)]
x = torch.randn(4, 3)
function, parameters, buffers = functorch.make_functional_with_buffers(layers[0])
assert torch.allclose(function(parameters, buffers, x), layers[0](x)) and len(buffers) == 3
function, parameters, buffers = functorch.combine_state_for_ensemble(layers)
both = functorch.vmap(function, in_dims=(0, 0, None))(parameters, buffers, x)
assert torch.allclose(both, torch.stack([layer(x) for layer in layers]), atol=1e-6)
function, parameters = functorch.make_functional(layers[0][0], disable_autograd_tracking=True)
assert not parameters[0].requires_grad and parameters[0] is not layers[0][0].weight
slopes = functorch.grad(lambda p: function(p, x).sum())(parameters)
assert torch.allclose(slopes[1], torch.full((2,), 4.0))
try:
    functorch.make_functional(layers[0])
except RuntimeError as error:
    assert "has buffers" in str(error)
else:
    raise AssertionError
import functorch.experimental
from functorch.experimental import chunk_vmap, functionalize, replace_all_batch_norm_modules_
assert functorch.experimental.chunk_vmap is chunk_vmap and functionalize is functorch.functionalize
assert replace_all_batch_norm_modules_(nn.BatchNorm1d(2)).running_mean is None
for rows, chunks in ((7, 3), (1, 4), (6, 2)):
    counts = []
    sines = chunk_vmap(lambda x: (counts.append(1), x.sin())[1], in_dims=1, chunks=chunks)
    x = torch.randn(3, rows)
    assert torch.equal(sines(x), x.T.sin()) and len(counts) == min(chunks, rows)

# names that are not there
assert not hasattr(torch, "no_such_name") and not hasattr(torch, "core")
assert getattr(torch, "no_such_name", None) is None
try:
    torch.no_such_name
except adjoint.Unsupported as error:
    assert "no_such_name" in str(error)
for absent in ("tensor", "core", "nn.no_such_module", "no_such_module", "lazy", "compiled"):
    try:
        importlib.import_module(f"torch.{absent}")
    except ModuleNotFoundError as error:
        assert error.name == f"torch.{absent}"
    else:
        raise AssertionError(absent)
assert callable(torch.tensor) and callable(adjoint.tensor)
assert not hasattr(torch, "__no_dunder__") and "nn" in dir(torch) and "core" not in dir(torch)

# what packages stop at otherwise: operators of their own, transforms, names of the C extension
import torch.library, torch._custom_ops, torch._subclasses.fake_tensor, torch.utils.model_zoo
from torch.distributed.algorithms.join import Join, JoinHook
from torch.distributions.utils import _standard_normal, _sum_rightmost
from torch.serialization import MAP_LOCATION
assert torch.torch is torch and torch.func.vmap is torch.vmap
op = torch.library.custom_op("told::twice", lambda x: x * 2, mutates_args=(),
                             schema="(Tensor x) -> Tensor")
assert torch.ops.told.twice(torch.ones(1)) == 2 == torch.ops.told.twice.default(torch.ones(1))
assert _standard_normal((2,), torch.float64, "cpu").dtype is torch.float64
keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
with torch.autocast("cpu"):
    with torch._C._ExcludeDispatchKeyGuard(keys):
        assert nn.Linear(1, 1)(torch.ones(1)).dtype is torch.float32
assert torch._C._get_tracing_state() is None and not torch._C._are_functorch_transforms_active()
inside = torch.vmap(lambda x: x + torch._C._are_functorch_transforms_active())
assert inside(torch.ones(1)) == 2
assert not hasattr(torch._C, "_no_such_name") and not torch._subclasses.fake_tensor.is_fake(3)
assert "adjoint" in torch.__config__.show() and "threads" in torch.__config__.parallel_info()
parallel = nn.parallel.DataParallel(nn.Linear(1, 1), device_ids=[])
assert isinstance(parallel, nn.DataParallel) and parallel(torch.ones(1, 1)).shape == (1, 1)


class Posted(JoinHook):
    done = None

    def post_hook(self, is_last_joiner):
        Posted.done = is_last_joiner


class Joined:
    def join_hook(self):
        return Posted()


with Join([Joined()]):
    assert Posted.done is None
assert Posted.done

# types that packages name, of which none is made; libraries in C++ are not loaded
import torch.fx
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Shard
import torch.distributed._functional_collectives as collectives
assert Shard(1) == Shard(1) and Shard(1).is_shard(1) and not Shard(1).is_replicate()
assert not isinstance(torch.ones(1), DTensor) and not hasattr(torch.ops.torchvision, "nms")
assert torch.fx.wrap(len) is len and torch.fx is adjoint.fx
traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 1), nn.ReLU()))
traced.graph.find_nodes(op="output")[0].args = (traced.graph.call_function(F.relu, (1.0,)),)
assert [node.target for node in traced.graph.nodes][1] == "0"
assert "torch.nn.functional.relu(1.0)" in traced.graph.python_code("self").src
for refused in (DTensor, collectives.wait_tensor, torch.ops.load_library):
    try:
        refused(nn.Linear(1, 1))
    except adjoint.Unsupported:
        pass
    else:
        raise AssertionError(refused)

# names that packages read at import, or ask for on the way
import torch._dynamo.config, torch._jit_internal, torch.ao.quantization, torch.jit.annotations
import torch.onnx.symbolic_opset11 as opset
from torch._dynamo.utils import is_compile_supported
from torch._tensor_str import PRINT_OPTS, _tensor_str
from torch.distributed import autograd, rpc
from torch.onnx import symbolic_opset11, symbolic_helper
assert torch._dynamo.eval_frame.OptimizedModule is type(torch.compile(nn.Linear(1, 1)))
assert not is_compile_supported("cpu") and isinstance(torch._dynamo.exc.Unsupported, type)
with torch._dynamo.config.patch(cache_size_limit=3):
    assert torch._dynamo.config.cache_size_limit == 3
assert torch._dynamo.config.cache_size_limit == 8
import torch._higher_order_ops.scan
from torch._higher_order_ops import associative_scan, cond, map, scan, while_loop
from torch._higher_order_ops.map import map as mapped
assert torch._higher_order_ops.scan is scan is adjoint.scan and mapped is map
assert (cond, while_loop) == (torch.cond, adjoint.while_loop)
assert associative_scan(torch.add, torch.ones(3), 0).tolist() == [1, 2, 3]
tripled = lambda x: map(lambda row, k: {"a": row * k, "b": row.sum()}, x, 3.0)
for function in (tripled, torch.compile(tripled)):
    found = function(torch.ones(2, 2))
    assert found["a"].tolist() == [[3, 3], [3, 3]] and found["b"].tolist() == [2, 2]
torch.set_printoptions(threshold=3)
assert PRINT_OPTS.threshold == 3 and _tensor_str(torch.ones(2), indent=0) == "[1., 1.]"
torch.set_printoptions(profile="default")
assert torch.ao.quantization.QuantStub()(3) == 3 and not rpc.is_available()
assert not autograd.is_available()
assert opset is symbolic_opset11
assert torch.distributed.device_mesh.DeviceMesh is torch.distributed.tensor.DeviceMesh
assert not hasattr(torch.distributed, "no_such_module")
for refused in (opset.unsqueeze, torch.ao.quantization.prepare, rpc.init_rpc,
                autograd.context):
    try:
        refused()
    except adjoint.Unsupported:
        pass
    else:
        raise AssertionError(refused)

# a world of one rank, as trainers make it, and what they read on the way
import torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook as post_local
from torch.profiler.profiler import _default_schedule_fn
from torch.utils.tensorboard.summary import hparams
from torch.utils.tensorboard.writer import SummaryWriter
assert SummaryWriter is torch.utils.tensorboard.SummaryWriter and len(hparams({}, {})) == 3
assert not isinstance(None, post_local.PostLocalSGDState)
assert not torch.distributed.is_gloo_available() and _default_schedule_fn(0).records
torch.distributed.init_process_group(
    torch.distributed.Backend.default_device_backend_map["cpu"], rank=0, world_size=1)
nn.parallel.DistributedDataParallel(nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()
torch.distributed.destroy_process_group()
try:
    torch.distributed.init_process_group("gloo", rank=0, world_size=2)
except adjoint.Unsupported as error:
    assert "PyTorch itself" in str(error), error
else:
    raise AssertionError
impl = torch._C._disabled_torch_function_impl
assert impl(len, (list,), ([1, 2],)) == 2
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.nn.functional import has_torch_function_unary
assert torch.overrides is adjoint.overrides and not has_torch_function((torch.ones(1),))
class Image(torch.Tensor):
    pass
image = torch.ones(2).as_subclass(Image)
with torch._C.DisableTorchFunctionSubclass():
    assert type(image + 1) is torch.Tensor and not torch._C._is_torch_function_enabled()
assert type(image + 1) is Image and torch._C._is_torch_function_enabled()
assert torch.overrides.resolve_name(torch.add) == "torch.add"
class Quiet(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl
assert type(torch.ones(2).as_subclass(Quiet) + 1) is torch.Tensor

# what is set in torch is set in adjoint
torch.flag = 1
assert adjoint.flag == 1
"""


def test_torch_is_adjoint_in_the_process():
    run("-c", ALIASED)


def test_the_imports_of_pytorch_programs_are_answered_as_they_are_written():
    run("-c", f"import adjoint\nadjoint.as_torch()\n{IMPORTS}")


def test_a_module_that_is_imported_by_pytorchs_name_first_runs_once():
    run(
        "-c",
        """
import adjoint, sys
adjoint.as_torch()
import torch.distributions as first
import torch.optim as optim
assert sys.modules["adjoint.distributions"] is first is adjoint.distributions
assert first.kl.kl_divergence is first.kl_divergence and "normal" in vars(first)
assert sys.modules["adjoint.optim"] is optim and optim.adam.Adam is optim.Adam
""",
    )


def test_save_writes_pytorchs_format(tmp_path):
    torch = pytest.importorskip("torch")
    program = """
import io, sys, adjoint
torch = adjoint.as_torch()
held = io.BytesIO()
torch.save({"w": torch.arange(3)}, held)
held.seek(0)
assert torch.load(held)["w"].tolist() == [0, 1, 2]
torch.save({"w": torch.arange(3)}, sys.argv[1], pickle_protocol=4)
try:
    torch.save({}, io.BytesIO(), unknown=1)
except TypeError as error:
    assert "unexpected keyword argument 'unknown'" in str(error)
else:
    raise AssertionError("an unknown argument is swallowed")
"""
    run("-c", program, str(tmp_path / "model.bin"))
    assert torch.load(tmp_path / "model.bin")["w"].tolist() == [0, 1, 2]


def test_it_is_refused_beside_pytorch():
    program = """
import sys, types
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.__file__ = "/somewhere/torch/__init__.py"
import adjoint
try:
    adjoint.as_torch()
except adjoint.Unsupported as error:
    print(error)
assert repr(adjoint.float32) == "adjoint.float32" and sys.modules["torch"] is torch
"""
    assert "imported already, from /somewhere" in run("-c", program)


SCRIPT = """
import json, multiprocessing, os, subprocess, sys
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        import torch
        return torch.tensor(i) ** 2, torch.__version__ == "2.13.0", torch.__name__

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    loader = DataLoader(Squares(), num_workers=1, batch_size=4, multiprocessing_context=context)
    (batch,) = list(loader)
    ask = "import importlib.metadata as m; v = m.version('torch'); import torch, adjoint; "
    ask += "print(v, torch.nn is adjoint.nn)"
    child = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    found = [batch[0].tolist(), batch[1].tolist(), batch[2], child.stdout.split()]
    print(json.dumps([sys.argv[1:], *found, sys.path[0] == os.path.dirname(__file__)]))
    sys.exit(3 if "fail" in sys.argv else 0)
"""


def test_adjoint_run_runs_a_pytorch_program_and_its_children(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    printed = run("-m", "adjoint", "run", "--as-torch", str(path), "--lr", "1")
    assert json.loads(printed) == [
        ["--lr", "1"], [0, 1, 4, 9], [True] * 4, ["torch"] * 4, ["2.13.0", "True"], True,
    ]  # fmt: skip


def test_modules_and_exit_codes(tmp_path):
    (tmp_path / "program.py").write_text("import torch, sys; sys.exit(3 + ('x' in sys.argv))")
    command = [sys.executable, "-m", "adjoint", "run", "--as-torch", "-m", "program", "x"]
    assert subprocess.run(command, check=False, cwd=tmp_path).returncode == 4


def test_ranks_need_an_engine_that_is_not_pytorchs(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    path = tmp_path / "script.py"
    path.write_text("")
    assert main(["run", "--as-torch", "--nproc", "2", "--engine", "gloo", str(path)]) == 1
    assert "--engine gloo is PyTorch's" in capsys.readouterr().err
    monkeypatch.setattr("adjoint.tools.cli.run._has", lambda name: False)
    assert main(["run", "--as-torch", "--nproc", "2", str(path)]) == 1
    assert "mpi4py" in capsys.readouterr().err


def test_the_path_of_children_names_the_folder_once():
    first = inherited({"PYTHONPATH": os.pathsep.join(("a", "", "b"))})
    assert first == {"PYTHONPATH": os.pathsep.join((folder(), "a", "b"))} == inherited(first)
    assert inherited({}) == {"PYTHONPATH": folder()}


def test_cuda_is_initialized_asks_no_namesake(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", ad)
    assert ad.cuda.is_initialized() is False


@pytest.mark.parametrize("other", [
    "2.9", "2.13", "2.13.0", "2.13.1", "2.13.0a0", "2.13.0.dev1", "2.13.0rc1", "2.13.0+cpu", "3",
    "2.13.0.post1", "10.0", "no version", (2, 13), [2, 9, 1], ("2", "14"), "v2.13.0",
])  # fmt: skip
def test_versions_compare_as_pytorchs(other):
    theirs = pytest.importorskip("torch.torch_version").TorchVersion
    for text in ("2.13.0", "2.13.0+cpu", "2.13.0a1.dev3+git12"):
        a, b = TorchVersion(text), theirs(text)
        for compare in (operator.eq, operator.lt, operator.le, operator.gt, operator.ge):
            assert compare(a, other) == compare(b, other), (text, compare)
        assert (a != other) is not (a == other)  # theirs is that of strings
    assert hash(TorchVersion("1")) == hash("1") and isinstance(TorchVersion("1"), str)


SEEDED = """
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(40, 6), torch.randint(3, (40,)))
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for epoch in range(4):
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(json.dumps([losses, len(torch.get_rng_state()), torch.rand(3).tolist()]))
"""


def test_a_program_has_pytorchs_losses_from_the_seed_alone(tmp_path):
    pytest.importorskip("torch")
    from ...test_follow_torch import draws_plainly

    dropout = 0.25 if draws_plainly() else 0.0
    path = tmp_path / "script.py"
    path.write_text(SEEDED.replace("0.25", str(dropout)))
    losses, size, last = json.loads(run("-m", "adjoint", "run", "--as-torch", str(path)))
    expected, expected_size, expected_last = json.loads(run(str(path)))
    assert len(losses) == 20
    assert losses == pytest.approx(expected, abs=1e-4)
    assert (size, last) == (expected_size, expected_last)
