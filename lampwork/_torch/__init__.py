"""Every use of PyTorch's private names, so that a new release breaks one folder.

Each function says which private name it leans on and what would replace it. Callers write `_torch.overload(...)`: the
files are how this folder is ordered, not something to import. What only a compile needs is loaded when it is first
asked for (a warm start needs the files of the first list).
"""

# ruff: noqa: F401 (this page is the list of names)

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lampwork._torch.library import (
    GIVEN_NUMBERS,
    LAUNCH,
    LAUNCH_OUT,
    bernoulli_of,
    cpu_random_state_bytes,
    cudnn_batch_norm,
    derivative_in_python,
    direct_call,
    draws_random_numbers,
    fake_kernel,
    finds_sizes,
    functional_of_custom,
    has_python_derivative,
    if_given,
    launches_in,
    lengths_written,
    many_of_one,
    named_operator,
    numbers_as_tensors,
    operators_of_libraries,
    out_arguments,
    overload,
    own_results,
    promised,
    random_state_operator,
    returning_numbers,
    returns_list,
    schema_text,
    sizes_asked_of,
    tells_numbers,
    written_arguments_of,
    written_by_result,
)
from lampwork._torch.modes import (
    ENTER_DUAL_LEVEL,
    EXIT_DUAL_LEVEL,
    active_modes,
    active_transforms,
    are_stacks_profiled,
    below_autograd,
    dispatch_stack_length,
    function_modes_length,
    is_recording,
    is_wrapped,
    kernels_only,
    known_function_mode,
    leave_transforms,
    load_decompositions,
    no_torch_function,
    pop_function_mode,
    push_function_mode,
    requires_grad_below,
    with_autograd,
    without_modes,
    without_torch_function,
    without_transforms,
)
from lampwork._torch.optimizers import InitialStates, makes_initial_state, undecorated, without_state
from lampwork._torch.peer import (
    ALLOWED_IN_GRAPH,
    fresh_peer,
    hide_from_peer,
    is_called_natively,
    is_made_by_peer,
    is_peer_tracing,
    note_original,
)
from lampwork._torch.private import missing
from lampwork._torch.stances import peer_frame, peer_raises_on_recompile, peer_stance
from lampwork._torch.state import (
    CUDA_SWITCHES,
    CUDNN_READERS,
    CUDNN_WRITERS,
    SET_STATE,
    STATE,
    AttentionBackend,
    attention_state,
    autocast_nesting,
    autocast_state,
    cuda_state,
    cuda_switches,
    current_cuda_device,
    deterministic_state,
    exact_products,
    get_cudnn_tf32,
    get_precision,
    in_this_state,
    is_default_generator,
    set_cudnn_tf32,
    set_precision,
    state_test,
    without_autocast,
)
from lampwork._torch.tensor_impl import (
    TensorLayout,
    can_lend,
    copy_to_each,
    increment_version,
    increment_versions,
    lent,
    metadata_layout,
    set_versions,
    shares_version,
    storage_address,
    storage_bytes,
    storage_use_count_at,
    tensor_layout,
    track_view,
    version_of,
    with_versions,
)

if TYPE_CHECKING:
    from torch._ops import OpOverload as Overload

    from lampwork._torch.autograd import (
        FORWARD_DERIVATIVES,
        FUNCTION_APPLY,
        REFUSE_SAVED_HOOKS,
        SET_SAVED_HOOKS,
        BackwardHookFunction,
        FunctionNode,
        are_saved_tensors_hooked,
        backward_pass,
        finds_freed_history,
        gradients_of_transform,
        is_batched,
        is_executed,
        is_function_apply,
        is_in_backward,
        keeps_graph,
        next_sequence_number,
        release_saved_tensors,
        run_backward,
        saved_hooks_refusal,
        saved_memory,
        selective_context,
        sequence_number,
        set_sequence_number,
        tensors_saved_by,
        without_saved_tensor_hooks,
    )
    from lampwork._torch.control_flow import RUN_CONTROL_FLOW, control_flow_operators, is_control_flow
    from lampwork._torch.control_flow_in_python import EagerMode, functions_in_python
    from lampwork._torch.cuda import (
        allocating_from,
        clear_library_workspaces,
        cuda_stream_reader,
        empty_cuda,
        is_cuda_capturing,
        literals_start_on_cpu,
        release_pool,
        settle_attention_order,
    )
    from lampwork._torch.draws import DRAWN_LAYOUT, drawing, drawn_by
    from lampwork._torch.dynamo import (
        SUBSTITUTE,
        allowed_in_graph,
        backend,
        backend_names,
        generation_tag,
        keep_dynamo_unloaded,
        peer_guard_check,
        substitute_for,
        without_disabling,
    )
    from lampwork._torch.flex_attention import (
        allowed,
        allows_everything,
        is_flex_attention,
        is_plain_indexing,
        laid_out_as,
        makes_block_masks,
        modified_scores,
    )
    from lampwork._torch.fx import (
        append_node,
        append_placeholder,
        finish_graph_module,
        free_nodes,
        getitem,
        tensor_constant,
    )
    from lampwork._torch.given_numbers import (
        numbers_given,
        replaced,
        some_numbers,
        takes_numbers,
        with_numbers,
    )
    from lampwork._torch.kernel_writes import Elsewhere, written_by
    from lampwork._torch.launches import (
        base_function,
        declared_kernel,
        kernel_kind,
        kernel_name,
        launched_kernel,
        triton_constant,
        triton_type,
    )
    from lampwork._torch.mark_dynamic import SizeMarks, size_marks
    from lampwork._torch.natives import (
        BUILTIN_MODULES,
        CONSTANT_ANSWERS,
        ENTER_INFERENCE_MODE,
        EXIT_INFERENCE_MODE,
        OPERATOR_SPACES,
        OPERATOR_TYPES,
        PACKING,
        PRIVATE_TENSOR_MODULES,
        SCHEMA_TYPES,
        HigherOrderOperator,
        InferenceModeContext,
        assert_async,
        calls_peer,
        check_tensor_all_with,
        check_with,
        group_tensors,
        has_native,
        is_choosing_overload,
        is_collective,
        is_compiling,
        is_nested_region,
        is_of_wrapped_kernel,
        is_scripting,
        is_wrap_triton,
        launches_triton,
        list_lerps,
        look_up_operator,
        plain_implementation,
        pybind_metaclass,
        tensor_text,
    )
    from lampwork._torch.out_memory import keeps_given_memory
    from lampwork._torch.packed import (
        pack_padded,
        pack_padded_backward,
        packing_operators,
        pad_packed,
        pad_packed_backward,
    )
    from lampwork._torch.recurrent import (
        KINDS,
        recurrent_layer_backward_below,
        recurrent_layer_below,
        recurrent_operators,
    )
    from lampwork._torch.schemas import (
        call_in_aten,
        clamp_takes_missing_limits,
        contracts_products,
        copying_variant,
        cross_entropy_checks_targets,
        decompose,
        functional_of_inplace,
        functional_of_out,
        has_composite_implementation,
        has_kernel,
        has_meta_kernel,
        is_operator,
        may_alias_arguments,
        operator_name,
        out_variant,
        scalar_type_name,
        written_arguments,
    )
    from lampwork._torch.subclass import (
        ENTER_WITHOUT_TORCH_FUNCTION,
        EXIT_WITHOUT_TORCH_FUNCTION,
        KIND_FLAGS,
        MemoryName,
        as_subclass,
        copy_lazy_bits,
        correct_aliasing,
        default_torch_function,
        has_storage,
        is_buffer,
        is_native_subclass,
        keep_their_results,
        make_subclass,
        make_wrapper,
        no_torch_dispatch,
        pass_for_buffer,
        pass_for_parameter,
        reads_what_is_not_there,
        storage_key,
        tensor_without_memory,
        zeros_without_memory,
    )
    from lampwork._torch.vendor import (
        convolution_adds_bias_last,
        convolution_is_channels_last,
        convolution_path,
        convolution_writes_bias_first,
        cudnn_batch_norm_reserve_bytes,
        has_vendor_products,
        vendor_multiplies_bfloat16,
        vendor_supports_bfloat16,
    )

#: The files of the names in the second list, in the order in which they are searched: a warm start asks of the first.
_LATER = (
    "natives",
    "subclass",
    "fx",
    "schemas",
    "autograd",
    "mark_dynamic",
    "dynamo",
    "flex_attention",
    "vendor",
    "cuda",
    "draws",
    "given_numbers",
    "packed",
    "recurrent",
    "control_flow",
    "control_flow_in_python",
    "launches",
    "kernel_writes",
)


def missing_names() -> tuple[str, ...]:
    """The private names of PyTorch that Lampwork reads when it is loaded and this release lacks, all of them looked
    for. What needs them runs eagerly."""
    for file in _LATER:
        importlib.import_module(f"lampwork._torch.{file}")
    return tuple(sorted(set(missing)))


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        for file in _LATER:
            home = importlib.import_module(f"lampwork._torch.{file}")
            if name in vars(home):
                value = globals()[name] = vars(home)[name]
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
