"""The back end for NVIDIA's GPUs: Triton."""

from __future__ import annotations

from lampwork.backends import exact
from lampwork.backends.backend import Backend, Costs, Kernels, Numerics

CUDA = Backend(
    device="cuda",
    is_host=False,
    streams=True,
    library="cuDNN",
    own_memory=True,
    numerics=Numerics(
        accumulates_in_double=False,
        steps_round_once=True,
        single_terms_stay=False,
        reserves_deviation=False,
        rounds_before_mean=True,
        folds_in_order=False,
        keeps_rest_of_means=True,
        sums_keep_range=False,
        running_means=False,
        copies_unresampled=True,
        nests_images="all",
        centers_doubles_once=True,
        logit_edges=False,
        limits_select=False,
        rounds_half_quotients=False,
        roots_of_half=True,
        ldexp_converts=False,
        shrinks_by_product=False,
        scales_products=True,
        lerps_subtract=True,
        rounds_sixths=True,
        checks_targets=False,
        layer_norm_vector=4,
        shifts_once=False,
        rows_by_layout=False,
        rounds_numbers=False,
    ),
    kernels=Kernels(
        independent_threads=True,
        asserts=True,
        draws=True,
        stores_in_order=False,
        converts_float8=True,
        scattered_loads=True,
        merges_products=True,
        keeps_layout=True,
        tables=True,
    ),
    costs=Costs(flops_per_byte=150, cheapness=5, fuses_sums=True),
    target="lampwork.codegen.target:cuda_target_of",
    generate="lampwork.codegen.triton.generate:generate_device",
    launch="lampwork.runtime.launch.cuda",
    tuner="lampwork.codegen.triton.tune:Tuner",
    exact=exact.CUDA,
)
