"""The module `torch` of the alias: adjoint's names, but for those that mean other things there."""

from __future__ import annotations

import importlib.machinery
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import adjoint

from ...core.faces import FACES, NOT_PYTORCHS, PACKAGES
from ...core.missing_names import MODULES, missing
from .path_entry import folder
from .torch_version import __version__ as version

PACKAGE = adjoint.__name__
HERE = __name__.rpartition(".")[0]

# Modules that are the same under both names, with all below them.
SHARED = {name for name in (*FACES, *PACKAGES, "return_types") if "." not in name} - NOT_PYTORCHS
ASKED = {  # modules whose names adjoint has for others, or which only PyTorch programs ask for
    f"{HERE}.c": "_C",
    f"{HERE}.config": "__config__",
    f"{HERE}.cpp_extension": "utils.cpp_extension",
    f"{HERE}.data_names": "utils.data._utils",
    f"{HERE}.dcp_names": "distributed.checkpoint.default_planner "
    "distributed.checkpoint.hf_storage distributed.checkpoint.state_dict",
    f"{HERE}.dtensor": "distributed._functional_collectives distributed._tensor "
    "distributed.device_mesh distributed.tensor distributed.tensor._utils "
    "distributed.tensor.placement_types",
    f"{HERE}.dynamo": "_dynamo _dynamo._trace_wrapped_higher_order_op "
    "_dynamo.eval_frame _dynamo.exc _dynamo.utils",
    f"{HERE}.dynamo_config": "_dynamo.config",
    f"{HERE}.elastic": "distributed.elastic distributed.elastic.multiprocessing "
    "distributed.elastic.multiprocessing.errors",
    f"{HERE}.fake": "_subclasses _subclasses.fake_tensor",
    f"{HERE}.functional": "functional",
    f"{HERE}.future": "__future__",
    f"{HERE}.fx_names": "fx.experimental fx.experimental.proxy_tensor",
    f"{HERE}.higher_order": "_higher_order_ops _higher_order_ops.associative_scan "
    "_higher_order_ops.cond _higher_order_ops.map _higher_order_ops.scan "
    "_higher_order_ops.while_loop",
    f"{HERE}.internal": "_utils",
    f"{HERE}.nvtx": "cuda.nvtx",
    f"{HERE}.ops": "ops",
    f"{HERE}.post_local": "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook",
    f"{PACKAGE}.profiler.profiler_names": "profiler.profiler",
    f"{HERE}.quantization": "ao ao.quantization ao.quantization.qconfig quantization",
    f"{HERE}.storage": "storage",
    f"{HERE}.scatter_gather": "nn.parallel.scatter_gather",
    f"{HERE}.torch_version": "torch_version",
    f"{HERE}.version": "version",
    f"{PACKAGE}.amp.cuda": "cuda.amp cuda.amp.autocast_mode cuda.amp.grad_scaler",
    f"{PACKAGE}.cuda": "cuda.random",
    f"{PACKAGE}.data.collate": "utils.data._utils.collate",
    f"{PACKAGE}.data.worker": "utils.data._utils.worker",
    f"{PACKAGE}.distributed": "distributed.distributed_c10d",
    f"{PACKAGE}.distributed.data_parallel": "nn.parallel.distributed",
    f"{PACKAGE}.distributed.functional": "distributed.nn distributed.nn.functional",
    f"{PACKAGE}.distributed.group": "distributed.constants",
    f"{PACKAGE}.distributed.fsdp": "distributed._composable distributed._composable.fsdp "
    "distributed.fsdp.fully_sharded_data_parallel distributed.fsdp.wrap",
    f"{PACKAGE}.jit": "_jit_internal jit.annotations",
    f"{PACKAGE}.library": "_custom_ops",
    f"{PACKAGE}.nn.attention": "nn.attention.flex_attention",
    f"{PACKAGE}.onnx.symbolic_helper": " ".join(f"onnx.symbolic_opset{n}" for n in range(7, 21)),
    f"{PACKAGE}.ops.return_types": "return_types",
    f"{PACKAGE}.profiler.flop_counter": "utils.flop_counter",
    f"{PACKAGE}.printing": "_tensor_str",
    f"{PACKAGE}.tensor": "_tensor",
    f"{PACKAGE}.utils.hparams": "utils.tensorboard.summary",
    f"{PACKAGE}.utils.tensorboard": "utils.tensorboard.writer",
}
OWN = {name: module for module, names in ASKED.items() for name in names.split()}


def why_absent(name: str) -> str:
    """The reason why there is no module `torch.NAME`, and what is nearest."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        found = MODULES.get(".".join(parts[:size]))
        if found is not None:
            return found
    return "docs/pytorch.md lists what there is"


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """`adjoint.save`, in PyTorch's format whatever the file is called: the one that is read by all
    versions since 1.6, whatever the other arguments say.
    """
    from ...io.pytorch_file import write_pytorch

    if isinstance(f, (str, os.PathLike)):
        from ...io.atomic import replacing

        with replacing(os.fspath(f)) as file:
            write_pytorch(obj, file)
    else:
        write_pytorch(obj, f)


OTHERS = {"save": save}  # functions that do otherwise under adjoint's name


class Torch(ModuleType):
    """The module `torch`; attributes set in it are set in adjoint, too."""

    def __init__(self, find: Callable[[str], ModuleType]) -> None:
        super().__init__("torch", adjoint.__doc__)
        vars(self).update(
            __file__=os.path.join(folder(), "torch", "__init__.py"),
            __path__=[],
            __version__=version,
            __spec__=importlib.machinery.ModuleSpec("torch", None, origin=PACKAGE, is_package=True),
            _find=find,
            **OTHERS,
        )

    def __getattr__(self, name: str) -> Any:
        if name == "torch":  # as PyTorch's has, since it imports itself
            return self
        if name in OWN:
            found: Any = self._find(name)
        elif name.startswith("__"):
            raise AttributeError(f"module 'torch' has no attribute {name!r}")
        elif _is_hidden(name):
            raise missing("", name)
        else:
            found = getattr(adjoint, name)
        vars(self)[name] = found  # so that it is found at once from now on
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name not in OWN and name not in OTHERS and not name.startswith("__"):
            setattr(adjoint, name, value)

    def __dir__(self) -> list[str]:
        ours = (name for name in dir(adjoint) if not _is_hidden(name))
        return sorted({*vars(self), *ours, *OWN})


def _is_hidden(name: str) -> bool:
    """Whether a name is a module of ours that PyTorch does not have, such as `adjoint.core`."""
    found = vars(adjoint).get(name)
    return isinstance(found, ModuleType) and name not in SHARED
