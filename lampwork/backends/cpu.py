"""The back end for the CPU: LLVM."""

from __future__ import annotations

from lampwork.backends import exact
from lampwork.backends.backend import Backend, Costs, Kernels, Numerics

CPU = Backend(
    device="cpu",
    is_host=True,
    streams=False,
    library="oneDNN",
    own_memory=False,
    numerics=Numerics(
        accumulates_in_double=True,
        steps_round_once=False,
        single_terms_stay=True,
        norms_sum_inputs=True,
        reserves_deviation=True,
        rounds_before_mean=False,
        folds_in_order=True,
        keeps_rest_of_means=False,
        sums_keep_range=True,
        running_means=True,
        copies_unresampled=False,
        nests_images="large",
        centers_doubles_once=False,
        logit_edges=True,
        limits_select=True,
        rounds_half_quotients=True,
        roots_of_half=False,
        shrinks_by_product=True,
        scales_products=False,
        lerps_subtract=False,
        elu_curves_at_zero=False,
        rounds_sixths=False,
        checks_targets=True,
        layer_norm_vector=0,
        shifts_once=True,
        rows_by_layout=True,
        rounds_numbers=True,
    ),
    kernels=Kernels(
        independent_threads=False,
        asserts=False,
        draws=False,
        stores_in_order=True,
        converts_float8=False,
        scattered_loads=False,
        merges_products=False,
        keeps_layout=False,
        tables=False,
    ),
    costs=Costs(flops_per_byte=8, cheapness=1, fuses_sums=False),
    target="lampwork.codegen.target:host_target_of",
    generate="lampwork.codegen.llvm.generate:generate_native",
    launch="lampwork.runtime.launch.cpu",
    exact=exact.CPU,
)
