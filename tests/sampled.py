"""Tests of which `make test` runs one case in so many, and the sweep the others: cases beside one
another show the same promise for another dtype, size or model, and cost more than they tell.

`one_in` (sweep.py) thins one list of cases; this table thins products of several lists, too.
"""

STEPS = {
    "tests/backends/native/lowering/test_fused.py": {
        "test_kernels_give_what_the_ops_give": 3,
        "test_kernels_that_keep_small_values_give_the_same": 3,
    },
    "tests/backends/native/lowering/test_numbers.py": {
        "test_bits_are_those_of_kernels_for_the_number_alone": 3
    },
    "tests/backends/native/lowering/test_numpy_loops.py": {"test_bits_are_numpys": 3},
    "tests/backends/native/lowering/test_optimizer_kernels.py": {
        "test_the_bits_of_the_ops_in_one_launch_a_step": 3
    },
    "tests/backends/native/onednn/test_onednn_bounds.py": {
        "test_nothing_outside_the_arrays_is_touched": 2
    },
    "tests/backends/native/onednn/test_onednn_convolution.py": {"test_convolutions_of_networks": 3},
    "tests/backends/native/onednn/test_onednn_products.py": {"test_products_fuzzed": 3},
    "tests/backends/native/test_fuzz.py": {"test_composites": 3, "test_in_place": 3},
    "tests/backends/native/test_history.py": {"test_the_order_of_computations_changes_no_bit": 3},
    "tests/backends/native/test_recurrent.py": {
        "test_layer_in_double_precision": 3,
        "test_modules_against_pytorch": 3,
    },
    "tests/backends/torch/test_sizes.py": {"test_sizes": 3},
    "tests/compiler/capture/test_routine_ops.py": {
        "test_attention_of_shapes": 3,
        "test_give_final_states": 3,
        "test_recurrent_layers": 3,
        "test_recurrent_layers_of_sizes": 3,
    },
    "tests/compiler/capture/test_sizes.py": {
        "test_a_training_step": 2,
        "test_one_capture_for_all_sizes": 3,
        "test_python_that_reads_sizes": 3,
    },
    "tests/compiler/export/test_export.py": {
        "test_a_loaded_step_trains_on_as_the_compiled_one": 3,
        "test_every_optimizer_that_compiles": 3,
        "test_training_programs_of_other_tests": 3,
    },
    "tests/compiler/freeze/test_inference.py": {"test_models": 3, "test_recurrent_layers": 3},
    "tests/compiler/passes/test_accumulate.py": {
        "test_gradients_of_several_batches_are_those_of_eager_steps": 3,
        "test_the_bits_are_those_of_two_ops": 3,
    },
    "tests/compiler/passes/test_batched_gemm.py": {
        "test_a_hundred_products_with_gradients_are_few_steps": 3
    },
    "tests/compiler/passes/test_layouts.py": {"test_networks_train_as_eagerly": 3},
    "tests/compiler/passes/test_rectified_products.py": {"test_the_bits_are_those_of_two_ops": 3},
    "tests/compiler/run/test_sequence.py": {
        "test_all_that_is_computed_is_one_call_of_machine_code": 3,
        "test_batches_of_any_size_train_as_eagerly": 3,
    },
    "tests/compiler/run/test_step.py": {
        "test_networks_and_ways_to_train_them": 3,
        "test_views_made_before_a_step_and_read_after_it": 3,
    },
    "tests/compiler/schedule/test_barrier_free.py": {"test_steps_are_those_of_eager_execution": 3},
    "tests/compiler/test_examples.py": {"test_an_example_has_the_same_losses_compiled": 3},
    "tests/compiler/test_keep_grads.py": {"test_parameters_are_as_ever_and_gradients_none": 3},
    "tests/compiler/test_kernel_counts.py": {"test_rows_of_the_benchmark_call_no_python": 3},
    "tests/compiler/test_models.py": {"test_a_model_gives_and_trains_as_eagerly": 2},
    "tests/compiler/test_narrow_numbers.py": {"test_they_are_arguments": 3},
    "tests/compiler/test_optimizers.py": {"test_parameters_are_those_of_eager_steps": 3},
    "tests/compiler/test_random_programs.py": {"test_random_programs_for_many_sizes": 2},
    "tests/compiler/test_schedules.py": {
        "test_a_schedule_that_steps_within_is_that_of_eager_steps": 3
    },
    "tests/compiler/test_sequences_and_draws.py": {
        "test_averaged_weights_are_those_of_eager_steps": 2,
        "test_distributions_validate_as_by_default": 3,
    },
    "tests/interop/array_api/test_against_strict.py": {
        "test_functions": 3,
        "test_functions_of_one_array": 3,
        "test_functions_of_two_arrays": 3,
    },
    "tests/interop/array_api/test_array_object.py": {"test_operators_are_the_functions": 3},
    "tests/interop/array_api/test_special_cases.py": {
        "test_complex_functions": 3,
        "test_real_functions_of_two_arrays": 3,
    },
    "tests/interop/onnx/test_onnx.py": {"test_round_trip": 3},
    "tests/interop/onnx/test_onnx_pytorch.py": {"test_models": 4},
    "tests/interop/pnnx/test_pnnx.py": {
        "test_models": 3,
        "test_models_that_pnnx_optimizes_less": 3,
        "test_rows_of_a_batch_stay_apart": 3,
    },
    "tests/interop/pnnx/test_pnnx_tool.py": {"test_functions": 3, "test_layers": 3},
    "tests/interop/test_sklearn_estimator.py": {"test_scikit_learns_checks": 3},
    "tests/io/test_hostile_files.py": {"test_mutated_files": 2},
    "tests/io/test_pytorch_files.py": {"test_whole_modules": 3},
    "tests/io/test_whole_objects.py": {"test_layers_there_and_back": 3},
    "tests/models/test_model_parity.py": {
        "test_compiled_training_is_eager_training": 3,
        "test_losses_are_pytorchs": 3,
        "test_recorded_training_is_eager_training": 2,
    },
    "tests/models/test_models.py": {"test_greedy_generation": 2, "test_llama_rotary_variants": 3},
    "tests/peers/test_compiled_modules.py": {"test_a_module_trains_as_eagerly": 3},
    "tests/peers/test_optimizers.py": {"test_many_steps": 3},
    "tests/reactive/test_no_grad.py": {"test_inference_holds_no_more_than_eagerly": 3},
    "tests/reactive/test_training_programs.py": {
        "test_a_program_in_steps_of_a_graph_logs_the_numbers_of_eager_execution": 3,
        "test_the_programs_are_deterministic_and_learn_something": 3,
    },
    "tests/reactive/test_writers.py": {"test_turns_keep_nothing": 3},
    "tests/test_import_swap.py": {"test_an_example_has_the_same_losses_with_pytorch": 3},
    "tests/test_scenarios/test_side_by_side.py": {"test_scenario": 2},
    "tests/torch_api/alias/test_elastic.py": {"test_record_writes_down_what_pytorchs_does": 4},
    "tests/torch_api/aten/test_forms.py": {"test_values_and_gradients": 2},
}
