"""Names of TorchScript's compiler, of which nothing is made here: classes that programs may ask
whether something is one of, and the errors that they may catch.
"""

from __future__ import annotations

import enum
from typing import Any

from ...core.errors import AdjointError, InvalidType
from ...core.missing_names import Unmade

_WHY = "nothing is scripted here; adjoint.compile makes functions fast, adjoint.export writes them"
UNMADE = (
    "AliasDb", "ArgumentSpec", "BenchmarkConfig", "BenchmarkExecutionStats", "Block", "BufferDict",
    "CallStack", "Capsule", "ClassType", "Code", "CompilationUnit", "CompleteArgumentSpec",
    "ConcreteModuleType", "ConcreteModuleTypeBuilder", "DeepCopyMemoTable",
    "DeserializationStorageContext", "ErrorReport", "ExecutionPlan", "Gradient",
    "GraphExecutorState", "IODescriptor", "InterfaceType", "LiteScriptModule", "ModuleDict", "Node",
    "OperatorInfo", "ParameterDict", "PyTorchFileReader",
    "PyTorchFileWriter", "ScriptClass", "ScriptClassFunction", "ScriptDict",
    "ScriptDictIterator", "ScriptDictKeyIterator", "ScriptFunction", "ScriptList",
    "ScriptListIterator", "ScriptMethod", "ScriptModule", "ScriptModuleSerializer", "ScriptObject",
    "ScriptObjectProperty", "SerializationStorageContext", "StaticModule", "ThroughputBenchmark",
    "TracingState", "Use", "Value",
)  # fmt: skip


class _Compiled(Unmade):
    """A class of TorchScript's: no value is one, and none is made.

    Errors: InvalidType, as for PyTorch's own where these have no constructor.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise InvalidType(f"{type(self).__name__}: no constructor here: {_WHY}")


def _class(name: str) -> type:
    return type(name, (_Compiled,), {"__module__": __name__, "__doc__": _Compiled.__doc__})


globals().update({name: _class(name) for name in UNMADE})


class FatalError(AdjointError):
    """An error of PyTorch's own that nothing here raises."""


class JITException(AdjointError):  # noqa: N818 - PyTorch's name
    """Error of a compiled TorchScript program; nothing here raises it."""


class AcceleratorError(AdjointError, RuntimeError):
    """An error of an accelerator's runtime; those of devices here are DeviceError."""


class AggregationType(enum.Enum):
    """Aggregation of the values of one counter."""

    SUM = 0
    AVG = 1


SUM, AVG = AggregationType.SUM, AggregationType.AVG


class Tag(enum.Enum):
    """PyTorch's tags of operators."""

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19
