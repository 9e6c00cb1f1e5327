"""Which of PyTorch's operator samples are pointwise, reductions, views or index operators.

Subclasses of OpInfo say so for most; plain OpInfos are listed here by name.
"""

from __future__ import annotations

POINTWISE = frozenset(
    """
    addcmul addcdiv clamp clone contiguous lerp logaddexp2 masked_fill where isin nn.functional.hardswish
    nn.functional.leaky_relu nn.functional.gelu nn.functional.glu nn.functional.dropout nn.functional.dropout2d
    nn.functional.dropout3d nn.functional.alpha_dropout native_dropout_backward nn.functional.feature_alpha_dropout
    nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits nn.functional.soft_margin_loss
    nn.functional.smooth_l1_loss nn.functional.l1_loss nn.functional.mse_loss nn.functional.huber_loss
    nn.functional.kl_div nn.functional.poisson_nll_loss nn.functional.gaussian_nll_loss
    nn.functional.hinge_embedding_loss nn.functional.margin_ranking_loss masked.logaddexp outer addr tril triu
    zeros_like ones_like full_like new_zeros new_ones new_full ones zeros full eye scalar_tensor arange linspace
    logspace to zero_ nn.functional.one_hot signal.windows.hamming signal.windows.hann signal.windows.bartlett
    signal.windows.blackman signal.windows.cosine signal.windows.exponential signal.windows.gaussian
    signal.windows.general_cosine signal.windows.general_hamming signal.windows.nuttall cross linalg.cross
    _softmax_backward_data triu_indices tril_indices constant_pad_nd nn.functional.pad polar
    """.split()
)

REDUCTION = frozenset(
    """
    dot vdot sum_to_size aminmax max.reduction_with_dim max.reduction_no_dim min.reduction_with_dim
    min.reduction_no_dim var_mean std_mean softmax nn.functional.softmin log_softmax masked.softmax masked.log_softmax
    masked.softmin masked.normalize logsumexp trace norm dist nn.functional.normalize nn.functional.cosine_similarity
    nn.functional.cross_entropy nn.functional.nll_loss nn.functional.layer_norm nn.functional.group_norm
    nn.functional.instance_norm nn.functional.rms_norm nn.functional.batch_norm native_layer_norm native_group_norm
    native_batch_norm _native_batch_norm_legit _batch_norm_with_update renorm linalg.vecdot linalg.norm
    linalg.matrix_norm torch.ops.aten._safe_softmax.default nn.functional.pairwise_distance
    nn.functional.triplet_margin_loss nn.functional.triplet_margin_with_distance_loss
    nn.functional.cosine_embedding_loss nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss
    nn.functional.multilabel_soft_margin_loss nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
    nn.functional.adaptive_avg_pool3d nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.avg_pool3d
    nn.functional.local_response_norm trapz trapezoid cov corrcoef
    """.split()
)

VIEW = frozenset(
    """
    broadcast_to broadcast_tensors chunk unsafe_chunk resolve_conj resolve_neg expand expand_as expand_copy diagonal
    diagonal_copy diagonal_scatter alias_copy as_strided as_strided_copy as_strided_scatter narrow narrow_copy
    view_copy permute permute_copy split unsafe_split split_with_sizes split_with_sizes_copy select select_scatter
    slice slice_scatter tensor_split hsplit vsplit dsplit ravel reshape reshape_as view view_as atleast_1d atleast_2d
    atleast_3d flatten unflatten column_stack stack hstack vstack dstack cat unbind unbind_copy unfold unfold_copy
    movedim squeeze squeeze_copy unsqueeze unsqueeze_copy transpose transpose_copy T H mT mH t t_copy linalg.diagonal
    diag diag_embed diagflat flip fliplr flipud roll rot90 meshgrid block_diag nn.functional.pixel_shuffle
    nn.functional.pixel_unshuffle nn.functional.channel_shuffle fft.fftshift fft.ifftshift view_as_real
    view_as_complex tile repeat
    """.split()
)

INDEX = frozenset(
    """
    gather index_fill index_copy index_select index_add index_reduce _unsafe_masked_index
    _unsafe_masked_index_put_accumulate __getitem__ index_put put take scatter scatter_add scatter_reduce
    take_along_dim nn.functional.embedding nn.functional.interpolate nn.functional.upsample_nearest
    nn.functional.upsample_bilinear nn.functional.unfold masked_scatter repeat_interleave
    nn.functional.grid_sample grid_sampler_2d grid_sampler_3d bucketize searchsorted
    """.split()
)


def category(op) -> str:
    """pointwise, reduction, view, index or other."""
    by_class = {
        "UnaryUfuncInfo": "pointwise",
        "BinaryUfuncInfo": "pointwise",
        "ReductionOpInfo": "reduction",
        "ShapeFuncInfo": "view",
    }
    if type(op).__name__ in by_class:
        return by_class[type(op).__name__]
    full = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
    for name, members in (("pointwise", POINTWISE), ("reduction", REDUCTION), ("view", VIEW), ("index", INDEX)):
        if op.name in members or full in members:
            return name
    return "other"
