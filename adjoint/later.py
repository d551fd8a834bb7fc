"""Names at the top whose files are imported with the first of them that a program asks for."""

from __future__ import annotations

import importlib
from typing import Any

FILES = {
    "alias": "as_torch",
    "amp.devices": "autocast_decrement_nesting autocast_increment_nesting get_autocast_cpu_dtype "
    "get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype is_autocast_cpu_enabled "
    "is_autocast_ipu_enabled is_autocast_xla_enabled set_autocast_cpu_dtype "
    "set_autocast_cpu_enabled set_autocast_gpu_dtype set_autocast_ipu_dtype "
    "set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled",
    "aten.dropouts": "alpha_dropout_ dropout_ feature_alpha_dropout_ feature_dropout "
    "feature_dropout_ native_dropout",
    "aten.embeddings": "embedding_bag embedding_renorm_",
    "aten.images": "affine_grid_generator conv_tbc convolution grid_sampler grid_sampler_2d "
    "grid_sampler_3d max_pool1d_with_indices mkldnn_convolution native_channel_shuffle",
    "aten.losses": "binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss "
    "hinge_embedding_loss kl_div margin_ranking_loss poisson_nll_loss triplet_margin_loss",
    "aten.normalization": "batch_norm batch_norm_update_stats frobenius_norm instance_norm "
    "native_batch_norm native_group_norm native_layer_norm native_norm norm_except_dim "
    "nuclear_norm",
    "aten.recurrent": "gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell",
    "aten.segments": "segment_reduce",
    "compiled": "compile cond scan while_loop",
    "func": "vmap",
    "jit": "fork wait",
    "futures": "Future",
    "jit_names": "AVG AcceleratorError AggregationType AliasDb ArgumentSpec BenchmarkConfig "
    "BenchmarkExecutionStats Block BufferDict CallStack Capsule ClassType Code "
    "CompilationUnit CompleteArgumentSpec ConcreteModuleType ConcreteModuleTypeBuilder "
    "DeepCopyMemoTable DeserializationStorageContext ErrorReport ExecutionPlan FatalError "
    "Gradient GraphExecutorState IODescriptor InterfaceType JITException LiteScriptModule "
    "ModuleDict Node OperatorInfo ParameterDict SUM ScriptClass ScriptClassFunction "
    "ScriptDict ScriptDictIterator ScriptDictKeyIterator ScriptFunction ScriptList "
    "ScriptListIterator ScriptMethod ScriptModule ScriptModuleSerializer ScriptObject "
    "ScriptObjectProperty SerializationStorageContext StaticModule Tag "
    "ThroughputBenchmark TracingState Use Value",
    "jit_schemas": "Argument FunctionSchema parse_schema",
    "jit_types": "AnyType AwaitType BoolType ComplexType DeviceObjType DictType EnumType FloatType "
    "FutureType InferredType IntType ListType NoneType NumberType OptionalType "
    "PyObjectType RRefType StreamObjType StringType SymBoolType SymIntType TensorType "
    "TupleType Type UnionType unify_type_list",
    "older_names": "cudnn_is_acceptable get_deterministic_debug_mode get_device get_device_module "
    "has_lapack has_mkl has_openmp has_spectral init_num_threads "
    "is_anomaly_check_nan_enabled is_distributed is_same_size is_vulkan_available "
    "is_warn_always_enabled set_anomaly_enabled set_default_tensor_type "
    "set_deterministic_debug_mode set_warn_always thread_safe_generator",
    "ops.sparse.public_functions": "sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor "
    "sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor",
    "symbols": "sym_constrain_range sym_constrain_range_for_size sym_float sym_fresh_size sym_int "
    "sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
}
PLACES = {name: file for file, names in FILES.items() for name in names.split()}


def find(name: str) -> Any:
    """What a name of `PLACES` stands for."""
    package = __name__.rpartition(".")[0]
    return getattr(importlib.import_module(f"{package}.{PLACES[name]}"), name)
