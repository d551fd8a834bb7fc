"""Public names whose files stand elsewhere: modules by their rooms, and names by their files.

`adjoint.onnx` is a face of `adjoint.interop.onnx`: the same module under the name that programs
write, and so is all below it. Its classes and functions have the face's name in `__module__`, as
what a user reads, and what a pickle names. Nothing is imported before it is asked for. Installed,
each face has a file of one line for type checkers (`stubs`), which `setup.py` writes.

This file imports nothing of ours: `setup.py` loads it alone.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

NAME = "adjoint"
_ROOMS = {
    "core": "extensions version",
    "namespaces": "accelerator cpu cuda fft linalg masked quasirandom random signal sparse special",
    "reactive": "view",
    "compiler": "export",
    "interop": "array_api einops onnx pnnx sklearn",
    "torch_api": "func futures fx hub jit library mps mtia multiprocessing overrides serialization "
    "types utils xpu",
    "tools": "evolve profiler testing",
}
FACES = {  # a public module -> where it stands, and all below it
    **{name: f"{room}.{name}" for room, names in _ROOMS.items() for name in names.split()},
    "inference": "compiler.freeze",
    "nn.parallel": "distributed.parallel",
    "utils.progress": "core.progress",
}
_BY_PLACE = {place: face for face, place in FACES.items()}
OLD_PATHS = {  # modules that files of earlier versions name -> where what they had is
    "alias": "torch_api.alias",
    "aten": "torch_api.aten",
    "aten.recurrent": "torch_api.aten.recurrent_cells",
    "autograd.older": "autograd.deprecated",
    "compiled": "compiler",
    "compiled.control": "compiler.capture.control",
    "compiled.function": "compiler.function",
    "memory": "backends.memory",
    "names": "nn.top",
    "nn.older": "nn.deprecated",
    "older_names": "torch_api.deprecated_names",
    "ops.create.older": "ops.create.deprecated_creation",
    "ops.sparse.older": "ops.sparse.deprecated_sparse",
    "symbols": "torch_api.sym",
    "threads": "backends.threads",
}
PACKAGES = (  # public, and at the top; they stand under their names
    "amp", "autograd", "backends", "compiler", "data", "distributed", "distributions", "io",
    "models", "nn", "optim", "reactive",
)  # fmt: skip
NOT_PYTORCHS = frozenset((  # faces and packages that PyTorch has none of, or another one
    "array_api", "data", "einops", "evolve", "extensions", "inference", "io", "models", "pnnx",
    "reactive", "sklearn", "version", "view",
))  # fmt: skip
FILES = {  # a file -> names at the top that are imported with the first of them that is asked for
    "torch_api.alias": "as_torch",
    "torch_api.alias.c": "DispatchKey DispatchKeySet",
    "amp.devices": "autocast_decrement_nesting autocast_increment_nesting get_autocast_cpu_dtype "
    "get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype "
    "is_autocast_cpu_enabled is_autocast_ipu_enabled is_autocast_xla_enabled "
    "set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_gpu_dtype "
    "set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype "
    "set_autocast_xla_enabled",
    "torch_api.aten.dropouts": "alpha_dropout_ dropout_ feature_alpha_dropout_ feature_dropout "
    "feature_dropout_ native_dropout",
    "torch_api.aten.embeddings": "embedding_bag embedding_renorm_",
    "torch_api.aten.images": "affine_grid_generator convolution grid_sampler grid_sampler_2d "
    "grid_sampler_3d max_pool1d_with_indices mkldnn_convolution native_channel_shuffle",
    "torch_api.aten.libraries": "batch_norm_backward_elemt batch_norm_backward_reduce "
    "batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts "
    "batch_norm_stats cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution "
    "cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose "
    "cudnn_grid_sampler miopen_batch_norm miopen_convolution miopen_convolution_add_relu "
    "miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss "
    "miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d "
    "mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d",
    "torch_api.aten.losses": "binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss "
    "hinge_embedding_loss kl_div margin_ranking_loss poisson_nll_loss triplet_margin_loss",
    "torch_api.aten.normalization": "batch_norm batch_norm_update_stats frobenius_norm "
    "instance_norm native_batch_norm native_group_norm native_layer_norm native_norm "
    "norm_except_dim nuclear_norm",
    "torch_api.aten.quantized": "dequantize empty_quantized fake_quantize_per_channel_affine "
    "fake_quantize_per_tensor_affine int_repr per_channel_affine "
    "per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine "
    "per_tensor_symmetric q_per_channel_axis q_per_channel_scales q_per_channel_zero_points "
    "q_scale q_zero_point qscheme quantized_batch_norm quantized_max_pool1d quantized_max_pool2d "
    "quantized_max_pool3d",
    "torch_api.aten.recurrent_cells": "gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh "
    "rnn_tanh_cell",
    "torch_api.aten.compressed_indices": "_convert_indices_from_coo_to_csr "
    "_convert_indices_from_csr_to_coo",
    "torch_api.aten.segments": "_segment_reduce segment_reduce",
    "compiler.capture.associative_scan": "associative_scan",
    "compiler.capture.control": "cond fori_loop scan while_loop",
    "compiler.function": "compile",
    "core.dtype": "bit bits16 bits1x8 bits2x4 bits4x2 bits8 float4_e2m1fn_x2 int1 int2 int3 int4 "
    "int5 int6 int7 qint32 qint8 quint2x4 quint4x2 quint8 uint1 uint2 uint3 uint4 uint5 uint6 "
    "uint7",
    "torch_api.func": "vmap",
    "torch_api.futures": "Future",
    "torch_api.jit": "fork wait",
    "torch_api.jit.classes": "AVG AcceleratorError AggregationType AliasDb ArgumentSpec "
    "BenchmarkConfig BenchmarkExecutionStats Block BufferDict CallStack Capsule ClassType Code "
    "CompilationUnit CompleteArgumentSpec ConcreteModuleType ConcreteModuleTypeBuilder "
    "DeepCopyMemoTable DeserializationStorageContext ErrorReport ExecutionPlan FatalError "
    "Gradient GraphExecutorState IODescriptor InterfaceType JITException LiteScriptModule "
    "ModuleDict Node OperatorInfo ParameterDict PyTorchFileReader PyTorchFileWriter SUM "
    "ScriptClass ScriptClassFunction ScriptDict ScriptDictIterator ScriptDictKeyIterator "
    "ScriptFunction ScriptList ScriptListIterator ScriptMethod ScriptModule "
    "ScriptModuleSerializer ScriptObject ScriptObjectProperty SerializationStorageContext "
    "StaticModule Tag ThroughputBenchmark TracingState Use Value",
    "torch_api.jit.schemas": "Argument FunctionSchema parse_schema",
    "torch_api.jit.types": "AnyType AwaitType BoolType ComplexType DeviceObjType DictType "
    "EnumType FloatType FutureType InferredType IntType ListType NoneType NumberType "
    "OptionalType PyObjectType RRefType StreamObjType StringType SymBoolType SymIntType "
    "TensorType TupleType Type UnionType unify_type_list",
    "nn.functional": "conv_tbc",
    "torch_api.deprecated_names": "cudnn_is_acceptable get_deterministic_debug_mode get_device "
    "get_device_module has_lapack has_mkl has_openmp has_spectral init_num_threads "
    "is_anomaly_check_nan_enabled is_distributed is_same_size is_vulkan_available "
    "is_warn_always_enabled set_anomaly_enabled set_default_tensor_type "
    "set_deterministic_debug_mode set_warn_always thread_safe_generator",
    "ops.create.deprecated_creation": "from_file hash_tensor",
    "ops.create.storages": "BFloat16Storage BoolStorage ByteStorage CharStorage "
    "ComplexDoubleStorage ComplexFloatStorage DoubleStorage FloatStorage HalfStorage IntStorage "
    "LongStorage ShortStorage",
    "ops.linalg.extremal": "lobpcg",
    "ops.sparse.deprecated_sparse": "ccol_indices_copy col_indices_copy crow_indices_copy dsmm "
    "hsmm hspmm indices_copy resize_as_sparse_ row_indices_copy saddmm smm spmm "
    "sspaddmm values_copy",
    "ops.sparse.public_functions": "sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor "
    "sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor",
    "torch_api.sym": "sym_constrain_range sym_constrain_range_for_size sym_float "
    "sym_fresh_size sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
}
PLACES = {name: file for file, names in FILES.items() for name in names.split()}
NAMES = {  # names of lower rooms that higher ones have
    "nn": {"SyncBatchNorm": "distributed.batchnorm"},
    "optim": {"ZeroRedundancyOptimizer": "distributed.optim"},
}


def load(path: str) -> ModuleType:
    """The module at a path below the package, imported if need be."""
    return importlib.import_module(f"{NAME}.{path}")


def find(name: str, space: str = "") -> Any:
    """What a name of `PLACES`, or of a space in `NAMES`, stands for."""
    return getattr(load(NAMES[space][name] if space else PLACES[name]), name)


def _other(path: str, table: dict[str, str]) -> str | None:
    """A path of modules by another table's names; None where it has none above it."""
    parts = path.split(".")
    for size in range(len(parts), 0, -1):
        found = table.get(".".join(parts[:size]))
        if found is not None:
            return ".".join((found, *parts[size:]))
    return None


class _Same:
    """A loader that gives the module at a place, which it imports: not the finder, which Python
    calls with the lock of all imports held.
    """

    def __init__(self, place: str) -> None:
        self.place = place

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Import the module at the place."""
        try:
            module = load(self.place)
        except ModuleNotFoundError as error:
            if error.name != f"{NAME}.{self.place}":
                raise
            message = f"No module named {spec.name!r}"
            raise ModuleNotFoundError(message, name=spec.name) from None
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which has run, its own spec back: Python has set the face's."""
        module.__spec__ = self.spec


class _Finder:
    """Finds modules under their faces, and gives those that have one its name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a face, or of a module that has one; None for others."""
        top, _, rest = fullname.partition(".")
        if top != NAME or not rest:
            return None
        place = _other(rest, FACES) or _other(rest, OLD_PATHS)
        if place is not None:
            loader: Any = _Same(place)
            return importlib.machinery.ModuleSpec(fullname, loader)
        face = _other(rest, _BY_PLACE)
        if face is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            _name(spec, f"{NAME}.{face}")
        return spec


def _name(spec: Any, face: str) -> None:
    """Let the module of a spec go by its face from its first line on."""
    loader = spec.loader

    def exec_module(module: ModuleType) -> None:
        code = loader.get_code(spec.name)
        module.__name__ = face
        sys.modules[face] = module
        try:
            exec(code, vars(module))
        except BaseException:
            sys.modules.pop(face, None)
            raise
        above, _, last = face.rpartition(".")
        if above in sys.modules:
            setattr(sys.modules[above], last, module)
        else:  # when somebody asks for the face, Python imports what is above, and makes it know
            del sys.modules[face]

    loader.exec_module = exec_module


def stubs(package: Path) -> Iterator[tuple[Path, str]]:
    """What tells type checkers of the faces: a file for each of their modules, and its text."""
    for face, place in FACES.items():
        start = package / place.replace(".", "/")
        if not start.is_dir():
            yield package / f"{face.replace('.', '/')}.pyi", f"from {NAME}.{place} import *\n"
            continue
        for file in sorted(start.rglob("*.py")):
            below = file.relative_to(start)
            module = ".".join((NAME, place, *below.with_suffix("").parts)).removesuffix(".__init__")
            yield package / face / below.with_suffix(".pyi"), f"from {module} import *\n"


if __name__ == "adjoint.core.faces":  # and not loaded by setup.py
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
