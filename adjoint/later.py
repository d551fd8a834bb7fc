"""Names at the top whose files are imported with the first of them that a program asks for."""

from __future__ import annotations

import importlib
from typing import Any

FILES = {
    "alias": "as_torch",
    "alias.c": "DispatchKey DispatchKeySet",
    "amp.devices": "autocast_decrement_nesting autocast_increment_nesting get_autocast_cpu_dtype "
    "get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype is_autocast_cpu_enabled "
    "is_autocast_ipu_enabled is_autocast_xla_enabled set_autocast_cpu_dtype "
    "set_autocast_cpu_enabled set_autocast_gpu_dtype set_autocast_ipu_dtype "
    "set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled",
    "aten.dropouts": "alpha_dropout_ dropout_ feature_alpha_dropout_ feature_dropout "
    "feature_dropout_ native_dropout",
    "aten.embeddings": "embedding_bag embedding_renorm_",
    "aten.images": "affine_grid_generator convolution grid_sampler grid_sampler_2d "
    "grid_sampler_3d max_pool1d_with_indices mkldnn_convolution native_channel_shuffle",
    "aten.libraries": "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt "
    "batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats "
    "cudnn_affine_grid_generator cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu "
    "cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler miopen_batch_norm "
    "miopen_convolution miopen_convolution_add_relu miopen_convolution_relu "
    "miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution miopen_rnn "
    "mkldnn_adaptive_avg_pool2d mkldnn_linear_backward_weights mkldnn_max_pool2d "
    "mkldnn_max_pool3d",
    "aten.losses": "binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss "
    "hinge_embedding_loss kl_div margin_ranking_loss poisson_nll_loss triplet_margin_loss",
    "aten.normalization": "batch_norm batch_norm_update_stats frobenius_norm instance_norm "
    "native_batch_norm native_group_norm native_layer_norm native_norm norm_except_dim "
    "nuclear_norm",
    "aten.quantized": "dequantize empty_quantized fake_quantize_per_channel_affine "
    "fake_quantize_per_tensor_affine int_repr per_channel_affine per_channel_affine_float_qparams "
    "per_channel_symmetric per_tensor_affine per_tensor_symmetric q_per_channel_axis "
    "q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme "
    "quantized_batch_norm quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d",
    "aten.recurrent": "gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell",
    "aten.segments": "segment_reduce",
    "compiled": "compile cond scan while_loop",
    "core.dtype": "bit bits16 bits1x8 bits2x4 bits4x2 bits8 float4_e2m1fn_x2 int1 int2 int3 int4 "
    "int5 int6 int7 qint32 qint8 quint2x4 quint4x2 quint8 uint1 uint2 uint3 uint4 uint5 uint6 "
    "uint7",
    "func": "vmap",
    "futures": "Future",
    "jit": "fork wait",
    "jit.classes": "AVG AcceleratorError AggregationType AliasDb ArgumentSpec BenchmarkConfig "
    "BenchmarkExecutionStats Block BufferDict CallStack Capsule ClassType Code CompilationUnit "
    "CompleteArgumentSpec ConcreteModuleType ConcreteModuleTypeBuilder DeepCopyMemoTable "
    "DeserializationStorageContext ErrorReport ExecutionPlan FatalError Gradient "
    "GraphExecutorState IODescriptor InterfaceType JITException LiteScriptModule ModuleDict Node "
    "OperatorInfo ParameterDict PyTorchFileReader PyTorchFileWriter SUM "
    " ScriptClass ScriptClassFunction ScriptDict ScriptDictIterator "
    "ScriptDictKeyIterator ScriptFunction ScriptList ScriptListIterator ScriptMethod ScriptModule "
    "ScriptModuleSerializer ScriptObject ScriptObjectProperty SerializationStorageContext "
    "StaticModule Tag ThroughputBenchmark TracingState Use Value",
    "jit.schemas": "Argument FunctionSchema parse_schema",
    "jit.types": "AnyType AwaitType BoolType ComplexType DeviceObjType DictType EnumType "
    "FloatType FutureType InferredType IntType ListType NoneType NumberType OptionalType "
    "PyObjectType RRefType StreamObjType StringType SymBoolType SymIntType TensorType TupleType "
    "Type UnionType unify_type_list",
    "nn.functional": "conv_tbc",
    "older_names": "cudnn_is_acceptable get_deterministic_debug_mode get_device get_device_module "
    "has_lapack has_mkl has_openmp has_spectral init_num_threads is_anomaly_check_nan_enabled "
    "is_distributed is_same_size is_vulkan_available is_warn_always_enabled set_anomaly_enabled "
    "set_default_tensor_type set_deterministic_debug_mode set_warn_always thread_safe_generator",
    "ops.create.older": "from_file hash_tensor",
    "ops.create.storages": "BFloat16Storage BoolStorage ByteStorage CharStorage "
    "ComplexDoubleStorage ComplexFloatStorage DoubleStorage FloatStorage HalfStorage IntStorage "
    "LongStorage ShortStorage",
    "ops.linalg.extremal": "lobpcg",
    "ops.sparse.older": "ccol_indices_copy col_indices_copy crow_indices_copy dsmm hsmm hspmm "
    "indices_copy resize_as_sparse_ row_indices_copy saddmm smm spmm sspaddmm values_copy",
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
