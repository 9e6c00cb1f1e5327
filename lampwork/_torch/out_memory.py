"""Operators of ATen whose `out=` variant leaves the given tensors where they are, with the shape and strides they have.

`out=` may give a tensor other memory, write past its end on the way (`mse_loss.out` makes its result as large as the
operands, then small again), refuse its strides, take them for others (`_softmax.out`), or conjugate it lazily
(`linalg_lu_solve.out`). Planned memory is none of its
business: results beside it would be lost. So only operators that were tried are called with `out=`, on PyTorch's
samples with mixed element types and strides, into storages that end with the result, that go on, and with strides in
reverse order. `python -m tests.ops.out_memory` makes the table, and tests/ops/test_out_memory.py tries it.
"""

from __future__ import annotations

from torch._ops import OpOverload

_KEEPING = """
    _fft_c2c _fft_c2r _fft_r2c _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d _upsample_nearest_exact2d_backward
    _upsample_nearest_exact3d _upsample_nearest_exact3d_backward abs acos acosh adaptive_max_pool2d
    adaptive_max_pool2d_backward add.Tensor addbmm addcdiv addcmul addmm addmv addr all all.dim amax amin aminmax angle
    any any.dim argmax argmin asin asinh atan atan2 atanh avg_pool2d avg_pool2d_backward baddbmm
    binary_cross_entropy_backward bitwise_and.Tensor bitwise_left_shift.Tensor bitwise_not bitwise_or.Tensor
    bitwise_right_shift.Tensor bitwise_xor.Tensor bmm bucketize.Tensor cat ceil cholesky clamp clamp.Tensor
    clamp_max.Tensor clamp_min clamp_min.Tensor complex copysign.Tensor cos cosh cumprod cumsum digamma div.Tensor
    div.Tensor_mode elu elu_backward eq.Scalar eq.Tensor erf erfc erfinv exp exp2 expm1 floor floor_divide fmax fmin
    fmod.Tensor frac frexp.Tensor gather gcd ge.Scalar ge.Tensor gelu gelu_backward glu glu_backward gt.Scalar gt.Tensor
    hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward hardswish hardtanh hardtanh_backward hash_tensor
    heaviside histc histogram.bin_ct huber_loss_backward hypot i0 igamma igammac index.Tensor index_add index_copy
    index_reduce index_select isin.Tensor_Tensor isneginf isposinf kthvalue lcm le.Scalar le.Tensor leaky_relu
    leaky_relu_backward lerp.Scalar lerp.Tensor lgamma linalg_cross linalg_householder_product linalg_ldl_solve
    linalg_vector_norm log log10 log1p log2 log_sigmoid_backward logaddexp logaddexp2 logical_and
    logical_not logical_or logical_xor logit logit_backward lt.Scalar lt.Tensor max max.dim
    max_pool2d_with_indices max_pool2d_with_indices_backward maximum mean.dim median.dim min min.dim minimum mish mm
    mse_loss_backward mul.Tensor multi_margin_loss mvlgamma nan_to_num nanmedian.dim nansum ne.Scalar ne.Tensor neg
    nextafter nll_loss2d_forward nll_loss_backward nll_loss_forward nonzero_static norm.ScalarOpt_dim polar
    polygamma pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prod.dim_int reciprocal reflection_pad1d
    reflection_pad1d_backward reflection_pad2d remainder.Tensor renorm replication_pad1d replication_pad1d_backward
    round round.decimals rsqrt scatter.src scatter.value scatter_add scatter_reduce.two searchsorted.Tensor sgn sigmoid
    sigmoid_backward sign signbit silu silu_backward sin sinc sinh smooth_l1_loss_backward softplus softplus_backward
    softshrink softshrink_backward sort.stable special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0
    special_bessel_y1 special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_entr special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he
    special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
    special_ndtri special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_xlog1py special_zeta sqrt std.correction
    sub.Tensor sum.dim_IntList take tan tanh tanh_backward threshold threshold_backward topk trunc upsample_bicubic2d
    upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d upsample_linear1d_backward upsample_nearest1d
    upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward upsample_nearest3d
    upsample_nearest3d_backward upsample_trilinear3d upsample_trilinear3d_backward var.correction where.self
    xlogy.Tensor
"""

KEEPING = frozenset(f"aten::{name}" if "." in name else f"aten::{name}.default" for name in _KEEPING.split())


def keeps_given_memory(op: OpOverload) -> bool:
    """Whether the `out=` variant of `op` is known to leave the given tensors where they are."""
    return f"{op._schema.name}.{op._overloadname}" in KEEPING
